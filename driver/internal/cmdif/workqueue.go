package cmdif

import (
	"context"
	"sync"
	"time"

	"cxkit/stats"
)

// Submit is who hands a blocking command to firmware.
type Submit uint8

const (
	// SubmitCaller: its caller does. Callback commands go through the ordered queue.
	SubmitCaller Submit = iota
	// SubmitQueue: every command but page commands is a work item of the function's ordered queue, as in
	// Linux before "Cut workqueue traffic of firmware commands and stats": one worker, first in, first
	// out, and whoever the worker waits for a slot for keeps all others back.
	SubmitQueue
)

func (s Submit) String() string {
	if s == SubmitQueue {
		return "queue"
	}
	return "caller"
}

// WorkPool is what ordered queues of several functions have in common: Linux runs them on one unbound
// pool of workers, under the lock of which each item is queued and taken. The zero value is ready.
type WorkPool struct {
	mu        sync.Mutex // guards the items of all queues, and all below
	contended uint64
	waited    time.Duration
}

// lock takes the pool's lock and measures how long that took, if it was not free.
func (p *WorkPool) lock() {
	if p.mu.TryLock() {
		return
	}
	begin := time.Now()
	p.mu.Lock()
	p.contended++
	p.waited += time.Since(begin)
}

// stage is where a work item is.
type stage uint8

const (
	queued   stage = iota
	handling       // the worker has it
	canceled       // its caller has given up; the worker forgets it
)

// item is a command on the ordered queue.
type item struct {
	// The command, and for whom.
	ctx    context.Context
	in     In
	out    Out
	user   user
	begin  time.Time
	notify func(error) // of a callback command; nil: a caller waits
	limit  *limit      // that a callback command counts against

	stage stage // guarded by the pool's lock
	next  *item // same

	handled chan struct{} // one value when slot or err is set, for the waiting caller
	timer   *time.Timer
	slot    *slot
	err     error
}

// workQueue is the ordered queue of a function. Its worker runs while there are items.
type workQueue struct {
	c    *Interface
	pool *WorkPool

	// Guarded by the pool's lock.
	first, last *item
	depth       int
	working     bool
	counts      stats.WorkQueue
}

// add queues an item and makes sure that somebody works.
func (q *workQueue) add(t *item) {
	q.pool.lock()
	t.stage, t.next = queued, nil
	if q.last != nil {
		q.last.next = t
	} else {
		q.first = t
	}
	q.last = t
	q.depth++
	q.counts.Items++
	q.counts.Deepest = max(q.counts.Deepest, q.depth)
	start := !q.working
	q.working = true
	q.pool.mu.Unlock()
	if start {
		q.c.group.Go(q.work)
	}
}

// work handles items until there are none.
func (q *workQueue) work() {
	for {
		q.pool.lock()
		t := q.first
		if t == nil {
			q.working = false
			q.pool.mu.Unlock()
			return
		}
		if q.first = t.next; q.first == nil {
			q.last = nil
		}
		t.next = nil
		q.depth--
		skip := t.stage == canceled
		if !skip {
			t.stage = handling
			q.counts.Executed++
		}
		q.pool.mu.Unlock()
		if skip {
			q.c.recycle(t)
			continue
		}
		q.c.handle(t)
	}
}

// cancel takes back an item that the worker has not come to; it reports whether that was so.
func (q *workQueue) cancel(t *item) bool {
	q.pool.lock()
	defer q.pool.mu.Unlock()
	if t.stage != queued {
		return false
	}
	t.stage = canceled
	q.counts.Canceled++
	return true
}

// snapshot is the queue's counters. Lock times are those of the pool.
func (q *workQueue) snapshot() stats.WorkQueue {
	q.pool.mu.Lock()
	defer q.pool.mu.Unlock()
	s := q.counts
	s.Contended, s.LockWait = q.pool.contended, q.pool.waited
	return s
}

// item returns an unused item.
func (c *Interface) item() *item {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.items); n > 0 {
		t := c.items[n-1]
		c.items = c.items[:n-1]
		return t
	}
	return &item{handled: make(chan struct{}, 1), timer: stoppedTimer()}
}

// recycle takes an item back that nobody refers to any more.
func (c *Interface) recycle(t *item) {
	*t = item{handled: t.handled, timer: t.timer}
	c.mu.Lock()
	c.items = append(c.items, t)
	c.mu.Unlock()
}

// enqueue has the worker issue a command and waits until it has: Linux's "handling" and "slotted". A
// caller gives up after Timeout only while the worker has not come to its command.
func (c *Interface) enqueue(ctx context.Context, in In, out Out, u user, begin time.Time) (*slot, error) {
	t := c.item()
	t.ctx, t.in, t.out, t.user, t.begin = ctx, in, out, u, begin
	op := in.Opcode() // in is the worker's from here on
	c.work.add(t)
	t.timer.Reset(c.config.Timeout)
	var err error
	select {
	case <-t.handled:
	case <-ctx.Done():
		err = ctx.Err()
	case <-t.timer.C:
		err = ErrTimeout
	}
	t.timer.Stop()
	if err != nil {
		if c.work.cancel(t) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if err == ErrTimeout {
				c.log.warn(op.LinuxString() + " canceled on out of queue timeout.")
			}
			return nil, c.refused(Command{Op: op}, time.Since(begin), err)
		}
		<-t.handled // the worker waits for a slot at most until the same context ends, or Timeout
	}
	s, err := t.slot, t.err
	c.recycle(t)
	return s, err
}

// handle is the worker's part: a slot, the entry, the doorbell.
func (c *Interface) handle(t *item) {
	if t.notify != nil {
		c.handleCallback(t)
		return
	}
	t.slot, t.err = c.issue(t.ctx, t.in, t.out, t.user, t.begin, nil)
	t.handled <- struct{}{}
}
