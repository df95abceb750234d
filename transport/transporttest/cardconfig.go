package transporttest

import (
	"encoding/binary"
	"sync"
)

const (
	vendorID = 0x1b36 // Red Hat's, for virtual devices
	deviceID = 0x0c0d

	configSize = 4096
	offExpress = 0x40
	offMSIX    = 0x80
	offVendor  = 0x100 // a vendor specific extended capability: vendorSize bytes that keep what is written
	vendorData = offVendor + 8
	vendorSize = 0x40
)

// configSpace is the configuration space of a Card.
type configSpace struct {
	mu       sync.Mutex // guards bytes
	bytes    [configSize]byte
	writable [configSize]byte // bits
}

// reset brings the space to power-on.
func (s *configSpace) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.bytes[:])
	clear(s.writable[:])
	put16 := func(off int, v, writable uint16) {
		binary.LittleEndian.PutUint16(s.bytes[off:], v)
		binary.LittleEndian.PutUint16(s.writable[off:], writable)
	}
	put32 := func(off int, v, writable uint32) {
		binary.LittleEndian.PutUint32(s.bytes[off:], v)
		binary.LittleEndian.PutUint32(s.writable[off:], writable)
	}
	put16(0x00, vendorID, 0)
	put16(0x02, deviceID, 0)
	put16(0x04, 0, 0x0406)     // command: memory, bus master, INTx disable
	put16(0x06, 0x0010, 0)     // status: capability list
	put32(0x08, 0x02000001, 0) // class: Ethernet
	put32(0x10, 0x0, ^uint32(bar0Size-1))
	put32(0x18, 0x0, ^uint32(bar2Size-1))
	s.bytes[0x34] = offExpress
	put16(offExpress, offMSIX<<8|0x10, 0)
	put16(offExpress+2, 0x0002, 0)      // version 2, endpoint
	put32(offExpress+4, 1<<28|1<<15, 0) // function level reset, role based errors
	put16(offExpress+8, 0, 0x7fff)      // device control
	put16(offMSIX, 0x0011, 0)
	put16(offMSIX+2, Vectors-1, 0xc000) // enable, function mask
	put32(offMSIX+4, msixTable, 0)
	put32(offMSIX+8, msixPBA, 0)
	put32(offVendor, 0x0001000b, 0)
	put32(offVendor+4, (vendorSize+8)<<20, 0)
	for i := range vendorSize {
		s.writable[vendorData+i] = 0xff
	}
}

func (s *configSpace) read(off, size int) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b [4]byte
	if off >= 0 && off+size <= configSize {
		copy(b[:size], s.bytes[off:])
	}
	return binary.LittleEndian.Uint32(b[:])
}

// write reports whether the write starts a function level reset.
func (s *configSpace) write(off, size int, v uint32) (flr bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if off < 0 || off+size > configSize {
		return false
	}
	for i := range size {
		b, at := byte(v>>(8*i)), off+i
		s.bytes[at] = s.bytes[at]&^s.writable[at] | b&s.writable[at]
		flr = flr || at == offExpress+9 && b&0x80 != 0
	}
	return flr
}
