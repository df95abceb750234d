package stats

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"cxkit/driver/internal/cmdif"
	"cxkit/prm"
	"cxkit/stats"
)

// Config is what a Card reads and with what.
type Config struct {
	Exec       cmdif.Executor
	CounterSet uint8 // queue counters of the receive queues; 0 if there are none
	LocalPort  uint8

	// Capabilities of the virtual NIC's environment counters, and of the loopback counters.
	SteerMissed, InternalOOB, Oversize bool
	Loopback                           bool

	// Port tells that the function reads its port's counters; a virtual function may not.
	Port bool
	// PortFeatures and BusFeatures say which of the optional counters of port and bus there are.
	PortFeatures prm.PCAMFeatures
	BusFeatures  prm.MCAMFeatures

	// Represents is the vport whose counters are all that is read, 0 for the function itself.
	Represents uint16

	// Events counts what the card said of its port's module; nil: not counted.
	Events *ModuleEvents
}

// Card reads the counters that the card keeps. Any goroutine may call its methods; a Source has one
// reading at a time.
type Card struct {
	groups []group

	mu   sync.Mutex // guards kept; never held during a command
	kept []kept
}

// group is a set of counters that is read together.
type group struct {
	name     string
	link     bool // an interface's own counters are made of it
	commands int  // that a reading takes
	fields   []field
	hides    bool // what there is depends on how the port is set up
	// read fills in the fields' values, and says which are hidden.
	read func(ctx context.Context, v *values) error
}

// field is one counter of a group.
type field struct {
	name string
	bits uint // 32 or 64: where it wraps in the device
}

// values are a reading of a group.
type values struct {
	raw    []uint64
	hidden []bool
}

// kept is what is remembered of a group.
type kept struct {
	last   values   // as the card had them at the last reading
	totals []uint64 // what is shown: grows whatever the card does
	at     time.Time
	stale  bool // the latest reading failed
}

// NewCard makes the list of groups, in ethtool's order (reference counters; Linux en_stats.c,
// mlx5e_nic_stats_grps).
func NewCard(c Config) *Card {
	r := reader{c}
	k := &Card{groups: r.groups()}
	k.kept = make([]kept, len(k.groups))
	for i, g := range k.groups {
		n := len(g.fields)
		k.kept[i] = kept{last: values{make([]uint64, n), make([]bool, n)}, totals: make([]uint64, n)}
		if g.hides { // until the card has said which there are
			hide(k.kept[i].last.hidden)
		}
	}
	return k
}

// which chooses groups.
type which uint8

const (
	linkGroups which = iota
	allGroups
)

// read reads groups, until over says that there is no use any more. One that cannot be read keeps its last
// values and is stale; the error says why.
func (k *Card) read(ctx context.Context, w which, over func() bool) error {
	var errs []error
	for i := range k.groups {
		if over() {
			return ErrClosed
		}
		g := &k.groups[i]
		if w == linkGroups && !g.link {
			continue
		}
		v := values{make([]uint64, len(g.fields)), make([]bool, len(g.fields))}
		if err := g.read(ctx, &v); err != nil {
			errs = append(errs, fmt.Errorf("read %s counters: %w", g.name, err))
			k.mu.Lock()
			k.kept[i].stale = true
			k.mu.Unlock()
			continue
		}
		k.keep(i, v)
	}
	return errors.Join(errs...)
}

// keep adds to group i's totals what its counters have grown by.
func (k *Card) keep(i int, v values) {
	k.mu.Lock()
	defer k.mu.Unlock()
	g, old := &k.groups[i], &k.kept[i]
	for j, f := range g.fields {
		before, now := old.last.raw[j], v.raw[j]
		switch {
		case stats.Gauge(f.name):
			old.totals[j] = now
		case f.bits == 32:
			old.totals[j] += uint64(uint32(now) - uint32(before))
		case now >= before:
			old.totals[j] += now - before
		default: // the card has started from zero: a reset, or somebody cleared it
			old.totals[j] += now
		}
	}
	old.last, old.at, old.stale = v, time.Now(), false
}

// appendTo appends the counters as last read, the groups, and which of them are stale.
func (k *Card) appendTo(s *stats.Snapshot) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range k.groups {
		g, old := &k.groups[i], &k.kept[i]
		s.Groups = append(s.Groups, stats.Group{Name: g.name, Read: old.at, Commands: g.commands, Link: g.link})
		if old.stale {
			s.Stale = append(s.Stale, g.name)
		}
		for j, f := range g.fields {
			if !old.last.hidden[j] {
				s.Add(f.name, old.totals[j])
			}
		}
	}
}

// names are those of all groups.
func (k *Card) names() (names []string) {
	for _, g := range k.groups {
		names = append(names, g.name)
	}
	return names
}

// inherit makes k go on from where old was: the same function, opened again. Neither is being read. Queue
// counters are a new set, which counts from zero; what else a reset has put back to zero is noticed when it
// is read.
func (k *Card) inherit(old *Card) {
	old.mu.Lock()
	defer old.mu.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range k.groups {
		for j := range old.groups {
			if k.groups[i].name != old.groups[j].name || len(k.groups[i].fields) != len(old.groups[j].fields) {
				continue
			}
			copy(k.kept[i].totals, old.kept[j].totals)
			if k.groups[i].name != queueGroup {
				copy(k.kept[i].last.raw, old.kept[j].last.raw)
			}
			copy(k.kept[i].last.hidden, old.kept[j].last.hidden)
		}
	}
}
