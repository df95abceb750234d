//go:build linux

package vfio

import "unsafe"

// bytesAt is memory at an address that this process has mapped: what the kernel sees of a mapping.
func bytesAt(addr, size uint64) []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), size)
}
