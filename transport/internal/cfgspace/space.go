// Package cfgspace is how transports reach a function's configuration space: accesses of any length are
// cut into aligned ones, and writes that concern the transport are noticed.
package cfgspace

import (
	"encoding/binary"
	"fmt"

	"cxkit/pci"
)

// Size is the length of an extended configuration space (PCIe base specification 7.2).
const Size = 4096

const (
	capPointer = 0x34
	capExpress = 0x10
	capMSIX    = 0x11
	capsMax    = 48 // capabilities that fit between 0x40 and 0xff
)

// Space is the configuration space of one endpoint.
type Space struct {
	endpoint      pci.Endpoint
	express, msix int // offsets of capabilities, 0 if there is none
}

// New looks where the capabilities of ep are.
func New(ep pci.Endpoint) *Space {
	s := &Space{endpoint: ep}
	s.express, s.msix = s.capability(capExpress), s.capability(capMSIX)
	return s
}

// capability is the offset of the first capability with an id, or 0.
func (s *Space) capability(id byte) int {
	off := int(s.endpoint.ReadConfig(capPointer, 1)) &^ 3
	for range capsMax {
		if off < 0x40 {
			return 0
		}
		if byte(s.endpoint.ReadConfig(off, 1)) == id {
			return off
		}
		off = int(s.endpoint.ReadConfig(off+1, 1)) &^ 3
	}
	return 0 // a loop
}

// Read fills p from off.
func (s *Space) Read(off int, p []byte) error {
	if err := check("read", off, len(p)); err != nil {
		return err
	}
	for i := 0; i < len(p); {
		n := unit(off+i, len(p)-i)
		var word [4]byte
		binary.LittleEndian.PutUint32(word[:], s.endpoint.ReadConfig(off+i, n))
		i += copy(p[i:], word[:n])
	}
	return nil
}

// Effect is what a write asks of the transport.
type Effect struct {
	// Reset: the write started a function level reset, which the endpoint has performed: interrupts from
	// before are void.
	Reset bool
	// MSIX: MSI-X control was written; FunctionMask is its mask bit.
	MSIX         bool
	FunctionMask bool
}

// Write writes p at off. It returns when a reset that it starts is over.
func (s *Space) Write(off int, p []byte) (e Effect, err error) {
	if err := check("write", off, len(p)); err != nil {
		return e, err
	}
	for i := 0; i < len(p); {
		n := unit(off+i, len(p)-i)
		var word [4]byte
		copy(word[:n], p[i:])
		s.endpoint.WriteConfig(off+i, n, binary.LittleEndian.Uint32(word[:]))
		i += n
	}
	wrote := func(at int) bool { return at >= off && at < off+len(p) }
	// Device Control bit 15 (PCIe 7.5.3.4) is in its second byte; Device Capabilities bit 28 allows it.
	if at := s.express + 9; s.express != 0 && wrote(at) && p[at-off]&0x80 != 0 {
		e.Reset = s.endpoint.ReadConfig(s.express+4, 4)&(1<<28) != 0
	}
	if at := s.msix + 3; s.msix != 0 && (wrote(at) || e.Reset) {
		e.MSIX, e.FunctionMask = true, s.endpoint.ReadConfig(s.msix+2, 2)&(1<<14) != 0
	}
	return e, nil
}

func check(op string, off, n int) error {
	if off < 0 || off > Size || n > Size-off {
		return fmt.Errorf("%s config %#x+%d: outside configuration space", op, off, n)
	}
	return nil
}

// unit is the largest aligned access of at most left bytes at off.
func unit(off, left int) int {
	switch {
	case off&3 == 0 && left >= 4:
		return 4
	case off&1 == 0 && left >= 2:
		return 2
	}
	return 1
}
