package stats

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"cxkit/stats"
)

// DefaultInterval is the least time between two refreshes that readers ask for.
const DefaultInterval = 200 * time.Millisecond

// SourceConfig is what a Source puts together.
type SourceConfig struct {
	Card *Card
	// Interval is the least time between two refreshes that Quick asks for; 0 has each reading ask. Only one
	// refresh waits at a time in any case.
	Interval time.Duration
	// Totals and Queues append the driver's own counters: those that come first, and those of queues, which
	// come last. Several goroutines may call them at a time.
	Totals, Queues func(*stats.Snapshot)
	// Arm has firmware announce (Notify) the next change of a counter; nil if it can't.
	Arm func(context.Context) error
}

// Source is a NIC's counters. Any goroutine may call its methods.
type Source struct {
	config SourceConfig
	epoch  time.Time
	latest atomic.Pointer[stats.Snapshot]

	wanted atomic.Uint32   // refreshes asked for that have not begun
	began  [2]atomic.Int64 // when the latest refresh of link groups, and of all, began: after epoch, in ns
	wake   chan struct{}
	rounds [2]atomic.Uint64

	// monitored: firmware says when the counters move that link groups are read for.
	monitored atomic.Bool

	closed atomic.Bool

	turn   chan struct{} // holds a token while a refresh runs
	fullAt time.Time     // when the latest refresh of all groups that worked began; guarded by turn
}

// Bits of wanted.
const (
	wantLink uint32 = 1 << iota
	wantAll
	wantOwn   // the driver's own counters only
	wantEvent // firmware said that a counter moved
)

// NewSource makes a source. Nothing is read yet: counters of the card are zero and their groups have no
// time. Work serves Quick's requests.
func NewSource(c SourceConfig) *Source {
	s := &Source{config: c, epoch: time.Now(), wake: make(chan struct{}, 1), turn: make(chan struct{}, 1)}
	for i := range s.began {
		s.began[i].Store(never)
	}
	s.publish()
	return s
}

// never is earlier than any refresh.
const never = -1 << 62

// Quick returns the counters as they were read last, and asks for a refresh of the link groups if the
// interval has passed. It does not wait, and allocates nothing. The snapshot is shared.
func (s *Source) Quick() stats.Snapshot {
	latest := s.latest.Load() // before asking: what is asked for may be there at once
	if s.monitored.Load() {
		s.ask(wantOwn, linkGroups)
	} else {
		s.ask(wantLink, linkGroups)
	}
	return *latest
}

// QuickAll is Quick, but what it asks for is all groups.
func (s *Source) QuickAll() stats.Snapshot {
	latest := s.latest.Load()
	s.ask(wantAll, allGroups)
	return *latest
}

// Notify asks for a refresh of the link groups: firmware said that one of their counters moved. Event
// handlers may call it.
func (s *Source) Notify() { s.raise(wantEvent) }

func (s *Source) ask(want uint32, w which) {
	if s.wanted.Load()&want != 0 {
		return // one is on its way
	}
	if s.config.Interval > 0 && int64(time.Since(s.epoch))-s.began[w].Load() < int64(s.config.Interval) {
		return
	}
	s.raise(want)
}

func (s *Source) raise(want uint32) {
	if s.wanted.Or(want)&want != 0 {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Work refreshes what is asked for until ctx ends.
func (s *Source) Work(ctx context.Context) {
	again := time.NewTimer(time.Hour)
	defer again.Stop()
	for {
		select {
		case <-s.wake:
		case <-again.C:
		case <-ctx.Done():
			return
		}
		select {
		case s.turn <- struct{}{}:
		case <-ctx.Done():
			return
		}
		if wait := s.work(ctx); wait > 0 {
			again.Reset(wait)
		}
		<-s.turn
	}
}

// work does what is wanted, or says how long that has to wait. The caller has the turn.
func (s *Source) work(ctx context.Context) (wait time.Duration) {
	if s.closed.Load() {
		return 0
	}
	want := s.wanted.Load()
	if want&wantEvent != 0 {
		// Firmware may have something to say all the time: it is asked again once an interval.
		since := time.Duration(int64(time.Since(s.epoch)) - s.began[linkGroups].Load())
		if wait := s.config.Interval - since; wait > 0 && want == wantEvent {
			return wait
		}
		s.wanted.And(^wantEvent)
		// Before the counters are read: what moves from here on is announced.
		if s.config.Arm(ctx) != nil {
			s.monitored.Store(false)
		}
		want |= wantLink
	}
	switch {
	case want&wantAll != 0:
		_ = s.refresh(ctx, allGroups) // stale groups are named in the snapshot
	case want&wantLink != 0:
		_ = s.refresh(ctx, linkGroups)
	case want != 0:
		s.begin(linkGroups)
		s.publish()
	}
	return 0
}

// Full reads all groups and returns the counters when it has. Groups that could not be read are in
// Snapshot.Stale; the error says why. ctx bounds it. Callers at the same time share a reading.
func (s *Source) Full(ctx context.Context) (stats.Snapshot, error) {
	called := time.Now()
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return *s.latest.Load(), ctx.Err()
	}
	defer func() { <-s.turn }()
	if s.closed.Load() {
		s.publish()
		return s.stale(), ErrClosed
	}
	if s.fullAt.After(called) {
		return *s.latest.Load(), nil
	}
	err := s.refresh(ctx, allGroups)
	return *s.latest.Load(), err
}

// ErrClosed: the source has been closed.
var ErrClosed = errors.New("statistics are closed")

// Close ends refreshes: when it returns nil no command of theirs is under way, and none will be. What the driver
// has counted by then is what readers get from then on.
func (s *Source) Close(ctx context.Context) error {
	s.closed.Store(true)
	select {
	case s.turn <- struct{}{}:
		s.publish()
		<-s.turn
		return nil
	case <-ctx.Done():
		return fmt.Errorf("statistics: %w", ctx.Err())
	}
}

// Last is the counters without asking the card: of a NIC that is closed. All groups are stale.
// Like all readings it is published: Quick is not behind it.
func (s *Source) Last() stats.Snapshot {
	select {
	case s.turn <- struct{}{}:
		s.publish()
		<-s.turn
	default: // who has the turn publishes
	}
	return s.stale()
}

// stale is what was read last, all groups stale.
func (s *Source) stale() stats.Snapshot {
	x := *s.latest.Load()
	x.Stale = s.config.Card.names()
	return x
}

// refresh reads groups. The caller has the turn.
func (s *Source) refresh(ctx context.Context, w which) error {
	began := s.begin(w)
	s.rounds[w].Add(1)
	x := s.head()
	err := s.config.Card.read(ctx, w, s.closed.Load)
	s.finish(&x)
	s.latest.Store(&x)
	if err == nil && w == allGroups {
		s.fullAt = began
	}
	return err
}

// begin notes that a refresh begins: from here on nobody asks for it before the interval has passed, and who
// asks wants a later one.
func (s *Source) begin(w which) time.Time {
	began := time.Now()
	at := int64(began.Sub(s.epoch))
	s.began[linkGroups].Store(at)
	done := wantLink | wantOwn
	if w == allGroups { // link groups are among them
		s.began[allGroups].Store(at)
		done |= wantAll
	}
	s.wanted.And(^done)
	return began
}

// publish makes a snapshot for which the card is not asked.
func (s *Source) publish() {
	x := s.head()
	s.finish(&x)
	s.latest.Store(&x)
}

// head is the part of a snapshot that is read before the card's counters: the card counts a frame before
// the driver does.
func (s *Source) head() (x stats.Snapshot) {
	if old := s.latest.Load(); old != nil {
		x.Counters = make([]stats.Counter, 0, len(old.Counters)+8)
		x.Groups = make([]stats.Group, 0, len(old.Groups))
	}
	s.config.Totals(&x)
	return x
}

func (s *Source) finish(x *stats.Snapshot) {
	s.config.Card.appendTo(x)
	s.config.Queues(x)
	if old := s.latest.Load(); old != nil {
		neverFall(old.Counters, x.Counters)
	}
	x.Time = time.Now()
}

// neverFall keeps differences of counters from falling: the driver's own are read one after the other while
// their writers go on. Both lists have the same order; each may lack some of the other.
func neverFall(old, now []stats.Counter) {
	j := 0
	for i := range now {
		c := &now[i]
		k := j
		for k < len(old) && old[k].Name != c.Name {
			k++
		}
		if k == len(old) {
			continue // a new one
		}
		if !stats.Gauge(c.Name) {
			c.Value = max(c.Value, old[k].Value)
		}
		j = k + 1
	}
}

// Monitored says that firmware announces changes: Quick asks for the driver's own counters only from here on.
func (s *Source) Monitored() { s.monitored.Store(true) }

// Rounds is how many refreshes of the link groups there have been, and how many of all groups.
func (s *Source) Rounds() (link, all uint64) {
	return s.rounds[linkGroups].Load(), s.rounds[allGroups].Load()
}

// Inherit makes the counters go on from where those of an earlier source of the same function ended, which is
// not used any more. own does the same for the driver's own counters.
func (s *Source) Inherit(old *Source, own func()) {
	s.turn <- struct{}{} // a refresh that Notify asked for may run
	own()
	s.config.Card.inherit(old.config.Card)
	s.publish()
	<-s.turn
}
