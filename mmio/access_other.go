//go:build !amd64 && !arm64

package mmio

import "sync/atomic"

// Hosts without an assembly version use atomics, which the compiler neither merges nor drops. They may
// cost a locked access; real cards are driven from amd64 only until tried elsewhere. The 64-bit ones run
// on 64-bit hosts only: Window splits the access elsewhere.

func loadWord32(p *uint32) uint32 { return atomic.LoadUint32(p) }

func loadWord64(p *uint64) uint64 { return atomic.LoadUint64(p) }

func storeWord32(p *uint32, v uint32) { atomic.StoreUint32(p, v) }

func storeWord64(p *uint64, v uint64) { atomic.StoreUint64(p, v) }

// WriteBarrier orders earlier stores to memory before later stores to registers: Go's atomics, which
// carry register accesses here, order plain accesses around them.
func WriteBarrier() {}

// ReadBarrier orders an earlier load of a register before later loads of memory the device wrote.
func ReadBarrier() {}
