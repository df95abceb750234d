package inproc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"cxkit/dma"
	"cxkit/mmio"
	"cxkit/pci"
	"cxkit/transport/internal/addrspace"
	"cxkit/transport/internal/cfgspace"
	"cxkit/transport/internal/msix"
)

// Config chooses how a function reaches its card. The zero value works.
type Config struct {
	// Kind is what dma.Auto stands for: dma.Private if zero.
	Kind dma.Kind
}

// Function is a pci.Function whose card runs in this process.
type Function struct {
	ep      pci.Endpoint
	info    pci.Info
	config  Config
	space   *cfgspace.Space
	mem     *addrspace.Space
	places  addrspace.Allocator
	msix    *msix.Table
	bars    msix.BARs
	vectors []chan struct{} // one slot each: raises coalesce

	mu     sync.RWMutex // held for reading by all that must not overlap Close, for writing by Close
	closed atomic.Bool
	done   chan struct{} // closed by Close
}

var _ pci.Function = (*Function)(nil)

// Open plugs ep in. The function owns the connection until Close.
func Open(ep pci.Endpoint, config Config) (*Function, error) {
	if config.Kind == dma.Auto {
		config.Kind = dma.Private
	}
	f := &Function{ep: ep, info: ep.Info(), config: config, mem: addrspace.New(addrspace.Config{}), done: make(chan struct{})}
	f.space = cfgspace.New(ep)
	f.vectors = make([]chan struct{}, f.info.Vectors)
	for i := range f.vectors {
		f.vectors[i] = make(chan struct{}, 1)
	}
	f.msix = msix.New(f.info.Vectors, f.deliver)
	f.bars = msix.NewBARs(ep, f.msix)
	if err := ep.Attach(host{f}); err != nil {
		return nil, fmt.Errorf("plug in %s: %w", f.info.Address, err)
	}
	return f, nil
}

// Info describes the function.
func (f *Function) Info() pci.Info { return f.info }

// use holds off Close; the caller calls f.mu.RUnlock.
func (f *Function) use() error {
	f.mu.RLock()
	if f.closed.Load() {
		f.mu.RUnlock()
		return pci.ErrClosed
	}
	return nil
}

// ReadConfig fills p from configuration space.
func (f *Function) ReadConfig(off int, p []byte) error {
	if err := f.use(); err != nil {
		return err
	}
	defer f.mu.RUnlock()
	return f.space.Read(off, p)
}

// WriteConfig writes p to configuration space.
func (f *Function) WriteConfig(off int, p []byte) error {
	if err := f.use(); err != nil {
		return err
	}
	defer f.mu.RUnlock()
	e, err := f.space.Write(off, p)
	if e.Reset {
		f.forgetInterrupts()
	}
	if e.MSIX {
		f.msix.SetFunctionMask(e.FunctionMask)
	}
	return err
}

// Window gives access to a BAR.
func (f *Function) Window(bar int) (*mmio.Window, error) {
	if bar < 0 || bar >= len(f.info.BARs) || f.info.BARs[bar] == 0 {
		return nil, fmt.Errorf("%s has no BAR %d", f.info.Address, bar)
	}
	if err := f.use(); err != nil {
		return nil, err
	}
	defer f.mu.RUnlock()
	return mmio.NewTrapped(trap{f, bar}, f.info.BARs[bar]), nil
}

// trap carries register accesses of one BAR to the endpoint. After Close it reads as ones and writes
// nowhere; it takes no lock, for a doorbell costs no more than a call.
type trap struct {
	f   *Function
	bar int
}

func (t trap) Load(off uint64, size int) uint64 {
	if t.f.closed.Load() {
		return ^uint64(0) >> (64 - 8*size)
	}
	return t.f.bars.Read(t.bar, off, size)
}

func (t trap) Store(off uint64, size int, v uint64) {
	switch f := t.f; {
	case f.closed.Load():
	case f.info.Mapped != nil && f.info.Mapped.Holds(t.bar, off, uint64(size)):
		f.storeMapped(int(off), size, v)
	default:
		f.bars.Write(t.bar, off, size, v)
	}
}

// storeMapped writes to a part of a BAR that is memory, unless the function is being closed, after which the
// card may free it.
func (f *Function) storeMapped(off, size int, v uint64) {
	if f.use() != nil {
		return
	}
	defer f.mu.RUnlock()
	if b := f.info.Mapped.Memory.Bytes(); size == 8 {
		dma.StoreBE64(b, off, v)
	} else {
		dma.StoreBE32(b, off, uint32(v))
	}
}

// NewArena makes memory that the card can reach.
func (f *Function) NewArena(size int, kind dma.Kind) (*dma.Arena, error) {
	if kind == dma.Auto {
		kind = f.config.Kind
	}
	if err := f.use(); err != nil {
		return nil, err
	}
	defer f.mu.RUnlock()
	a, err := dma.New(size, kind)
	if err != nil {
		return nil, err
	}
	if err := f.place(a); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// place maps a for the card until it is closed.
func (f *Function) place(a *dma.Arena) error {
	bus, err := f.places.Take(a.Size())
	if err != nil {
		return err
	}
	size := uint64(a.Size())
	if err := f.mem.Map(addrspace.Mapping{Bus: bus, Size: size, Bytes: a.Bytes(), Access: pci.Read | pci.Write}); err != nil {
		return err
	}
	a.Place(bus, func() error {
		_, err := f.mem.Unmap(bus, bus+size-1)
		return err
	})
	return nil
}

// Wait blocks until the card has raised the vector.
func (f *Function) Wait(ctx context.Context, vector int) error {
	if vector < 0 || vector >= len(f.vectors) {
		return fmt.Errorf("%s has no MSI-X vector %d", f.info.Address, vector)
	}
	select {
	case <-f.done:
		return pci.ErrClosed
	default:
	}
	select {
	case <-f.vectors[vector]: // rather than an error, when both are there
		return nil
	default:
	}
	select {
	case <-f.vectors[vector]:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-f.done:
		return pci.ErrClosed
	}
}

// Reset performs a function level reset.
func (f *Function) Reset(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := f.use(); err != nil {
		return err
	}
	defer f.mu.RUnlock()
	f.ep.Reset(pci.ResetFLR)
	f.forgetInterrupts()
	return nil
}

// forgetInterrupts drops what was raised before a reset.
func (f *Function) forgetInterrupts() {
	f.msix.Reset()
	for _, v := range f.vectors {
		select {
		case <-v:
		default:
		}
	}
}

// Close unplugs the card. Waits end at once.
func (f *Function) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed.CompareAndSwap(false, true) {
		return nil
	}
	close(f.done)
	f.ep.Detach()
	f.mem.UnmapAll()
	return nil
}

// deliver hands a vector to its waiter.
func (f *Function) deliver(vector int) bool {
	select {
	case f.vectors[vector] <- struct{}{}:
	default: // one is there already
	}
	return true
}

// host is what the card sees of the function.
type host struct{ f *Function }

func (h host) Memory() pci.Memory { return h.f.mem }

func (h host) Raise(vector int) { h.f.msix.Raise(vector) }
