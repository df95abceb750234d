package dma

import (
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// maxSize keeps sums of sizes and alignments inside an int.
const maxSize = 1<<(bits.UintSize-2) - 1<<22

// maxHeap bounds heap arenas: an allocation that the Go runtime can't satisfy ends the process, so what
// is surely a mistake is refused. 512 MiB on 32-bit hosts, 32 GiB more on 64-bit ones.
const maxHeap = 1<<29 + (bits.UintSize/64)<<35

// The casts below are safe because the slice expression before bounds the access, and because
// arenas start at page boundaries so that an off that is a multiple of the word's size is aligned.
// Callers with an address from outside check its alignment first. Hosts are little endian: the words are
// swapped always.

// LoadBE32 reads the big-endian word at b[off:], atomically; plain reads that follow see what the other
// side wrote before it stored the word. off must be a multiple of 4.
func LoadBE32(b []byte, off int) uint32 {
	return bits.ReverseBytes32(atomic.LoadUint32(word(b, off)))
}

// StoreBE32 writes the big-endian word at b[off:], atomically; the other side that reads the word sees
// what was written before. off must be a multiple of 4.
func StoreBE32(b []byte, off int, v uint32) {
	atomic.StoreUint32(word(b, off), bits.ReverseBytes32(v))
}

// StoreBE64 writes the big-endian 8 bytes at b[off:], atomically; the other side that reads them sees what
// was written before. off must be a multiple of 8.
func StoreBE64(b []byte, off int, v uint64) {
	atomic.StoreUint64(word64(b, off), bits.ReverseBytes64(v))
}

// TakeBE64 reads the big-endian 8 bytes at b[off:] and leaves zeros, atomically; plain reads that follow see
// what the other side wrote before it stored them. Zeros cost a load only. off must be a multiple of 8.
func TakeBE64(b []byte, off int) uint64 {
	p := word64(b, off)
	if atomic.LoadUint64(p) == 0 {
		return 0
	}
	return bits.ReverseBytes64(atomic.SwapUint64(p, 0))
}

// word bounds the access by slicing: reading a byte to do so would be a plain read of a word that the
// other side may be writing, and the race detector would say so.
func word(b []byte, off int) *uint32 {
	return (*uint32)(unsafe.Pointer(unsafe.SliceData(b[off : off+4 : len(b)])))
}

func word64(b []byte, off int) *uint64 {
	return (*uint64)(unsafe.Pointer(unsafe.SliceData(b[off : off+8 : len(b)])))
}

// heapPages returns page-aligned heap memory. It is made of 64-bit words so that the race detector and
// atomics on 32-bit hosts see aligned words.
func heapPages(size int) []byte {
	words := make([]uint64, (size+PageSize)/8)
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(words))) & (PageSize - 1))
	return b[skip : skip+size : skip+size]
}

// pageAligned returns the part of b that starts at the first multiple of align and is size bytes long.
func pageAligned(b []byte, size, align int) []byte {
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & uintptr(align-1))
	return b[skip : skip+size : skip+size]
}
