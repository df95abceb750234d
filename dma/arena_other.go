//go:build !linux

package dma

// allocate fills in memory of the arena's kind. Systems without memfd keep to one process: Private
// memory comes from the heap, and Reserved memory has a bus address but no bytes.
func (a *Arena) allocate() error {
	switch a.kind {
	case Private:
		if a.size > maxHeap {
			return ErrSize
		}
		a.mem, a.backing = heapPages(a.size), backedByHeap
		return nil
	case Reserved:
		a.backing = backedByNothing
		return nil
	}
	return ErrKind
}

func (a *Arena) allocateExported() error { return ErrKind }

func (a *Arena) giveBack() bool { return false }
