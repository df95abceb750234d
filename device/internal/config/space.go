package config

import (
	"encoding/binary"
	"sync"
	"sync/atomic"

	"cxkit/pci"
)

// size is an extended configuration space (PCIe base specification 7.2).
const size = 4096

// Offsets of the capabilities, as on a real ConnectX-5.
const (
	offPM      = 0x40
	offVPD     = 0x48
	offExpress = 0x60
	offMSIX    = 0x9c
	offVendor  = 0xc0
	offAER     = 0x100
	offARI     = 0x150
	offSRIOV   = 0x180
	offSecond  = 0x1c0
)

// The MSI-X table and pending bits have BAR0 pages of their own, behind the init segment and before the
// first UAR that is handed out. (Real cards put them at 0x2000 and 0x3000, inside the init segment.)
const (
	msixTable = 0x6000
	msixPBA   = 0xe000
	// End is the first byte of BAR0 that doorbell pages may use.
	End = 0x10000
)

// Identity is what differs between functions and cards.
type Identity struct {
	Vendor, Device       uint16
	SubVendor, SubDevice uint16
	Revision             uint8
	// BARSize is BAR0's size in bytes, a power of two.
	BARSize uint64
	// Vectors is the number of MSI-X vectors, 1 to 2048.
	Vectors int
	// Function is the function's number, LastFunction that of the last one of the card.
	Function, LastFunction int
	Multifunction          bool
	// VPD is the vital product data.
	VPD []byte
	// Virtual: a virtual function. Its configuration space is that of a function of its own, as the host
	// makes it look: real ones have no identifiers, BARs and memory bit there.
	Virtual bool
	// VFs is how many virtual functions the function may have, VFDevice their device identifier, VFBARSize
	// the size of their BAR0, FirstVF how many functions on from this one the first is.
	VFs       int
	VFDevice  uint16
	VFBARSize uint64
	FirstVF   int
}

// Space is a function's configuration space. Its methods may be called from any goroutine.
type Space struct {
	id Identity

	master atomic.Bool // bus master is on and the function is in D0
	vfs    atomic.Int32

	mu     sync.Mutex // guards the rest
	bytes  [size]byte
	write  [size]byte // bits that can be written
	clear  [size]byte // bits that writing one clears
	vendor vendorWindow
}

// New makes the configuration space of a function at power-on.
func New(id Identity) *Space {
	s := &Space{id: id}
	s.Reset()
	return s
}

// Table and PBA are where BAR0 has the MSI-X table and the pending bits.
func (s *Space) Table() pci.BARRange {
	return pci.BARRange{BAR: 0, Off: msixTable, Len: uint64(s.id.Vectors) * 16}
}

// PBA is where BAR0 has the pending bits.
func (s *Space) PBA() pci.BARRange {
	return pci.BARRange{BAR: 0, Off: msixPBA, Len: uint64(s.id.Vectors+63) / 64 * 8}
}

// Reset brings the space back to power-on.
func (s *Space) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.build()
	s.publish()
}

// ResetFunction is what a function level reset does: everything but the sticky error masks of AER.
func (s *Space) ResetFunction() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var aer [offARI - offAER]byte
	copy(aer[:], s.bytes[offAER:])
	s.build()
	copy(s.bytes[offAER:], aer[:])
	s.publish()
}

// BusMaster reports whether the function may use memory and interrupts.
func (s *Space) BusMaster() bool { return s.master.Load() }

// VFs is how many virtual functions the host has enabled.
func (s *Space) VFs() int { return int(s.vfs.Load()) }

// Read reads 1, 2 or 4 bytes. Outside the space it reads zero.
func (s *Space) Read(off, n int) uint32 {
	if off < 0 || n < 1 || n > 4 || off+n > size {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if off>>2 == (offVendor+vendorCounter)>>2 {
		s.vendor.count(s.bytes[offVendor:])
	}
	var b [4]byte
	copy(b[:n], s.bytes[off:])
	return binary.LittleEndian.Uint32(b[:])
}

// Effect is what a write makes the function do.
type Effect struct {
	// Reset: the function resets itself (Device Control bit 15).
	Reset bool
	// Master: whether the function is bus master may have changed.
	Master bool
	// VFs: how many virtual functions are enabled has changed.
	VFs bool
}

// Write writes 1, 2 or 4 bytes; bits that can't be written stay. Outside the space it does nothing.
func (s *Space) Write(off, n int, v uint32) Effect {
	if off < 0 || n < 1 || n > 4 || off+n > size {
		return Effect{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was, vfs := s.master.Load(), s.vfs.Load()
	var e Effect
	if s.bytes[offSRIOV+sriovControl]&vfEnable != 0 {
		// NumVFs may be written only while VF Enable is clear.
		s.rw16(offSRIOV+sriovNumVFs, 0)
	} else if s.id.VFs > 0 {
		s.rw16(offSRIOV+sriovNumVFs, 0xffff)
	}
	for i := range n {
		at, b := off+i, byte(v>>(8*i))
		s.bytes[at] = s.bytes[at]&^s.write[at] | b&s.write[at]
		s.bytes[at] &^= b & s.clear[at]
		if at == offExpress+9 && b&0x80 != 0 {
			e.Reset = true // Device Control bit 15, which always reads as zero
		}
	}
	if !s.id.Virtual && touches(off, n, offVPD+2, 2) {
		s.accessVPD()
	}
	if off >= offVendor+4 && off < offVendor+vendorLen {
		s.vendor.written(s.bytes[offVendor:], off-offVendor, n)
	}
	s.publish()
	e.Master, e.VFs = s.master.Load() != was, s.vfs.Load() != vfs
	return e
}

// touches reports whether a write of n bytes at off reaches into count bytes at field.
func touches(off, n, field, count int) bool { return off < field+count && field < off+n }

// publish derives what other goroutines read without the lock.
func (s *Space) publish() {
	d0 := s.bytes[offPM+4]&3 == 0
	s.master.Store(s.bytes[4]&4 != 0 && d0)
	n := 0
	if s.bytes[offSRIOV+sriovControl]&vfEnable != 0 {
		n = min(int(binary.LittleEndian.Uint16(s.bytes[offSRIOV+sriovNumVFs:])), s.id.VFs)
	}
	s.vfs.Store(int32(n))
}

func (s *Space) put16(off int, v uint16) { binary.LittleEndian.PutUint16(s.bytes[off:], v) }
func (s *Space) put32(off int, v uint32) { binary.LittleEndian.PutUint32(s.bytes[off:], v) }
func (s *Space) rw16(off int, v uint16)  { binary.LittleEndian.PutUint16(s.write[off:], v) }
func (s *Space) rw32(off int, v uint32)  { binary.LittleEndian.PutUint32(s.write[off:], v) }
func (s *Space) w1c16(off int, v uint16) { binary.LittleEndian.PutUint16(s.clear[off:], v) }
func (s *Space) w1c32(off int, v uint32) { binary.LittleEndian.PutUint32(s.clear[off:], v) }
