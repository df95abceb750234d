//go:build linux

package vfio

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ioctlBytes passes a structure that the kernel reads and writes. What it points to, if anything, is memory
// that does not move: mappings, or a slice that the caller keeps (see pointerTo).
func ioctlBytes(fd int, request uint, arg []byte) (int, error) {
	n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(unsafe.Pointer(unsafe.SliceData(arg))))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// addressOf is where memory starts: a number for the kernel, never turned into a pointer again.
func addressOf(mem []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) }

// mapOver replaces a mapping by anonymous memory in one step (MAP_FIXED): the address range stays taken, so
// whoever is in the middle of an access touches memory of nobody's.
func mapOver(mem []byte) error {
	_, err := unix.MmapPtr(-1, 0, unsafe.Pointer(unsafe.SliceData(mem)), uintptr(len(mem)),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE|unix.MAP_FIXED)
	return err
}

// mapPages maps huge pages of a file side by side, in an order of its own.
func mapPages(fd int, pages []int) ([]byte, error) {
	// Room for one more, so that the memory starts on a huge page.
	room, err := unix.MmapPtr(-1, 0, nil, uintptr(len(pages)+1)*hugePage, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("room for %d huge pages: %w", len(pages), err)
	}
	before := -uintptr(room) & (hugePage - 1)
	start := unsafe.Add(room, before)
	if before > 0 {
		_ = unix.MunmapPtr(room, before)
	}
	_ = unix.MunmapPtr(unsafe.Add(start, len(pages)*hugePage), hugePage-before)
	mem := unsafe.Slice((*byte)(start), len(pages)*hugePage)
	for i, page := range pages {
		_, err := unix.MmapPtr(fd, int64(page)*hugePage, unsafe.Add(start, i*hugePage), hugePage, unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_SHARED|unix.MAP_FIXED|unix.MAP_LOCKED|unix.MAP_POPULATE)
		if err != nil {
			unmapPages(mem)
			return nil, fmt.Errorf("map huge page %d: %w", page, err)
		}
	}
	return mem, nil
}

// unmapPages ends what mapPages made.
func unmapPages(mem []byte) {
	_ = unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(mem)), uintptr(len(mem)))
}

const mpolPreferred = 1 // include/uapi/linux/mempolicy.h

// bindNode asks that pages of mem, none of which is there yet, come from a NUMA node if it has some.
func bindNode(mem []byte, node int) error {
	var mask [16]uint64
	if node < 0 || node >= 64*len(mask) || len(mem) == 0 {
		return unix.EINVAL
	}
	mask[node/64] = 1 << (node % 64)
	_, _, errno := unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(unsafe.SliceData(mem))), uintptr(len(mem)),
		mpolPreferred, uintptr(unsafe.Pointer(&mask)), uintptr(64*len(mask)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
