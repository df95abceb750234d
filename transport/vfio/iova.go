package vfio

import (
	"fmt"
	"slices"
	"sync"

	"cxkit/dma"
)

// window is a range of bus addresses, last included.
type window struct{ first, last uint64 }

const (
	// lowBus is the lowest bus address given: far from 0, which firmware can't use, and from what a machine
	// has below 1 MiB.
	lowBus = 1 << 20
	// preferredBus is where addresses start if the IOMMU reaches that far: code that drops the upper half is
	// found out.
	preferredBus = 1 << 32
	// highBus is the highest.
	highBus   = 1<<62 - 1
	hugePage  = 2 << 20
	giantPage = 1 << 30
)

// addresses gives arenas bus addresses out of the windows that the IOMMU translates, which leave out what is
// reserved (messages of interrupts on x86: 0xfee00000). Between two arenas there is an unmapped page, and an
// address is given again only after all others: a card that runs past an arena or uses a closed one is caught.
type addresses struct {
	windows []window // sorted, apart
	granule uint64   // of mappings, a power of two

	mu    sync.Mutex // guards what follows
	next  uint64     // where to look first
	taken []window   // sorted
}

// newAddresses checks what the kernel said: windows is hostile.
func newAddresses(windows []window, granule uint64) (*addresses, error) {
	granule = max(granule, dma.PageSize)
	if granule&(granule-1) != 0 {
		return nil, fmt.Errorf("pages of %d bytes", granule)
	}
	a := &addresses{granule: granule}
	windows = slices.Clone(windows)
	slices.SortFunc(windows, func(x, y window) int {
		switch {
		case x.first < y.first:
			return -1
		case x.first > y.first:
			return 1
		}
		return 0
	})
	for _, w := range windows {
		w.first, w.last = max(w.first, lowBus), min(w.last, highBus) // sums stay below 2^64
		if w.last < w.first {
			continue
		}
		if n := len(a.windows); n > 0 && w.first <= a.windows[n-1].last {
			return nil, fmt.Errorf("address windows overlap at %#x", w.first)
		}
		a.windows = append(a.windows, w)
		if w.last >= preferredBus && a.next == 0 {
			a.next = max(w.first, preferredBus)
		}
	}
	if len(a.windows) == 0 {
		return nil, fmt.Errorf("the IOMMU translates no addresses")
	}
	return a, nil
}

// length is how many bytes of bus address an arena of size bytes takes.
func (a *addresses) length(size int) uint64 { return (uint64(size) + a.granule - 1) &^ (a.granule - 1) }

// take finds a place for size bytes.
func (a *addresses) take(size int) (bus uint64, err error) {
	n := a.length(size)
	align := a.granule
	switch {
	case n >= giantPage:
		align = giantPage
	case n >= hugePage:
		align = max(align, hugePage)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	bus, ok := a.find(a.next, n, align)
	if !ok {
		if bus, ok = a.find(0, n, align); !ok {
			return 0, fmt.Errorf("no bus addresses left for %d bytes: %d arenas are open", size, len(a.taken))
		}
	}
	a.next = bus + n + a.granule
	i, _ := slices.BinarySearchFunc(a.taken, bus, func(w window, b uint64) int {
		if w.first < b {
			return -1
		}
		return 1
	})
	a.taken = slices.Insert(a.taken, i, window{bus, bus + n - 1})
	return bus, nil
}

// find is the first place from on, runs with mu held.
func (a *addresses) find(from, n, align uint64) (bus uint64, ok bool) {
	for _, w := range a.windows {
		at := max(w.first, from)
		i := 0
		for {
			start := (at + align - 1) &^ (align - 1)
			if start < at || start > w.last || w.last-start < n-1 {
				break // the next window
			}
			// What is taken and not before start, with a page between.
			for i < len(a.taken) && a.taken[i].last+a.granule < start {
				i++
			}
			if i == len(a.taken) || start+n-1+a.granule < a.taken[i].first {
				return start, true
			}
			at = a.taken[i].last + 1 + a.granule
			if at == 0 {
				break
			}
		}
	}
	return 0, false
}

// give takes a place back.
func (a *addresses) give(bus uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.taken = slices.DeleteFunc(a.taken, func(w window) bool { return w.first == bus })
}
