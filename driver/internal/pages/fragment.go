package pages

// Inject makes allocations fail from now on, until it is called with a zero Failure.
func (a *Allocator) Inject(f Failure) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failure = f
}

// SetUnfit says which pages the host would rather have elsewhere from now on: those of a memory node far from
// the card, and those out of the reserves that it keeps for when there is no other memory. They are handed
// out all the same. The allocator calls unfit with its lock held; nil is none.
func (a *Allocator) SetUnfit(unfit func(page int) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unfit = unfit
}

// Unfit tells whether the host would rather have an allocated page elsewhere: use it once and free it.
func (a *Allocator) Unfit(page int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.unfit != nil && a.unfit(page)
}

// Fragment makes a share, 0 to 1, of the free blocks of an order unavailable, as long use of a host does:
// in each it pins one page, drawn from the seed. It returns how many there were and how many are left.
// Blocks of a lower order, single pages most of all, remain. Heal takes the pins out.
func (a *Allocator) Fragment(order int, share float64) (had, left int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var blocks []int
	for page := 0; page+1<<order <= a.count; page += 1 << order {
		if a.blockFree(page, order) {
			blocks = append(blocks, page)
		}
	}
	a.rand.Shuffle(len(blocks), func(i, j int) { blocks[i], blocks[j] = blocks[j], blocks[i] })
	spoiled := int(share*float64(len(blocks)) + 0.5)
	for _, page := range blocks[:spoiled] {
		a.pin(page + a.rand.IntN(1<<order))
	}
	return len(blocks), len(blocks) - spoiled
}

// Available is how many blocks of an order could be allocated.
func (a *Allocator) Available(order int) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for page := 0; page+1<<order <= a.count; page += 1 << order {
		if a.blockFree(page, order) {
			n++
		}
	}
	return n
}

// blockFree tells whether a block is part of a free one, or is one.
func (a *Allocator) blockFree(page, order int) bool {
	_, size, ok := a.freeAround(page)
	return ok && size >= order
}

// freeAround finds the free block that a page is in.
func (a *Allocator) freeAround(page int) (block, order int, ok bool) {
	for order = 0; order <= MaxOrder; order++ {
		block = page &^ (1<<order - 1)
		if a.state[block] == freeBlock|uint8(order) {
			return block, order, true
		}
	}
	return 0, 0, false
}

// pin allocates one page, which is free.
func (a *Allocator) pin(page int) {
	block, order, ok := a.freeAround(page)
	if !ok {
		return
	}
	a.unlink(block, order)
	for order > 0 {
		order--
		low, high := block, block+1<<order
		if page < high {
			a.push(high, order)
		} else {
			a.push(low, order)
			block = high
		}
		a.stats.Splits++
	}
	a.state[page] = usedBlock | pinned
	a.pins = append(a.pins, int32(page))
	a.taken(1)
}

// Heal frees all pages that Fragment pinned.
func (a *Allocator) Heal() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, page := range a.pins {
		a.state[page] = usedBlock
		a.release(int(page), 0)
	}
	a.pins = a.pins[:0]
}

// Pinned is how many pages Fragment has made unavailable.
func (a *Allocator) Pinned() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.pins)
}
