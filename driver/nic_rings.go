package driver

import (
	"context"
	"errors"
	"fmt"
	"math/bits"

	"cxkit/dma"
	"cxkit/driver/internal/event"
	"cxkit/driver/internal/object"
	"cxkit/driver/internal/queue"
	"cxkit/driver/internal/rxpool"
	"cxkit/prm"
)

// newCommon makes what both kinds of queue have.
func (n *NIC) newCommon(i int, transmit bool) common {
	home := -1
	if !transmit && n.pages != nil {
		home = i
	}
	return common{
		nic: n, index: i, transmit: transmit, pool: n.pool, cache: rxpool.NewCache(n.pool, home),
		completed: event.NewSignal(), nudged: event.NewSignal(), watch: newWatch(),
	}
}

// cqShape is what a completion queue is made with.
type cqShape struct {
	entries    int
	lazy       int // see queue.NewCQ
	moderation Moderation
	compress   bool
	format     uint8 // mini_cqe_res_format
}

// makeCQ creates a completion queue and subscribes q to its events.
func (n *NIC) makeCQ(ctx context.Context, q *common, shape cqShape, memory *ringMemory) (*queue.CQ, object.Object, error) {
	bytes := shape.entries * prm.CQESize
	ring, record, err := memory.take(bytes)
	if err != nil {
		return nil, object.Object{}, err
	}
	cq := queue.NewCQ(ring.Bytes[:bytes], record.Bytes, n.base.door, shape.lazy)
	eq := n.base.completions[q.index%len(n.base.completions)]
	q.events = eq
	in := &prm.CreateCQIn{
		Context: prm.CQContext{
			LogCQSize: logOf(shape.entries), UARPage: n.base.uarPage, EQN: uint32(eq.Number()), DBRAddr: record.Bus,
			CQECompEn: shape.compress, MiniCQEResFormat: shape.format,
		},
		PAS: pageList(ring),
	}
	in.Context.CQPeriod, in.Context.CQMaxCount = shape.moderation.fields()
	o, err := n.base.objects.Create(ctx, in, &prm.CreateCQOut{})
	if err != nil {
		return nil, o, fmt.Errorf("create CQ: %w", err)
	}
	cq.Named(o.Number)
	failed := func(syndrome uint8) {
		q.cqFailed.Store(true)
		q.end(&QueueError{Queue: q.index, Transmit: q.transmit, Number: o.Number, Syndrome: syndrome, What: "completion queue in error"})
	}
	if err := n.base.events.Attach(o.Number, q.completed.Raise, failed); err != nil {
		return nil, o, err
	}
	return cq, o, nil
}

func logOf(n int) uint8 { return uint8(bits.Len(uint(n)) - 1) }

// rxRings are a receive queue's rings and the card's objects behind them.
type rxRings struct {
	cq       *queue.CQ
	rq       *queue.RQ
	cqo, rqo object.Object
	arena    *ringArena // nil: the NIC's
}

// makeRxRings creates completion and receive queue for q, in RST.
func (n *NIC) makeRxRings(ctx context.Context, q *RxQueue, entries int, memory *ringMemory) (r rxRings, err error) {
	c, b, shape := n.config, &n.base, n.rxShape(entries)
	r.arena = memory.own
	cq := cqShape{entries: shape.completions, moderation: n.moderation(false), compress: c.CompressCompletions}
	if c.Striding && b.general.MiniCQERespStrideIndex {
		cq.format = queue.MiniChecksumStride
	}
	if r.cq, r.cqo, err = n.makeCQ(ctx, &q.common, cq, memory); err != nil {
		return r, err
	}
	ring, record, err := memory.take(shape.wqes * shape.stride)
	if err != nil {
		return r, err
	}
	wq := prm.WQContext{
		WQType: prm.WQTypeCyclic, PD: b.pd, DBRAddr: record.Bus,
		LogWQStride: logOf(shape.stride), LogWQSz: logOf(shape.wqes),
	}
	var behind dma.Region
	if c.Striding {
		chunks, err := memory.chunk(shape.wqes * queue.ChunkSize)
		if err != nil {
			return r, err
		}
		wq.WQType = prm.WQTypeCyclicStriding
		wq.LogWQENumOfStrides, wq.LogWQEStrideSize = queue.LogStrides-strideNumBase, queue.LogStrideSize-strideSizeBase
		behind = chunks
	}
	if c.LinkedReceive {
		wq.WQType-- // each is one below the cyclic one
	}
	r.rq = n.newRQ(ring.Bytes[:shape.wqes*shape.stride], record.Bytes, behind)
	r.rqo, err = b.objects.Create(ctx, &prm.CreateRQIn{
		Context: prm.RQContext{
			VSD: !c.VLANStrip, ScatterFCS: c.ReceiveFCS, MemRQType: prm.MemRQInline, FlushInErrorEn: true, TSFormat: c.timestamps(),
			UserIndex: uint32(q.index), CQN: r.cq.Number(), CounterSetID: n.counterSet, WQ: wq,
		},
		PAS: pageList(ring),
	}, &prm.CreateRQOut{})
	if err != nil {
		return r, fmt.Errorf("create RQ: %w", err)
	}
	r.rq.Named(r.rqo.Number)
	return r, nil
}

// newRQ makes a receive queue of the kind that the configuration wants.
func (n *NIC) newRQ(ring, record []byte, chunks dma.Region) *queue.RQ {
	c, door, key := n.config, n.base.door, n.base.lkey
	switch {
	case c.Striding && c.LinkedReceive:
		return queue.NewLinkedStridingRQ(ring, record, door, chunks, key)
	case c.Striding:
		return queue.NewStridingRQ(ring, record, door, chunks, key)
	case c.LinkedReceive:
		return queue.NewLinkedRQ(ring, record, door, uint32(c.BufferSize), key)
	}
	return queue.NewRQ(ring, record, door, uint32(c.BufferSize), key)
}

// What the fields of a striding work queue's context count from, as log2 (PRM; Linux en/params.c).
const (
	strideNumBase  = 9
	strideSizeBase = 6
)

// rxShape is the sizes of a receive queue's rings.
type rxShape struct {
	wqes, stride int
	completions  int
	chunks       int // bytes behind striding WQEs
}

// rxShape is the shape for a ring of some entries. A striding queue has stridedEntry bytes for each.
func (n *NIC) rxShape(entries int) rxShape {
	if !n.config.Striding {
		stride := queue.SegmentSize
		if n.config.LinkedReceive {
			stride = queue.LinkedSize
		}
		return rxShape{wqes: entries, stride: stride, completions: entries}
	}
	wqes := max(minStridingWQEs, entries*stridedEntry/queue.ChunkSize)
	return rxShape{
		wqes: wqes, stride: 2 * queue.SegmentSize, completions: wqes << queue.LogStrides, chunks: wqes * queue.ChunkSize,
	}
}

// stridedEntry is the memory of a striding queue for each entry of its ring, in bytes.
const stridedEntry = 2048

// minStridingWQEs lets the card go on while the driver deals with the last of a WQE.
const minStridingWQEs = 4

func (s rxShape) bytes() int {
	return pages(s.completions*prm.CQESize) + pages(s.wqes*s.stride) + pages(s.chunks)
}

// txBytes is the memory of a transmit queue's rings. Its completion queue has twice the entries: completions
// that were taken may stay unpublished for half of it.
func txBytes(entries int) int {
	return pages(2*entries*prm.CQESize) + pages(entries*queue.WQEBBSize)
}

// makeRx creates a receive queue, fills it and starts it.
func (n *NIC) makeRx(ctx context.Context, i int, memory *ringMemory) (*RxQueue, error) {
	c := n.config
	q := &RxQueue{common: n.newCommon(i, false), bulk: uint32(min(refillBulk, c.RxRing/2)), delivered: rxpool.DeliveredBy(i), count: &n.slots[i].counts.rx}
	n.slots[i].rx = q
	if n.pages != nil {
		q.pages = n.pages[i]
	}
	q.prepare(&c)
	r, err := n.makeRxRings(ctx, q, c.RxRing, memory)
	q.rxRings = r // what there is of them
	if err != nil {
		return nil, err
	}
	q.number.Store(r.rqo.Number)
	q.ringChanged()
	return q, q.start(ctx)
}

// txRings are a transmit queue's rings and the card's objects behind them.
type txRings struct {
	cq       *queue.CQ
	sq       *queue.SQ
	cqo, sqo object.Object
	arena    *ringArena // nil: the NIC's
}

// makeTxRings creates completion and send queue for q, in RST.
func (n *NIC) makeTxRings(ctx context.Context, q *TxQueue, entries int, memory *ringMemory) (r txRings, err error) {
	c, b := n.config, &n.base
	r.arena = memory.own
	if r.cq, r.cqo, err = n.makeCQ(ctx, &q.common, cqShape{entries: 2 * entries, lazy: entries / 2, moderation: n.moderation(true)}, memory); err != nil {
		return r, err
	}
	bytes := entries * queue.WQEBBSize
	ring, record, err := memory.take(bytes)
	if err != nil {
		return r, err
	}
	r.sq = queue.NewSQ(ring.Bytes[:bytes], record.Bytes, b.door, b.lkey, n.inline())
	r.sqo, err = b.objects.Create(ctx, &prm.CreateSQIn{
		Context: prm.SQContext{
			FlushInErrorEn: true, MinWQEInlineMode: n.headers, AllowMultiPktSendWQE: c.MultiPacket, TSFormat: c.timestamps(),
			UserIndex: uint32(q.index), CQN: r.cq.Number(), TISLstSz: 1, TISNum0: n.tis,
			WQ: prm.WQContext{
				WQType: prm.WQTypeCyclic, PD: b.pd, UARPage: b.uarPage, DBRAddr: record.Bus,
				LogWQStride: logOf(queue.WQEBBSize), LogWQSz: logOf(entries),
			},
		},
		PAS: pageList(ring),
	}, &prm.CreateSQOut{})
	if err != nil {
		return r, fmt.Errorf("create SQ: %w", err)
	}
	r.sq.Named(r.sqo.Number)
	return r, nil
}

// makeTx creates a transmit queue, which is *to from then on, and starts it.
func (n *NIC) makeTx(ctx context.Context, i int, to **TxQueue, count *txCounts, memory *ringMemory) (*TxQueue, error) {
	q := &TxQueue{common: n.newCommon(i, true), taken: rxpool.TakenFrom(i), can: n.txCan(), count: count}
	if n.config.Program != nil {
		q.headroom = Headroom
	}
	*to = q
	r, err := n.makeTxRings(ctx, q, n.config.TxRing, memory)
	q.txRings = r // what there is of them
	if err != nil {
		return nil, err
	}
	q.number.Store(r.sqo.Number)
	return q, q.start(ctx)
}

// txCan is what the configuration lets transmit queues ask for.
func (n *NIC) txCan() txCan {
	can := txCan{flags: TxChecksum | TxInsertVLAN, pack: n.config.MultiPacket, headers: n.headers}
	if n.config.Tunnels {
		can.flags |= TxInnerChecksum
	}
	if n.config.LargeSend {
		can.segment = 1 << min(n.base.eth.MaxLSOCap, maxLogLSO)
	}
	return can
}

// maxLogLSO bounds what a card may say of its longest large send, as log2 of bytes.
const maxLogLSO = 19

// ringArena is memory of one queue's rings, which may go before the NIC does.
type ringArena struct {
	arena  *dma.Arena
	closed bool
}

// ringsMemory makes memory for rings of one queue.
func (n *NIC) ringsMemory(what string, bytes int) (*ringMemory, error) {
	records := pages(2 * queue.RecordSize)
	a, err := n.base.function.NewArena(records+bytes, n.config.Arena)
	if err != nil {
		return nil, fmt.Errorf("memory for %s: %w", what, err)
	}
	m := newRingMemory(a, records)
	m.own = &ringArena{arena: a}
	return m, nil
}

// freeRings frees the memory of rings that queues got after Open, when no queue is left.
func (n *NIC) freeRings(context.Context) error {
	left := n.queuesOut()
	var errs []error
	free := func(r *ringArena) {
		if len(left) == 0 {
			errs = append(errs, r.close())
		} else if r != nil && !r.closed {
			n.kept = append(n.kept, r.arena)
			errs = append(errs, fmt.Errorf("%d bytes kept: the card may still use them through %v", r.arena.Size(), left))
		}
	}
	rx, tx := n.made()
	for _, q := range rx {
		free(q.arena)
	}
	for _, q := range tx {
		free(q.arena)
	}
	return errors.Join(errs...)
}

// close frees the memory, if there is any and it was not freed before. No queue can reach it.
func (r *ringArena) close() error {
	if r == nil || r.closed {
		return nil
	}
	r.closed = true
	return r.arena.Close()
}

// destroyRings ends a queue and its completion queue, and frees their memory if they had their own.
func (n *NIC) destroyRings(ctx context.Context, wq, cq object.Object, arena *ringArena) error {
	var errs []error
	for _, o := range []object.Object{wq, cq} {
		if o.Kind == 0 {
			continue
		}
		if o.Kind == object.CQ {
			n.base.events.Detach(o.Number)
		}
		errs = append(errs, n.base.objects.Destroy(ctx, o))
	}
	if err := errors.Join(errs...); err != nil {
		return err // the card may still use the memory: Close deals with it
	}
	return arena.close()
}
