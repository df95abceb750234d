//go:build linux

package vfio

import (
	"fmt"
	"slices"
	"sync"

	"cxkit/dma"
)

// pieces hands out pieces of physical memory, cut from huge pages of the kernel's pool: no other memory of a process
// is known to lie in one piece, and to stay where it is.
type pieces struct {
	k    kernel
	node int // of the card's NUMA, -1 if there is none

	mu     sync.Mutex // guards the rest
	blocks []*block
}

// block is one or more huge pages that lie side by side.
type block struct {
	mem   []byte
	bus   uint64
	taken []bool // by page of dma.PageSize
	count int
}

// take returns size bytes, a multiple of a page, of zeros.
func (p *pieces) take(size int) (mem []byte, bus uint64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := size / dma.PageSize
	for _, b := range p.blocks {
		if at, ok := b.room(n); ok {
			mem, bus = b.cut(at, n)
			clear(mem)
			return mem, bus, nil
		}
	}
	b, err := p.find((size + hugePage - 1) / hugePage)
	if err != nil {
		return nil, 0, err
	}
	p.blocks = append(p.blocks, b)
	mem, bus = b.cut(0, n)
	return mem, bus, nil
}

// give takes back what take returned. A block of which nothing is left goes back to the pool.
func (p *pieces) give(bus uint64, size int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, b := range p.blocks {
		if bus < b.bus || bus-b.bus >= uint64(len(b.mem)) {
			continue
		}
		at, n := int(bus-b.bus)/dma.PageSize, size/dma.PageSize
		for j := range n {
			b.taken[at+j] = false
		}
		if b.count -= n; b.count == 0 {
			p.k.unmapPages(b.mem)
			p.blocks = slices.Delete(p.blocks, i, i+1)
		}
		return
	}
}

// room is where n pages are free.
func (b *block) room(n int) (at int, ok bool) {
	free := 0
	for i, taken := range b.taken {
		if taken {
			free = 0
		} else if free++; free == n {
			return i + 1 - n, true
		}
	}
	return 0, false
}

func (b *block) cut(at, n int) (mem []byte, bus uint64) {
	for i := range n {
		b.taken[at+i] = true
	}
	b.count += n
	first, end := at*dma.PageSize, (at+n)*dma.PageSize
	return b.mem[first:end:end], b.bus + uint64(first)
}

// find gets n huge pages that lie side by side: those that the pool gives first, or some of all that it has.
func (p *pieces) find(n int) (*block, error) {
	tries := []int{n}
	if free := p.k.freeHugePages(); n > 1 && free > n {
		tries = append(tries, free)
	}
	for _, some := range tries {
		b, err := p.findAmong(n, some)
		if err != nil {
			return nil, fmt.Errorf("%d huge pages for memory of a card without an IOMMU: %w: %s", n, err, hugeAdvice)
		}
		if b != nil {
			return b, nil
		}
	}
	return nil, fmt.Errorf("without an IOMMU %d bytes must be one piece of physical memory, and no %d free huge pages lie side by side: %s",
		n*hugePage, n, hugeAdvice)
}

const hugeAdvice = "reserve more (echo 512 > /proc/sys/vm/nr_hugepages, better at boot: hugepages=512 on the kernel's command line)"

// findAmong looks for them among some of the pool's; nil if they are not among them.
func (p *pieces) findAmong(n, some int) (*block, error) {
	fd, mem, err := p.k.hugeFile(some, p.node)
	if err != nil {
		return nil, err
	}
	defer p.k.close(fd)
	frames, err := p.k.physical(mem, hugePage)
	p.k.munmap(mem) // the file keeps its pages
	if err != nil {
		return nil, fmt.Errorf("physical address of memory: %w", err)
	}
	order := sideBySide(frames, n)
	if order == nil {
		return nil, nil
	}
	b := &block{bus: frames[order[0]], taken: make([]bool, n*hugePage/dma.PageSize)}
	if b.mem, err = p.k.inOrder(fd, order); err != nil {
		return nil, err
	}
	for i := range frames {
		if !slices.Contains(order, i) {
			p.k.dropPage(fd, i)
		}
	}
	return b, nil
}

// sideBySide are n of some huge pages that follow each other in physical memory; nil if there are none.
func sideBySide(frames []uint64, n int) []int {
	order := make([]int, len(frames))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		switch {
		case frames[a] < frames[b]:
			return -1
		case frames[a] > frames[b]:
			return 1
		}
		return 0
	})
	run := 0
	for i, page := range order {
		if i > 0 && frames[page] == frames[order[i-1]]+hugePage {
			run++
		} else {
			run = 1
		}
		if run == n {
			return order[i+1-n : i+1]
		}
	}
	return nil
}
