package queue

import (
	"cxkit/dma"
	"cxkit/prm"
)

// Striding receive queues: a WQE is a chunk of memory of many strides. A frame takes as many as it needs, the
// first one begins where the last ended, and the completion that takes the last stride ends the WQE. Chunks
// stay where they are: posting again is a number.

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
	q := &RQ{Mask: uint32(n - 1), ring: ring, record: record, door: door, chunks: chunks.Bytes}
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
func (q *RQ) PostChunks() { q.Posted = q.Taken + q.Mask + 1 }

// Frame is the n bytes at the next stride; the caller has checked that they are in the chunk.
func (q *RQ) Frame(n int) []byte {
	off := int(q.Taken&q.Mask)*ChunkSize + int(q.Stride)*StrideSize
	return q.chunks[off : off+n]
}
