package event

import (
	"sync"

	"cxkit/dma"
	"cxkit/driver/internal/object"
	"cxkit/prm"
	"cxkit/trace"
)

const (
	// drainLimit is how many entries one interrupt takes before the queue is armed again. Queues have
	// this many entries to spare, so that they can't run over in between (Linux eq.c).
	drainLimit = 128
	// armOffset is the doorbell register that updates the consumer index and arms (00-overview §4).
	armOffset = 0x40
)

// EQ is an event queue and the reader of it.
type EQ struct {
	d      *Dispatcher
	object object.Object
	vector int
	log    uint8
	arena  *dma.Arena
	handle func(*EQ, *prm.EQE) // called with mu held

	mu     sync.Mutex // held while draining; guards all below
	ring   []byte
	ci     uint32 // entries taken, runs free
	ended  bool
	counts Counts
	entry  prm.EQE // a copy of the entry at hand: the device can't change it any more
}

// Counts are what an event queue has seen.
type Counts struct {
	Events      uint64 // entries taken
	UnknownType uint64 // entries of a type nobody asked for
	UnknownCQ   uint64 // completion or CQ error events of a CQ that is not attached here
	Polls       uint64 // entries found by Poll, without an interrupt
}

// Number is the queue's number, what a CQ context names.
func (q *EQ) Number() uint8 { return uint8(q.object.Number) }

// Vector is the queue's MSI-X vector.
func (q *EQ) Vector() int { return q.vector }

// Counts returns what the queue has seen.
func (q *EQ) Counts() Counts {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.counts
}

// Poll takes what is in the queue now without waiting for an interrupt, and reports how many entries it
// found. Any goroutine may call it, but no event handler.
func (q *EQ) Poll() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.drain()
	q.counts.Polls += uint64(n)
	return n
}

// serve takes at most drainLimit entries, arms, and reports how many it took.
func (q *EQ) serve() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.drain()
}

// drain runs with mu held.
func (q *EQ) drain() int {
	if q.ended {
		return 0
	}
	mask := uint32(1)<<q.log - 1
	n := 0
	for ; n < drainLimit; n++ {
		at := int(q.ci&mask) * prm.EQESize
		// Partner: the device writes the entry, then its owner word. The owner bit is the parity of the
		// device's pass; the queue starts with ones.
		own := prm.EQEOwn(dma.LoadBE32(q.ring, at+prm.EQEOwnOff))
		if own.Owner() != (q.ci>>q.log&1 != 0) {
			break
		}
		e := &q.entry
		copy(e[:prm.EQEOwnOff], q.ring[at:])
		q.ci++
		q.counts.Events++
		q.d.config.Trace.Event(uint32(q.Number()), e[:], "")
		q.handle(q, e)
	}
	q.arm()
	return n
}

// arm tells the device how far entries were taken and asks for an interrupt at the next one, at once if
// it is there already. Runs with mu held.
func (q *EQ) arm() {
	q.d.config.Trace.Doorbell(trace.BellEQArm, uint32(q.Number()), q.ci&0xFFFFFF)
	q.d.config.Window.Store32(q.d.config.Doorbells+armOffset, uint32(q.Number())<<24|q.ci&0xFFFFFF)
}

// end makes the reader stop touching the ring and the doorbell.
func (q *EQ) end() {
	q.mu.Lock()
	q.ended = true
	q.mu.Unlock()
}
