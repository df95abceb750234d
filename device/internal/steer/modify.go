package steer

import "cxkit/device/internal/object"

// Registers is a change of a frame's metadata registers C1 (the high half) and C0: the bits of mask become
// those of value, which has no others.
type Registers struct{ mask, value uint64 }

// Set returns r with length bits from first on, in register C0 or C1, set to the low bits of data. The bits are
// inside the register.
func (r Registers) Set(c1 bool, first, length uint, data uint32) Registers {
	if c1 {
		first += 32
	}
	mask := (uint64(1)<<length - 1) << first
	return r.then(Registers{mask, uint64(data) << first & mask})
}

// Of are the registers after the change.
func (r Registers) Of(c uint64) uint64 { return c&^r.mask | r.value }

// then is r and after it n.
func (r Registers) then(n Registers) Registers { return Registers{r.mask | n.mask, n.Of(r.value)} }

// Header is a modify header context: what entries of one type of tables do to frames' registers. Entries that
// use it hold it.
type Header struct {
	object.Refs
	Type Type
	Set  Registers
}
