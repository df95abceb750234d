package fwpages

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"cxkit/dma"
)

const (
	// minExtent and maxExtent bound one piece of address space, in pages: 2 MiB to 1 GiB. A transport
	// that maps them for a device has few of them to map, however many pages there are.
	minExtent = 512
	maxExtent = 1 << 18
)

// ledger is the pages of one function. The manager's lock guards it.
//
// Firmware's pages have 4096 bytes, the host's 4096 or 65,536: a host page is lent in 1 or 16 parts, and
// is the host's again when all of them are back. Pages of host pages that are lent in part are given
// first. Everything is numbers and bits: at most 3/8 of a byte a page, and nothing in it for the garbage
// collector to follow but two pointers an extent.
type ledger struct {
	shift   uint     // log2 of the pages in a host page: 0 or 4
	extents []extent // by number; numbers are used again
	order   []int32  // the extents in use, by bus address
	unused  []int32  // numbers of others
	empty   bitset   // extents with host pages of which nothing is lent
	parts   bitset   // extents with host pages that are lent in part
	whole   bitset   // extents of which nothing is lent
	last    int32    // the extent that the latest address was in

	given int // pages that firmware has, or may have
	free  int // pages ready to be given
	hosts int // host pages of which firmware has something

	// doubtful are pages out of commands of which nobody knows whether firmware executed them. A reset of
	// the function does not bring them back: the command may be executed after it.
	doubtful map[uint64]struct{}
	// withheld: the device is down and nobody asks for the pages any more. They are not given again.
	withheld bool

	typ    Type
	counts Counts
}

// extent is a piece of address space cut in pages.
type extent struct {
	arena *dma.Arena // nil for a number that is not in use
	bus   uint64
	pages int
	hosts int      // host pages that can be lent
	out   []uint64 // bit i: page i is with firmware
	empty bitset   // host pages of which nothing is lent
	parts bitset   // host pages that are lent in part
}

// add makes an extent of a.
func (l *ledger) add(a *dma.Arena) error {
	host := uint64(dma.PageSize) << l.shift
	if a.Bus()%host != 0 || uint64(a.Size())%host != 0 {
		return fmt.Errorf("memory at bus address %#x of %#x bytes is not made of host pages of %d bytes", a.Bus(), a.Size(), host)
	}
	x := extent{arena: a, bus: a.Bus(), pages: a.Size() / dma.PageSize}
	x.hosts = x.pages >> l.shift
	x.empty.fill(x.hosts)
	if l.shift > 0 {
		x.parts.grow(x.hosts)
	}
	if x.bus == 0 { // firmware takes address 0 for "none" (Linux 6b276190c50a)
		x.empty.clear(0)
		x.hosts--
	}
	x.out = make([]uint64, (x.pages+63)/64)
	var e int32
	if n := len(l.unused); n > 0 {
		e = l.unused[n-1]
		l.unused = l.unused[:n-1]
	} else {
		e = int32(len(l.extents))
		l.extents = append(l.extents, extent{})
		l.empty.grow(len(l.extents))
		l.parts.grow(len(l.extents))
		l.whole.grow(len(l.extents))
	}
	at, _ := slices.BinarySearchFunc(l.order, x.bus, func(e int32, bus uint64) int {
		if l.extents[e].bus < bus {
			return -1
		}
		return 1
	})
	l.order = slices.Insert(l.order, at, e)
	l.extents[e] = x
	if x.hosts > 0 {
		l.empty.set(int(e))
	}
	l.whole.set(int(e))
	l.free += x.hosts << l.shift
	return nil
}

// remove forgets an extent of which nothing is lent, and returns its memory.
func (l *ledger) remove(e int32) *dma.Arena {
	x := &l.extents[e]
	a := x.arena
	l.free -= x.hosts << l.shift
	l.order = slices.DeleteFunc(l.order, func(o int32) bool { return o == e })
	l.empty.clear(int(e))
	l.whole.clear(int(e))
	l.unused = append(l.unused, e)
	*x = extent{}
	return a
}

// take marks n pages as given and appends their addresses to pas; grow makes memory. On an error nothing
// has changed; what was made stays for the next trim.
func (l *ledger) take(pas []uint64, n int, grow func(pages int) (*dma.Arena, error)) ([]uint64, error) {
	for l.free < n {
		// What is missing, or an eighth more than there is: extents stay few when firmware asks for little
		// at a time.
		size := max(n-l.free, (l.free+l.given)/8, minExtent)
		size = min((size+minExtent-1)&^(minExtent-1), maxExtent)
		a, err := grow(size)
		if err != nil {
			return pas, err
		}
		if err := l.add(a); err != nil {
			return pas, errors.Join(err, a.Close())
		}
	}
	l.free -= n
	l.given += n
	for n > 0 && l.parts.n > 0 {
		had := len(pas)
		pas = l.takePart(pas, l.parts.first(), n)
		n -= len(pas) - had
	}
	for n > 0 {
		had := len(pas)
		pas = l.takeEmpty(pas, l.empty.first(), n)
		n -= len(pas) - had
	}
	return pas, nil
}

// takePart gives up to n pages of one host page that is lent in part.
func (l *ledger) takePart(pas []uint64, e, n int) []uint64 {
	x := &l.extents[e]
	h := x.parts.first()
	first := h << l.shift
	free := ^(x.out[first/64] >> (first % 64)) & l.hostMask()
	for ; n > 0 && free != 0; n-- {
		i := first + bits.TrailingZeros64(free)
		free &= free - 1
		x.out[i/64] |= 1 << (i % 64)
		pas = append(pas, x.bus+uint64(i)*dma.PageSize)
	}
	if free == 0 {
		x.parts.clear(h)
		if x.parts.n == 0 {
			l.parts.clear(e)
		}
	}
	return pas
}

// takeEmpty gives up to n pages of host pages of which nothing is lent.
func (l *ledger) takeEmpty(pas []uint64, e, n int) []uint64 {
	x := &l.extents[e]
	l.whole.clear(e)
	for n > 0 && x.empty.n > 0 {
		h := x.empty.first()
		x.empty.clear(h)
		l.hosts++
		if l.shift == 0 {
			x.out[h/64] |= 1 << (h % 64)
			pas = append(pas, x.bus+uint64(h)*dma.PageSize)
			n--
			continue
		}
		x.parts.set(h)
		l.parts.set(e)
		had := len(pas)
		for n > 0 && x.parts.has(h) {
			pas = l.takePart(pas, e, n)
			n -= len(pas) - had
			had = len(pas)
		}
	}
	if x.empty.n == 0 {
		l.empty.clear(e)
	}
	return pas
}

// hostMask has a bit for each page of a host page.
func (l *ledger) hostMask() uint64 { return 1<<(1<<l.shift) - 1 }

// Reasons why an address that firmware returned is not taken.
var (
	errUnaligned = errors.New("not the address of a page")
	errNotGiven  = errors.New("not an address that is with firmware")
)

// put takes one returned page back.
func (l *ledger) put(pa uint64) error {
	if pa%dma.PageSize != 0 {
		return fmt.Errorf("%#x: %w", pa, errUnaligned)
	}
	e := l.find(pa)
	if e < 0 {
		return fmt.Errorf("%#x: %w", pa, errNotGiven)
	}
	x := &l.extents[e]
	i := int((pa - x.bus) / dma.PageSize)
	w := &x.out[i/64]
	if *w>>(i%64)&1 == 0 { // never set for address 0
		return fmt.Errorf("%#x: %w", pa, errNotGiven)
	}
	*w &^= 1 << (i % 64)
	l.given--
	l.free++
	if len(l.doubtful) > 0 {
		delete(l.doubtful, pa)
	}
	h := i >> l.shift
	if l.shift > 0 {
		if *w>>((h<<l.shift)%64)&l.hostMask() != 0 {
			x.parts.set(h)
			l.parts.set(int(e))
			return nil
		}
		x.parts.clear(h)
		if x.parts.n == 0 {
			l.parts.clear(int(e))
		}
	}
	l.hosts--
	x.empty.set(h)
	l.empty.set(int(e))
	if x.empty.n == x.hosts {
		l.whole.set(int(e))
	}
	return nil
}

// find is the extent that an address lies in, -1 if none.
func (l *ledger) find(pa uint64) int32 {
	in := func(e int32) bool {
		x := &l.extents[e]
		return pa >= x.bus && (pa-x.bus)/dma.PageSize < uint64(x.pages)
	}
	if int(l.last) < len(l.extents) && in(l.last) {
		return l.last
	}
	low, high := 0, len(l.order) // the first extent that begins behind pa is in low..high
	for low < high {
		mid := int(uint(low+high) / 2)
		if l.extents[l.order[mid]].bus <= pa {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == 0 || !in(l.order[low-1]) {
		return -1
	}
	l.last = l.order[low-1]
	return l.last
}

// trim takes out the extents of which nothing is lent, but for a small one, and returns their memory.
func (l *ledger) trim() (freed []*dma.Arena) {
	kept := false
	for e := range l.extents {
		if l.whole.n == 0 || l.whole.n == 1 && kept {
			break
		}
		if !l.whole.has(e) {
			continue
		}
		if !kept && l.extents[e].pages <= minExtent {
			kept = true
			continue
		}
		freed = append(freed, l.remove(int32(e)))
	}
	return freed
}

// doubt marks pages that are given: whether firmware has them is not known.
func (l *ledger) doubt(pas []uint64) {
	if l.doubtful == nil {
		l.doubtful = make(map[uint64]struct{}, len(pas))
	}
	for _, pa := range pas {
		l.doubtful[pa] = struct{}{}
	}
}

// reset takes back all pages but the doubtful ones, and returns how many.
func (l *ledger) reset() int {
	before := l.given
	for _, e := range l.order {
		x := &l.extents[e]
		for k, w := range x.out {
			for ; w != 0; w &= w - 1 {
				pa := x.bus + uint64(k*64+bits.TrailingZeros64(w))*dma.PageSize
				if _, ok := l.doubtful[pa]; ok {
					continue
				}
				if err := l.put(pa); err != nil {
					panic("fwpages: a page that is out can't be put back: " + err.Error())
				}
			}
		}
	}
	return before - l.given
}

// out appends the addresses of pages that are with firmware, at most n.
func (l *ledger) out(pas []uint64, n int) []uint64 {
	for _, e := range l.order {
		x := &l.extents[e]
		for k, w := range x.out {
			for ; w != 0; w &= w - 1 {
				if n--; n < 0 {
					return pas
				}
				pas = append(pas, x.bus+uint64(k*64+bits.TrailingZeros64(w))*dma.PageSize)
			}
		}
	}
	return pas
}

// close forgets everything and returns the memory.
func (l *ledger) close() (freed []*dma.Arena) {
	for _, e := range l.order {
		freed = append(freed, l.extents[e].arena)
	}
	*l = ledger{shift: l.shift, typ: l.typ, counts: l.counts}
	return freed
}
