package layout

import (
	"sync"
	"sync/atomic"
)

// Waker is told that memory has come back.
type Waker interface{ Raise() }

// inbox takes what others than the owner release. A batch costs one lock.
type inbox struct {
	pending atomic.Bool
	mu      sync.Mutex // guards the rest
	list    []uint32
	spare   []uint32
	waiting Waker
}

func (b *inbox) prepare() {
	const some = 1024
	b.list, b.spare = make([]uint32, 0, some), make([]uint32, 0, some)
}

// Give takes fragments of the queue back that the caller had. Any goroutine may call it.
func (q *Queue) Give(list []uint32) {
	if len(list) == 0 {
		return
	}
	if q.shared.check {
		q.shared.noteFree(list)
	}
	b := &q.inbox
	b.mu.Lock()
	b.list = append(b.list, list...)
	b.pending.Store(true)
	w := b.waiting
	b.waiting = nil
	b.mu.Unlock()
	if w != nil {
		w.Raise()
	}
}

// Collect takes what others gave back. Fill does it, too.
func (q *Queue) Collect() {
	b := &q.inbox
	b.mu.Lock()
	list := b.list
	b.list, b.spare = b.spare[:0], nil
	b.pending.Store(false)
	b.mu.Unlock()
	q.release(list)
	b.mu.Lock()
	b.spare = list[:0]
	b.mu.Unlock()
}

// Want raises w once when somebody gives fragments back. It returns false, and does nothing, if somebody
// has by now.
func (q *Queue) Want(w Waker) bool {
	b := &q.inbox
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.list) > 0 {
		return false
	}
	b.waiting = w
	return true
}
