package queue

import (
	"encoding/binary"

	"cxkit/dma"
	"cxkit/prm"
)

// Linked receive queues: a WQE begins with a segment that names the next one. Completions name the WQE by its index,
// and the card may complete them in any order: whatever is completed goes to the end of the list and is posted
// again when its turn comes (Linux wq.h, mlx5_wq_ll). The card follows a link when it needs another WQE and the
// record says that there is one, so the link of the last WQE that is posted may be written later. One WQE of the
// ring is therefore never posted: the one that it will lead to.
//
// A WQE may be completed before the card has followed its link. It goes to the end of the list then, but nothing
// goes behind it, which would change the link, before a completion tells that the card was where it leads. With
// completions in the order of the list that is so at once.
//
// The ring is memory that the card can write to. What the list is says the copy of the links here.

// list is a linked queue's WQEs.
type list struct {
	next    []uint16 // links
	before  []uint16 // the other way
	posted  []bool
	touched []bool   // posted, and the card was there
	bound   []bool   // posted once, and the card has not been where it leads
	used    []uint16 // strides of each that were completed, of a striding queue
	pending []uint16 // completed, and not in the list
	head    uint16   // the next to be posted
	tail    uint16   // the last of the list
}

// LinkedSize is the bytes of a linked WQE: the link and one data segment.
const LinkedSize = 2 * SegmentSize

// NewLinkedRQ makes a linked queue over ring, LinkedSize bytes per WQE, otherwise as NewRQ.
func NewLinkedRQ(ring, record []byte, door Doorbell, length, key uint32) *RQ {
	n := len(ring) / LinkedSize
	q := &RQ{Buffers: make([]uint32, n), Mask: uint32(n - 1), ring: ring, record: record, door: door, list: newList(n)}
	for off := SegmentSize; off < len(ring); off += LinkedSize {
		s := (*prm.WQEDataSeg)(ring[off:])
		s.SetByteCount(length)
		s.SetLKey(key)
	}
	q.Reset()
	return q
}

// NewLinkedStridingRQ makes a linked queue of chunks, otherwise as NewStridingRQ.
func NewLinkedStridingRQ(ring, record []byte, door Doorbell, chunks dma.Region, key uint32) *RQ {
	q := NewStridingRQ(ring, record, door, chunks, key)
	q.list = newList(len(ring) / LinkedSize)
	q.Reset()
	return q
}

func newList(n int) *list {
	return &list{
		next: make([]uint16, n), before: make([]uint16, n), posted: make([]bool, n), touched: make([]bool, n),
		bound: make([]bool, n), used: make([]uint16, n), pending: make([]uint16, 0, n),
	}
}

// resetList has every WQE lead to the one behind it, and none posted.
func (q *RQ) resetList() {
	l := q.list
	clear(l.posted)
	clear(l.bound)
	clear(l.used)
	l.pending = l.pending[:0]
	l.head, l.tail, q.most = 0, uint16(q.Mask), q.Mask
	for i := range l.next {
		q.link(uint16(i), uint16(uint32(i+1)&q.Mask))
	}
}

// link has a WQE lead to another.
func (q *RQ) link(from, to uint16) {
	q.list.next[from], q.list.before[to] = to, from
	(*prm.WQENextSeg)(q.ring[int(from)*LinkedSize:]).SetNextWQEIndex(to)
}

// Has reports whether a completion may name a WQE: it is in the ring, and posted.
func (q *RQ) Has(index uint16) bool {
	return uint32(index) <= q.Mask && q.list.posted[index]
}

// Completed takes a WQE back that Has: it goes to the end of the list.
func (q *RQ) Completed(index uint16) {
	l := q.list
	q.reached(index)
	l.posted[index], l.used[index] = false, 0
	l.pending = append(l.pending, index)
	q.Taken++
	n := 0
	for ; n < len(l.pending) && !l.bound[l.tail]; n++ {
		q.link(l.tail, l.pending[n])
		l.tail = l.pending[n]
	}
	l.pending = l.pending[:copy(l.pending, l.pending[n:])]
	q.most = q.Mask - uint32(len(l.pending))
}

// reached notes that the card is at a WQE that is posted.
func (q *RQ) reached(index uint16) {
	if l := q.list; !l.touched[index] {
		l.touched[index] = true
		l.bound[l.before[index]] = false
	}
}

// postNext posts the next WQE of the list, which there must be, and returns its index.
func (q *RQ) postNext() uint16 {
	l := q.list
	at := l.head
	l.head, l.posted[at], l.bound[at], l.touched[at] = l.next[at], true, true, false
	q.Posted++
	return at
}

// PostLinked is Post of a linked queue.
func (q *RQ) PostLinked(buffers []uint32, base, size uint64) {
	for _, buffer := range buffers {
		at := q.postNext()
		binary.BigEndian.PutUint64(q.ring[int(at)*LinkedSize+SegmentSize+8:], base+uint64(buffer)*size)
		q.Buffers[at] = buffer
	}
}

// Each calls f with every WQE that is posted, and takes it back.
func (q *RQ) Each(f func(index uint16)) {
	for i, posted := range q.list.posted {
		if posted {
			f(uint16(i))
			q.Completed(uint16(i))
		}
	}
}
