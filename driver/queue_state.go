package driver

import (
	"context"
	"fmt"

	"cxkit/prm"
)

// start moves the queue from RST to RDY and posts buffers.
func (q *RxQueue) start(ctx context.Context) error {
	if err := q.modify(ctx, prm.QueueStateRST, prm.QueueStateRDY); err != nil {
		return err
	}
	q.refill()
	// A queue that nobody polls yet must not sit on buffers that others need.
	q.cache.Empty()
	return nil
}

func (q *RxQueue) modify(ctx context.Context, from, to prm.QueueState) error {
	in := &prm.ModifyRQIn{RQState: from, RQN: q.rq.Number(), Context: prm.RQContext{State: to}}
	if err := q.nic.base.objects.Exec(ctx, in, &prm.ModifyRQOut{}); err != nil {
		return fmt.Errorf("move RQ %#x from %v to %v: %w", q.rq.Number(), from, to, err)
	}
	return nil
}

// Recover restarts a queue that is in error: the ring is reset and refilled, and after an error of the
// completion queue both are made anew. Frames that arrive meanwhile are lost. It does nothing to a queue that
// works. The owner calls it.
func (q *RxQueue) Recover(ctx context.Context) error {
	if q.guarded {
		q.awake.Lock()
		defer q.awake.Unlock()
	}
	if err := q.Err(); err == nil || q.over() {
		return err
	}
	if q.cqFailed.Load() {
		if err := q.renew(ctx); err != nil {
			return fmt.Errorf("recover rx queue %d: %w", q.index, err)
		}
		return nil
	}
	if err := q.stop(ctx); err != nil {
		return fmt.Errorf("recover rx queue %d: %w", q.index, err)
	}
	// In RST the card writes neither buffers nor completions: what it had is free, what it completed and
	// nobody took is lost.
	q.cq.Drain()
	q.returnPosted()
	q.rq.Reset()
	if err := q.modify(ctx, prm.QueueStateRST, prm.QueueStateRDY); err != nil {
		return fmt.Errorf("recover rx queue %d: %w", q.index, err)
	}
	q.restart()
	q.refill()
	return nil
}

// start moves the queue from RST to RDY.
func (q *TxQueue) start(ctx context.Context) error {
	return q.modify(ctx, prm.QueueStateRST, prm.QueueStateRDY)
}

func (q *TxQueue) modify(ctx context.Context, from, to prm.QueueState) error {
	in := &prm.ModifySQIn{SQState: from, SQN: q.sq.Number(), Context: prm.SQContext{State: to}}
	if err := q.nic.base.objects.Exec(ctx, in, &prm.ModifySQOut{}); err != nil {
		return fmt.Errorf("move SQ %#x from %v to %v: %w", q.sq.Number(), from, to, err)
	}
	return nil
}

// Recover restarts a queue that is in error. Frames that were posted and not sent are given up: their
// buffers return to the NIC and they are counted as dropped. It does nothing to a queue that works. The
// owner calls it.
func (q *TxQueue) Recover(ctx context.Context) error {
	if q.guarded {
		q.awake.Lock()
		defer q.awake.Unlock()
	}
	if err := q.Err(); err == nil || q.over() {
		return err
	}
	if err := q.stop(ctx); err != nil {
		return fmt.Errorf("recover tx queue %d: %w", q.index, err)
	}
	q.giveUp()
	if q.cqFailed.Load() {
		if err := q.renew(ctx); err != nil {
			return fmt.Errorf("recover tx queue %d: %w", q.index, err)
		}
		return nil
	}
	q.sq.Reset()
	if err := q.modify(ctx, prm.QueueStateRST, prm.QueueStateRDY); err != nil {
		return fmt.Errorf("recover tx queue %d: %w", q.index, err)
	}
	q.restart()
	return nil
}

// stop has the card use the queue's rings no more. What it has flushed so far is taken.
func (q *TxQueue) stop(ctx context.Context) error {
	var out prm.QuerySQOut
	if err := q.nic.base.objects.Exec(ctx, &prm.QuerySQIn{SQN: q.sq.Number()}, &out); err != nil {
		return err
	}
	q.reap()
	if out.Context.State == prm.QueueStateRST {
		return nil
	}
	return q.modify(ctx, out.Context.State, prm.QueueStateRST)
}

// giveUp frees what was posted and not sent in a queue that the card uses no more, and returns how much that is.
func (q *TxQueue) giveUp() int {
	q.cq.Drain()
	left := q.sq.Outstanding()
	if left > 0 {
		q.count.dropped.Add(uint64(left))
		q.free(left)
	}
	return int(left)
}
