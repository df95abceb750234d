//go:build linux

package dma

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

func mincore(b, vec []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, addressOf(b), uintptr(len(b)), uintptr(unsafe.Pointer(&vec[0])))
	if errno != 0 {
		return errno
	}
	return nil
}
