package queue

import (
	"encoding/binary"

	"cxkit/prm"
)

// WQEs of several basic blocks: headers in the WQE, several pieces of memory, several frames. None of them
// wraps around in the ring: what is left of the ring is filled with WQEs that do nothing, as Linux does
// (mlx5e_txqsq_get_next_pi).

const (
	unitSize      = 16
	unitsPerBlock = WQEBBSize / unitSize
	// headUnits are the control and the Ethernet segment.
	headUnits = 2
	// ethInlineData is where inlined headers begin: in the last two bytes of the Ethernet segment.
	ethInlineData = 0x1e
	// maxUnits is what a control segment can count.
	maxUnits = 63
	// maxPacked is the most frames of a multi-packet WQE.
	maxPacked = maxUnits - headUnits

	// MaxHeader is the longest header that a WQE has room for beside MaxPieces pieces, in bytes.
	MaxHeader = 256
	// MaxPieces is the most pieces of memory that a frame may lie in.
	MaxPieces = maxUnits - headUnits - MaxHeader/unitSize
)

// Piece is a part of a frame in memory. Length 0 is a buffer of which nothing is left to send.
type Piece struct {
	Addr   uint64
	Length uint32
	Buffer uint32
}

// Headed is a frame whose header is in its WQE.
type Headed struct {
	Header  []byte // at least InlineL2 bytes, at most MaxHeader
	Pieces  []Piece
	Segment uint16 // payload of a segment of a large send; 0: no large send
	Offload        // checksums only
}

// Blocks is how many basic blocks the frame's WQE has.
func (f *Headed) Blocks() uint32 { return (f.units() + unitsPerBlock - 1) / unitsPerBlock }

// units is how many units of 16 bytes the frame's WQE has.
func (f *Headed) units() uint32 {
	n := uint32(headUnits + (len(f.Header)-2+unitSize-1)/unitSize)
	for i := range f.Pieces {
		if f.Pieces[i].Length > 0 {
			n++
		}
	}
	return n
}

// WriteHeaded fills the next WQE with a frame. false: there is no room, and nothing was written but what
// fills the ring up to its end.
func (q *SQ) WriteHeaded(f *Headed) bool {
	units, blocks := f.units(), f.Blocks()
	if !q.contiguous(blocks) || q.Outstanding()+uint32(len(f.Pieces)) > uint32(len(q.Buffers)) {
		return false
	}
	n := q.Posted
	w := q.ring[(n&q.Mask)*WQEBBSize:][:blocks*WQEBBSize]
	for i := range f.Pieces {
		q.Buffers[q.Queued&q.bufMask] = f.Pieces[i].Buffer
		q.Queued++
	}
	opcode := prm.WQESend
	if f.Segment != 0 {
		opcode = prm.WQELSO
	}
	be := binary.BigEndian
	be.PutUint64(w[0x00:], q.wide(n, opcode, units))
	be.PutUint64(w[0x08:], q.track(n, blocks, q.Queued))
	be.PutUint64(w[0x10:], uint64(f.checksum)|uint64(f.Segment))
	be.PutUint64(w[0x18:], uint64(len(f.Header))<<16)
	copy(w[ethInlineData:], f.Header)
	at := ethInlineData + 2 + (len(f.Header)-2+unitSize-1)/unitSize*unitSize
	for i := range f.Pieces {
		p := &f.Pieces[i]
		if p.Length == 0 {
			continue
		}
		be.PutUint64(w[at:], uint64(p.Length)<<32|q.key)
		be.PutUint64(w[at+8:], p.Addr)
		at += unitSize
	}
	q.Posted, q.latest = n+blocks, n
	return true
}

// wide is the first 8 bytes of a WQE.
func (q *SQ) wide(n uint32, opcode prm.WQEOpcode, units uint32) uint64 {
	return (uint64(n&0xffff)<<8|uint64(opcode))<<32 | uint64(q.number)<<8 | uint64(units)
}

// contiguous makes sure that the next blocks lie together in the ring and are free. The ring has more than
// that.
func (q *SQ) contiguous(blocks uint32) bool {
	left := q.Mask + 1 - q.Posted&q.Mask
	room := q.Room()
	if left >= blocks {
		return room >= blocks
	}
	if room < left {
		return false
	}
	for range left {
		n := q.Posted
		w := q.ring[(n&q.Mask)*WQEBBSize:]
		binary.BigEndian.PutUint64(w[0x00:], q.wide(n, prm.WQENop, 1))
		binary.BigEndian.PutUint64(w[0x08:], q.track(n, 1, q.Queued))
		q.Posted, q.latest = n+1, n
	}
	return room-left >= blocks
}

// Pack is Write with as few WQEs as there can be: frames that follow each other and ask for the same share
// one (enhanced multi-packet WQE; Linux en_tx.c, mlx5e_sq_xmit_mpwqe). There must be no more frames than
// Room. It returns how many WQEs hold several frames, and how many frames those are.
func (q *SQ) Pack(frames []Frame) (wqes, packed int) {
	for len(frames) > 0 {
		n := q.Posted
		blocks := min(q.Mask+1-n&q.Mask, q.Room(), (maxUnits+unitsPerBlock-1)/unitsPerBlock)
		most := min(len(frames), maxPacked, int(blocks*unitsPerBlock)-headUnits)
		k := 1
		for k < most && frames[k].Offload == frames[0].Offload {
			k++
		}
		if k == 1 {
			q.Write(frames[:1])
			frames = frames[1:]
			continue
		}
		q.pack(frames[:k])
		wqes++
		packed += k
		frames = frames[k:]
	}
	return wqes, packed
}

// pack writes one multi-packet WQE, for which there is room.
func (q *SQ) pack(frames []Frame) {
	n, queued := q.Posted, q.Queued
	units := uint32(headUnits + len(frames))
	blocks := (units + unitsPerBlock - 1) / unitsPerBlock
	w := q.ring[(n&q.Mask)*WQEBBSize:][:blocks*WQEBBSize]
	be := binary.BigEndian
	segs := w[headUnits*unitSize:]
	for i := range frames {
		f := &frames[i]
		q.Buffers[queued&q.bufMask] = f.Buffer
		queued++
		s := (*[unitSize]byte)(segs)
		segs = segs[unitSize:]
		be.PutUint64(s[0:], uint64(f.Length)<<32|q.key)
		be.PutUint64(s[8:], f.Addr)
	}
	be.PutUint64(w[0x00:], q.wide(n, prm.WQEEnhancedMPSW, units))
	be.PutUint64(w[0x08:], q.track(n, blocks, queued))
	be.PutUint64(w[0x10:], uint64(frames[0].checksum))
	be.PutUint64(w[0x18:], uint64(frames[0].insert))
	q.Posted, q.Queued, q.latest = n+blocks, queued, n
}
