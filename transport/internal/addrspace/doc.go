// Package addrspace is the bus-address space of one function, as transports keep it for cards.
//
// A Space is a pci.Memory. One side maps and unmaps (the transport, from any goroutine, one change at a
// time), the other looks up (cards, between Enter and Leave, without locks):
//
//	Map      publishes a new table; it waits for nobody
//	Unmap    waits until every card has left its step (the gate), then publishes a table without the range
//
// A table is a two-level sorted list that shares unchanged chunks with the one before, so 16,384 maps of
// one page each cost microseconds each. Looking up asks first the few largest mappings (a guest's RAM),
// then a cache of pages, then the list.
//
// The package also has the Allocator that in-process functions and clients take bus addresses from.
package addrspace
