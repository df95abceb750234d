package driver

import (
	"fmt"
	"math/bits"
	"time"

	"cxkit/driver/internal/layout"
	rxpages "cxkit/driver/internal/pages"
)

// RxLayout is where on pages the frames of a receive ring go, and when a page is used again.
type RxLayout uint8

const (
	// RxLayoutDefault is RxHalves, but RxStack for striding queues, which copy frames, and for buffers
	// that are larger than a page.
	RxLayoutDefault RxLayout = iota
	// RxHalves has neighbouring slots share a page; a received page goes into quarantine, twice the ring in
	// all, and is used again when the application has released it by the time that its turn comes
	// ("mlx4: Better use of order-0 pages in RX path", 2017).
	RxHalves
	// RxPagePerSlot gives every frame a page of its own.
	RxPagePerSlot
	// RxPageFlip has a page for each slot and uses its halves in turn, as mlx4 does up to Linux 5.11.
	RxPageFlip
	// RxBlocks fills blocks of pages of one order, frame by frame, as striding receive queues lie.
	RxBlocks
	// RxStack has no pages: all queues take buffers of one stack, the one released last first.
	RxStack
)

// layoutNames is never assigned to.
var layoutNames = [...]string{"default", "halves", "page per slot", "page flip", "blocks", "stack"}

func (l RxLayout) String() string { return name(layoutNames[:], int(l)) }

// kind is the layout as its package calls it.
func (l RxLayout) kind() layout.Kind {
	switch l {
	case RxPagePerSlot:
		return layout.PerSlot
	case RxPageFlip:
		return layout.Flip
	case RxBlocks:
		return layout.Striding
	}
	return layout.Halves
}

// RxPages is how received frames lie on pages. The zero value is what is best.
type RxPages struct {
	// RxLayout is chosen for all receive queues.
	RxLayout RxLayout
	// RxPageSize is the bytes of a page: 4096 or 65,536; 0 means 4096.
	RxPageSize int
	// RxOrder is the highest order of allocations, in which 2^order pages are taken at once and then used
	// one by one; nil means that of 32 KiB. Where there is no such block the order falls at once, and rises
	// by one every 250 ms. RxBlocks needs blocks of just this order.
	RxOrder *int
	// RxMemory, if not nil, is called by Open with the memory that pages are taken from, before any is.
	// Experiments fragment it.
	RxMemory func(m *RxMemory)
	// RxClock is the time for the 250 ms; nil means the system's. Only differences count.
	RxClock func() time.Duration
}

// Receiving is what becomes of received frames before the application sees them.
type Receiving struct {
	// GRO merges TCP and UDP segments of a flow into one packet, by the rules of Linux's generic receive
	// offload: Packet.Fragments. A packet is done when no further frame is there, or it is full: 64 KiB or
	// 45 segments. Any Packet with more than one segment keeps all of their buffers.
	GRO bool
	// GROTimeout is how long packets are held for further segments when no frame is there, over calls of
	// Poll; 0: not at all.
	GROTimeout time.Duration
	// Program is loaded on every receive queue at first: RxQueue.SetProgram changes it. It makes every
	// frame lie on a page of its own with Headroom in front, and each receive queue have a send queue of its
	// own.
	Program Program
}

// preferredBlock is what allocations try for (mlx4 MLX4_EN_ALLOC_PREFER_ORDER).
const preferredBlock = 32 << 10

// completePages checks the choice of pages and fills in what was left zero.
func (c *Config) completePages() error {
	p := &c.RxPages
	p.RxPageSize = orDefault(p.RxPageSize, rxpages.Size4K)
	if p.RxPageSize != rxpages.Size4K && p.RxPageSize != rxpages.Size64K {
		return fmt.Errorf("config: pages of %d bytes: want %d or %d", p.RxPageSize, rxpages.Size4K, rxpages.Size64K)
	}
	if p.RxOrder == nil {
		p.RxOrder = new(max(0, bits.Len(uint(preferredBlock/p.RxPageSize))-1))
	}
	p.RxOrder = new(*p.RxOrder) // the caller may change theirs
	if *p.RxOrder < 0 || *p.RxOrder > rxpages.MaxOrder {
		return fmt.Errorf("config: order %d: want 0 to %d", *p.RxOrder, rxpages.MaxOrder)
	}
	fits := layout.Rounded(c.BufferSize) <= p.RxPageSize
	switch {
	case p.RxLayout > RxStack:
		return fmt.Errorf("config: receive layout %d", p.RxLayout)
	case p.RxLayout == RxLayoutDefault && (c.Striding || !fits):
		p.RxLayout = RxStack
	case p.RxLayout == RxLayoutDefault:
		p.RxLayout = RxHalves
	case p.RxLayout != RxStack && c.Striding:
		return fmt.Errorf("config: receive layout %v with striding queues, which copy every frame: want %v", p.RxLayout, RxStack)
	case p.RxLayout == RxBlocks && layout.PerBlock(c.BufferSize, p.RxPageSize, *p.RxOrder) > layout.MaxPerBlock:
		return fmt.Errorf("config: blocks of %d pages of %d bytes hold %d buffers of %d: want at most %d", 1<<*p.RxOrder, p.RxPageSize,
			layout.PerBlock(c.BufferSize, p.RxPageSize, *p.RxOrder), c.BufferSize, layout.MaxPerBlock)
	case p.RxLayout != RxStack && !fits:
		return fmt.Errorf("config: receive layout %v with buffers of %d bytes: they do not fit into pages of %d", p.RxLayout, c.BufferSize, p.RxPageSize)
	}
	switch {
	case c.GROTimeout < 0 || c.GROTimeout > 0 && !c.GRO:
		return fmt.Errorf("config: GRO time-out %v, GRO %v", c.GROTimeout, c.GRO)
	case c.Program != nil && (p.RxLayout == RxStack || layout.Rounded(c.BufferSize)+Headroom > p.RxPageSize):
		return fmt.Errorf("config: program with receive layout %v, buffers of %d bytes and pages of %d: it wants pages with %d bytes in front of a buffer", p.RxLayout, c.BufferSize, p.RxPageSize, Headroom)
	}
	if p.RxClock == nil {
		start := time.Now()
		p.RxClock = func() time.Duration { return time.Since(start) }
	}
	return nil
}

// framesPerPage is how many frames the layout has on a page.
func (c *Config) framesPerPage() int {
	size := layout.Rounded(c.BufferSize)
	if c.RxLayout == RxPagePerSlot || c.Program != nil {
		return 1
	}
	if c.RxLayout == RxBlocks {
		size = 1 << bits.Len(uint(size-1))
	}
	return max(1, c.RxPageSize/size)
}
