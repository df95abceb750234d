//go:build amd64 || arm64

package mmio

// One access each, opaque to the compiler.

//go:noescape
func loadWord32(p *uint32) uint32

//go:noescape
func loadWord64(p *uint64) uint64

//go:noescape
func storeWord32(p *uint32, v uint32)

//go:noescape
func storeWord64(p *uint64, v uint64)

// WriteBarrier orders earlier stores to memory before later stores to registers: nothing on amd64 for
// uncached registers, DMB OSHST on arm64 (rdma-core udma_barrier.h, udma_to_device_barrier).
func WriteBarrier()

// ReadBarrier orders an earlier load of a register or ownership word before later loads of memory the
// device wrote: nothing on amd64, DMB OSHLD on arm64 (udma_from_device_barrier).
func ReadBarrier()
