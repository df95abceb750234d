package cmdif

import (
	"encoding/binary"
	"fmt"

	"cxkit/dma"
)

// Mailbox block, 01-commands §2.
const (
	blockSize  = 576
	blockData  = 512
	blockNext  = 0x230
	blockNum   = 0x238
	blockToken = 0x23D
	blockCheck = 0x23E // signature of the control part
	blockSign  = 0x23F // signature of the block
	// blockPitch is the distance between blocks: the device wants the low 9 bits of an address clear, and
	// real parts refuse blocks that are not aligned to a power of two (Linux cmd.c, Snabb connectx.lua).
	blockPitch = 1024
	// inline is how many bytes of input and of output travel in the entry itself.
	inline = 16

	// blocksPerArena sizes the steps in which the pool grows: 512 KiB, or 32,768 page addresses.
	blocksPerArena = 512
)

// blocksFor is how many blocks a message of n bytes needs.
func blocksFor(n int) int {
	if n <= inline {
		return 0
	}
	return (n - inline + blockData - 1) / blockData
}

// arenas finds blocks by index.
type arenas []*dma.Arena

func (a arenas) block(i uint32) []byte {
	at := int(i%blocksPerArena) * blockPitch
	return a[i/blocksPerArena].Bytes()[at : at+blockSize : at+blockSize]
}

func (a arenas) bus(i uint32) uint64 {
	return a[i/blocksPerArena].Bus() + uint64(i%blocksPerArena)*blockPitch
}

// bus0 is the address of a chain's first block, 0 of an empty chain.
func (a arenas) bus0(chain []uint32) uint64 {
	if len(chain) == 0 {
		return 0
	}
	return a.bus(chain[0])
}

// link writes the control part of every block of the chain.
func (a arenas) link(chain []uint32, token uint8) {
	for k, i := range chain {
		b := a.block(i)
		clear(b[blockData:])
		if k+1 < len(chain) {
			binary.BigEndian.PutUint64(b[blockNext:], a.bus(chain[k+1]))
		}
		binary.BigEndian.PutUint32(b[blockNum:], uint32(k))
		b[blockToken] = token
	}
}

// scatter writes msg, what follows the inline part, into the chain's data and clears the rest of it.
func (a arenas) scatter(chain []uint32, msg []byte) {
	for _, i := range chain {
		data := a.block(i)[:blockData]
		n := copy(data, msg)
		msg = msg[n:]
		clear(data[n:])
	}
}

// sign writes the signatures of every block of the chain, whose data and control parts are complete.
func (a arenas) sign(chain []uint32) {
	for _, i := range chain {
		b := a.block(i)
		b[blockCheck] = ^xor8(b[blockData:blockCheck])
		b[blockSign] = ^xor8(b[:blockSign])
	}
}

// gather reads len(msg) bytes back and checks what the device must have left alone, and signatures if the
// device makes them. It copies each block once; the links it follows are the driver's own.
func (a arenas) gather(chain []uint32, msg []byte, token uint8, signed bool) error {
	for k, i := range chain {
		b := a.block(i)
		if signed && (xor8(b[blockData:blockSign]) != 0xFF || xor8(b) != 0xFF) {
			return fmt.Errorf("output block %d: %w", k, ErrSignature)
		}
		n := copy(msg, b[:blockData])
		msg = msg[n:]
		var next uint64
		if k+1 < len(chain) {
			next = a.bus(chain[k+1])
		}
		switch {
		case b[blockToken] != token:
			return fmt.Errorf("output block %d has token %#x, not %#x", k, b[blockToken], token)
		case binary.BigEndian.Uint32(b[blockNum:]) != uint32(k):
			return fmt.Errorf("output block %d says it is block %d", k, binary.BigEndian.Uint32(b[blockNum:]))
		case binary.BigEndian.Uint64(b[blockNext:]) != next:
			return fmt.Errorf("output block %d links to %#x, not %#x", k, binary.BigEndian.Uint64(b[blockNext:]), next)
		}
	}
	return nil
}

// xor8 is the sum that signatures make 0xFF.
func xor8(b []byte) uint8 {
	var sum uint64
	for ; len(b) >= 8; b = b[8:] {
		sum ^= binary.NativeEndian.Uint64(b)
	}
	sum ^= sum >> 32
	sum ^= sum >> 16
	sum ^= sum >> 8
	x := uint8(sum)
	for _, v := range b {
		x ^= v
	}
	return x
}
