//go:build linux

package vfio

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"

	"cxkit/mmio"
)

// bar is a BAR. Accesses go to the card's memory where the kernel maps it, else through the device's file
// (the MSI-X table's page, before Linux 4.16). It is an mmio.Trap: it must be able to read as ones when the
// function is closed or the card is gone, and it costs a few nanoseconds of an access that costs hundreds.
type bar struct {
	k      kernel
	region region
	mapped []area
	off    atomic.Bool // reads as ones and writes nowhere
}

// area is a mapped part of a BAR.
type area struct {
	first, end uint64
	mem        []byte
	window     *mmio.Window
}

var _ mmio.Trap = (*bar)(nil)

// openBARs maps the BARs. I/O space and the upper halves of 64-bit BARs are not there for drivers.
func (f *Function) openBARs() error {
	var head [24]byte
	if err := f.conf.read(f.config.kernel, 0x10, head[:]); err != nil {
		return err
	}
	for i := range f.bars {
		r, err := f.region(uint32(i))
		if err != nil {
			return err
		}
		if r.size == 0 || head[4*i]&1 == 1 {
			continue
		}
		b := &bar{k: f.config.kernel, region: r}
		f.bars[i], f.info.BARs[i] = b, r.size
		if err := b.mapAreas(); err != nil {
			return fmt.Errorf("map BAR %d of %#x bytes: %w", i, r.size, err)
		}
	}
	return nil
}

func (b *bar) mapAreas() error {
	if b.region.flags&regionMMap == 0 {
		return nil
	}
	areas := b.region.areas
	if areas == nil {
		areas = [][2]uint64{{0, b.region.size}}
	}
	page := uint64(os.Getpagesize())
	for _, a := range areas {
		first, n := a[0], a[1]
		if first > b.region.size || n > b.region.size-first {
			return fmt.Errorf("the kernel says that %#x bytes at %#x can be mapped", n, first)
		}
		if first%page != 0 || n < page {
			continue // reached through the file
		}
		n -= n % page
		mem, err := b.k.mmap(b.region.fd, b.region.off+int64(first), int(n))
		if err != nil {
			return err
		}
		b.mapped = append(b.mapped, area{first, first + n, mem, mmio.NewMapped(mem)})
	}
	return nil
}

// find is the mapped part that holds an access.
func (b *bar) find(off uint64, size int) *area {
	for i := range b.mapped {
		if a := &b.mapped[i]; off >= a.first && off+uint64(size) <= a.end {
			return a
		}
	}
	return nil
}

// Load reads a register, of 4 or 8 bytes.
func (b *bar) Load(off uint64, size int) (v uint64) {
	ones := ^uint64(0) >> (64 - 8*size)
	if b.off.Load() {
		return ones
	}
	a := b.find(off, size)
	switch {
	case a == nil:
		v = b.loadFile(off, size, ones)
	case size == 8:
		v = a.window.Load64(off - a.first)
	default:
		v = uint64(a.window.Load32(off - a.first))
	}
	if b.off.Load() { // while it was read: revoke may have replaced the memory
		return ones
	}
	return v
}

func (b *bar) loadFile(off uint64, size int, ones uint64) uint64 {
	var p [8]byte
	if n, err := b.k.pread(b.region.fd, p[:size], b.region.off+int64(off)); err != nil || n != size {
		return ones
	}
	if size == 8 {
		return binary.BigEndian.Uint64(p[:])
	}
	return uint64(binary.BigEndian.Uint32(p[:]))
}

// Store writes a register, of 4 or 8 bytes.
func (b *bar) Store(off uint64, size int, v uint64) {
	if b.off.Load() {
		return
	}
	a := b.find(off, size)
	switch {
	case a == nil:
		var p [8]byte
		if size == 8 {
			binary.BigEndian.PutUint64(p[:], v)
		} else {
			binary.BigEndian.PutUint32(p[:], uint32(v))
		}
		_, _ = b.k.pwrite(b.region.fd, p[:size], b.region.off+int64(off)) // posted: a card that is gone takes no note
	case size == 8:
		a.window.Store64(off-a.first, v)
	default:
		a.window.Store32(off-a.first, uint32(v))
	}
}

// turnOff makes the BAR read as ones. Accesses under way may still reach the card.
func (b *bar) turnOff() { b.off.Store(true) }

// revoke takes the card's memory away. Accesses under way touch memory of nobody's: the address range is
// freed only when nobody has the BAR any more.
func (b *bar) revoke(k kernel) error {
	b.turnOff()
	for _, a := range b.mapped {
		if err := k.forget(a.mem); err != nil {
			return fmt.Errorf("take a BAR out of memory: %w", err)
		}
		runtime.AddCleanup(b, k.munmap, a.mem)
	}
	return nil
}

// Window gives access to a BAR.
func (f *Function) Window(i int) (*mmio.Window, error) {
	if i < 0 || i >= len(f.bars) || f.bars[i] == nil {
		return nil, fmt.Errorf("%s has no BAR %d", f.info.Address, i)
	}
	if err := f.use(); err != nil {
		return nil, err
	}
	defer f.mu.RUnlock()
	return mmio.NewTrapped(f.bars[i], f.info.BARs[i]), nil
}
