package fwpages

import (
	"math"
	"sync"

	"cxkit/prm"
)

const (
	// maxStrangers bounds the functions that are not managed here and wait to be told that they get nothing.
	maxStrangers = 64
	// givesInARow is how many gives go before a take that waits: firmware that asks without end does not
	// keep others from giving back.
	givesInARow = 64
)

// requests is what waits for the worker, a record a function. Its lock is its own: an event handler never
// waits for memory to be made.
//
// Firmware sends no second request for a function before it has been answered, so that a function waits
// with one give and one take at most. If it does all the same, gives add up and the newest offer counts;
// no request is lost, and none needs memory. (Linux allocates for each and loses it when there is none.)
type requests struct {
	mu        sync.Mutex // guards all below
	functions map[Function]*waiting
	releases  fifo // functions that were reset: their pages are free before anything else happens to them
	gives     fifo // firmware waits for these
	takes     fifo
	strangers []Function // not managed here, and wanting pages
	row       int        // gives since the last take
	stopped   bool
	resets    bool // release-all requests are agreed on with firmware
	byVHCA    bool // functions are named by vhca_id, and the bit of the card's own processor means nothing
	own       Function
	nonsense  uint64
	dropped   uint64
}

// waiting is what a function waits for.
type waiting struct {
	f       Function
	release bool
	give    int64
	take    int64
	reset   uint64 // counts resets
	stale   uint64 // requests dropped by one
}

// fifo is functions in the order they came, each once. Room for all of them is made when they are enabled.
type fifo struct{ list []*waiting }

func (q *fifo) push(w *waiting) { q.list = append(q.list, w) }

func (q *fifo) pop() *waiting {
	w := q.list[0]
	q.list = q.list[:copy(q.list, q.list[1:])]
	return w
}

func (q *fifo) drop(w *waiting) {
	for i, x := range q.list {
		if x == w {
			q.list = q.list[:i+copy(q.list[i:], q.list[i+1:])]
			return
		}
	}
}

// add makes a record of a function.
func (q *requests) add(f Function) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.functions == nil {
		q.functions = make(map[Function]*waiting)
	}
	if q.functions[f] != nil {
		return
	}
	q.functions[f] = &waiting{f: f}
	for _, l := range []*fifo{&q.releases, &q.gives, &q.takes} {
		if cap(l.list) < len(q.functions) {
			l.list = append(make([]*waiting, 0, 2*len(q.functions)), l.list...)
		}
	}
}

// remove forgets a function.
func (q *requests) remove(f Function) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w := q.functions[f]; w != nil {
		delete(q.functions, f)
		q.releases.drop(w)
		q.gives.drop(w)
		q.takes.drop(w)
	}
}

// rename makes a function known by another name.
func (q *requests) rename(from, to Function) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.functions[from]
	delete(q.functions, from)
	if w == nil {
		w = &waiting{}
	}
	w.f = to
	q.functions[to] = w
	if q.own == from {
		q.own = to
	}
}

// resetsOf counts the resets of a function that have been announced.
func (q *requests) resetsOf(f Function) uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w := q.functions[f]; w != nil {
		return w.reset
	}
	return 0
}

// clamp bounds what firmware offers back to what one command takes: the larger of the count and the
// negative limit (Linux 501c3005f031). Counts of pages that firmware wants, and limits of 0 and below,
// change nothing.
func clamp(count int32, limit int) int32 {
	if limit <= 0 || limit > math.MaxInt32 {
		return count
	}
	return max(count, int32(-limit))
}

// Handle takes a page-request event. It is an event handler: it hands the request to the worker. What
// firmware offers back is limited here, so that no more than one command's share is ever under way.
func (m *Manager) Handle(r prm.PageRequestEvent) {
	q := &m.requests
	q.mu.Lock()
	q.note(r, *m.config.ReclaimLimit)
	q.mu.Unlock()
	m.wakeUp()
}

// note runs with mu held.
func (q *requests) note(r prm.PageRequestEvent, limit int) {
	f := Function{ID: r.FuncID, EC: r.ECFunction && !q.byVHCA}
	w := q.functions[f]
	count := int64(clamp(r.NumPages, limit))
	switch {
	case q.stopped:
		q.nonsense++
	case r.ReleaseAllPages:
		// The driver's own function is not reset while it runs.
		if w == nil || !q.resets || f == q.own {
			q.nonsense++
			return
		}
		w.reset++
		// What the function wanted before is of no use to it now.
		if w.give != 0 {
			w.give = 0
			w.stale++
			q.gives.drop(w)
		}
		if w.take != 0 {
			w.take = 0
			w.stale++
			q.takes.drop(w)
		}
		if !w.release {
			w.release = true
			q.releases.push(w)
		}
	case count == 0:
		q.nonsense++
	case w == nil && count < 0:
		q.nonsense++
	case w == nil:
		for _, s := range q.strangers {
			if s == f {
				return // it is told once for all of its requests
			}
		}
		if len(q.strangers) >= maxStrangers {
			q.dropped++
			return
		}
		q.strangers = append(q.strangers, f)
	case count > 0:
		if w.give == 0 {
			q.gives.push(w)
		}
		w.give = min(w.give+count, math.MaxInt32)
	default:
		if w.take == 0 {
			q.takes.push(w)
		}
		w.take = -count
	}
}

// work is what the worker does next.
type work struct {
	f     Function
	what  action
	pages int64
}

type action uint8

const (
	actNone action = iota
	actRelease
	actGive
	actTake
	actRefuse
)

// next takes what comes first: resets, pages that firmware waits for, then pages that it gives back. end
// says that the worker has been stopped.
func (q *requests) next() (w work, end bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	takes := len(q.takes.list) > 0
	switch {
	case q.stopped:
		return w, true
	case len(q.releases.list) > 0:
		x := q.releases.pop()
		x.release = false
		return work{f: x.f, what: actRelease}, false
	case len(q.gives.list) > 0 && (q.row < givesInARow || !takes):
		q.row++
		x := q.gives.pop()
		w = work{x.f, actGive, x.give}
		x.give = 0
		return w, false
	case len(q.strangers) > 0 && (q.row < givesInARow || !takes):
		q.row++
		w = work{f: q.strangers[0], what: actRefuse}
		q.strangers = q.strangers[:copy(q.strangers, q.strangers[1:])]
		return w, false
	case takes:
		q.row = 0
		x := q.takes.pop()
		w = work{x.f, actTake, x.take}
		x.take = 0
		return w, false
	}
	return w, false
}

// stop ends the worker and drops what waits.
func (q *requests) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
	for _, w := range q.functions {
		w.release, w.give, w.take = false, 0, 0
	}
	q.releases.list, q.gives.list, q.takes.list, q.strangers = q.releases.list[:0], q.gives.list[:0], q.takes.list[:0], nil
}
