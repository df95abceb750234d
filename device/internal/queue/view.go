package queue

import (
	"cxkit/device/internal/mkey"
	"cxkit/pci"
	"cxkit/prm"
)

// windowLog is log2 of the pieces of host memory whose views are kept; windows is how many are.
const (
	windowLog = 21
	windows   = 16
)

// window is the view of an aligned piece of host memory.
type window struct {
	base       uint64 // address >> windowLog
	view       []byte // nil: the piece is not one piece of mapped memory
	generation uint64
	epoch      uint64 // of the look-up
}

// grant is a key that was found to give its queue an access to the whole address space. It is good for
// one step: keys change between steps only.
type grant struct {
	epoch uint64
	key   uint32
}

// view returns the n bytes at addr of a key as mkey.Table.Resolve does. Drivers use one key for all their
// memory and little of it at a time, so the key is checked once a step and views of large pieces are
// kept: what is left is a comparison and a slice.
func (e *Env) view(g *grant, u *mkey.User, key uint32, addr uint64, n int, access pci.Access) ([]byte, error) {
	if g.epoch == e.epoch && g.key == key {
		if v := e.windowed(addr, n); v != nil {
			return v, nil
		}
		return e.mem.View(addr, n, access), nil
	}
	v, err := e.keys.Resolve(e.mem, key, addr, n, *u, access)
	if err == nil && e.wholeSpace(key) {
		*g = grant{e.epoch, key}
	}
	return v, err
}

// wholeSpace reports whether a key that grants an access grants it at every address, as a bus address.
func (e *Env) wholeSpace(key uint32) bool {
	if key == mkey.Reserved {
		return true
	}
	k := e.keys.Get(key >> 8)
	return k != nil && k.Context.Length64 && k.Context.AccessMode() == prm.MKeyAccessPA
}

// windowed returns n bytes at addr of the window they lie in, nil if they don't lie in one.
func (e *Env) windowed(addr uint64, n int) []byte {
	const size = 1 << windowLog
	w := &e.windows[addr>>windowLog&(windows-1)]
	if w.base != addr>>windowLog || w.generation != e.generation || w.view == nil {
		if e.look(w, addr>>windowLog); w.view == nil {
			return nil
		}
	}
	if off := int(addr & (size - 1)); n <= size-off {
		return w.view[off : off+n : off+n]
	}
	return nil
}

// look finds the view of a window, at most once a step. Windows are for reading and writing: memory that
// may only be read has none.
func (e *Env) look(w *window, base uint64) {
	if w.base == base && w.epoch == e.epoch {
		return
	}
	*w = window{base: base, generation: e.generation, epoch: e.epoch}
	w.view = e.mem.View(base<<windowLog, 1<<windowLog, pci.Read|pci.Write)
}
