// Package queue is the card's side of completion queues, receive queues and send queues (reference 03):
// it reads work queue entries and doorbell records from the host's memory, and writes completions.
//
// # States of an RQ or SQ
//
//	        MODIFY                MODIFY
//	create ──────> RST ─────────────────> RDY ──┐ a work request fails: an error completion with
//	                ^  <───────────────── │     │ the reason, then, with flush_in_error_en, one with
//	                │        MODIFY       v     │ "flushed" for every other one that was posted
//	                └──────────────────  ERR <──┘ or MODIFY, from RST too
//	                         MODIFY
//
// Only RDY moves frames. Entering RST zeroes the counters. Prohibited: ERR to RDY, because the counters of
// both sides would not agree. Anything to itself is accepted and does nothing. Doorbells in RST are forgotten: Linux leaves
// an old counter in the doorbell record of a send queue over a recovery, so the record is looked at when
// a doorbell asks for it and not because the queue became ready.
//
// # Who owns what
//
// The engine owns everything here. A ring's slots belong to one side at a time:
//
//	RQ, SQ  the driver writes entries, then stores the record's counter (dma.StoreBE32). The card loads
//	        that counter (dma.LoadBE32) and then reads entries plainly.
//	CQ      the card writes completions and the driver takes them, by the owner bit in the last dword.
//	        Before it writes to a slot again, the card loads the record's consumer counter: the partner
//	        of the driver's store after it has read the slot.
//
// A burst of completions is written plainly, owner bits included, but for the last dword of the first
// one, which Flush stores atomically when all others are in place. The driver looks at completions in
// order, so it sees none before that store and all of them after it: one locked instruction a burst. The
// partner is the driver's dma.LoadBE32 of that dword. The completion event follows the store.
//
// Host memory is used between Env.Begin and the end of the engine's step only. Views of rings are kept
// over steps and looked up again when the memory's generation has changed.
package queue
