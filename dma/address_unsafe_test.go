package dma

import "unsafe"

// addressOf is where a slice starts, for checks of alignment.
func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
