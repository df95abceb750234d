package addrspace

import (
	"fmt"
	"sync"

	"cxkit/dma"
)

const (
	// firstBus is where bus addresses start: above 4 GiB so that code that drops the upper half is found
	// out, and far from 0, which firmware can't use (Linux pagealloc.c, 6b276190c50a).
	firstBus = 1 << 32
	// maxBus ends the 48-bit space that arenas are placed in.
	maxBus = 1 << 48
	// wide is from which size arenas are placed at multiples of it, as huge pages are.
	wide = 2 << 20
)

// Allocator gives arenas bus addresses, with an unmapped page between them and no address twice, so that
// a card that runs past an arena or uses a closed one is caught. The zero value works; any goroutine may
// call it.
type Allocator struct {
	mu   sync.Mutex // guards next
	next uint64     // 0 before the first arena
}

// Take returns a place for size bytes.
func (a *Allocator) Take(size int) (bus uint64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	align := uint64(dma.PageSize)
	if size >= wide {
		align = wide
	}
	bus = (max(a.next, firstBus) + align - 1) &^ (align - 1)
	if bus+uint64(size) > maxBus {
		return 0, fmt.Errorf("no bus addresses left for %d bytes", size)
	}
	a.next = bus + uint64(size) + dma.PageSize
	return bus, nil
}
