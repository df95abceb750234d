package cmdif

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"cxkit/dma"
	"cxkit/stats"
)

// PoolKind is how the mailbox pool finds blocks.
type PoolKind uint8

const (
	// PoolConstant costs the same whatever is out: free blocks are a stack of numbers, as Linux links its
	// free blocks since v6.4 (da9619a30e73).
	PoolConstant PoolKind = iota
	// PoolLinear is the pool of Linux before v6.4 (mm/dmapool.c): three blocks of 1 KiB a page, because a
	// comparison leaves the fourth out; to take a block, the list of pages is searched for one with room,
	// to give one back, for the page that it lies in. New pages come first in the list; none is given
	// back. It is here to be measured.
	PoolLinear
)

func (k PoolKind) String() string {
	if k == PoolLinear {
		return "linear"
	}
	return "constant"
}

// blocksPerPage is how many blocks of blockPitch a page has, linearPerPage how many PoolLinear uses.
const (
	blocksPerPage = dma.PageSize / blockPitch
	linearPerPage = 3
)

// pool is the mailbox blocks of one function.
type pool struct {
	grow     func(bytes int) (*dma.Arena, error)
	limit    int // blocks at most
	linear   bool
	measured bool // the time of each free is

	boxes atomic.Pointer[arenas] // what arenas was last; read by view

	mu       sync.Mutex // guards all below
	arenas   arenas
	free     []uint32 // PoolConstant; the last is taken first
	out      int
	peak     int
	list     *poolPage   // PoolLinear
	spare    []*poolPage // PoolLinear: of an arena, not in the list yet
	searched uint64
	times    stats.Histogram
}

// poolPage is a page of a linear pool. Pages are found by walking the list, which is why each is an
// allocation of its own, as in the kernel.
type poolPage struct {
	next  *poolPage
	bus   uint64
	first uint32 // number of its first block
	free  uint8  // a bit per block
}

// get adds n blocks to chain. On failure it adds none.
func (p *pool) get(chain []uint32, n int) ([]uint32, error) {
	if n == 0 {
		return chain, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.ready() < n {
		if (len(p.arenas)+1)*blocksPerArena > p.limit {
			return chain, fmt.Errorf("%d blocks wanted, %d of at most %d out: %w", n, p.out, p.limit, ErrNoMailbox)
		}
		a, err := p.grow(blocksPerArena * blockPitch)
		if err != nil {
			return chain, fmt.Errorf("%w: %w", ErrNoMailbox, err)
		}
		p.add(a)
	}
	if p.linear {
		for range n {
			chain = append(chain, p.search())
		}
	} else {
		rest := len(p.free) - n
		for i := range n {
			chain = append(chain, p.free[len(p.free)-1-i])
		}
		p.free = p.free[:rest]
	}
	p.out += n
	p.peak = max(p.peak, p.out)
	return chain, nil
}

// ready is how many blocks can be taken without growing.
func (p *pool) ready() int {
	if p.linear {
		return len(p.arenas)*blocksPerArena/blocksPerPage*linearPerPage - p.out
	}
	return len(p.free)
}

// add makes blocks of an arena.
func (p *pool) add(a *dma.Arena) {
	first := uint32(len(p.arenas) * blocksPerArena)
	p.arenas = append(p.arenas, a)
	boxes := p.arenas
	p.boxes.Store(&boxes)
	if !p.linear {
		for i := range uint32(blocksPerArena) {
			p.free = append(p.free, first+blocksPerArena-1-i)
		}
		return
	}
	for i := uint32(0); i < blocksPerArena; i += blocksPerPage {
		p.spare = append(p.spare, &poolPage{bus: a.Bus() + uint64(i)*blockPitch, first: first + i, free: 1<<linearPerPage - 1})
	}
}

// search takes a block of the first page in the list that has one, or of a new page.
func (p *pool) search() uint32 {
	page := p.list
	for page != nil && page.free == 0 {
		page = page.next
	}
	if page == nil {
		last := len(p.spare) - 1
		page = p.spare[last]
		p.spare = p.spare[:last]
		page.next, p.list = p.list, page
	}
	for i := range uint32(linearPerPage) {
		if page.free>>i&1 != 0 {
			page.free &^= 1 << i
			return page.first + i
		}
	}
	panic("cmdif: pool page without a free block was chosen")
}

// put takes the blocks of chain back.
func (p *pool) put(chain []uint32) {
	if len(chain) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out -= len(chain)
	switch {
	case p.linear || p.measured:
		for _, i := range chain {
			p.putOne(i)
		}
	case len(chain) == 1:
		p.free = append(p.free, chain[0])
	default:
		p.free = append(p.free, chain...)
	}
}

// putOne takes one block back, and the time if that is wanted.
func (p *pool) putOne(i uint32) {
	var begin time.Time
	if p.measured {
		begin = time.Now()
	}
	if p.linear {
		bus := p.arenas.bus(i)
		page := p.list
		for bus-page.bus >= dma.PageSize { // the page is in the list: the block came from it
			page = page.next
			p.searched++
		}
		p.searched++
		page.free |= 1 << (i - page.first)
	} else {
		p.free = append(p.free, i)
	}
	if p.measured {
		p.times.Add(time.Since(begin))
	}
}

// view is the pool's memory as a caller sees it who holds blocks: arenas are added, never removed.
func (p *pool) view() arenas { return *p.boxes.Load() }

// usage is how many blocks are out, and the most that ever were.
func (p *pool) usage() (out, peak int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out, p.peak
}

// snapshot is the pool's counters.
func (p *pool) snapshot() stats.Mailboxes {
	p.mu.Lock()
	defer p.mu.Unlock()
	return stats.Mailboxes{
		Blocks: p.ready() + p.out, Out: p.out, Peak: p.peak, Searched: p.searched, Free: p.times,
	}
}

func (p *pool) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, a := range p.arenas {
		errs = append(errs, a.Close())
	}
	p.arenas, p.free, p.list, p.spare = nil, nil, nil, nil
	return errors.Join(errs...)
}
