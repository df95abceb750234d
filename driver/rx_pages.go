package driver

import (
	"iter"

	"cxkit/driver/internal/layout"
	rxpages "cxkit/driver/internal/pages"
)

// poolShape is how the memory of packet buffers is divided: pages for receiving, buffers for the rest.
type poolShape struct {
	pages   int // 0: buffers only
	buffers int
	bytes   int
}

// shapePool divides memory for Config.Buffers frames: a quarter of them is for Get, the others for
// receiving. The pages that the rings need are there in any case.
func (c *Config) shapePool() poolShape {
	if c.RxLayout == RxStack {
		return poolShape{buffers: c.Buffers, bytes: c.Buffers * c.BufferSize}
	}
	s := poolShape{buffers: max(1, c.Buffers/4)}
	perPage := c.framesPerPage()
	kind := c.RxLayout.kind()
	if c.Program != nil {
		kind = layout.Headroom
	}
	need := layout.Need(kind, c.RxRing, c.BufferSize, c.RxPageSize, *c.RxOrder)
	if c.RxPageSize == rxpages.Size64K || c.RxLayout == RxBlocks {
		need += 1 << *c.RxOrder
	}
	s.pages = max((c.Buffers-s.buffers+perPage-1)/perPage, c.MaxChannels*need)
	s.bytes = s.pages*c.RxPageSize + s.buffers*layout.Rounded(c.BufferSize)
	return s
}

// makePages makes the books of the pages at the beginning of mem, and each receive queue's share in them.
func (n *NIC) makePages(mem []byte, count int) (*layout.Shared, []*layout.Queue) {
	c := n.config
	size := c.RxPageSize
	n.memory = &RxMemory{pages: rxpages.New(count*size, size, 1)}
	if c.RxMemory != nil {
		c.RxMemory(n.memory)
	}
	unit := layout.UnitFor(c.BufferSize, size)
	if c.Program != nil {
		unit = min(unit, Headroom)
	}
	shared := layout.NewShared(n.memory.pages, mem[:count*size], unit, c.CheckBuffers)
	var queues []*layout.Queue
	kind := c.RxLayout.kind()
	if c.Program != nil {
		kind = layout.Headroom
	}
	for i := range c.MaxChannels {
		queues = append(queues, layout.NewQueue(shared, layout.Config{
			Kind: kind, Ring: c.RxRing, Size: c.BufferSize, Order: *c.RxOrder,
			Limit: count / c.MaxChannels, Now: c.RxClock, Index: i,
		}))
	}
	return shared, queues
}

// refillPages posts fragments until the ring is full or there is no memory. It reports whether it is full.
func (q *RxQueue) refillPages() bool {
	rq := q.rq
	for rq.Missing() > 0 {
		n := q.pages.Fill(q.fragments[:min(int(rq.Missing()), len(q.fragments))])
		if n == 0 {
			if !q.pages.Want(q.nudged) {
				continue // some came since
			}
			q.count.noBuffer.Add(1)
			return false
		}
		q.post(q.fragments[:n])
	}
	return true
}

// ringChanged has the layout know the size of the queue's ring. Pages of the old one come back as they do.
func (q *RxQueue) ringChanged() {
	if q.pages != nil {
		q.pages.Resize(q.Ring())
	}
}

// RxMemory is what receive pages are taken from. Any goroutine may call it.
type RxMemory struct{ pages *rxpages.Allocator }

// RxMemory is the memory that receive pages are taken from; nil if there are none.
func (n *NIC) RxMemory() *RxMemory { return n.memory }

// Fragment makes a share, 0 to 1, of the free blocks of 2^order pages unavailable, as they are on a host
// that has run for long: one page in each is taken. It returns how many blocks there were and are. Order is
// 0 to 10.
func (m *RxMemory) Fragment(order int, share float64) (had, left int) {
	return m.pages.Fragment(min(max(order, 0), rxpages.MaxOrder), min(max(share, 0), 1))
}

// Heal gives back what Fragment took.
func (m *RxMemory) Heal() { m.pages.Heal() }

// Fail has a share, 0 to 1, of allocations of at least an order fail from now on: order 0 and 1 is no memory
// at all, 0 ends it.
func (m *RxMemory) Fail(order int, rate float64) {
	m.pages.Inject(rxpages.Failure{Order: order, Rate: rate})
}

// Unfit says which pages the host would rather have elsewhere from now on, those of a far memory node or of its
// reserves: receive queues use those that they take only once. It is called with a lock held, and must not
// call the RxMemory. Nil, as at first, is none.
func (m *RxMemory) Unfit(unfit func(page int) bool) { m.pages.SetUnfit(unfit) }

// Free is how many pages are free, of how many.
func (m *RxMemory) Free() (free, all int) { return m.pages.FreePagesLeft(), m.pages.Pages() }

// Available is how many blocks of 2^order pages could be taken.
func (m *RxMemory) Available(order int) int {
	return m.pages.Available(min(max(order, 0), rxpages.MaxOrder))
}

// RxPageStats are the pages of a receive queue. All but those that say 'now' count since Open.
type RxPageStats struct {
	Recycled uint64 // pages, of RxPageFlip halves, that were free when their turn came
	Missed   uint64 // pages that were not, and were given away
	Fresh    uint64 // pages taken from the allocator, or again of those in hand
	Rescued  uint64 // pages that were found out of turn when there was no other
	// Failed are times that there was no page, Limited those of them that the queue had its share.
	Failed, Limited uint64
	// Unfit are pages given back after one use (RxMemory.Unfit).
	Unfit uint64
	// OrderDrops and OrderClimbs are changes of the order of allocations.
	OrderDrops, OrderClimbs uint64

	Order  int // of allocations, now
	Held   int // pages that the queue has now, in the ring, with the application, and in hand
	Peak   int // most that it had
	Pooled int // pages now that it means to use again: the ring and the quarantine
	Idle   int // pages in hand now
	// InFlight are frames' places that the card or the application has now.
	InFlight int
}

// PageStats returns the queue's pages; it is zero with RxStack. The owner calls it.
func (q *RxQueue) PageStats() RxPageStats {
	if q.pages == nil {
		return RxPageStats{}
	}
	q.pages.Collect()
	s := q.pages.Stats()
	return RxPageStats{
		Recycled: s.Recycled, Missed: s.Missed, Fresh: s.Fresh, Rescued: s.Rescued, Failed: s.Failed, Limited: s.Limited,
		Unfit: s.Unfit, OrderDrops: s.Drops, OrderClimbs: s.Climbs, Order: s.Order, Held: s.Held, Peak: s.Peak, Pooled: s.Pooled,
		Idle: s.Idle, InFlight: int(s.InFlight),
	}
}

// Page is the number of the page that a packet's frame lies on, -1 if it lies on none that receive queues
// take. Whoever has the packet calls it.
func (n *NIC) Page(p *Packet) int {
	if n.memory == nil || p.buffer == 0 || p.buffer-1 >= n.pool.Fragments() {
		return -1
	}
	return int(p.buffer-1) * n.pool.Unit / n.config.RxPageSize
}

// pageFrames is how many frames all pages hold.
func (n *NIC) pageFrames() int {
	if n.memory == nil {
		return 0
	}
	return n.memory.pages.Pages() * n.config.framesPerPage()
}

// Pages are the numbers of the pages that a packet's fragments lie on, one for each, -1 for those on none.
// Whoever has the packet calls it.
func (n *NIC) Pages(p *Packet) iter.Seq[int] {
	return func(yield func(int) bool) {
		if !yield(n.Page(p)) || p.more == nil {
			return
		}
		for i := range p.more.rest {
			if !yield(n.Page(&p.more.rest[i])) {
				return
			}
		}
	}
}
