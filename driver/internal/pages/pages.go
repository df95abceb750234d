package pages

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"sync"
)

// Sizes of pages that hosts have.
const (
	Size4K  = 4 << 10
	Size64K = 64 << 10
)

// MaxOrder is the largest order of a block, as Linux's MAX_PAGE_ORDER.
const MaxOrder = 10

// none is the end of a list.
const none = -1

// What is at a page. The order of a block is at its first page; inside is the rest of it.
const (
	inside    = 0
	freeBlock = 1 << 4 // with the order in the low bits
	usedBlock = 1 << 5
	pinned    = 1 << 6
)

// Allocator hands out the pages of one arena.
type Allocator struct {
	size  int
	count int

	mu      sync.Mutex // guards the rest
	state   []uint8
	next    []int32 // lists of free blocks, by first page
	prev    []int32
	first   [MaxOrder + 1]int32
	free    int // pages
	stats   Stats
	failure Failure
	rand    *rand.Rand
	pins    []int32
	unfit   func(page int) bool
}

// Failure makes allocations fail: a share Rate, 0 to 1, of those of at least Order. Order 0 and Rate 1 is a
// host without memory. The zero value lets all be.
type Failure struct {
	Order int
	Rate  float64
}

// Stats are what an allocator has done.
type Stats struct {
	Allocs, Frees [MaxOrder + 1]uint64 // by order
	// Failed are allocations that found no block, Injected those that were made to fail, by order.
	Failed, Injected [MaxOrder + 1]uint64
	Splits, Merges   uint64 // of blocks in two, and of two blocks
	Peak             int    // most pages that ever were allocated, pinned ones among them
}

// New makes an allocator of all pages of the given size, Size4K or Size64K, that fit into so many bytes. It
// panics if there is none. The seed decides which allocations fail and which pages are pinned.
func New(bytes, size int, seed uint64) *Allocator {
	if size != Size4K && size != Size64K {
		panic(fmt.Sprintf("pages: of %d bytes", size))
	}
	n := bytes / size
	if n < 1 {
		panic(fmt.Sprintf("pages: %d bytes hold no page of %d", bytes, size))
	}
	a := &Allocator{
		size: size, count: n, free: n,
		state: make([]uint8, n), next: make([]int32, n), prev: make([]int32, n),
		rand: rand.New(rand.NewPCG(seed, 0x7061676573)),
	}
	for i := range a.first {
		a.first[i] = none
	}
	// From the end, so that low numbers are handed out first.
	for end := n; end > 0; {
		order := min(MaxOrder, bits.TrailingZeros(uint(end)), bits.Len(uint(end))-1)
		end -= 1 << order
		a.push(end, order)
	}
	return a
}

// PageSize is the bytes of a page.
func (a *Allocator) PageSize() int { return a.size }

// Pages is how many pages there are.
func (a *Allocator) Pages() int { return a.count }

// Alloc takes a block of 2^order pages and returns its first page. ok is false when there is none, or when
// the allocation was made to fail. It panics if the order is not 0 to MaxOrder.
func (a *Allocator) Alloc(order int) (page int, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.alloc(order)
}

// AllocPages takes single pages, as many as dst has room for, and returns how many there were.
func (a *Allocator) AllocPages(dst []uint32) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	for n := range dst {
		page, ok := a.alloc(0)
		if !ok {
			return n
		}
		dst[n] = uint32(page)
	}
	return len(dst)
}

func (a *Allocator) alloc(order int) (page int, ok bool) {
	if order < 0 || order > MaxOrder {
		panic(fmt.Sprintf("pages: order %d", order))
	}
	if f := a.failure; f.Rate > 0 && order >= f.Order && a.rand.Float64() < f.Rate {
		a.stats.Injected[order]++
		return 0, false
	}
	at := order
	for at <= MaxOrder && a.first[at] == none {
		at++
	}
	if at > MaxOrder {
		a.stats.Failed[order]++
		return 0, false
	}
	page = int(a.first[at])
	a.unlink(page, at)
	for ; at > order; at-- {
		a.push(page+1<<(at-1), at-1)
		a.stats.Splits++
	}
	a.state[page] = usedBlock | uint8(order)
	a.stats.Allocs[order]++
	a.taken(1 << order)
	return page, true
}

func (a *Allocator) taken(n int) {
	a.free -= n
	a.stats.Peak = max(a.stats.Peak, a.count-a.free)
}

// Split makes the pages of an allocated block blocks of their own, which are freed one by one.
func (a *Allocator) Split(page, order int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mustHave("split", page, order)
	for i := page; i < page+1<<order; i++ {
		a.state[i] = usedBlock
	}
}

// Free gives a block back. It panics if that is not a block of this order that was handed out.
func (a *Allocator) Free(page, order int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mustHave("free", page, order)
	a.release(page, order)
}

// FreePages gives single pages back.
func (a *Allocator) FreePages(list []uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, page := range list {
		a.mustHave("free", int(page), 0)
		a.release(int(page), 0)
	}
}

// mustHave panics unless there is an allocated block: its owner has lost track of it.
func (a *Allocator) mustHave(what string, page, order int) {
	if page < 0 || page >= a.count || order < 0 || order > MaxOrder || a.state[page] != usedBlock|uint8(order) {
		panic(fmt.Sprintf("pages: %s of page %d, order %d, which is not allocated so", what, page, order))
	}
}

// release makes a block free and merges it.
func (a *Allocator) release(page, order int) {
	a.stats.Frees[order]++
	a.free += 1 << order
	for order < MaxOrder {
		buddy := page ^ 1<<order
		if buddy+1<<order > a.count || a.state[buddy] != freeBlock|uint8(order) {
			break
		}
		a.unlink(buddy, order)
		a.state[max(page, buddy)] = inside
		page = min(page, buddy)
		order++
		a.stats.Merges++
	}
	a.push(page, order)
}

// push adds a free block to the list of its order.
func (a *Allocator) push(page, order int) {
	a.state[page] = freeBlock | uint8(order)
	head := a.first[order]
	a.next[page], a.prev[page] = head, none
	if head != none {
		a.prev[head] = int32(page)
	}
	a.first[order] = int32(page)
}

// unlink takes a free block out of its list.
func (a *Allocator) unlink(page, order int) {
	next, prev := a.next[page], a.prev[page]
	if next != none {
		a.prev[next] = prev
	}
	if prev != none {
		a.next[prev] = next
	} else {
		a.first[order] = next
	}
	a.state[page] = inside
}

// FreePagesLeft is how many pages are free.
func (a *Allocator) FreePagesLeft() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.free
}

// Stats returns what was done so far.
func (a *Allocator) Stats() Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stats
}
