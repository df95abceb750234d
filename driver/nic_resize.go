package driver

import (
	"context"
	"errors"
	"fmt"

	"cxkit/driver/internal/queue"
	"cxkit/prm"
)

// Other rings for a queue: as ethtool -G, and after an error that its completion queue does not survive.

// Resize gives the queue a ring of other size, a power of two from MinRing to MaxRing, while frames come. The
// card goes on with the new ring; frames that are in the old one are delivered first. When it fails the
// queue works as before, or is in error (Err) and Recover repairs it. The owner calls it.
func (q *RxQueue) Resize(ctx context.Context, entries int) error {
	if err := q.nic.checkRing(entries); err != nil {
		return fmt.Errorf("resize rx queue %d: %w", q.index, err)
	}
	if err := q.Err(); err != nil {
		return fmt.Errorf("resize rx queue %d: %w", q.index, err)
	}
	unlock, err := q.nic.lock(ctx)
	if err != nil {
		return fmt.Errorf("resize rx queue %d: %w", q.index, err)
	}
	defer unlock()
	if err := q.replace(ctx, entries); err != nil {
		return fmt.Errorf("resize rx queue %d to %d: %w", q.index, entries, err)
	}
	return nil
}

// checkRing checks a ring's size against what card and configuration allow.
func (n *NIC) checkRing(entries int) error {
	switch g := &n.base.general; {
	case badRing(entries):
		return fmt.Errorf("ring of %d entries: want a power of two from %d to %d", entries, MinRing, MaxRing)
	case logOf(entries) > g.LogMaxWQSz, logOf(2*entries) > g.LogMaxCQSz:
		return fmt.Errorf("ring of %d entries: the card takes at most %d", entries, 1<<min(g.LogMaxWQSz, g.LogMaxCQSz-1))
	}
	return nil
}

// replace gives the queue new rings. The caller has the turn to make changes.
func (q *RxQueue) replace(ctx context.Context, entries int) error {
	n := q.nic
	memory, err := n.ringsMemory(fmt.Sprintf("rings of rx queue %d", q.index), n.rxShape(entries).bytes())
	if err != nil {
		return err
	}
	fresh, err := n.makeRxRings(ctx, q, entries, memory)
	back := context.WithoutCancel(ctx)
	if err != nil {
		return errors.Join(err, n.destroyRings(back, fresh.rqo, fresh.cqo, memory.own))
	}
	old := q.rxRings
	// The new ring first, then the way there: a buffer waits for every frame that comes.
	q.rxRings = fresh
	q.ringChanged()
	q.number.Store(fresh.rqo.Number)
	if err = q.start(ctx); err == nil {
		err = n.redirect(ctx, q.index)
	}
	if err != nil {
		// Some tables may lead to the new ring already: they go back before it ends.
		err = errors.Join(err, q.setRings(back, old))
		return errors.Join(err, q.retire(back, fresh))
	}
	return q.retire(back, old)
}

// renew gives a queue in error new rings of the same size.
func (q *RxQueue) renew(ctx context.Context) error {
	unlock, err := q.nic.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	q.cqFailed.Store(false)
	if err := q.replace(ctx, q.Ring()); err != nil {
		q.cqFailed.Store(true)
		return err
	}
	q.restart()
	return nil
}

// renew gives a queue in error new rings of the same size. Nothing is outstanding.
func (q *TxQueue) renew(ctx context.Context) error {
	unlock, err := q.nic.lockQueues(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	q.cqFailed.Store(false)
	if err := q.replace(ctx, q.Ring()); err != nil {
		q.cqFailed.Store(true)
		return err
	}
	q.restart()
	return nil
}

// setRings makes rings the queue's, and leads frames there.
func (q *RxQueue) setRings(ctx context.Context, r rxRings) error {
	q.rxRings = r
	q.ringChanged()
	q.number.Store(r.rqo.Number)
	return q.nic.redirect(ctx, q.index)
}

// retire ends rings that no frame is led to any more. What the card has completed there is kept for Poll.
func (q *RxQueue) retire(ctx context.Context, old rxRings) error {
	live := q.rxRings
	q.rxRings = old
	err := q.stop(ctx)
	if err == nil {
		// In RST the card writes neither buffers nor completions.
		q.salvaging = true
		q.salvage()
		q.salvaging = false
		q.returnPosted()
		err = q.nic.destroyRings(ctx, old.rqo, old.cqo, old.arena)
	}
	q.rxRings = live
	if err == nil {
		q.refill() // the buffers of the old ring
	}
	return err
}

// salvage takes the frames that are completed in the rings, up to an error.
func (q *RxQueue) salvage() {
	var pkts [64]Packet
	for {
		var n int
		own, there := q.cq.Peek()
		if !there || queue.IsError(own) {
			return
		}
		if q.striding {
			n = q.pollStrides(pkts[:])
		} else if q.linked {
			n = q.takeLinked(pkts[:])
		} else if n = q.take(pkts[:]); n == 0 && q.odd(own) {
			continue // a session of compressed completions is frames now
		}
		if n == 0 {
			return
		}
		q.keep(pkts[:n])
	}
}

// returnPosted takes back the buffers that are posted in a ring that the card does not use.
func (q *RxQueue) returnPosted() {
	if q.linked {
		q.returnLinked()
		return
	}
	if q.striding {
		q.rq.Taken, q.rq.Stride = q.rq.Posted, 0
		return
	}
	for ; q.rq.Taken != q.rq.Posted; q.rq.Taken++ {
		q.recycle(q.rq.Buffers[q.rq.Taken&q.rq.Mask])
	}
}

// stop has the card use the queue's rings no more.
func (q *RxQueue) stop(ctx context.Context) error {
	state, err := q.state(ctx)
	if err == nil && state != prm.QueueStateRST {
		err = q.modify(ctx, state, prm.QueueStateRST)
	}
	return err
}

// state asks the card for the queue's state.
func (q *RxQueue) state(ctx context.Context) (prm.QueueState, error) {
	var out prm.QueryRQOut
	err := q.nic.base.objects.Exec(ctx, &prm.QueryRQIn{RQN: q.rq.Number()}, &out)
	return out.Context.State, err
}

// Ring is the entries of the queue's ring. The owner calls it.
func (q *RxQueue) Ring() int {
	if q.striding {
		return int(q.rq.Size()) * queue.ChunkSize / stridedEntry
	}
	return int(q.rq.Size())
}

// Resize gives the queue a ring of other size, a power of two from MinRing to MaxRing. It waits until
// everything posted is sent. When it fails the queue works as before. The owner calls it.
func (q *TxQueue) Resize(ctx context.Context, entries int) error {
	if err := q.nic.checkRing(entries); err != nil {
		return fmt.Errorf("resize tx queue %d: %w", q.index, err)
	}
	if err := q.Flush(ctx); err != nil {
		return fmt.Errorf("resize tx queue %d: %w", q.index, err)
	}
	unlock, err := q.nic.lockQueues(ctx)
	if err != nil {
		return fmt.Errorf("resize tx queue %d: %w", q.index, err)
	}
	defer unlock()
	if err := q.replace(ctx, entries); err != nil {
		return fmt.Errorf("resize tx queue %d to %d: %w", q.index, entries, err)
	}
	return nil
}

// replace gives the queue new rings. Nothing is outstanding. The caller has the turn to make changes.
func (q *TxQueue) replace(ctx context.Context, entries int) error {
	n := q.nic
	memory, err := n.ringsMemory(fmt.Sprintf("rings of tx queue %d", q.index), txBytes(entries))
	if err != nil {
		return err
	}
	fresh, err := n.makeTxRings(ctx, q, entries, memory)
	back := context.WithoutCancel(ctx)
	if err != nil {
		return errors.Join(err, n.destroyRings(back, fresh.sqo, fresh.cqo, memory.own))
	}
	old, way := q.txRings, q.way
	q.txRings = fresh
	q.number.Store(fresh.sqo.Number)
	if err = q.start(ctx); err == nil {
		err = q.findWay(ctx)
	}
	if err != nil {
		q.txRings, q.way = old, way
		q.number.Store(old.sqo.Number)
		return errors.Join(err, n.destroyRings(back, fresh.sqo, fresh.cqo, memory.own))
	}
	if way != nil {
		err = way.Remove(back)
	}
	return errors.Join(err, n.destroyRings(back, old.sqo, old.cqo, old.arena))
}

// Ring is the entries of the queue's ring. The owner calls it.
func (q *TxQueue) Ring() int { return int(q.sq.Size()) }
