//go:build linux

package vfio

import (
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
