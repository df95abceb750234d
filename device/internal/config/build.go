package config

import (
	"encoding/binary"
)

// build fills in the space as it is after power-on.
func (s *Space) build() {
	s.bytes, s.write, s.clear = [size]byte{}, [size]byte{}, [size]byte{}
	s.vendor = vendorWindow{}
	s.header()
	s.powerManagement()
	if !s.id.Virtual {
		s.capability(offVPD, 0x03, offMSIX)
		s.rw16(offVPD+2, 0xffff)
	}
	s.express()
	s.msix()
	s.capability(offVendor, 0x09, offPM)
	s.bytes[offVendor+2] = vendorLen
	s.rw32(offVendor+vendorControl, 0x0000ffff)
	s.rw32(offVendor+vendorSemaphore, 0xffffffff)
	s.rw32(offVendor+vendorAddress, 0x3fffffff|vendorFlag)
	s.rw32(offVendor+vendorData, 0xffffffff)
	s.extended()
}

// header is the type 0 header.
func (s *Space) header() {
	s.put16(0x00, s.id.Vendor)
	s.put16(0x02, s.id.Device)
	// Memory space, bus master, parity, SERR, INTx disable; a ConnectX has no I/O space.
	s.rw16(0x04, 0x0546)
	s.put16(0x06, 0x0010) // capability list
	s.w1c16(0x06, 0xf900)
	s.bytes[0x08] = s.id.Revision
	s.bytes[0x0a], s.bytes[0x0b] = 0x00, 0x02 // Ethernet controller
	s.bytes[0x0c] = 0x08                      // cache line, as firmware on a PC sets it
	s.write[0x0c] = 0xff
	if s.id.Multifunction {
		s.bytes[0x0e] = 0x80
	}
	s.put32(0x10, 0x0c) // 64-bit, prefetchable
	base := ^(s.id.BARSize - 1)
	s.rw32(0x10, uint32(base)&^0xf)
	s.rw32(0x14, uint32(base>>32))
	s.put16(0x2c, s.id.SubVendor)
	s.put16(0x2e, s.id.SubDevice)
	s.bytes[0x34] = offExpress
	s.bytes[0x3c], s.write[0x3c] = 0xff, 0xff
	s.bytes[0x3d] = byte(s.id.Function&3) + 1 // INTA to INTD
}

func (s *Space) capability(off int, id, next byte) {
	s.bytes[off], s.bytes[off+1] = id, next
}

// powerManagement: version 3, no PME; the state survives D3hot (No_Soft_Reset).
func (s *Space) powerManagement() {
	s.capability(offPM, 0x01, 0)
	s.put16(offPM+2, 0x0003)
	s.put16(offPM+4, 0x0008)
	s.rw16(offPM+4, 0x0003)
}

// express: version 2 endpoint, function level reset, 8 GT/s x16.
func (s *Space) express() {
	next := byte(offVPD)
	if s.id.Virtual {
		next = offMSIX
	}
	s.capability(offExpress, 0x10, next)
	s.put16(offExpress+0x02, 0x0002)
	s.put32(offExpress+0x04, 1<<28|1<<15|7<<9|7<<6|1<<5|2) // FLR, role based errors, latencies, extended tags, 512 bytes
	s.put16(offExpress+0x08, 0x2810)                       // read requests of 512 bytes, no snoop, relaxed ordering
	s.rw16(offExpress+0x08, 0x79ff)
	s.w1c16(offExpress+0x0a, 0x000f)
	s.put32(offExpress+0x0c, 16<<4|3)
	s.rw16(offExpress+0x10, 0x01eb)
	s.put16(offExpress+0x12, 1<<12|16<<4|3)
	s.put32(offExpress+0x24, 0x00000017) // completion timeouts A to C and off
	s.rw16(offExpress+0x28, 0x041f)
	s.put32(offExpress+0x2c, 0x0000000e)
	s.rw16(offExpress+0x30, 0x0fff)
	s.put16(offExpress+0x30, 0x0003)
}

func (s *Space) msix() {
	s.capability(offMSIX, 0x11, offVendor)
	s.put16(offMSIX+2, uint16(s.id.Vectors-1))
	s.rw16(offMSIX+2, 0xc000)
	s.put32(offMSIX+4, msixTable)
	s.put32(offMSIX+8, msixPBA)
}

// extended fills in the capabilities from 0x100 on.
func (s *Space) extended() {
	head := func(off int, id, version uint16, next int) {
		s.put32(off, uint32(id)|uint32(version)<<16|uint32(next)<<20)
	}
	head(offAER, 0x0001, 2, offARI)
	s.w1c32(offAER+0x04, 0x007ff030)
	s.rw32(offAER+0x08, 0x007ff030)
	s.put32(offAER+0x0c, 0x00462030)
	s.rw32(offAER+0x0c, 0x007ff030)
	s.w1c32(offAER+0x10, 0x0000f1c1)
	s.put32(offAER+0x14, 0x00002000)
	s.rw32(offAER+0x14, 0x0000f1c1)
	s.rw32(offAER+0x18, 0x00000140)
	s.put32(offAER+0x18, 0x000000a0)

	head(offARI, 0x000e, 1, offSRIOV)
	if s.id.Function < s.id.LastFunction {
		s.bytes[offARI+5] = byte(s.id.Function + 1)
	}

	if s.id.Virtual {
		head(offARI, 0x000e, 1, offSecond)
	} else {
		head(offSRIOV, 0x0010, 1, offSecond)
		s.sriov()
	}

	head(offSecond, 0x0019, 1, 0)
	for lane := range 16 {
		s.put16(offSecond+0x0c+2*lane, 0x7f7f)
	}
}

// Registers of the SR-IOV capability (SR-IOV 1.1 §3.3).
const (
	sriovControl = 0x08
	sriovInitial = 0x0c
	sriovTotal   = 0x0e
	sriovNumVFs  = 0x10
	sriovLink    = 0x12
	sriovOffset  = 0x14
	sriovStride  = 0x16
	sriovDevice  = 0x1a
	sriovPages   = 0x1c
	sriovPage    = 0x20
	sriovBAR     = 0x24

	vfEnable = 1 << 0
)

// sriov fills in the SR-IOV capability. Without virtual functions the structure is there, as on the real card.
func (s *Space) sriov() {
	at := func(reg int) int { return offSRIOV + reg }
	s.put16(at(sriovLink), uint16(s.id.Function))
	s.put16(at(sriovDevice), s.id.Device+1)
	s.put32(at(sriovPages), 0x00000553)
	s.put32(at(sriovPage), 1)
	if s.id.VFs == 0 {
		return
	}
	s.put16(at(sriovDevice), s.id.VFDevice)
	s.rw16(at(sriovControl), 0x0019) // VF Enable, VF MSE, ARI capable hierarchy
	s.put16(at(sriovInitial), uint16(s.id.VFs))
	s.put16(at(sriovTotal), uint16(s.id.VFs))
	s.rw16(at(sriovNumVFs), 0xffff)
	s.put16(at(sriovOffset), uint16(s.id.FirstVF))
	s.put16(at(sriovStride), 1)
	s.rw32(at(sriovPage), 0x00000553)
	base := ^(s.id.VFBARSize - 1)
	s.put32(at(sriovBAR), 0x0c) // 64-bit, prefetchable
	s.rw32(at(sriovBAR), uint32(base)&^0xf)
	s.rw32(at(sriovBAR)+4, uint32(base>>32))
}

// accessVPD serves the VPD address register: bit 15 says which way and, once it flips, that it is done.
func (s *Space) accessVPD() {
	at := binary.LittleEndian.Uint16(s.bytes[offVPD+2:])
	if at&0x8000 != 0 { // a write: vital product data is read only here; it ends without effect
		s.put16(offVPD+2, at&0x7fff)
		return
	}
	var word [4]byte
	if int(at) < len(s.id.VPD) {
		copy(word[:], s.id.VPD[at:])
	}
	copy(s.bytes[offVPD+4:], word[:])
	s.put16(offVPD+2, at|0x8000)
}

// The vendor specific capability: a window into the card's own spaces for tools (Linux lib/pci_vsc.c), of
// which this card has one, that of semaphores. Functions take one there before they ask for a reset of the
// firmware that they share.
const (
	vendorLen       = 0x18
	vendorControl   = 0x04
	vendorCounter   = 0x08
	vendorSemaphore = 0x0c
	vendorAddress   = 0x10
	vendorData      = 0x14

	// vendorFlag in the address starts a write, and is clear when it is done; a read sets it.
	vendorFlag   = 1 << 31
	vendorStatus = 0xe0 // of the control register's last byte: which of a space's accesses there are
	vendorCould  = 0x20
	// vendorSemaphores is the space, vendorLocks how many there are, four bytes apart.
	vendorSemaphores = 0x0a
	vendorLocks      = 16
)

type vendorWindow struct {
	counter   uint32
	semaphore uint32 // of the window itself
	locks     [vendorLocks]uint32
}

// count advances the counter that tools take their semaphore tickets from.
func (w *vendorWindow) count(cap []byte) {
	w.counter++
	if w.counter == 0 {
		w.counter = 1 // 0 releases the semaphore
	}
	binary.LittleEndian.PutUint32(cap[vendorCounter:], w.counter)
}

// take is a semaphore after ticket was written to it: 0 releases it, and its holder's ticket stays.
func take(semaphore, ticket uint32) uint32 {
	if semaphore != 0 && ticket != 0 {
		return semaphore
	}
	return ticket
}

// written acts on a write of n bytes at off of the capability.
func (w *vendorWindow) written(cap []byte, off, n int) {
	le := binary.LittleEndian
	lockSpace := le.Uint16(cap[vendorControl:]) == vendorSemaphores
	switch off &^ 3 {
	case vendorControl:
		cap[vendorControl+3] &^= vendorStatus
		if lockSpace {
			cap[vendorControl+3] |= vendorCould
		}
	case vendorSemaphore:
		w.semaphore = take(w.semaphore, le.Uint32(cap[vendorSemaphore:]))
		le.PutUint32(cap[vendorSemaphore:], w.semaphore)
	case vendorAddress:
		at := le.Uint32(cap[vendorAddress:])
		k := at &^ vendorFlag / 4
		if n != 4 || !lockSpace || k >= vendorLocks {
			le.PutUint32(cap[vendorAddress:], at&^vendorFlag)
			le.PutUint32(cap[vendorData:], 0)
			return
		}
		if at&vendorFlag != 0 {
			w.locks[k] = take(w.locks[k], le.Uint32(cap[vendorData:]))
		}
		le.PutUint32(cap[vendorData:], w.locks[k])
		le.PutUint32(cap[vendorAddress:], at^vendorFlag)
	}
}
