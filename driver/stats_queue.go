package driver

import (
	qstats "cxkit/driver/internal/stats"
)

// RxStats are the counters of one receive queue since Open, of queues of its number that SetChannels ended too.
type RxStats struct {
	Packets, Bytes uint64
	// ChecksumOK counts frames whose L3 and L4 checksums the card found right; ChecksumNone the others:
	// not TCP or UDP over IP, fragments, or wrong. The packet's flags say which.
	ChecksumOK, ChecksumNone uint64
	VLANStripped             uint64
	// LargePackets are the large receives, LargeBytes their bytes; Packets counts their segments, the checksums'
	// counters count each once.
	LargePackets, LargeBytes uint64
	// Errors are completions in error, Impossible those that made no sense and stopped the queue.
	Errors, Impossible uint64
	NoBuffer           uint64 // times that no free buffer was left to post
	Recovered          uint64
	Waits, Arms        uint64 // calls of Wait, and completion events asked for
	Events             uint64 // completion events that ended a Wait
	// LostEvents are completions that a Wait found without an event, LostInterrupts those whose event was in
	// its queue without an interrupt.
	LostEvents, LostInterrupts uint64
}

// TxStats are the counters of one transmit queue since Open: see RxStats.
type TxStats struct {
	Packets, Bytes  uint64 // posted; frames below 60 bytes count as 60
	ChecksumPartial uint64 // with a checksum flag
	ChecksumInner   uint64 // of those, with one inside a tunnel
	VLANInserted    uint64
	// LargePackets are the large sends, LargeBytes their payload; Packets and Bytes count segments.
	LargePackets, LargeBytes uint64
	// MultiWQEs are the multi-packet WQEs, MultiPackets the frames in them.
	MultiWQEs, MultiPackets uint64
	Full                    uint64 // calls of Send that found too little room
	Dropped                 uint64 // frames taken and not sent
	Completions             uint64 // completion entries, fewer than frames
	// Errors are completions in error, Impossible those that made no sense and stopped the queue.
	Errors, Impossible uint64
	Recovered          uint64
	Waits, Arms        uint64
	Events             uint64
	// LostEvents and LostInterrupts: see RxStats.
	LostEvents, LostInterrupts uint64
}

// waitCounts are what receive and transmit queues both count.
type waitCounts struct{ waits, arms, events, lostEvents, lostInterrupts qstats.Counter }

// rxCounts are a receive queue's counters; its owner is their writer.
type rxCounts struct {
	packets, bytes, checksumOK, vlanStripped qstats.Counter
	errors, impossible, noBuffer, recovered  qstats.Counter
	large, largeBytes, merged                qstats.Counter

	programPass, programDrop, programTx, programRedirect, programFull, programBad qstats.Counter
	waitCounts
}

// txCounts are a transmit queue's counters; its owner is their writer.
type txCounts struct {
	packets, bytes, partial, tagged, full, dropped, completions qstats.Counter
	errors, impossible, recovered                               qstats.Counter
	inner, large, largeBytes, wqes, packed                      qstats.Counter
	waitCounts
}

// add counts a call of Send.
func (c *txCounts) add(s *txSums) {
	if s.packets == 0 {
		return
	}
	c.packets.Add(s.packets)
	c.bytes.Add(s.bytes)
	if s.partial|s.tagged|s.large|s.wqes == 0 {
		return
	}
	c.partial.Add(s.partial)
	c.tagged.Add(s.tagged)
	c.inner.Add(s.inner)
	c.large.Add(s.large)
	c.largeBytes.Add(s.largeBytes)
	c.wqes.Add(s.wqes)
	c.packed.Add(s.packed)
}

// add counts a burst. Packets come first, so that readers never see more good ones than there are.
func (c *rxCounts) add(packets uint64, s *rxSums) {
	c.packets.Add(packets)
	c.bytes.Add(s.bytes)
	if s.good > 0 {
		c.checksumOK.Add(s.good)
	}
	if s.stripped > 0 {
		c.vlanStripped.Add(s.stripped)
	}
}

// addLarge counts large receives, after add.
func (c *rxCounts) addLarge(s *strideSums) {
	c.large.Add(s.large)
	c.largeBytes.Add(s.largeBytes)
	c.merged.Add(s.merged)
}

// Stats returns the queue's counters. Any goroutine may call it.
func (q *RxQueue) Stats() RxStats { return q.count.load() }

func (c *rxCounts) load() RxStats {
	merged := c.merged.Load()
	s := RxStats{
		LargeBytes: c.largeBytes.Load(), LargePackets: c.large.Load(),
		// Before packets, which grow first: the difference is never negative.
		ChecksumOK: c.checksumOK.Load(), VLANStripped: c.vlanStripped.Load(),
		Bytes: c.bytes.Load(), Packets: c.packets.Load(),
		Errors: c.errors.Load(), Impossible: c.impossible.Load(),
		NoBuffer: c.noBuffer.Load(), Recovered: c.recovered.Load(),
		Waits: c.waits.Load(), Arms: c.arms.Load(), Events: c.events.Load(),
		LostEvents: c.lostEvents.Load(), LostInterrupts: c.lostInterrupts.Load(),
	}
	s.ChecksumNone = s.Packets - merged - s.ChecksumOK
	return s
}

// Stats returns the queue's counters. Any goroutine may call it.
func (q *TxQueue) Stats() TxStats { return q.count.load() }

func (c *txCounts) load() TxStats {
	return TxStats{
		Packets: c.packets.Load(), Bytes: c.bytes.Load(), ChecksumPartial: c.partial.Load(),
		VLANInserted: c.tagged.Load(), Full: c.full.Load(), Dropped: c.dropped.Load(),
		Completions: c.completions.Load(), Errors: c.errors.Load(), Impossible: c.impossible.Load(),
		Recovered: c.recovered.Load(), Waits: c.waits.Load(), Arms: c.arms.Load(), Events: c.events.Load(),
		LostEvents: c.lostEvents.Load(), LostInterrupts: c.lostInterrupts.Load(),
		ChecksumInner: c.inner.Load(), LargePackets: c.large.Load(), LargeBytes: c.largeBytes.Load(),
		MultiWQEs: c.wqes.Load(), MultiPackets: c.packed.Load(),
	}
}

// add adds another queue's counters.
func (r *RxStats) add(s RxStats) {
	r.Packets += s.Packets
	r.Bytes += s.Bytes
	r.ChecksumOK += s.ChecksumOK
	r.ChecksumNone += s.ChecksumNone
	r.VLANStripped += s.VLANStripped
	r.LargePackets += s.LargePackets
	r.LargeBytes += s.LargeBytes
	r.Errors += s.Errors
	r.Impossible += s.Impossible
	r.NoBuffer += s.NoBuffer
	r.Recovered += s.Recovered
	r.Waits += s.Waits
	r.Arms += s.Arms
	r.Events += s.Events
	r.LostEvents += s.LostEvents
	r.LostInterrupts += s.LostInterrupts
}

// add adds another queue's counters.
func (t *TxStats) add(s TxStats) {
	t.Packets += s.Packets
	t.Bytes += s.Bytes
	t.ChecksumPartial += s.ChecksumPartial
	t.ChecksumInner += s.ChecksumInner
	t.VLANInserted += s.VLANInserted
	t.LargePackets += s.LargePackets
	t.LargeBytes += s.LargeBytes
	t.MultiWQEs += s.MultiWQEs
	t.MultiPackets += s.MultiPackets
	t.Full += s.Full
	t.Dropped += s.Dropped
	t.Completions += s.Completions
	t.Errors += s.Errors
	t.Impossible += s.Impossible
	t.Recovered += s.Recovered
	t.Waits += s.Waits
	t.Arms += s.Arms
	t.Events += s.Events
	t.LostEvents += s.LostEvents
	t.LostInterrupts += s.LostInterrupts
}

// channelCounts are a channel's counters, whatever queues it has. The paddings keep the writers' cache lines
// apart.
type channelCounts struct {
	_        [64]byte
	rx       rxCounts
	_        [64]byte
	tx       txCounts
	_        [64]byte
	beforeRx RxStats // what an earlier NIC of the function counted (Reset)
	beforeTx TxStats
}

func (c *channelCounts) received() RxStats {
	s := c.rx.load()
	s.add(c.beforeRx)
	return s
}

func (c *channelCounts) sent() TxStats {
	s := c.tx.load()
	s.add(c.beforeTx)
	return s
}
