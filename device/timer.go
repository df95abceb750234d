package device

import "time"

// timer is one entry of the engine's timer heap. It is embedded in what waits, so arming it allocates
// nothing. The engine owns it.
type timer struct {
	fire  func() // called in the engine, with no memory entered
	when  time.Duration
	order uint64 // among equals, the one armed first fires first
	index int    // place in the heap from 1; 0 while not armed
	fine  bool   // it does not wait for the next millisecond
}

// timers is a heap of armed timers, the next one first.
type timers struct {
	heap  []*timer
	armed uint64
}

// arm starts t, or moves it if it runs, to fire at when.
func (h *timers) arm(t *timer, when time.Duration) {
	h.armed++
	t.order = h.armed
	t.when = when
	if t.index == 0 {
		h.heap = append(h.heap, t)
		t.index = len(h.heap)
	}
	h.up(t.index)
	h.down(t.index)
}

// disarm stops t if it runs.
func (h *timers) disarm(t *timer) {
	if t.index == 0 {
		return
	}
	i := t.index
	last := len(h.heap)
	h.swap(i, last)
	h.heap[last-1] = nil
	h.heap = h.heap[:last-1]
	t.index = 0
	if i < last {
		h.up(i)
		h.down(i)
	}
}

// next is when the first timer fires; ok is false if none runs.
func (h *timers) next() (when time.Duration, ok bool) {
	if len(h.heap) == 0 {
		return 0, false
	}
	return h.heap[0].when, true
}

// due takes the first timer off the heap if it fires by now.
func (h *timers) due(now time.Duration) *timer {
	if len(h.heap) == 0 || h.heap[0].when > now {
		return nil
	}
	t := h.heap[0]
	h.disarm(t)
	return t
}

// before compares places i and j, counted from 1.
func (h *timers) before(i, j int) bool {
	a, b := h.heap[i-1], h.heap[j-1]
	return a.when < b.when || a.when == b.when && a.order < b.order
}

func (h *timers) swap(i, j int) {
	h.heap[i-1], h.heap[j-1] = h.heap[j-1], h.heap[i-1]
	h.heap[i-1].index, h.heap[j-1].index = i, j
}

func (h *timers) up(i int) {
	for i > 1 && h.before(i, i/2) {
		h.swap(i, i/2)
		i /= 2
	}
}

func (h *timers) down(i int) {
	for {
		child := 2 * i
		if child > len(h.heap) {
			return
		}
		if child < len(h.heap) && h.before(child+1, child) {
			child++
		}
		if !h.before(child, i) {
			return
		}
		h.swap(i, child)
		i = child
	}
}
