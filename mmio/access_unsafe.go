package mmio

import (
	"math/bits"
	"unsafe"
)

func aligned8(b []byte) bool {
	return len(b) == 0 || uintptr(unsafe.Pointer(unsafe.SliceData(b)))&7 == 0
}

// The pointer arithmetic below stays inside the slice: Window.check has bounded off. Hosts are little
// endian: registers are swapped always.

func load32(b []byte, off uint64) uint32 {
	return bits.ReverseBytes32(loadWord32((*uint32)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), off))))
}

func load64(b []byte, off uint64) uint64 {
	return bits.ReverseBytes64(loadWord64((*uint64)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), off))))
}

func store32(b []byte, off uint64, v uint32) {
	storeWord32((*uint32)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), off)), bits.ReverseBytes32(v))
}

func store64(b []byte, off uint64, v uint64) {
	storeWord64((*uint64)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), off)), bits.ReverseBytes64(v))
}
