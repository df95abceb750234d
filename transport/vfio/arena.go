//go:build linux

package vfio

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"cxkit/dma"
)

// arenas are the arenas that the card can reach.
type arenas struct {
	mu     sync.Mutex // guards the rest
	open   map[uint64][]byte
	locked uint64 // bytes
}

// lockAdvice says how to be allowed to lock memory.
const lockAdvice = "the kernel locks memory that a card uses, and RLIMIT_MEMLOCK limits that"

// reserve books size bytes before they are locked, so that the limit's error is one that explains itself.
func (a *arenas) reserve(k kernel, size uint64) error {
	limit, unlimited := k.memlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	if need := a.locked + size; !unlimited && need > limit {
		return fmt.Errorf("%w: %s to %d KiB, of which %d KiB are in use; %d KiB are needed: type ulimit -l unlimited as root "+
			"before, LimitMEMLOCK=infinity in a systemd unit, --ulimit memlock=-1 for a container, or "+
			"setcap cap_ipc_lock+ep for the program", ErrMemlock, lockAdvice, limit>>10, a.locked>>10, (need+1023)>>10)
	}
	a.locked += size
	return nil
}

// ErrMemlock: RLIMIT_MEMLOCK does not allow the memory that was asked for.
var ErrMemlock = errors.New("locked memory is limited")

func (a *arenas) unreserve(size uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.locked -= size
}

func (a *arenas) add(bus uint64, mem []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open == nil {
		a.open = make(map[uint64][]byte)
	}
	a.open[bus] = mem
}

// drop forgets an arena; ok tells whether the card could reach it until now.
func (a *arenas) drop(bus uint64) (mem []byte, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	mem, ok = a.open[bus]
	delete(a.open, bus)
	if ok {
		a.locked -= uint64(len(mem))
	}
	return mem, ok
}

// removeAll takes all arenas away from the card. It is part of Close.
func (a *arenas) removeAll(s space) error {
	a.mu.Lock()
	all := a.open
	a.open, a.locked = nil, 0
	a.mu.Unlock()
	var errs []error
	for bus, mem := range all {
		errs = append(errs, s.remove(bus, mem))
	}
	return errors.Join(errs...)
}

// NewArena makes memory that the card can reach: dma.Private, which dma.Auto is too if Config.Kind does not
// say otherwise, dma.Shared or dma.Reserved. All of it is locked into memory, Reserved too: the card may
// write to it at any time. Errors are ErrMemlock, dma.ErrKind, dma.ErrSize and the kernel's.
func (f *Function) NewArena(size int, kind dma.Kind) (*dma.Arena, error) {
	if kind == dma.Auto {
		kind = f.config.Kind
	}
	if err := f.use(); err != nil {
		return nil, err
	}
	defer f.mu.RUnlock()
	if err := f.state.reason(); err != nil {
		return nil, err
	}
	switch kind {
	case dma.Private, dma.Shared, dma.Reserved:
	default:
		return nil, fmt.Errorf("arena of %d bytes, %v: %w", size, kind, dma.ErrKind)
	}
	if u, ok := f.space.(*untranslated); ok {
		return f.newPiece(u, size, kind)
	}
	a, err := dma.New(size, kind)
	if err != nil {
		return nil, err
	}
	if err := f.place(a); err != nil {
		return nil, errors.Join(fmt.Errorf("arena of %d bytes: %w", size, err), a.Close())
	}
	return a, nil
}

// newPiece is NewArena without an IOMMU: all memory is the card's, so only the memory itself is looked for.
func (f *Function) newPiece(u *untranslated, size int, kind dma.Kind) (*dma.Arena, error) {
	var bus uint64
	a, err := dma.NewIn(size, kind, func(size int) (mem []byte, backing string, free func() error, err error) {
		if err := f.arenas.reserve(f.config.kernel, uint64(size)); err != nil {
			return nil, "", nil, err
		}
		if mem, bus, free, err = u.memory(size); err != nil {
			f.arenas.unreserve(uint64(size))
			return nil, "", nil, err
		}
		return mem, "hugetlb", free, nil
	})
	if err != nil {
		return nil, err
	}
	f.arenas.add(bus, a.Bytes())
	a.Place(bus, func() error { return f.unplace(bus) })
	return a, nil
}

// place lets the card reach a until it is closed.
func (f *Function) place(a *dma.Arena) error {
	mem, size := a.Bytes(), uint64(a.Size())
	if err := f.arenas.reserve(f.config.kernel, size); err != nil {
		return err
	}
	if f.node >= 0 {
		// Before the first access, which allocates the pages. Slower memory is no reason to fail.
		if err := f.config.kernel.preferNode(mem, f.node); err != nil {
			f.config.Log.Debug("memory is not put on the card's NUMA node", "node", f.node, "err", err)
		}
	}
	if a.Kind() == dma.Reserved && a.Size() >= hugePage {
		_ = unix.Madvise(mem, unix.MADV_HUGEPAGE) // it costs memory in any case; fewer mappings if granted
	}
	bus, err := f.space.place(mem)
	if err != nil {
		f.arenas.unreserve(size)
		return err
	}
	f.arenas.add(bus, mem)
	a.Place(bus, func() error { return f.unplace(bus) })
	return nil
}

// unplace takes an arena away from the card. One that Close has taken is not the card's any more.
func (f *Function) unplace(bus uint64) error {
	f.mu.RLock() // Close, if it is under way, takes it
	defer f.mu.RUnlock()
	mem, ok := f.arenas.drop(bus)
	if !ok {
		return nil
	}
	return f.space.remove(bus, mem)
}
