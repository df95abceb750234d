package layout

import (
	"bytes"
	"fmt"
	"math/bits"

	"cxkit/driver/internal/pages"
)

// minUnit is what every fragment's offset and size is a multiple of.
const minUnit = 256

// UnitFor is the largest unit that fragments of so many bytes can be counted in: the coarser, the denser are
// the books.
func UnitFor(size, pageSize int) int {
	size = Rounded(size)
	return min(size&-size, pageSize)
}

// Rounded is the room that a fragment of so many bytes takes.
func Rounded(size int) int { return (size + minUnit - 1) / minUnit * minUnit }

// headroom is the bytes in front of a frame in layout Headroom (Linux XDP_PACKET_HEADROOM).
const headroom = 256

// info is what is known of a page. It belongs to the owner of the page's queue. In a block of an order
// above 0 the first page's counts for all.
type info struct {
	refs  uint16
	home  uint16
	order uint8 // in the low bits, and the flag once
	busy  uint8 // Flip: the halves that are not free
	size  uint8 // units of a fragment, less 1
	head  bool  // the fragment is all of the page but its headroom
}

// once is the flag in info.order of a page that is used once and then goes back to the allocator: it is far
// from the card, or the host will need it. The layouts hold no reference to it, so nothing on the way of a
// frame has to look (Linux looks at page_to_nid and page_is_pfmemalloc before it uses a page again).
const once = 1 << 7

// Shared is the books of all pages of a NIC.
type Shared struct {
	pages *pages.Allocator
	mem   []byte
	unit  int
	shift uint8 // from fragments to pages
	check bool
	info  []info
	taken []bool // by fragment, if the books are checked: the ring or the application has it
}

// NewShared makes the books of an allocator's pages, which lie in mem; fragments count in units, a power of two of at
// least 256 bytes that divides their sizes. With check, free fragments are
// filled with a pattern that is verified when they are used again, and wrong moves panic.
func NewShared(p *pages.Allocator, mem []byte, unit int, check bool) *Shared {
	if len(mem) < p.Pages()*p.PageSize() {
		panic(fmt.Sprintf("layout: %d pages of %d bytes in %d", p.Pages(), p.PageSize(), len(mem)))
	}
	s := &Shared{
		pages: p, mem: mem, check: check, unit: unit, shift: uint8(bits.TrailingZeros(uint(p.PageSize() / unit))),
		info: make([]info, p.Pages()),
	}
	if check {
		s.taken = make([]bool, p.Pages()*p.PageSize()/unit)
		Poison(mem[:p.Pages()*p.PageSize()])
	}
	return s
}

// Fragments is the first number that is no fragment.
func (s *Shared) Fragments() uint32 { return uint32(len(s.info)) << s.shift }

// Unit is the bytes from one number to the next.
func (s *Shared) Unit() int { return s.unit }

// Page is the page that a fragment lies on.
func (s *Shared) Page(fragment uint32) int { return int(fragment >> s.shift) }

// Home is the queue that a fragment goes back to.
func (s *Shared) Home(fragment uint32) int { return int(s.info[s.block(fragment)].home) }

// block is the first page of the block that a fragment lies on.
func (s *Shared) block(fragment uint32) uint32 {
	page := fragment >> s.shift
	return page &^ (1<<(s.info[page].order&15) - 1)
}

// Pattern fills free fragments that are checked.
const Pattern = 0xdb

// Poison fills free memory with a pattern, by blocks: a byte at a time takes the race detector most of a test's time.
func Poison(b []byte) {
	if len(b) > 0 {
		b[0] = Pattern
	}
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// Intact tells that b is as Poison left it: it begins so, and each byte is like the one before.
func Intact(b []byte) bool {
	return len(b) == 0 || b[0] == Pattern && bytes.Equal(b[1:], b[:len(b)-1])
}

// bytes is the memory of a fragment, with the headroom in front of it.
func (s *Shared) bytes(fragment uint32) []byte {
	if s.info[s.block(fragment)].head {
		page := int(fragment>>s.shift) << s.shift
		return s.mem[page*s.unit:][:s.unit<<s.shift]
	}
	size := (int(s.info[s.block(fragment)].size) + 1) * s.unit
	return s.mem[int(fragment)*s.unit:][:size:size]
}

// noteTaken checks fragments that go into the ring: they are free, and nobody wrote to them since.
func (s *Shared) noteTaken(list []uint32) {
	for _, f := range list {
		if s.taken[f] {
			panic(fmt.Sprintf("layout: fragment %d is posted twice", f))
		}
		s.taken[f] = true
		if Intact(s.bytes(f)) {
			continue
		}
		for at, b := range s.bytes(f) {
			if b != Pattern {
				panic(fmt.Sprintf("layout: free fragment %d was written to at byte %d (%#02x)", f, at, b))
			}
		}
	}
}

// noteFree is the opposite, by whoever had the fragments.
func (s *Shared) noteFree(list []uint32) {
	for _, f := range list {
		if int(f) >= len(s.taken) || !s.taken[f] {
			panic(fmt.Sprintf("layout: release of fragment %d, which is free", f))
		}
		s.taken[f] = false
		Poison(s.bytes(f))
	}
}
