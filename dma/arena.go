package dma

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// Kind says what an arena is made of.
type Kind uint8

const (
	// Auto lets the transport choose the fastest kind that its device can reach.
	Auto Kind = iota
	// Heap is Go heap memory: in-process transports only. The race detector sees it.
	Heap
	// Private is anonymous memory of this process on huge pages where the system has them.
	Private
	// Shared is a memfd that another process can map.
	Shared
	// Reserved is address space that may be given to a device and is not meant to be touched: it costs
	// no memory until it is. Firmware pages are of this kind.
	Reserved
)

func (k Kind) String() string {
	switch k {
	case Auto:
		return "auto"
	case Heap:
		return "heap"
	case Private:
		return "private"
	case Shared:
		return "shared"
	case Reserved:
		return "reserved"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// PageSize is the granule of arenas, of bus addresses given to them and of ConnectX page lists: 4096
// bytes whatever the host's page size (PRM: "adapter page").
const PageSize = 4096

// hugePage is the size from which memory is worth huge pages.
const hugePage = 2 << 20

// Names of what can be behind an arena; see Backing.
const (
	backedByHeap    = "heap"
	backedByHugetlb = "hugetlb"
	backedByTHP     = "thp"
	backedBy4K      = "4k"
	backedByNothing = "none"
)

var (
	// ErrKind: this system or transport has no memory of the kind asked for.
	ErrKind = errors.New("no memory of this kind")
	// ErrSize: a size that is not positive or too large.
	ErrSize = errors.New("bad arena size")
)

// Arena is one piece of memory both sides see. Its bytes may be used by any goroutine under the
// package's rules; Close ends the arena once, after the device has stopped using it.
type Arena struct {
	mem     []byte // nil where Reserved memory has no address in this process
	size    int
	bus     uint64
	kind    Kind
	backing string
	fd      int // memfd, -1 if none
	free    func() error
	onClose func() error // set by the transport: unmap from the device first
	closed  atomic.Bool
}

// New makes an arena without a bus address; Place gives it one. size is rounded up to pages. Errors are
// ErrSize, ErrKind (also for Auto, which only a transport can resolve) and what the system says.
func New(size int, kind Kind) (*Arena, error) {
	a, err := sized(size, kind)
	if err != nil {
		return nil, err
	}
	if kind == Heap {
		if a.size > maxHeap {
			return nil, fmt.Errorf("heap arena of %d bytes: %w", size, ErrSize)
		}
		a.mem, a.backing = heapPages(a.size), backedByHeap
		return a, nil
	}
	return a.filled(a.allocate())
}

// NewExported makes an arena that another process can map by its FD: Shared memory as New makes it, or
// Reserved memory behind a memfd that has no pages until somebody touches them. Other kinds, and systems
// without memfd, are ErrKind. The memfd is sealed against shrinking, so a peer that maps it can't be
// made to fault.
func NewExported(size int, kind Kind) (*Arena, error) {
	a, err := sized(size, kind)
	if err != nil {
		return nil, err
	}
	return a.filled(a.allocateExported())
}

// NewIn makes an arena of memory that its caller has: get returns size bytes of zeros that start on a page, what to
// call them, and what frees them, which Close calls. Kind is only said.
func NewIn(size int, kind Kind, get func(size int) (mem []byte, backing string, free func() error, err error)) (*Arena, error) {
	a, err := sized(size, kind)
	if err != nil {
		return nil, err
	}
	a.mem, a.backing, a.free, err = get(a.size)
	if err == nil && len(a.mem) != a.size {
		panic(fmt.Sprintf("dma: %d bytes for an arena of %d", len(a.mem), a.size))
	}
	return a.filled(err)
}

func sized(size int, kind Kind) (*Arena, error) {
	if size <= 0 || size > maxSize {
		return nil, fmt.Errorf("arena of %d bytes: %w", size, ErrSize)
	}
	return &Arena{size: (size + PageSize - 1) &^ (PageSize - 1), kind: kind, fd: -1}, nil
}

// filled is the result of an allocation.
func (a *Arena) filled(err error) (*Arena, error) {
	if err != nil {
		return nil, fmt.Errorf("arena of %d bytes, %v: %w", a.size, a.kind, err)
	}
	return a, nil
}

// Place gives the arena its bus address, a multiple of PageSize, and what to do before its memory is
// freed. Transports call it once, before anybody else sees the arena.
func (a *Arena) Place(bus uint64, onClose func() error) {
	if bus%PageSize != 0 {
		panic(fmt.Sprintf("dma: arena placed at %#x, which is no page boundary", bus))
	}
	a.bus, a.onClose = bus, onClose
}

// Bytes is the arena's memory. It is nil for Reserved memory on systems that cannot reserve, and after
// Close.
func (a *Arena) Bytes() []byte { return a.mem }

// Size is the arena's length in bytes, a multiple of PageSize.
func (a *Arena) Size() int { return a.size }

// Bus is the bus address of the arena's first byte.
func (a *Arena) Bus() uint64 { return a.bus }

// Kind is what the arena is made of.
func (a *Arena) Kind() Kind { return a.kind }

// Backing names the pages behind the arena: "hugetlb" (reserved huge pages), "thp" (the system was asked
// for transparent huge pages and grants them), "4k", "heap", or "none" (address space only).
func (a *Arena) Backing() string { return a.backing }

// FD is the memfd of a Shared arena.
func (a *Arena) FD() (fd int, ok bool) { return a.fd, a.fd >= 0 }

// Close takes the arena away from the device and frees its memory. Slices of it are invalid afterwards.
// A second Close does nothing. When the transport can't take the arena away from a device that still
// runs, the memory is kept (leaked) and the error says so: the device may still write to it.
func (a *Arena) Close() error {
	if !a.closed.CompareAndSwap(false, true) {
		return nil
	}
	if a.onClose != nil {
		if err := a.onClose(); err != nil {
			return fmt.Errorf("arena of %d bytes at %#x stays mapped: %w", a.size, a.bus, err)
		}
	}
	a.mem = nil
	if a.free != nil {
		return a.free()
	}
	return nil
}

// Clear makes the arena's memory zeros, and gives the pages behind an exported arena back to the system. What
// the other side writes meanwhile may stay.
func (a *Arena) Clear() {
	if a.fd < 0 || !a.giveBack() {
		clear(a.mem)
	}
}

// Region is a part of an arena: its bytes and the bus address of the first.
type Region struct {
	Bytes []byte
	Bus   uint64
}

// Region returns the n bytes at off. It panics when they are outside the arena or the arena is closed.
func (a *Arena) Region(off, n int) Region {
	if off < 0 || n < 0 || off > a.size || n > a.size-off {
		panic(fmt.Sprintf("dma: region %d+%d of an arena of %d bytes", off, n, a.size))
	}
	if a.closed.Load() {
		panic("dma: region of a closed arena")
	}
	if a.mem == nil {
		return Region{Bus: a.bus + uint64(off)}
	}
	return Region{Bytes: a.mem[off : off+n : off+n], Bus: a.bus + uint64(off)}
}

// Slice returns the n bytes at off of the region. It panics when they are outside the region; the length
// of a region without bytes is not known, and there only the signs are checked.
func (r Region) Slice(off, n int) Region {
	if r.Bytes == nil {
		if off < 0 || n < 0 {
			panic(fmt.Sprintf("dma: slice %d+%d of a region", off, n))
		}
		return Region{Bus: r.Bus + uint64(off)}
	}
	return Region{Bytes: r.Bytes[off : off+n : off+n], Bus: r.Bus + uint64(off)}
}

// Carver hands out regions of an arena one after the other. One goroutine uses it; regions are freed
// with the arena.
type Carver struct {
	arena *Arena
	next  int
}

// NewCarver starts at the beginning of a.
func NewCarver(a *Arena) *Carver { return &Carver{arena: a} }

// Carve returns the next n bytes at a multiple of align, of the bus address and in memory alike. ok is
// false when the arena is used up. It panics when n is negative or align is not a power of two of at most
// PageSize.
func (c *Carver) Carve(n, align int) (r Region, ok bool) {
	if n < 0 || align < 1 || align > PageSize || align&(align-1) != 0 {
		panic(fmt.Sprintf("dma: carve %d bytes at a multiple of %d", n, align))
	}
	off := (c.next + align - 1) &^ (align - 1) // can't overflow: next <= maxSize
	if off > c.arena.size || n > c.arena.size-off {
		return Region{}, false
	}
	c.next = off + n
	return c.arena.Region(off, n), true
}

// Left is how many bytes the arena still has.
func (c *Carver) Left() int { return c.arena.size - c.next }
