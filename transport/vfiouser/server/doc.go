// Package server serves PCI functions (pci.Endpoint) over vfio-user: to QEMU's vfio-user-pci device, to
// client in this module, or to any other client.
//
// A Server is one Unix socket with one endpoint behind it, and one client at a time: when a client goes,
// the endpoint is reset and unplugged, its mappings and file descriptors are gone, and the next client
// starts afresh. Several servers in one process share nothing.
//
// A client is served by one goroutine, which receives many messages in one system call, performs them in
// order and sends the replies of all of them in one more:
//
//	socket ─> messages ─> session ─┬─ registers, config ──> pci.Endpoint
//	                               ├─ DMA maps ──────────> addrspace.Space <── engine (View, ReadAt)
//	                               └─ interrupts ────────> msix.Table ──> eventfds <── engine (Raise)
//
// Requests that wait for the card's engine (an unmap waits until its step is over, a reset for all DMA) are
// performed aside: the engine may itself be waiting for an answer of the client, for memory that the client
// did not share is reached by messages, so somebody must go on receiving. Requests that come meanwhile
// queue up behind.
//
// What clients send is hostile. A request that makes no sense gets an error reply; a stream that makes no
// sense, a client that does not answer or does not read, and one that truncates memory it shared, loses its
// connection. Others notice nothing.
//
// The server keeps the MSI-X table and the pending bits of the BAR. A client that uses only SET_IRQS, as
// QEMU does, never touches them.
package server
