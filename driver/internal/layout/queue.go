package layout

import (
	"fmt"
	"time"

	"cxkit/driver/internal/pages"
)

// RecoverPeriod is how often the order of allocations rises again, by one.
const RecoverPeriod = 250 * time.Millisecond

// DefaultOrder is what allocations try for: 32 KiB in pages of 4 KiB, as much as Linux's page allocator
// has costless (PAGE_ALLOC_COSTLY_ORDER).
const DefaultOrder = 3

// Config is how a queue uses pages.
type Config struct {
	Kind Kind
	Ring int // slots
	Size int // bytes of a fragment at least
	// Order is the highest order of allocations, 0 to pages.MaxOrder; of Striding, the only one.
	Order int
	// Limit is the most pages that the queue may have, those with the application among them.
	Limit int
	// Now is the time; only differences count.
	Now func() time.Duration
	// Index is the queue's number among those that share the pages.
	Index int
}

// Stats are what a queue's layout has done.
type Stats struct {
	Recycled uint64 // pages, of Flip halves, used again as they were
	Missed   uint64 // pages that were still in use when their turn came, and were given away
	Fresh    uint64 // pages taken from those in hand or the allocator
	Rescued  uint64 // pages found free further on in the quarantine when there was no other
	Searched uint64 // places looked at for that
	// Failed are times that there was no page at all, Limited those of them that Limit caused.
	Failed, Limited uint64
	// Drops and Climbs are changes of the order of allocations.
	Drops, Climbs uint64
	// Unfit are pages given back after one use, because the host wants them elsewhere.
	Unfit uint64
	// Violations are fragments released that nobody had.
	Violations uint64

	Order  int // of allocations now
	Held   int // pages that the queue has now
	Peak   int // most that it ever had
	Pooled int // pages that the layout means to use again
	Idle   int // pages in hand that nobody uses
	// InFlight are fragments that the ring or the application has.
	InFlight uint32
}

// Queue is the pages of one receive queue. Its owner calls it, but for Give.
type Queue struct {
	shared *Shared
	config Config
	layout layout
	idle   []uint32 // single pages in hand
	order  int
	tick   int64 // RecoverPeriods, when the order was last looked at
	freed  bool  // something was released since the last search for a free page
	stats  Stats

	given, back uint32 // fragments; their difference is right when they wrap

	inbox inbox
}

// layout is how the fragments of a ring lie on pages.
type layout interface {
	// fill writes the fragments of the next slots and returns how many there are.
	fill(dst []uint32) int
	// retire drops the references that the layout has of its own.
	retire()
	// pooled is how many pages those are.
	pooled() int
}

// maxIdle is how many single pages a queue keeps in hand.
const maxIdle = 256

// NewQueue makes a queue without pages. It panics if the configuration makes no sense. Headroom needs units of
// 256 bytes.
func NewQueue(s *Shared, c Config) *Queue {
	if c.Ring < 1 || c.Size < 1 || c.Size > s.pages.PageSize() || c.Order < 0 || c.Order > pages.MaxOrder || c.Limit < 1 || c.Now == nil ||
		c.Kind == Striding && PerBlock(c.Size, s.pages.PageSize(), c.Order) > MaxPerBlock {
		panic(fmt.Sprintf("layout: queue %+v on pages of %d bytes", c, s.pages.PageSize()))
	}
	q := &Queue{shared: s, config: c, order: c.Order, freed: true, idle: make([]uint32, 0, maxIdle+1<<pages.MaxOrder)}
	q.inbox.prepare()
	q.tick = q.ticks()
	q.layout = q.newLayout(c.Kind)
	return q
}

// Fill takes fragments for the next slots of the ring and returns how many there are: fewer than dst has
// room for if there is no memory.
func (q *Queue) Fill(dst []uint32) int {
	if q.inbox.pending.Load() {
		q.Collect()
	}
	n := q.layout.fill(dst)
	q.given += uint32(n)
	if q.shared.check {
		q.shared.noteTaken(dst[:n])
	}
	return n
}

// Release takes fragments back that the ring or the application had. They are the queue's own.
func (q *Queue) Release(list []uint32) {
	if q.shared.check {
		q.shared.noteFree(list)
	}
	q.release(list)
}

func (q *Queue) release(list []uint32) {
	s := q.shared
	known := s.info
	for _, f := range list {
		page := f >> s.shift
		if int(page) >= len(known) {
			q.stats.Violations++
			continue
		}
		b := &known[page]
		if b.order != 0 {
			page &^= 1<<(b.order&15) - 1
			b = &known[page]
		}
		if b.refs == 0 {
			q.stats.Violations++
			continue
		}
		b.refs--
		if b.busy != 0 {
			b.busy &^= 1 << (f >> (s.shift - 1) & 1)
		}
		if b.refs == 0 {
			q.discard(page)
		}
	}
	q.back += uint32(len(list))
	q.freed = true
}

// Absorb releases the queue's own fragments of a list of free buffers. The others it leaves in front, and
// returns how many they are. The owner calls it.
func (q *Queue) Absorb(list []uint32) (others int) {
	s := q.shared
	if s.check {
		return q.absorbChecked(list)
	}
	known, shift, me := s.info, s.shift&31, uint16(q.config.Index)
	for i := 0; i < len(list); {
		f := list[i]
		i++
		page := f >> shift
		if uint(page) >= uint(len(known)) {
			list[others] = f
			others++
			continue
		}
		b := &known[page]
		if b.home == me && b.order|b.busy == 0 {
			// Frames are mostly released as they came: neighbours share the page.
			n := uint16(1)
			for i < len(list) && list[i]>>shift == page {
				n++
				i++
			}
			if n < b.refs {
				b.refs -= n
				continue
			}
			i -= int(n) - 1
		}
		if s.Home(f) != q.config.Index {
			list[others] = f
			others++
			continue
		}
		q.release(list[i-1 : i])
		q.back-- // counted below
	}
	q.back += uint32(len(list) - others)
	q.freed = true
	return others
}

func (q *Queue) absorbChecked(list []uint32) (others int) {
	for i, f := range list {
		if f < q.shared.Fragments() && q.shared.Home(f) == q.config.Index {
			q.Release(list[i : i+1])
			continue
		}
		list[others] = f
		others++
	}
	return others
}

// drop takes n references from a page.
func (q *Queue) drop(page uint32, n int) {
	b := &q.shared.info[page]
	if b.refs -= uint16(n); b.refs == 0 {
		q.discard(page)
	}
}

// discard keeps a page, or a block, that nobody refers to in hand, or frees it.
func (q *Queue) discard(page uint32) {
	switch order := q.shared.info[page].order; {
	case order == once:
		q.stats.Unfit++
		q.freeBlock(page, 0)
		return
	case order > 0:
		q.freeBlock(page, int(order))
		return
	}
	q.idle = append(q.idle, page)
	if len(q.idle) > maxIdle+maxIdle/2 {
		q.surrender(maxIdle / 2)
	}
}

// surrender frees pages in hand but the newest so many.
func (q *Queue) surrender(keep int) {
	n := max(0, len(q.idle)-keep)
	q.shared.pages.FreePages(q.idle[:n])
	q.idle = q.idle[:copy(q.idle, q.idle[n:])]
	q.stats.Held -= n
}

func (q *Queue) freeBlock(page uint32, order int) {
	for i := range uint32(1) << order {
		q.shared.info[page+i].order = 0
	}
	q.shared.pages.Free(int(page), order)
	q.stats.Held -= 1 << order
}

// Switch changes the layout. Fragments in the ring and with the application go on as they are; their pages
// are freed when the last one is released.
func (q *Queue) Switch(k Kind) {
	q.layout.retire()
	q.config.Kind = k
	q.layout = q.newLayout(k)
}

// Resize is Switch for a ring of another size.
func (q *Queue) Resize(ring int) {
	q.config.Ring = ring
	q.Switch(q.config.Kind)
}

// WithHeadroom tells whether a fragment of the queue's has Headroom's room in front, whatever the layout is by now.
func (q *Queue) WithHeadroom(fragment uint32) bool {
	return q.shared.info[q.shared.block(fragment)].head
}

// Kind is the layout in use.
func (q *Queue) Kind() Kind { return q.config.Kind }

// Retire ends the queue's use of pages: all that nobody refers to are freed. It returns how many pages are
// left, because the ring or the application has fragments of them.
func (q *Queue) Retire() (left int) {
	q.Collect()
	q.layout.retire()
	q.layout = q.newLayout(q.config.Kind)
	q.surrender(0)
	return q.stats.Held
}

// InFlight is how many fragments the ring and the application have.
func (q *Queue) InFlight() uint32 { return q.given - q.back }

// Stats returns what was done so far. The owner calls it.
func (q *Queue) Stats() Stats {
	s := q.stats
	s.Order, s.Pooled, s.Idle, s.InFlight = q.Order(), q.layout.pooled(), len(q.idle), q.InFlight()
	return s
}
