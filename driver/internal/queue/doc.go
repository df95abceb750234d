// Package queue is the rings a NIC shares with the card: completion queues, receive queues, send queues,
// and their doorbells. It is memory and counters only: commands that create queues live above.
//
// Counters run free and are masked at the ring. One goroutine owns a ring.
//
//	CQ  card writes entries, the ownership bit (parity of its wrap count) last; software takes them and
//	    stores how far it is in the doorbell record, dword 0, so that the card may write on.
//	RQ  software writes buffer addresses and stores how many it has posted in the record, dword 0. The
//	    card reads the record when a frame arrives; there is no register to write.
//	SQ  software writes WQEs, stores how many in the record, dword 1, and then writes the first 8 bytes of
//	    the last WQE to the doorbell register.
//
// What the card writes is input. The owner of a CQ looks at one ownership dword with one atomic load
// (dma.LoadBE32; partner: the card's store of that dword after the entry's body) and never at entries
// behind one that is not there yet: the card publishes bursts last to first. Entry numbers, lengths and
// WQE counters are checked before they index anything; a completion that cannot be ends the queue with an
// Impossible error.
//
// Sources: PRM chapters 7 and 8 as in Linux wq.h, en_rx.c, en_tx.c.
package queue
