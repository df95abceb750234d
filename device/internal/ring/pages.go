package ring

import (
	"cxkit/dma"
	"cxkit/pci"
)

// Pages is a buffer made of equal pages at bus addresses. It keeps the views of its pages as long as the
// memory's generation lasts. One goroutine, the engine, uses it, with the memory entered.
type Pages struct {
	addrs      []uint64
	views      [][]byte
	shift      uint8 // log2 of the page size
	offset     int   // of the buffer's first byte in the first page
	generation uint64
	access     pci.Access
}

// New describes a buffer whose byte 0 lies offset bytes into the first page; pages are 1<<shift bytes.
// addrs is kept.
func New(addrs []uint64, shift uint8, offset int, access pci.Access) *Pages {
	return &Pages{addrs: addrs, views: make([][]byte, len(addrs)), shift: shift, offset: offset, access: access}
}

// Addrs are the page addresses.
func (p *Pages) Addrs() []uint64 { return p.addrs }

// Fits reports whether the buffer has at least n bytes.
func (p *Pages) Fits(n int) bool {
	return n >= 0 && uint64(p.offset)+uint64(n) <= uint64(len(p.addrs))<<p.shift
}

// Bus is the bus address of byte off, which must be inside.
func (p *Pages) Bus(off int) uint64 {
	at := uint64(p.offset) + uint64(off)
	return p.addrs[at>>p.shift] + at&(1<<p.shift-1)
}

// View returns n bytes at off as they lie in the host's memory, or nil when they straddle two pages or
// are not mapped memory; then Read and Write decide.
func (p *Pages) View(mem pci.Memory, off, n int) []byte {
	if g := mem.Generation(); g != p.generation {
		clear(p.views)
		p.generation = g
	}
	at := uint64(p.offset) + uint64(off)
	i, in := at>>p.shift, at&(1<<p.shift-1)
	if i >= uint64(len(p.views)) {
		return nil
	}
	v := p.views[i]
	if v == nil {
		if v = mem.View(p.addrs[i], 1<<p.shift, p.access); v == nil {
			return nil
		}
		p.views[i] = v
	}
	if in+uint64(n) > uint64(len(v)) {
		return nil
	}
	return v[in : in+uint64(n) : in+uint64(n)]
}

// Read copies from the buffer at off; Write copies to it. They cross pages.
func (p *Pages) Read(mem pci.Memory, off int, b []byte) error {
	return p.each(off, len(b), func(addr uint64, from, to int) error { return mem.ReadAt(b[from:to], addr) })
}

// Write copies b to the buffer at off.
func (p *Pages) Write(mem pci.Memory, off int, b []byte) error {
	return p.each(off, len(b), func(addr uint64, from, to int) error { return mem.WriteAt(b[from:to], addr) })
}

func (p *Pages) each(off, n int, f func(addr uint64, from, to int) error) error {
	for done := 0; done < n; {
		at := uint64(p.offset) + uint64(off+done)
		i, in := at>>p.shift, at&(1<<p.shift-1)
		if i >= uint64(len(p.addrs)) {
			return &pci.DMAError{Addr: at, Len: n, Access: p.access, Why: "outside the buffer"}
		}
		part := int(min(uint64(n-done), 1<<p.shift-in))
		if err := f(p.addrs[i]+in, done, done+part); err != nil {
			return err
		}
		done += part
	}
	return nil
}

// Publish writes a whole entry, a multiple of 4 bytes, at off: the bytes before the last dword plainly,
// then the last dword, which holds the owner bit, with one atomic store. The partner is the driver's
// atomic load of that dword.
func (p *Pages) Publish(mem pci.Memory, off int, entry []byte) error {
	last := len(entry) - 4
	if v := p.View(mem, off, len(entry)); v != nil {
		copy(v[:last], entry)
		dma.StoreBE32(v, last, be32(entry[last:]))
		return nil
	}
	if err := p.Write(mem, off, entry[:last]); err != nil {
		return err
	}
	return p.Write(mem, off+last, entry[last:])
}

func be32(b []byte) uint32 {
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}
