// Package rxpool is a NIC's packet buffers and who holds each.
//
// All buffers lie in one arena and have the same size. A buffer is an index. It is always in one place:
//
//	       ┌────────post──────> in a receive ring ──completion──┐
//	free ──┤                                                    ├──> out (application) ──release──> free
//	       └────────────────────get (to fill)───────────────────┘        │
//	free <──completion── in a transmit ring <────────────send────────────┘
//
// Nothing else is allowed: a ring's buffer is not free while the card may use it (destroying or resetting
// the queue ends that), and only a buffer that is out can be released or sent. The books say for each
// buffer whether it is out, and by which queue; where the others are, free lists and rings say. A caller
// that releases or sends a buffer that is not out has used it twice; that is counted and refused, and
// panics where the pool checks (Config.Check). A checking pool also finds writes to free buffers.
//
// Free buffers are in the depot, or in the cache of a queue. A Cache has one owner and takes no lock;
// caches exchange buffers with the depot in batches, under its mutex. So forwarding, where receive queues
// only take and transmit queues only give, costs two locks in a batch of packets. A queue that finds
// neither its cache nor the depot filled says so (Want): then the others empty their caches into the
// depot when they next release something, and it is told.
//
// The books of a buffer belong to whoever holds it. They are plain memory: handing a buffer to another
// goroutine hands its books along, by whatever ordered the hand-over.
package rxpool
