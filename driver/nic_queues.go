package driver

import (
	"context"
	"errors"
	"fmt"
	"math/bits"

	"cxkit/dma"
	"cxkit/driver/internal/event"
	"cxkit/driver/internal/queue"
	"cxkit/driver/internal/rxpool"
	"cxkit/prm"
)

// checkPlane compares the configuration with what the card can do.
func (n *NIC) checkPlane(context.Context) error {
	c, g := n.config, &n.base.general
	log := func(v int) int { return bits.Len(uint(v)) - 1 }
	switch {
	case len(n.base.completions) == 0:
		return errors.New("no completion event queue")
	case log(c.RxRing) > int(g.LogMaxWQSz), log(c.TxRing) > int(g.LogMaxWQSz):
		return fmt.Errorf("rings of %d and %d entries: the card takes at most %d", c.RxRing, c.TxRing, 1<<g.LogMaxWQSz)
	case log(c.RxRing) > int(g.LogMaxCQSz), log(2*c.TxRing) > int(g.LogMaxCQSz):
		return fmt.Errorf("rings of %d and %d entries need larger completion queues than the card's %d", c.RxRing, c.TxRing, 1<<min(g.LogMaxCQSz, 31))
	case c.MaxChannels > 1<<g.LogMaxRQ, c.MaxChannels > 1<<g.LogMaxSQ, 2*c.MaxChannels > 1<<g.LogMaxCQ:
		return fmt.Errorf("%d queues: the card has %d receive, %d send and %d completion queues", c.MaxChannels, 1<<g.LogMaxRQ, 1<<g.LogMaxSQ, 1<<g.LogMaxCQ)
	}
	return n.checkOffloads()
}

// makePool makes the packet buffers.
func (n *NIC) makePool(context.Context) error {
	c := n.config
	shape := c.shapePool()
	arena, err := n.arena("packet buffers", shape.bytes)
	if err != nil {
		return err
	}
	n.fillPool(arena.Region(0, arena.Size()), shape)
	return nil
}

// fillPool divides the memory of packet buffers.
func (n *NIC) fillPool(memory dma.Region, shape poolShape) {
	c := n.config
	config := rxpool.Config{
		Memory: memory, Size: c.BufferSize, Count: shape.buffers, Caches: 2 * c.MaxChannels, Check: c.CheckBuffers,
	}
	if shape.pages > 0 {
		config.Fragments, n.pages = n.makePages(memory.Bytes, shape.pages)
		config.Pages = n.pages
	}
	n.pool = rxpool.New(config)
}

// makeShared makes what all queues share: the way out and the counters of frames that found no buffer.
func (n *NIC) makeShared(ctx context.Context) error {
	tis, err := n.base.create(ctx, &prm.CreateTISIn{Context: prm.TISContext{TransportDomain: n.base.transportDomain}}, &prm.CreateTISOut{})
	if err != nil {
		return fmt.Errorf("create TIS: %w", err)
	}
	n.tis = tis.Number
	if err := n.forgive("time stamps in place of check sequences (PCMR)", n.uncoverFCS(ctx)); err != nil {
		return err
	}
	if n.headers, err = n.inlineMode(ctx); err != nil {
		return err
	}
	if n.config.MultiPacket && n.headers != prm.InlineModeNone {
		return n.unsupported("multi-packet WQEs: it wants headers in WQEs")
	}
	set, err := n.base.create(ctx, &prm.AllocQCounterIn{}, &prm.AllocQCounterOut{})
	var refused *prm.CommandError
	if errors.As(err, &refused) {
		// mlx5e goes without the counter, too (en_stats.c).
		n.log.Warn("no queue counters: frames without a buffer are not counted", "err", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("allocate queue counters: %w", err)
	}
	n.counterSet = uint8(set.Number)
	return nil
}

// inlineMode finds out how much of a frame must be in its WQE (Linux mlx5_query_min_inline).
func (n *NIC) inlineMode(ctx context.Context) (prm.InlineMode, error) {
	const inL2, inVport = 0, 1
	mode := prm.InlineModeNone
	switch n.base.eth.WQEInlineMode {
	case inL2:
		mode = prm.InlineModeL2
	case inVport:
		var out prm.QueryNICVportContextOut
		if err := n.base.objects.Exec(ctx, &prm.QueryNICVportContextIn{}, &out); err != nil {
			return 0, fmt.Errorf("query inline mode: %w", err)
		}
		mode = out.NICVportContext.MinWQEInlineMode
	}
	switch {
	case mode == prm.InlineModeNone && !n.base.eth.WQEVLANInsert:
		return prm.InlineModeL2, nil // the driver inserts VLAN tags itself where the card cannot
	case mode > prm.InlineModeTCPUDP:
		return 0, fmt.Errorf("the card wants headers up to %v in send WQEs: not known", mode)
	}
	return mode, nil
}

// inline is how much of a frame is in every WQE, as queues know it.
func (n *NIC) inline() queue.Inline {
	if n.headers == prm.InlineModeNone {
		return queue.InlineNone
	}
	return queue.InlineL2
}

// makeQueues makes all rings, creates the queues and starts them.
func (n *NIC) makeQueues(ctx context.Context) error {
	c := n.config
	rx, tx := n.rxShape(c.RxRing).bytes(), txBytes(c.TxRing)
	records := pages(4 * c.Queues * queue.RecordSize)
	if c.Program != nil {
		tx *= 2
		records = pages(6 * c.Queues * queue.RecordSize)
	}
	arena, err := n.arena("rings", records+c.Queues*(rx+tx))
	if err != nil {
		return err
	}
	n.base.undo.Add("free rings of queues", n.freeRings)
	n.makeSlots()
	memory := newRingMemory(arena, records)
	for i := range c.Queues {
		if err := n.makeChannel(ctx, i, func(string, int) (*ringMemory, error) { return memory, nil }); err != nil {
			return err
		}
		n.publish(i + 1)
	}
	cancel := n.base.events.OnQueueError(n.cardStopped)
	n.base.undo.Add("errors of queues", func(context.Context) error { cancel(); return nil })
	return nil
}

// cardStopped ends the queue that the card has put into error without a completion that would say so: it
// could not read the ring.
func (n *NIC) cardStopped(e event.QueueError) {
	what := e.Event.String()
	switch e.Queue {
	case prm.EventQueueRQ:
		for _, q := range n.queues().rx {
			if q.cardStopped(e.Number, what) {
				return
			}
		}
	case prm.EventQueueSQ:
		for _, q := range n.queues().sends() {
			if q.cardStopped(e.Number, what) {
				return
			}
		}
	}
}

func pages(n int) int { return (n + dma.PageSize - 1) &^ (dma.PageSize - 1) }

// pageList is the bus addresses of a region's pages.
func pageList(r dma.Region) []uint64 {
	list := make([]uint64, len(r.Bytes)/dma.PageSize)
	for i := range list {
		list[i] = r.Bus + uint64(i)*dma.PageSize
	}
	return list
}

// ringMemory hands out rings, whole pages each, and doorbell records, which lie together in front.
type ringMemory struct {
	rings   *dma.Carver
	records dma.Region
	next    int        // offset of the next record
	own     *ringArena // of one queue; nil: the NIC's
}

func newRingMemory(a *dma.Arena, records int) *ringMemory {
	m := &ringMemory{rings: dma.NewCarver(a)}
	m.records, _ = m.rings.Carve(records, dma.PageSize)
	return m
}

// take returns a ring's pages and a record.
func (m *ringMemory) take(bytes int) (ring, record dma.Region, err error) {
	ring, ok := m.rings.Carve(pages(bytes), dma.PageSize)
	if !ok || m.next+queue.RecordSize > len(m.records.Bytes) {
		return ring, record, fmt.Errorf("ring memory used up at %d bytes", bytes)
	}
	record = m.records.Slice(m.next, queue.RecordSize)
	m.next += queue.RecordSize
	return ring, record, nil
}

// chunk returns memory behind work queue entries.
func (m *ringMemory) chunk(bytes int) (dma.Region, error) {
	r, ok := m.rings.Carve(pages(bytes), dma.PageSize)
	if !ok {
		return r, fmt.Errorf("ring memory used up at %d bytes", bytes)
	}
	return r, nil
}
