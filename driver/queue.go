package driver

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"cxkit/driver/internal/event"
	"cxkit/driver/internal/layout"
	"cxkit/driver/internal/queue"
	"cxkit/driver/internal/rxpool"
)

// common is what receive and transmit queues share.
type common struct {
	nic      *NIC
	index    int
	transmit bool
	pool     *rxpool.Pool
	cache    *rxpool.Cache // free buffers in hand
	retry    bool          // there was no memory: nobody says when there is again
	patience time.Duration // merged packets are due after this; 0: none
	why      atomic.Pointer[error]
	cqFailed atomic.Bool   // the card has stopped the completion queue: Recover makes another
	number   atomic.Uint32 // the card's name of the work queue

	completed *event.Signal // raised at completion events
	events    *event.EQ     // that they come by
	watch     *time.Timer   // of sleep
	nudged    *event.Signal // raised when the queue ends and when the depot has buffers again
	also      *event.Signal // completions of another queue that end a sleep, too; may be nil
	alsoCame  bool          // and one did

	// awake is held by Wait and Flush while they look at the rings. Close takes it before memory goes: the
	// owner has stopped using the queue then, but a wait may be under way.
	awake sync.Mutex
	// guarded: every call holds awake, as the owner need not have stopped when the queue ends. A representor's.
	guarded bool
}

// end stops the queue: its calls do nothing more, and a Wait returns. Any goroutine may call it, event
// handlers too; the first reason stays.
func (q *common) end(err error) {
	q.why.CompareAndSwap(nil, &err)
	q.nudged.Raise()
}

// close stops the queue for good; why is ErrNICClosed or ErrChannelGone. Its memory is not touched any more when
// it returns, provided that no call but Wait and Flush is under way, or that the queue is guarded.
func (q *common) close(why error) {
	q.why.Store(&why)
	q.nudged.Raise()
	q.awake.Lock()
	defer q.awake.Unlock() // a wait that looks at the rings has seen the store by now, or is asleep
}

// restart lets a queue work again after an error, unless it was closed meanwhile.
func (q *common) restart() {
	if p := q.why.Load(); p != nil && !final(*p) {
		q.why.CompareAndSwap(p, nil)
	}
}

// cardStopped ends the queue if it is the one that an event of the card is about.
func (q *common) cardStopped(number uint32, what string) bool {
	if q.number.Load() != number {
		return false
	}
	q.end(&QueueError{Queue: q.index, Transmit: q.transmit, Number: number, What: what})
	return true
}

func (q *common) stopped() bool { return q.why.Load() != nil }

// Err is nil while the queue works, else why it stopped: *QueueError, ErrChannelGone, or ErrNICClosed. Recover
// restarts the queue after a QueueError. Any goroutine may call it.
func (q *common) Err() error {
	if p := q.why.Load(); p != nil {
		return *p
	}
	return nil
}

// over tells that the queue has ended for good.
func (q *common) over() bool {
	return final(q.Err())
}

// final tells that err is why a queue has ended for good.
func final(err error) bool { return err == ErrNICClosed || err == ErrChannelGone }

// Index is the queue's number in the NIC.
func (q *common) Index() int { return q.index }

// A wait trusts for lookAfter that an event comes, then it looks at the queue itself; a completion that is
// there has confirmAfter for its event. (Linux looks after 15 s, at transmit queues only.)
const (
	lookAfter    = time.Second
	confirmAfter = 100 * time.Millisecond
)

// sleep waits for the event that cq was armed for, or for whatever else raises the queue's signal. awake is
// held before and after, not meanwhile.
func (q *common) sleep(ctx context.Context, cq *queue.CQ, count *waitCounts) error {
	after := lookAfter
	if q.retry {
		after = layout.RecoverPeriod
	}
	if q.patience > 0 {
		after = min(after, q.patience)
	}
	how, err := q.doze(ctx, after)
	if how == nothingCame && !q.stopped() {
		if _, there := cq.Peek(); !there {
			return nil // the caller looks again, and comes back
		}
		if how, err = q.doze(ctx, confirmAfter); how == nothingCame {
			how = q.search(cq, count)
		}
	}
	if how == eventCame {
		cq.Fired()
		count.events.Add(1)
	}
	return err
}

// newWatch makes the timer of a queue's sleep.
func newWatch() *time.Timer {
	t := time.NewTimer(lookAfter)
	t.Stop()
	return t
}

// wakening is what ended a doze.
type wakening uint8

const (
	otherwise wakening = iota
	eventCame
	nothingCame
)

// doze gives awake back for as long as nothing happens, d at most.
func (q *common) doze(ctx context.Context, d time.Duration) (wakening, error) {
	q.awake.Unlock()
	defer q.awake.Lock()
	q.watch.Reset(d)
	defer q.watch.Stop()
	var also <-chan struct{}
	if q.also != nil {
		also = q.also.C()
	}
	select {
	case <-q.completed.C():
		return eventCame, nil
	case <-q.nudged.C():
		return otherwise, nil
	case <-also:
		q.alsoCame = true
		return otherwise, nil
	case <-q.watch.C:
		return nothingCame, nil
	case <-ctx.Done():
		return otherwise, ctx.Err()
	case <-q.nic.closed:
		return otherwise, ErrNICClosed
	}
}

// search finds out what became of the event of a completion that is there: it is in its queue and the
// interrupt was lost, or there is none (reports R32).
func (q *common) search(cq *queue.CQ, count *waitCounts) wakening {
	n := q.events.Poll()
	select {
	case <-q.completed.C():
		count.lostInterrupts.Add(1)
		q.nic.log.Warn(fmt.Sprintf("Recovered %d eqes on EQ 0x%x", n, q.events.Number()), "queue", q.index, "transmit", q.transmit)
		return eventCame
	default:
	}
	count.lostEvents.Add(1)
	q.nic.log.Warn("completion without an event", "cqn", cq.Number(), "eqn", q.events.Number(), "queue", q.index, "transmit", q.transmit)
	cq.Fired() // it is owed no more: the next wait arms again
	return otherwise
}

// releaseMerged is release of the merged ones among packets.
func (q *common) releaseMerged(pkts []Packet) {
	for i := range pkts {
		if c := pkts[i].unmerge(); c != nil {
			q.release(c.rest)
			c.done()
			q.release(pkts[i : i+1])
		}
	}
}

// releaseGuarded is release between calls of others.
func (q *common) releaseGuarded(pkts []Packet) {
	q.awake.Lock()
	defer q.awake.Unlock()
	q.release(pkts)
}

// release puts the packets' buffers into the queue's cache and empties the packets.
func (q *common) release(pkts []Packet) {
	switch q.Err() {
	case ErrNICClosed:
		clear(pkts)
		return
	case ErrChannelGone: // so is its cache
		q.nic.ReleaseAll(pkts)
		return
	}
	holders := q.pool.Holders
	for len(pkts) > 0 {
		part := pkts[:min(len(pkts), rxpool.Bulk)]
		free, k, merged := q.cache.Space(), 0, false
		for i := range part {
			p := &part[i]
			buffer := p.buffer - 1
			if p.more != nil {
				merged = true
				continue
			}
			if uint(buffer) < uint(len(holders)) && holders[buffer].Out() {
				holders[buffer] = rxpool.NIC
				free[k] = buffer
				k++
			} else if p.buffer != 0 {
				q.pool.Release(buffer) // refuses
			}
			p.buffer, p.Data = 0, nil
		}
		q.cache.Keep(k)
		if merged {
			q.releaseMerged(part)
		}
		pkts = pkts[len(part):]
	}
	q.share()
}

// share gives the buffers in hand to a queue that has none.
func (q *common) share() {
	if q.pool.Wanted() {
		q.cache.Empty()
	}
}
