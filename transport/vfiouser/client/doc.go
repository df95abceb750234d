// Package client is a pci.Function whose card is served over vfio-user in another process.
//
// Memory is memfds that are sent to the server (dma.Shared, and dma.Reserved, which costs no memory until
// somebody touches it); there is no heap memory, for nobody else can see it. Registers are trapped: a store
// is a message without a reply, a load is a round trip. Stores of several goroutines leave in one system
// call while the socket is busy, in the order in which they were made. Interrupts are eventfds.
//
//	callers ──> sender (whoever comes first sends for all) ──> socket ──> server
//	callers <── slots (one for each request under way) <── receiver goroutine <── socket
//	Wait    <── eventfd <── server
//
// A server that goes, that does not answer in time or that sends nonsense is gone for good: pending loads
// read as ones, everything else fails with pci.ErrGone.
package client
