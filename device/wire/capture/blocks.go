package capture

import (
	"encoding/binary"
	"io"
)

// blocks passes a recording on to where it is kept and counts the frames that got there whole.
type blocks struct {
	to     io.Writer
	frames uint64

	head [8]byte // type and length of the block that is being written
	have int     // bytes of head that are there
	left uint32  // bytes of the block behind its head that are not written yet
}

// Write writes.
func (b *blocks) Write(p []byte) (int, error) {
	n, err := b.to.Write(p)
	b.count(p[:min(max(n, 0), len(p))])
	return n, err
}

func (b *blocks) count(p []byte) {
	for len(p) > 0 {
		if b.have < len(b.head) {
			n := copy(b.head[b.have:], p)
			b.have, p = b.have+n, p[n:]
			if b.have < len(b.head) {
				return
			}
			b.left = binary.LittleEndian.Uint32(b.head[4:]) - uint32(len(b.head))
		}
		n := min(uint32(len(p)), b.left)
		b.left, p = b.left-n, p[n:]
		if b.left > 0 {
			return
		}
		b.have = 0
		if binary.LittleEndian.Uint32(b.head[:]) == blockEnhanced {
			b.frames++
		}
	}
}
