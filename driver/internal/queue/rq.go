package queue

import (
	"encoding/binary"

	"cxkit/dma"
	"cxkit/prm"
	"cxkit/trace"
)

// RQ is a cyclic receive queue of WQEs with one data segment each. Hot paths read Buffers and advance Taken
// directly.
type RQ struct {
	Buffers []uint32 // per slot: the buffer posted there
	Posted  uint32   // WQEs written
	Taken   uint32   // WQEs whose completion was taken
	Mask    uint32
	Stride  uint32 // striding queues: the next stride of the WQE at at

	at   uint32 // striding queues: slot of the WQE whose completions are taken
	most uint32 // WQEs that may be posted at once
	list *list  // of a linked queue

	ring   []byte
	record []byte
	chunks []byte
	door   Doorbell
	number uint32
}

// NewRQ makes the queue over ring, SegmentSize bytes per WQE. Every WQE takes length bytes under key.
func NewRQ(ring, record []byte, door Doorbell, length, key uint32) *RQ {
	n := len(ring) / SegmentSize
	q := &RQ{Buffers: make([]uint32, n), Mask: uint32(n - 1), most: uint32(n), ring: ring, record: record, door: door}
	for off := 0; off < len(ring); off += SegmentSize {
		s := (*prm.WQEDataSeg)(ring[off:])
		s.SetByteCount(length)
		s.SetLKey(key)
	}
	q.Reset()
	return q
}

// Reset starts over. Only while the queue is in RST.
func (q *RQ) Reset() {
	q.Posted, q.Taken, q.Stride, q.at = 0, 0, 0, 0
	if q.list != nil {
		q.resetList()
	}
	dma.StoreBE32(q.record, prm.WQRecordReceiveOff, 0)
}

// Named sets the number the card gave the queue.
func (q *RQ) Named(rqn uint32) { q.number = rqn }

// Number is the RQ number.
func (q *RQ) Number() uint32 { return q.number }

// Size is how many WQEs the ring has.
func (q *RQ) Size() uint32 { return q.Mask + 1 }

// Missing is how many WQEs could be posted.
func (q *RQ) Missing() uint32 { return q.most - (q.Posted - q.Taken) }

// Outstanding is how many WQEs the card has.
func (q *RQ) Outstanding() uint32 { return q.Posted - q.Taken }

// Post fills the next WQEs with buffers, which lie size bytes apart from bus address base. There must be
// no more of them than Missing. The card sees them after Ring.
func (q *RQ) Post(buffers []uint32, base, size uint64) {
	posted := q.Posted
	for _, buffer := range buffers {
		slot := posted & q.Mask
		binary.BigEndian.PutUint64(q.ring[slot*SegmentSize+8:], base+uint64(buffer)*size)
		q.Buffers[slot] = buffer
		posted++
	}
	q.Posted = posted
}

// Ring tells the card how many WQEs there are.
func (q *RQ) Ring() {
	// Partner: the card's load of the record before it reads a WQE.
	dma.StoreBE32(q.record, prm.WQRecordReceiveOff, q.Posted&0xffff)
	q.door.Trace.Doorbell(trace.BellRQ, q.number, q.Posted&0xffff)
}
