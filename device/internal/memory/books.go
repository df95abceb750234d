package memory

import (
	"errors"
	"math"
)

// PageShift is log2 of an adapter page.
const PageShift = 12

// MaxPages is how many pages firmware takes at most: 64 GiB.
const MaxPages = 16 << 20

var (
	// ErrAddress: not the address of a page that firmware can use.
	ErrAddress = errors.New("page address is not a multiple of 4096")
	// ErrTwice: the page was given before and has not been returned.
	ErrTwice = errors.New("page was given twice")
	// ErrTooMany: more pages than firmware can keep books of.
	ErrTooMany = errors.New("too many pages")
)

// blockPages is how many pages share an entry of the hash table.
const blockPages = 64

// block is 64 pages that follow each other, and which of them are held. Entries whose last page went stay
// in the table until it is rebuilt.
type block struct {
	key  uint64 // page number / 64, plus 1; 0 for a free entry
	held uint64 // bit i: page i of the block
}

// Books holds the pages of one function. The engine owns it.
type Books struct {
	seed   uint64
	pages  []uint64 // page numbers, the one given last at the end
	blocks []block  // open addressing; a power of two
	used   int      // entries that are not free
	last   uint32   // place of the entry that was found last: pages come in runs
}

// New makes empty books. The seed keeps hosts from choosing addresses that collide in the hash table.
func New(seed uint64) Books { return Books{seed: seed} }

// Len is the number of pages held.
func (b *Books) Len() int { return len(b.pages) }

// Clear forgets all pages.
func (b *Books) Clear() { *b = Books{seed: b.seed} }

// Give takes a page.
func (b *Books) Give(addr uint64) error {
	// Address 0 is a page as any other: behind an IOMMU, rdma-core gives it first.
	if addr&(1<<PageShift-1) != 0 {
		return ErrAddress
	}
	if len(b.pages) >= MaxPages {
		return ErrTooMany
	}
	if b.used >= len(b.blocks)/4*3 {
		b.rebuild()
	}
	page := addr >> PageShift
	e := b.find(page / blockPages)
	bit := uint64(1) << (page % blockPages)
	if e.held&bit != 0 {
		return ErrTwice
	}
	if e.key == 0 {
		e.key = page/blockPages + 1
		b.used++
	}
	e.held |= bit
	b.pages = append(b.pages, page)
	return nil
}

// Take returns the page given last; ok is false when there is none.
func (b *Books) Take() (addr uint64, ok bool) {
	n := len(b.pages)
	if n == 0 {
		return 0, false
	}
	page := b.pages[n-1]
	b.find(page / blockPages).held &^= 1 << (page % blockPages)
	b.pages = b.pages[:n-1]
	if n == 1 {
		b.Clear()
	}
	return page << PageShift, true
}

// Holds reports whether the page is held.
func (b *Books) Holds(addr uint64) bool {
	if len(b.blocks) == 0 || addr&(1<<PageShift-1) != 0 {
		return false
	}
	page := addr >> PageShift
	return b.find(page/blockPages).held>>(page%blockPages)&1 != 0
}

// Addresses lists the pages held, the one given last at the end.
func (b *Books) Addresses() []uint64 {
	list := make([]uint64, len(b.pages))
	for i, page := range b.pages {
		list[i] = page << PageShift
	}
	return list
}

// find returns the entry of a block, or the free one it would go to.
func (b *Books) find(n uint64) *block {
	mask := uint32(len(b.blocks) - 1)
	if e := &b.blocks[b.last&mask]; e.key == n+1 {
		return e
	}
	for i := b.hash(n) & mask; ; i = (i + 1) & mask {
		if e := &b.blocks[i]; e.key == n+1 || e.key == 0 {
			b.last = i
			return e
		}
	}
}

// rebuild makes room for as many blocks again as hold pages, and drops those that hold none.
func (b *Books) rebuild() {
	live := 0
	for i := range b.blocks {
		if b.blocks[i].held != 0 {
			live++
		}
	}
	size := 64
	for size/2 < live+1 {
		size *= 2
	}
	old := b.blocks
	b.blocks, b.used = make([]block, size), live
	for _, e := range old {
		if e.held != 0 {
			*b.find(e.key - 1) = e
		}
	}
}

func (b *Books) hash(n uint64) uint32 {
	x := (n ^ b.seed) * 0x9e3779b97f4a7c15
	x = (x ^ x>>32) * 0xbf58476d1ce4e5b9
	return uint32(x >> 32)
}

// Clamp makes an int32 of a page count.
func Clamp(n int) int32 { return int32(max(min(n, math.MaxInt32), math.MinInt32)) }
