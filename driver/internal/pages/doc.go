// Package pages is a page allocator for memory that a card receives into: pages of 4 or 64 KiB in blocks of
// 2^order pages, as Linux's page allocator has them. It exists because receive buffers that need blocks of
// a high order work until memory is fragmented, and because that can then be played: blocks can be made
// unavailable, and allocations made to fail, from a seed.
//
// A page is its number in the arena. A block of order k begins at a multiple of 2^k pages. Blocks are split
// in two until one of the wanted order is left, and a block that is freed is merged with its neighbour as
// long as that is free, too:
//
//	free (order k) ──Alloc──> allocated (order k) ──Free──> free, merged
//	                              │
//	                              └─Split──> 2^k allocated pages, each freed alone
//
// Any goroutine may call an Allocator. Who wants a page a frame keeps some in hand: every call takes a lock.
package pages
