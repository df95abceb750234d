//go:build linux

package vfio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"cxkit/pci"
)

// region is a part of the device's file: a BAR or configuration space.
type region struct {
	fd    int
	off   int64 // in the file
	size  uint64
	flags uint32
	areas [][2]uint64 // offset and length of what may be mapped; nil for what flags say
}

// region asks the kernel for a region; size 0 is none.
func (f *Function) region(index uint32) (region, error) {
	info := make([]byte, 32)
	copy(info[8:], words(index))
	info, err := ask(f.config.kernel, f.device, deviceGetRegion, info)
	if errors.Is(err, unix.EINVAL) {
		return region{}, nil
	}
	if err != nil {
		return region{}, fmt.Errorf("region %d: %w", index, err)
	}
	r := region{fd: f.device, flags: le32(info, 4), size: le64(info, 16), off: int64(le64(info, 24))}
	if r.off < 0 || r.size > math.MaxInt64 || r.off > math.MaxInt64-int64(r.size) {
		return region{}, fmt.Errorf("region %d: %#x bytes at %#x", index, r.size, r.off)
	}
	if r.flags&regionCaps != 0 {
		if c, ok := capability(info, le32(info, 12), capSparse); ok && len(c) >= 16 {
			r.areas = pairs(c, 16, le32(c, 8))
		}
	}
	return r, nil
}

const (
	configSize = 4096

	configCommand = 0x04
	memorySpace   = 1 << 1
	busMaster     = 1 << 2
	configStatus  = 0x06
	configCaps    = 0x34
	capExpress    = 0x10
	capMSIX       = 0x11
	capLimit      = 48 // that fit between 0x40 and 0xff
)

// openConfig finds out what configuration space says.
func (f *Function) openConfig() (err error) {
	if f.conf, err = f.region(regionConfig); err != nil {
		return err
	}
	if f.conf.size < 256 {
		return fmt.Errorf("configuration space of %d bytes", f.conf.size)
	}
	k := f.config.kernel
	var head [256]byte
	if err := f.conf.read(k, 0, head[:]); err != nil {
		return err
	}
	f.info.Vendor, f.info.Device = binary.LittleEndian.Uint16(head[0:]), binary.LittleEndian.Uint16(head[2:])
	if f.info.Vendor == 0xffff {
		return fmt.Errorf("configuration space reads as ones: %w", pci.ErrGone)
	}
	off := int(head[configCaps]) &^ 3
	for range capLimit {
		if off < 0x40 || off > 256-12 {
			break
		}
		switch head[off] {
		case capExpress:
			f.flr = off + 9 // Device Control's upper byte
		case capMSIX:
			n := uint64(binary.LittleEndian.Uint16(head[off+2:])&0x7ff) + 1
			f.info.MSIXTable = barRange(le32(head[:], off+4), n*16)
			f.info.MSIXPBA = barRange(le32(head[:], off+8), (n+63)/64*8)
		}
		off = int(head[off+1]) &^ 3
	}
	return nil
}

// barRange is a place as the MSI-X capability gives it: 3 bits say which BAR.
func barRange(v uint32, n uint64) pci.BARRange {
	return pci.BARRange{BAR: int(v & 7), Off: uint64(v &^ 7), Len: n}
}

// read fills p. What is behind the end of a conventional device's 256 bytes reads as zero.
func (r region) read(k kernel, off int, p []byte) error {
	n := len(p)
	if end := max(int(r.size)-off, 0); n > end {
		clear(p[end:])
		n = end
	}
	got, err := k.pread(r.fd, p[:n], r.off+int64(off))
	if err == nil && got != n {
		err = fmt.Errorf("%d bytes came", got)
	}
	if err != nil {
		return fmt.Errorf("read config %#x+%d: %w", off, len(p), err)
	}
	return nil
}

func (r region) write(k kernel, off int, p []byte) error {
	n := min(len(p), max(int(r.size)-off, 0))
	got, err := k.pwrite(r.fd, p[:n], r.off+int64(off))
	if err == nil && got != n {
		err = fmt.Errorf("%d bytes went", got)
	}
	if err != nil {
		return fmt.Errorf("write config %#x+%d: %w", off, len(p), err)
	}
	return nil
}

// startBusMaster lets the card reach memory, and raise interrupts, which are writes to memory. The kernel
// gives it out with that switched off.
func (r region) startBusMaster(k kernel) error {
	var b [2]byte
	if err := r.read(k, configCommand, b[:]); err != nil {
		return err
	}
	b[0] |= busMaster | memorySpace
	return r.write(k, configCommand, b[:])
}

// stopBusMaster ends that. A card that is gone reaches nothing.
func (r region) stopBusMaster(k kernel) {
	if r.size == 0 {
		return
	}
	var b [2]byte
	if r.read(k, configCommand, b[:]) != nil || b == [2]byte{0xff, 0xff} {
		return
	}
	b[0] &^= busMaster
	_ = r.write(k, configCommand, b[:]) // unmapping, which follows, ends it too
}

// ReadConfig fills p from configuration space; with ones, and an error, where the card is gone.
func (f *Function) ReadConfig(off int, p []byte) error {
	if err := f.configAccess("read", off, len(p)); err != nil {
		return err
	}
	defer f.mu.RUnlock()
	if len(p) == 0 {
		return nil
	}
	if err := f.conf.read(f.config.kernel, off, p); err != nil {
		for i := range p {
			p[i] = 0xff
		}
		if gone := f.state.reason(); gone != nil {
			return gone
		}
		return err
	}
	return nil
}

// WriteConfig writes p to configuration space. It returns when a reset that it starts is over.
func (f *Function) WriteConfig(off int, p []byte) error {
	if err := f.configAccess("write", off, len(p)); err != nil {
		return err
	}
	defer f.mu.RUnlock()
	if len(p) == 0 {
		return nil
	}
	resets := f.startsReset(off, p)
	if resets {
		f.resetting.Lock()
		defer f.resetting.Unlock()
		f.state.expectOnes()
	}
	if err := f.conf.write(f.config.kernel, off, p); err != nil {
		return err
	}
	if resets {
		f.forgetInterrupts()
	}
	return nil
}

// startsReset tells whether a write sets Device Control bit 15, which is in its second byte. The kernel then
// resets the function before the write returns.
func (f *Function) startsReset(off int, p []byte) bool {
	at := f.flr - off
	return f.flr != 0 && at >= 0 && at < len(p) && p[at]&0x80 != 0
}

// configAccess checks an access and holds off Close; the caller calls f.mu.RUnlock if it is nil.
func (f *Function) configAccess(op string, off, n int) error {
	if err := f.use(); err != nil {
		return err
	}
	if off < 0 || off > configSize || n > configSize-off {
		f.mu.RUnlock()
		return fmt.Errorf("%s config %#x+%d: outside configuration space", op, off, n)
	}
	return nil
}
