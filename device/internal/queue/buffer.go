package queue

import (
	"encoding/binary"

	"cxkit/device/internal/ring"
	"cxkit/dma"
	"cxkit/pci"
)

// Buffer is the memory of a ring, given as a page list.
type Buffer struct {
	pages      *ring.Pages
	bus        uint64 // of the first byte
	size       int
	contiguous bool // the pages follow each other on the bus

	flat       []byte // all of it, if it is one piece of mapped memory
	generation uint64 // of the memory when flat was looked up
}

// NewBuffer describes a ring of size bytes in pages of 1<<shift bytes, which hold that many.
func NewBuffer(pages *ring.Pages, shift uint8, size int) Buffer {
	b := Buffer{pages: pages, bus: pages.Bus(0), size: size, contiguous: true}
	addrs := pages.Addrs()
	for i := 1; i < len(addrs); i++ {
		if addrs[i] != addrs[i-1]+1<<shift {
			b.contiguous = false
			break
		}
	}
	return b
}

// Pages are the ring's pages.
func (b *Buffer) Pages() *ring.Pages { return b.pages }

// refresh makes the view right for the present step.
func (b *Buffer) refresh(e *Env) {
	if b.generation == e.generation && (b.flat != nil || !b.contiguous) {
		return
	}
	b.generation, b.flat = e.generation, nil
	if b.contiguous {
		b.flat = e.mem.View(b.bus, b.size, pci.Read|pci.Write)
	}
}

// view returns n bytes at off, nil when they straddle pages or are not mapped memory.
func (b *Buffer) view(e *Env, off, n int) []byte {
	if b.flat != nil {
		return b.flat[off : off+n : off+n]
	}
	return b.pages.View(e.mem, off, n)
}

// entry returns n bytes at off of a ring that wraps: as they lie in memory if they are in one piece,
// else copied to scratch.
func (b *Buffer) entry(e *Env, off, n int, scratch []byte) ([]byte, error) {
	if off+n <= b.size {
		if v := b.view(e, off, n); v != nil {
			return v, nil
		}
	}
	first := min(n, b.size-off)
	if err := b.pages.Read(e.mem, off, scratch[:first]); err != nil {
		return nil, err
	}
	if err := b.pages.Read(e.mem, 0, scratch[first:n]); err != nil {
		return nil, err
	}
	return scratch[:n], nil
}

// Record is a doorbell record: two counters that the driver stores.
type Record struct {
	addr       uint64
	view       []byte
	generation uint64
}

// RecordSize is the size of a doorbell record; it is aligned to it.
const RecordSize = 8

// NewRecord describes the record at addr, a multiple of RecordSize.
func NewRecord(addr uint64) Record { return Record{addr: addr} }

func (r *Record) refresh(e *Env) {
	if r.generation == e.generation && r.view != nil {
		return
	}
	r.generation = e.generation
	r.view = e.mem.View(r.addr, RecordSize, pci.Read)
}

// load reads the counter at off, 0 or 4. ok is false when the host took the memory away.
func (r *Record) load(e *Env, off int) (v uint32, ok bool) {
	if r.view != nil {
		return dma.LoadBE32(r.view, off), true
	}
	var b [4]byte
	if err := e.mem.ReadAt(b[:], r.addr+uint64(off)); err != nil {
		return 0, false
	}
	return binary.BigEndian.Uint32(b[:]), true
}
