// Package dma is memory that a driver and a device both see.
//
// An Arena is one piece of such memory with a bus address. Transports make arenas (pci.Function's
// NewArena): they choose the memory and give it its bus address. Regions are carved from arenas and keep
// both addresses together.
//
// Words that change hands while both sides run (ownership words, doorbell records, consumer indices) are
// read with LoadBE32 and written with StoreBE32, which are atomic and order the plain accesses around
// them:
//
//	publish: write the bodies plainly, then StoreBE32 the word that hands them over
//	consume: LoadBE32 that word, then read the bodies plainly
//
// Everything else in an arena is plain bytes and belongs to one side at a time.
//
// The race detector sees accesses to heap arenas only: it ignores memory outside the Go heap (golang/go
// issue 16206). The conformance suite therefore runs on heap arenas under -race.
package dma
