package queue

import (
	"cxkit/dma"
	"cxkit/prm"
)

// Striding receive queues: a WQE is a chunk of memory of many strides. A frame takes as many as it needs, the
// first one begins where the last ended, and the completion that takes the last stride ends the WQE. Chunks
// stay where they are: posting again is a number, or in a linked queue a link.

// Shape of a WQE's memory. Cards without ext_stride_num_range know no fewer than 2^9 strides.
const (
	LogStrides    = 9
	LogStrideSize = 8
	Strides       = 1 << LogStrides
	StrideSize    = 1 << LogStrideSize
	ChunkSize     = Strides * StrideSize
)

// NewStridingRQ makes a striding queue over ring, two segments a WQE, of which the first is unused. WQE i is
// chunk i of chunks, which the card reaches under key.
func NewStridingRQ(ring, record []byte, door Doorbell, chunks dma.Region, key uint32) *RQ {
	n := len(ring) / (2 * SegmentSize)
	q := &RQ{Mask: uint32(n - 1), most: uint32(n), ring: ring, record: record, door: door, chunks: chunks.Bytes}
	for i := range n {
		s := (*prm.WQEDataSeg)(ring[i*2*SegmentSize+SegmentSize:])
		s.SetByteCount(ChunkSize)
		s.SetLKey(key)
		s.SetAddr(chunks.Bus + uint64(i)*ChunkSize)
	}
	q.Reset()
	return q
}

// PostChunks posts every chunk that software is done with. The card sees them after Ring.
func (q *RQ) PostChunks() {
	if q.list == nil {
		q.Posted = q.Taken + q.most
		return
	}
	for q.Missing() > 0 {
		q.postNext()
	}
}

// Enter goes to the WQE that a completion names, which must be the oldest, or in a linked queue any that is posted:
// false if it is not. Stride is its next one then.
func (q *RQ) Enter(id uint16) bool {
	switch {
	case q.list == nil:
		q.at = q.Taken & q.Mask
		return uint32(id)&q.Mask == q.at
	case !q.Has(id):
		return false
	}
	q.reached(id)
	q.at, q.Stride = uint32(id), uint32(q.list.used[id])
	return true
}

// Leave goes past strides of the WQE, and takes it back with the last.
func (q *RQ) Leave(strides uint32) {
	q.Stride += strides
	whole := q.Stride == Strides
	switch {
	case q.list != nil && whole:
		q.Completed(uint16(q.at))
	case q.list != nil:
		q.list.used[q.at] = uint16(q.Stride)
		return
	case whole:
		q.Taken++
	default:
		return
	}
	q.Stride = 0
}

// Frame is the n bytes at the next stride; the caller has checked that they are in the chunk.
func (q *RQ) Frame(n int) []byte {
	off := int(q.at)*ChunkSize + int(q.Stride)*StrideSize
	return q.chunks[off : off+n]
}
