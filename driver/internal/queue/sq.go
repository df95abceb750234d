package queue

import (
	"encoding/binary"

	"cxkit/dma"
	"cxkit/prm"
	"cxkit/trace"
)

// Inline is how many leading bytes of a frame go into its WQE.
type Inline uint8

const (
	InlineNone Inline = 0
	// InlineL2 is an Ethernet header with a VLAN tag: what old firmware wants (Linux en_tx.c).
	InlineL2 Inline = 18
)

// signalEvery bounds how many basic blocks are in flight without a completion: buffers of a long burst come
// back while the rest is still being sent.
const signalEvery = 64

// Words of a send WQE, 8 bytes each (reference 03 §5; Linux struct mlx5e_tx_wqe).
const (
	ceAlways   = uint64(prm.CompletionAlways) << 2 << 32
	vlanInsert = 1 << 31 // inline_hdr_sz bit 15: a C-VLAN tag follows
	etherTypeC = 0x8100
)

// Checksum insertion, cs_flags of the Ethernet segment.
const (
	ChecksumInnerL3 = 1 << 4
	ChecksumInnerL4 = 1 << 5
	ChecksumL3      = 1 << 6
	ChecksumL4      = 1 << 7
)

// What is kept of the WQE that begins in a slot: the count of buffers up to its end, how many basic blocks it
// has, and whether it asks for a completion. 0 is a slot in which no WQE begins.
const (
	wordBuffers   = 1<<24 - 1
	wordBlocks    = 24 // shift
	wordBlockMask = 1<<6 - 1
	signalled     = 1 << 31
)

// SQ is a send queue. WQEs have one basic block and send one buffer, but for those of WriteHeaded and Pack. Hot
// paths read the counters directly.
type SQ struct {
	Buffers []uint32 // being sent, in order: a ring of its own
	Queued  uint32   // buffers put into WQEs
	Freed   uint32   // buffers whose WQE completed
	Posted  uint32   // basic blocks written
	Done    uint32   // basic blocks completed
	Mask    uint32
	Inline  Inline

	words   []uint32 // per slot
	bufMask uint32
	latest  uint32 // the latest WQE
	ring    []byte
	record  []byte
	door    Doorbell
	key     uint64
	qpnDS   uint64 // sqn and unit count of the usual WQE
	number  uint32
}

// NewSQ makes the queue over ring, WQEBBSize bytes per basic block. Frames are read under key.
func NewSQ(ring, record []byte, door Doorbell, key uint32, inline Inline) *SQ {
	n := len(ring) / WQEBBSize
	buffers := n * unitsPerBlock // what WQEs with many data segments hold
	q := &SQ{
		Buffers: make([]uint32, buffers), words: make([]uint32, n), Mask: uint32(n - 1), bufMask: uint32(buffers - 1),
		Inline: inline, ring: ring, record: record, door: door, key: uint64(key),
	}
	q.Reset()
	return q
}

// Reset starts over. Only while the queue is in RST.
func (q *SQ) Reset() {
	clear(q.ring)
	clear(q.Buffers)
	clear(q.words)
	q.Posted, q.Done, q.Queued, q.Freed, q.latest = 0, 0, 0, 0, 0
	dma.StoreBE32(q.record, prm.WQRecordSendOff, 0)
}

// Named sets the number the card gave the queue.
func (q *SQ) Named(sqn uint32) {
	units := uint64(3)
	if q.Inline != InlineNone {
		units = 4
	}
	q.number, q.qpnDS = sqn, uint64(sqn)<<8|units
}

// Number is the SQ number.
func (q *SQ) Number() uint32 { return q.number }

// Size is how many basic blocks the ring has.
func (q *SQ) Size() uint32 { return q.Mask + 1 }

// Room is how many basic blocks are free, and so how many buffers Write takes.
func (q *SQ) Room() uint32 { return q.Mask + 1 - (q.Posted - q.Done) }

// Outstanding is how many buffers the card has.
func (q *SQ) Outstanding() uint32 { return q.Queued - q.Freed }

// control is the first 8 bytes of the usual WQE with counter n.
func (q *SQ) control(n uint32) uint64 {
	return (uint64(n&0xffff)<<8|uint64(prm.WQESend))<<32 | q.qpnDS
}

// Frame is a frame to send.
type Frame struct {
	Addr   uint64 // bus address
	Length uint32
	Buffer uint32
	Offload
}

// Offload is what the card does to a frame, as its WQE says it.
type Offload struct {
	checksum uint32 // dword 0x14
	insert   uint32 // dword 0x1c
}

// Insert is an Offload that fills in checksums (Checksum constants), and a VLAN tag if tagged.
func Insert(checksum uint8, tagged bool, tag uint16) Offload {
	o := Offload{checksum: uint32(checksum) << 24}
	if tagged {
		o.insert = vlanInsert | uint32(tag)
	}
	return o
}

// track notes a WQE of some basic blocks at n, behind which the count of buffers is queued, and returns the
// control segment's second quadword, which says whether it asks for a completion.
func (q *SQ) track(n, blocks, queued uint32) (signal uint64) {
	word := queued&wordBuffers | blocks<<wordBlocks
	if (n^(n+blocks))&signalEvery != 0 {
		signal = ceAlways
		word |= signalled
	}
	q.words[n&q.Mask] = word
	for ; blocks > 1; blocks-- {
		q.words[(n+blocks-1)&q.Mask] = 0
	}
	return signal
}

// Write fills the next WQEs with frames; there must be no more than Room, and the queue's Inline must be
// InlineNone. The card sees them after Ring.
func (q *SQ) Write(frames []Frame) {
	if len(frames) == 0 {
		return
	}
	n, queued := q.Posted, q.Queued
	for i := range frames {
		f := &frames[i]
		w := (*[WQEBBSize]byte)(q.ring[(n&q.Mask)*WQEBBSize:])
		q.Buffers[queued&q.bufMask] = f.Buffer
		queued++
		binary.BigEndian.PutUint64(w[0x00:], q.control(n))
		binary.BigEndian.PutUint64(w[0x08:], q.track(n, 1, queued))
		binary.BigEndian.PutUint64(w[0x10:], uint64(f.checksum))
		binary.BigEndian.PutUint64(w[0x18:], uint64(f.insert))
		binary.BigEndian.PutUint64(w[0x20:], uint64(f.Length)<<32|q.key)
		binary.BigEndian.PutUint64(w[0x28:], f.Addr)
		n++
	}
	q.Posted, q.Queued, q.latest = n, queued, n-1
}

// WriteInline is Write of one frame for queues with inlined headers: data, at bus address f.Addr, has more
// than InlineL2 bytes. The card takes the tag from the inlined bytes, as the field for insertion is in use
// (Linux mlx5e_insert_vlan).
func (q *SQ) WriteInline(f *Frame, data []byte) {
	n := q.Posted
	w := (*[WQEBBSize]byte)(q.ring[(n&q.Mask)*WQEBBSize:])
	q.Buffers[q.Queued&q.bufMask] = f.Buffer
	q.Queued++
	binary.BigEndian.PutUint64(w[0x00:], q.control(n))
	binary.BigEndian.PutUint64(w[0x08:], q.track(n, 1, q.Queued))
	binary.BigEndian.PutUint64(w[0x10:], uint64(f.checksum))
	binary.BigEndian.PutUint64(w[0x18:], uint64(InlineL2)<<16)
	skip := int(InlineL2)
	if f.insert != 0 {
		skip = 14
		copy(w[0x1e:], data[:12])
		binary.BigEndian.PutUint16(w[0x1e+12:], etherTypeC)
		binary.BigEndian.PutUint16(w[0x1e+14:], uint16(f.insert))
		copy(w[0x1e+16:0x30], data[12:14])
	} else {
		copy(w[0x1e:0x30], data)
	}
	binary.BigEndian.PutUint64(w[0x30:], uint64(len(data)-skip)<<32|q.key)
	binary.BigEndian.PutUint64(w[0x38:], f.Addr+uint64(skip))
	q.Posted, q.latest = n+1, n
}

// Ring asks for a completion of the latest WQE and tells the card of all. Something must be outstanding.
func (q *SQ) Ring() {
	slot := q.latest & q.Mask
	q.words[slot] |= signalled
	w := q.ring[slot*WQEBBSize:]
	binary.BigEndian.PutUint64(w[8:], ceAlways)
	// Partner: the card's load of the record after it saw the register.
	dma.StoreBE32(q.record, prm.WQRecordSendOff, q.Posted&0xffff)
	q.door.Window.Store64(q.door.Page+prm.UARBlueFlameOff, binary.BigEndian.Uint64(w))
	q.door.Trace.Doorbell(trace.BellSQ, q.number, q.Posted&0xffff)
}

// Completion is what a completion says: WQEs up to and with Next-1 are done, and so are Buffers buffers.
type Completion struct {
	Next, Buffers uint32
	// Signalled: the WQE asked for the completion. Without, only an error completes it.
	Signalled bool
}

// Completed checks a completion's WQE counter against what is outstanding: it must name a WQE.
func (q *SQ) Completed(counter uint16) (c Completion, ok bool) {
	ahead := uint32(counter - uint16(q.Done))
	word := q.words[(q.Done+ahead)&q.Mask]
	blocks := word >> wordBlocks & wordBlockMask
	if blocks == 0 || ahead+blocks > q.Posted-q.Done {
		return c, false
	}
	c = Completion{Next: q.Done + ahead + blocks, Buffers: (word - q.Freed) & wordBuffers, Signalled: word&signalled != 0}
	return c, c.Buffers <= q.Outstanding()
}

// Complete notes that the card is done with what c says, and with the buffers that Take has taken.
func (q *SQ) Complete(c Completion) { q.Done = c.Next }

// Take moves the oldest buffers into dst; there must be as many Outstanding.
func (q *SQ) Take(dst []uint32) {
	at := q.Freed & q.bufMask
	n := copy(dst, q.Buffers[at:])
	copy(dst[n:], q.Buffers)
	q.Freed += uint32(len(dst))
}
