package queue

import (
	"encoding/binary"

	"cxkit/dma"
	"cxkit/prm"
)

// Compressed completions (reference 03 §2.3, basic layout): a session of n completions takes n entries. The
// first is the title, the first completion itself, with n in byte_cnt; eight bytes of each are in arrays
// of eight at entries 1, 8, 16, ... of the session. The other entries are as they were.

// MaxMini is the longest session.
const MaxMini = 64

// Values of mini_cqe_res_format that drivers here use: the hash, or checksum and stride.
const (
	MiniHash           = 0
	MiniChecksumStride = 3
)

const (
	miniSize  = 8
	miniArray = prm.CQESize / miniSize
)

// IsCompressed tells that an entry is the title of a session of received frames.
func IsCompressed(own prm.CQEOwn) bool {
	return own.Opcode() == prm.CQEResponderSend && own.Format() == prm.CQEFormatCompressed
}

// Expand rewrites the session that begins at the next entry as the completions that it stands for, with what
// it does not tell left zero. Every entry of the session is software's, and gets the ownership dword of
// this pass, so that none looks taken over in the next. false: a session of that length cannot be, most is
// the longest, or one of large receives.
func (q *CQ) Expand(format uint8, most uint32) bool {
	title := *q.Next()
	n := title.ByteCnt()
	if n < 2 || n > min(most, MaxMini, q.Mask+1) || title.LRONumSeg() > 1 {
		return false
	}
	var minis [MaxMini][miniSize]byte
	for i := uint32(0); i < n; i += miniArray {
		array := q.Ring[int((q.Taken+max(i, 1))&q.Mask)*prm.CQESize:]
		for k := range uint32(miniArray) {
			copy(minis[i+k][:], array[k*miniSize:])
		}
	}
	be := binary.BigEndian
	counter := title.WQECounter()
	for i := range n {
		at := q.Taken + i
		e := q.Ring[int(at&q.Mask)*prm.CQESize:][:prm.CQESize]
		copy(e[:prm.CQEOwnOff], title[:])
		m := &minis[i]
		copy(e[0x2c:0x30], m[4:])
		if format == MiniHash {
			copy(e[0x0c:0x10], m[:4])
			if i > 0 {
				be.PutUint16(e[0x14:], 0)
			}
		} else {
			copy(e[0x14:0x16], m[:2])
			counter = be.Uint16(m[2:])
			if i > 0 {
				be.PutUint32(e[0x0c:], 0)
				e[0x10] = 0
			}
		}
		dma.StoreBE32(e, prm.CQEOwnOff, prm.CQEOwnDword(counter, 0, prm.CQEResponderSend, prm.CQEFormatNone, false, at>>q.Log&1 != 0))
		counter += uint16(max(1, be.Uint32(e[0x2c:])>>16&0x7fff))
	}
	return true
}
