// Package inproc plugs an endpoint straight into a function: driver and card in one process, register
// accesses are calls, DMA is a look-up, an interrupt is a channel send.
//
// The bus addresses of arenas start above 4 GiB, are never given twice, and have unmapped pages between
// them, so that a card that strays is caught. The MSI-X table and pending bits are in the BAR where the
// endpoint's capability says, and mask vectors once the driver writes them.
package inproc
