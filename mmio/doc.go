// Package mmio is how software touches a device's registers: one bus access per call.
//
// A Window is one BAR. It is either memory that the device maps into this process, or a Trap that
// carries each access to the device (a function call in process, a message over a socket). Code above
// never knows which.
//
// Registers of a ConnectX are big endian. Values here are host integers whose big-endian encoding is
// the bytes on the bus in address order.
//
// Mapped accesses are assembly on amd64 and arm64: a compiler may merge or drop two plain stores to one
// address, and sync/atomic's store is an XCHG on amd64, which is a locked read-modify-write of the
// register. Barriers follow rdma-core's util/udma_barrier.h.
package mmio
