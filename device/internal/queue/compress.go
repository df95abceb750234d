package queue

import (
	"bytes"
	"encoding/binary"

	"cxkit/pci"
	"cxkit/prm"
)

// Compression of completions (reference 03 §2.3, basic layout). Completions of a burst that differ in little
// become one session: a title, which is the first one's CQE, and for each of them eight bytes, in arrays of
// eight. A session of n completions takes n entries: the title at t, arrays at t+1, t+8, t+16, ... .

// MaxMini is the longest session.
const MaxMini = 64

const (
	miniSize  = 8
	miniArray = cqeSize / miniSize
)

// Values of mini_cqe_res_format: what the first half of a mini CQE is.
const (
	MiniHash           = 0
	MiniChecksum       = 1
	MiniChecksumStride = 3
)

// compressor is the session under way of a CQ.
type compressor struct {
	format uint8
	n      int // completions
	minis  [MaxMini][miniSize]byte
	title  [cqeSize]byte
	word   uint32 // the title's last dword
	expect uint16 // wqe_counter that drivers work out for the next one
	stage  [cqeSize]byte
	array  [cqeSize]byte // of minis, on its way
}

// stage returns room for a CQE on its way into a session, nil if the CQ can't take one.
func (q *CQ) stage() []byte {
	if q.status != CQOK {
		return nil
	}
	if !q.listed {
		q.begin()
	}
	c := q.compress
	if int((q.limit-q.producer)&counterMask) <= c.n && !q.room(c.n) {
		return nil
	}
	return c.stage[:]
}

// add takes the CQE in the stage. word is its last dword.
func (q *CQ) add(word uint32) {
	c := q.compress
	cqe := &c.stage
	count := binary.BigEndian.Uint32(cqe[0x2c:])
	counter := uint16(word >> 16)
	if prm.CQEOpcode(word>>4&15) != prm.CQEResponderSend || count>>31 != 0 || cqe[0x20] != 0 {
		q.endSession()
		q.emit(cqe, word)
		return
	}
	if c.n > 0 && (c.n == MaxMini || !c.alike(word) || c.format != MiniChecksumStride && counter != c.expect) {
		q.endSession()
	}
	if c.n == 0 {
		c.title, c.word = *cqe, word
	}
	m := &c.minis[c.n]
	copy(m[4:], cqe[0x2c:0x30])
	if c.format == MiniHash {
		copy(m[:4], cqe[0x0c:0x10])
	} else {
		copy(m[:2], cqe[0x14:0x16])
		binary.BigEndian.PutUint16(m[2:], counter)
	}
	c.n++
	c.expect = counter + max(1, uint16(count>>16&0x7fff))
}

// alike reports whether the CQE in the stage has the title's fields, but for those that minis have or that
// the session gives up: hash or checksum, byte count, time stamp and counter.
func (c *compressor) alike(word uint32) bool {
	a, b := c.title[:], c.stage[:]
	return bytes.Equal(a[:0x0c], b[:0x0c]) && bytes.Equal(a[0x10:0x14], b[0x10:0x14]) && bytes.Equal(a[0x16:0x2c], b[0x16:0x2c]) &&
		bytes.Equal(a[0x38:0x3c], b[0x38:0x3c]) && word&0xffff == c.word&0xffff
}

// endSession writes the session. There is room: each completion has found its entry free.
func (q *CQ) endSession() {
	c := q.compress
	n := c.n
	if n == 0 {
		return
	}
	c.n = 0
	if n == 1 {
		q.emit(&c.title, c.word)
		return
	}
	array := &c.array
	for i := 0; i < n; i += miniArray {
		clear(array[:])
		for k := range min(miniArray, n-i) {
			copy(array[k*miniSize:], c.minis[i+k][:])
		}
		q.writeAt(uint32(max(i, 1)), array[:])
	}
	binary.BigEndian.PutUint32(c.title[0x2c:], uint32(n))
	q.emit(&c.title, c.word|uint32(prm.CQEFormatCompressed)<<2)
	q.producer = (q.producer + uint32(n) - 1) & counterMask
}

// writeAt writes an entry that lies ahead of the producer; the driver finds it by the title.
func (q *CQ) writeAt(ahead uint32, b []byte) {
	off := int((q.producer+ahead)&q.mask)<<q.config.Stride + q.offset
	if v := q.config.Buffer.view(q.env, off, cqeSize); v != nil {
		copy(v, b)
		return
	}
	if err := q.config.Buffer.pages.Write(q.env.mem, off, b); err != nil {
		q.fail(CQWriteFailure)
	}
}

// emit writes a CQE to the ring.
func (q *CQ) emit(cqe *[cqeSize]byte, word uint32) {
	slot := q.ringSlot()
	if slot == nil {
		return
	}
	copy(slot[:60], cqe[:60])
	q.put(slot, word)
}

// Resize moves the CQ to another ring: it ends the old one with a CQE that says so, and goes on in the new one
// with the counter behind that (Linux mlx5_ib cq.c, copy_resize_cqes). false: a ring is too small for what
// the driver has not consumed, or the CQ has failed.
func (q *CQ) Resize(b Buffer, logSize uint8) bool {
	if q.status != CQOK || q.env.mem == nil {
		return false
	}
	if !q.listed {
		q.begin()
	}
	q.flush()
	consumer, ok := q.config.Record.load(q.env, 0)
	used := (q.producer - consumer) & counterMask
	if !ok || used >= q.mask+1 || used+1 > 1<<logSize || q.env.mem.View(b.bus, 1, pci.Write) == nil {
		return false
	}
	q.limit = q.producer + 1
	slot := q.ringSlot()
	clear(slot[:60])
	q.put(slot, uint32(prm.CQEResize)<<4)
	q.flush()
	q.config.Buffer, q.config.LogSize, q.mask = b, logSize, 1<<logSize-1
	q.config.Buffer.refresh(q.env)
	q.limit = (consumer + q.mask + 1) & counterMask
	return true
}
