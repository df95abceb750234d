//go:build linux

package client

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"cxkit/dma"
	"cxkit/pci"
	"cxkit/transport/internal/addrspace"
	"cxkit/transport/vfiouser"
	"cxkit/transport/vfiouser/internal/sock"
)

// arenaBook is which bus addresses are mapped at the server.
type arenaBook struct {
	mu   sync.Mutex // guards open
	open map[uint64]uint64
}

func (b *arenaBook) add(bus, size uint64, most int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.open) >= most {
		return false
	}
	if b.open == nil {
		b.open = map[uint64]uint64{}
	}
	b.open[bus] = size
	return true
}

func (b *arenaBook) remove(bus uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open, bus)
}

func (b *arenaBook) all() map[uint64]uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.open
	b.open = nil
	return all
}

// NewArena makes memory that the card can reach: dma.Shared, which dma.Auto is too, or dma.Reserved.
func (f *Function) NewArena(size int, kind dma.Kind) (*dma.Arena, error) {
	if err := f.alive(); err != nil {
		return nil, err
	}
	if kind == dma.Auto {
		kind = dma.Shared
	}
	a, err := dma.NewExported(size, kind)
	if err != nil {
		return nil, err
	}
	if err := f.place(a); err != nil {
		return nil, errors.Join(fmt.Errorf("arena of %d bytes: %w", size, err), a.Close())
	}
	return a, nil
}

// place maps a at the server until it is closed.
func (f *Function) place(a *dma.Arena) error {
	bus, err := f.places.Take(a.Size())
	if err != nil {
		return err
	}
	size := uint64(a.Size())
	if !f.arenas.add(bus, size, f.server.MaxDMAMaps) {
		return fmt.Errorf("the server takes no more than %d mappings", f.server.MaxDMAMaps)
	}
	if err := f.space.Map(addrspace.Mapping{Bus: bus, Size: size, Bytes: a.Bytes(), Access: pci.Read | pci.Write}); err != nil {
		f.arenas.remove(bus)
		return err
	}
	fd, _ := a.FD()
	m := vfiouser.MapRequest{Flags: vfiouser.MapRead | vfiouser.MapWrite, Address: bus, Size: size}
	if _, err := f.request(context.Background(), vfiouser.DMAMap, m.Append(nil), []int{fd}); err != nil {
		f.arenas.remove(bus)
		f.space.Unmap(bus, bus+size-1)
		return err
	}
	a.Place(bus, func() error { return f.unmap(bus, size) })
	return nil
}

// unmap takes an arena away from the card. A server that is gone has no mappings any more.
func (f *Function) unmap(bus, size uint64) error {
	f.space.Unmap(bus, bus+size-1)
	f.arenas.remove(bus)
	m := vfiouser.UnmapRequest{Address: bus, Size: size}
	_, err := f.request(context.Background(), vfiouser.DMAUnmap, m.Append(nil), nil)
	if errors.Is(err, pci.ErrClosed) || errors.Is(err, pci.ErrGone) {
		return nil
	}
	return err
}

// unmapAll takes all arenas away from the card. It is part of Close.
func (f *Function) unmapAll() {
	open := f.arenas.all()
	if len(open) == 0 {
		return
	}
	all := vfiouser.UnmapRequest{Flags: vfiouser.UnmapAll}
	_, err := f.ask(context.Background(), vfiouser.DMAUnmap, all.Append(nil), nil)
	var refused unix.Errno
	if !errors.As(err, &refused) {
		return
	}
	for bus, size := range open { // a server that does not know the flag
		one := vfiouser.UnmapRequest{Address: bus, Size: size}
		if _, err := f.ask(context.Background(), vfiouser.DMAUnmap, one.Append(nil), nil); err != nil && !errors.As(err, &refused) {
			return
		}
	}
}

// serve answers a request of the server: memory by messages.
func (f *Function) serve(m *sock.Message) error {
	out, err := f.access(m)
	if err != nil {
		code := unix.EINVAL
		errors.As(err, &code)
		h := vfiouser.Header{ID: m.ID, Command: m.Command, Size: vfiouser.HeaderSize, Flags: vfiouser.FlagReply | vfiouser.FlagError, Errno: uint32(code)}
		out = h.Append(nil)
	} else if !m.Wanted() {
		return nil
	}
	return f.send.finish(append(f.send.begin(), out...))
}

// access performs a DMA message and returns its reply.
func (f *Function) access(m *sock.Message) ([]byte, error) {
	if m.Command != vfiouser.DMARead && m.Command != vfiouser.DMAWrite {
		return nil, unix.ENOSYS
	}
	var a vfiouser.DMAAccess
	data, err := a.Parse(m.Payload)
	if err != nil {
		return nil, err
	}
	if a.Count > vfiouser.MaxData || m.Command == vfiouser.DMAWrite && uint64(len(data)) < a.Count {
		return nil, unix.E2BIG
	}
	h := vfiouser.Header{ID: m.ID, Command: m.Command, Size: vfiouser.HeaderSize + vfiouser.DMAAccessSize, Flags: vfiouser.FlagReply}
	if m.Command == vfiouser.DMAWrite {
		if err := f.space.WriteAt(data[:a.Count], a.Address); err != nil {
			return nil, fmt.Errorf("%w: %w", err, unix.EFAULT)
		}
		return a.Append(h.Append(nil)), nil
	}
	h.Size += uint32(a.Count)
	out := a.Append(h.Append(nil))
	out = append(out, make([]byte, a.Count)...)
	if err := f.space.ReadAt(out[len(out)-int(a.Count):], a.Address); err != nil {
		return nil, fmt.Errorf("%w: %w", err, unix.EFAULT)
	}
	return out, nil
}
