//go:build linux

package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"syscall"
)

// registers times accesses to a card's BAR 0: 32-bit reads of the firmware revision, and 32-bit writes of
// a byte that the card ignores there. The driver may be bound: nothing changes.
func registers(resource string) error {
	f, err := os.OpenFile(resource, os.O_RDWR|os.O_SYNC, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	bar, err := syscall.Mmap(int(f.Fd()), 0, 4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return err
	}
	defer syscall.Munmap(bar)
	const n = 2000
	first := binary.BigEndian.Uint32(bar)
	result("register-read", median(n, func() {
		if v := binary.BigEndian.Uint32(bar); v != first {
			fmt.Println("agent: the firmware revision changed")
		}
	}), "us")
	result("register-write", median(n, func() { binary.BigEndian.PutUint32(bar, first) }), "us")
	return nil
}
