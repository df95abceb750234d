package queue

import (
	"cxkit/dma"
	"cxkit/mmio"
	"cxkit/prm"
	"cxkit/trace"
)

// Doorbell is the doorbell page of a function as one queue uses it.
type Doorbell struct {
	Window *mmio.Window
	Page   uint64     // offset of the page in the window
	Trace  *trace.Log // may be nil
}

const (
	// WQEBBSize is the bytes of a send WQE's basic block.
	WQEBBSize = 64
	// SegmentSize is the bytes of a receive WQE: one data segment.
	SegmentSize = prm.WQEDataSegSize
	// RecordSize is the distance between doorbell records, so that queues of different owners share no
	// cache line.
	RecordSize = 64
)

// CQ is a completion queue. Hot paths advance Taken directly, and keep copies of Ring, Mask and Log, which
// do not change, in registers.
type CQ struct {
	Taken uint32 // entries taken so far
	Ring  []byte
	Mask  uint32
	Log   uint8

	armed     bool // an event is owed
	number    uint32
	record    []byte
	published uint32
	lazy      uint32 // how many taken entries may go unpublished
	sequence  uint32 // completion events received, for the arm doorbell
	door      Doorbell
}

// NewCQ makes the queue over ring, prm.CQESize bytes per entry and a power of two entries, and its
// doorbell record. lazy is how many entries may be taken before Publish tells the card: at most the
// ring's size less what the card can have outstanding.
func NewCQ(ring, record []byte, door Doorbell, lazy int) *CQ {
	q := &CQ{Ring: ring, record: record, door: door, lazy: uint32(lazy), Mask: uint32(len(ring)/prm.CQESize - 1)}
	for 1<<q.Log <= q.Mask {
		q.Log++
	}
	q.Reset()
	return q
}

// Reset marks every entry as the card's and starts over. Only while the card has no such queue.
func (q *CQ) Reset() {
	clear(q.Ring)
	for off := 0; off < len(q.Ring); off += prm.CQESize {
		dma.StoreBE32(q.Ring, off+prm.CQEOwnOff, prm.CQEOwnInit)
	}
	dma.StoreBE32(q.record, prm.CQRecordConsumerOff, 0)
	dma.StoreBE32(q.record, prm.CQRecordArmOff, 0)
	q.Taken, q.published, q.sequence, q.armed = 0, 0, 0, false
}

// Named sets the number the card gave the queue.
func (q *CQ) Named(cqn uint32) { q.number = cqn }

// Number is the CQ number.
func (q *CQ) Number() uint32 { return q.number }

// Entry is the entry in a slot of a ring.
func Entry(ring []byte, slot uint32) *prm.CQE {
	return (*prm.CQE)(ring[int(slot)*prm.CQESize:])
}

// OwnDword returns the ownership dword of an entry: the next entry's, or one of which no entry before is
// missing. Software may read the rest of an entry it has, but not this dword again.
func OwnDword(e *prm.CQE) prm.CQEOwn {
	// Partner: the card's store of this dword, after the rest of the entry.
	return prm.CQEOwn(dma.LoadBE32(e[:], prm.CQEOwnOff))
}

// ownMask is what PlainOwn decides: all but signature and the solicited bit.
const ownMask = 0xffff00fd

// PlainOwn is the ownership dword, but for bits that do not matter, of entry i of a ring of 1<<log entries
// if it is software's and of opcode op, for the WQE with this counter, without inlined data or
// compression.
func PlainOwn(i uint32, log uint8, op prm.CQEOpcode, counter uint32) prm.CQEOwn {
	return prm.CQEOwn(counter<<16 | uint32(op)<<4 | i>>(log&31)&1)
}

// NextCounter added to what PlainOwn returned makes it that of the next entry and WQE, as long as the ring
// does not wrap.
const NextCounter = 1 << 16

// IsPlain tells whether an ownership dword is the one that PlainOwn returned.
func IsPlain(own, want prm.CQEOwn) bool { return (own^want)&ownMask == 0 }

// Peek returns the ownership dword of the next entry and whether software has the entry.
func (q *CQ) Peek() (own prm.CQEOwn, there bool) {
	own = OwnDword(q.Next())
	return own, (uint32(own)^q.Taken>>(q.Log&31))&1 == 0 && own.Opcode() != prm.CQEInvalid
}

// Next is the next entry.
func (q *CQ) Next() *prm.CQE { return Entry(q.Ring, q.Taken&q.Mask) }

// Error is the next entry read as an error entry.
func (q *CQ) Error() *prm.ErrorCQE {
	return (*prm.ErrorCQE)(q.Ring[int(q.Taken&q.Mask)*prm.CQESize:])
}

// Plain tells that an entry has opcode op and no inlined data or compression.
func Plain(own prm.CQEOwn, op prm.CQEOpcode) bool { return uint8(own)&^3 == uint8(op)<<4 }

// IsError tells that an entry is an error entry.
func IsError(own prm.CQEOwn) bool {
	op := own.Opcode()
	return op == prm.CQERequesterError || op == prm.CQEResponderError
}

// Publish tells the card how far software is, once enough has been taken.
func (q *CQ) Publish() {
	if q.Taken-q.published > q.lazy {
		q.PublishAll()
	}
}

// PublishAll tells the card how far software is.
func (q *CQ) PublishAll() {
	if q.Taken != q.published {
		q.published = q.Taken
		// Partner: the card's load of the record before it writes over entries.
		dma.StoreBE32(q.record, prm.CQRecordConsumerOff, q.Taken&0xffffff)
		q.door.Trace.Doorbell(trace.BellCQ, q.number, q.Taken&0xffffff)
	}
}

// Arm asks for an event at the next completion from Taken on, unless one is owed anyway, and reports
// whether it did. After it the owner looks at the queue once more before it sleeps: an entry may have
// come in between.
func (q *CQ) Arm() bool {
	q.PublishAll()
	if q.armed {
		return false
	}
	q.armed = true
	word := prm.CQDoorbellArmDword(uint8(q.sequence&3), false, q.Taken&0xffffff)
	dma.StoreBE32(q.record, prm.CQRecordArmOff, word) // partner: the card's load after it saw the register
	q.door.Window.Store64(q.door.Page+prm.UARCQArmOff, uint64(word)<<32|uint64(q.number))
	q.door.Trace.Doorbell(trace.BellCQArm, q.number, word)
	return true
}

// Fired notes that the event came.
func (q *CQ) Fired() {
	if q.armed {
		q.armed = false
		q.sequence++
	}
}

// Drain takes whatever is there, a ring's worth at most, looks at nothing, and returns how many.
func (q *CQ) Drain() int {
	n := 0
	for ; n <= int(q.Mask); n++ {
		if _, there := q.Peek(); !there {
			break
		}
		q.Taken++
	}
	q.PublishAll()
	return n
}
