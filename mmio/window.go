package mmio

import (
	"fmt"
	"math/bits"
	"sync"
)

// Trap carries single register accesses to a device. size is 4 or 8. Implementations are called from
// any goroutine. Store is posted: it returns once the access is accepted, in order with later accesses
// of the same goroutine. Load returns all ones when the device is gone.
type Trap interface {
	Load(off uint64, size int) uint64
	Store(off uint64, size int, v uint64)
}

// Window is one BAR as the driver sees it. Its methods may be called from any goroutine; accesses of
// one goroutine reach the device in order.
type Window struct {
	mapped []byte // whole BAR when mapped, else nil
	trap   Trap   // when not mapped
	size   uint64

	pair sync.Mutex // keeps the two halves of an 8-byte access together, on 32-bit hosts
}

// halved: the host has no 64-bit loads and stores.
const halved = bits.UintSize == 32

// NewMapped makes a window of memory that the device maps. mem must start at an 8-byte boundary and
// stay mapped as long as the window is used; the owner of the memory is the caller.
func NewMapped(mem []byte) *Window {
	if !aligned8(mem) {
		panic("mmio: mapped window does not start at an 8-byte boundary")
	}
	return &Window{mapped: mem, size: uint64(len(mem))}
}

// NewTrapped makes a window of size bytes whose accesses go to t.
func NewTrapped(t Trap, size uint64) *Window { return &Window{trap: t, size: size} }

// Size is the window's length in bytes.
func (w *Window) Size() uint64 { return w.size }

// Mapped reports whether accesses reach device memory without a trap.
func (w *Window) Mapped() bool { return w.mapped != nil }

// Load32 reads the register at off, a multiple of 4.
func (w *Window) Load32(off uint64) uint32 {
	w.check(off, 4)
	if w.mapped != nil {
		v := load32(w.mapped, off)
		ReadBarrier() // partner: whatever made the device change the register before its DMA writes
		return v
	}
	return uint32(w.trap.Load(off, 4))
}

// Load64 reads the 8-byte register at off, a multiple of 8, in one access where the host has 64-bit
// loads; 32-bit hosts read the two halves in address order.
func (w *Window) Load64(off uint64) uint64 {
	w.check(off, 8)
	if w.mapped == nil {
		return w.trap.Load(off, 8)
	}
	var v uint64
	if halved {
		w.pair.Lock()
		v = uint64(load32(w.mapped, off))<<32 | uint64(load32(w.mapped, off+4))
		w.pair.Unlock()
	} else {
		v = load64(w.mapped, off)
	}
	ReadBarrier() // partner: as in Load32
	return v
}

// Store32 writes the register at off, a multiple of 4. Memory written before the call is visible to the
// device when it sees the register change.
func (w *Window) Store32(off uint64, v uint32) {
	w.check(off, 4)
	if w.mapped != nil {
		WriteBarrier() // partner: the device reads memory after it saw this register change
		store32(w.mapped, off, v)
		return
	}
	w.trap.Store(off, 4, uint64(v))
}

// Store64 writes the 8-byte register at off, a multiple of 8, in one access where the host has 64-bit
// stores; 32-bit hosts write the two halves in address order with nobody's in between (the device acts
// on the second, as Linux' mlx5_write64 relies on).
func (w *Window) Store64(off uint64, v uint64) {
	w.check(off, 8)
	if w.mapped == nil {
		w.trap.Store(off, 8, v)
		return
	}
	WriteBarrier() // partner: as in Store32
	if halved {
		w.pair.Lock()
		store32(w.mapped, off, uint32(v>>32))
		store32(w.mapped, off+4, uint32(v))
		w.pair.Unlock()
		return
	}
	store64(w.mapped, off, v)
}

// check panics: a wrong offset is a programmer's mistake, never input.
func (w *Window) check(off, size uint64) {
	if off&(size-1) != 0 || off+size > w.size || off+size < off {
		w.badAccess(off, size)
	}
}

func (w *Window) badAccess(off, size uint64) {
	panic(fmt.Sprintf("mmio: access of %d bytes at %#x of a %#x-byte window", size, off, w.size))
}
