package driver

import (
	"context"
	"errors"
	"time"

	qstats "cxkit/driver/internal/stats"
	"cxkit/stats"
)

// Stats reads all counters: those of the queues as of their latest burst, the others from the card. The
// names and their order are those of ethtool -S. Groups that cannot be read keep their last values and
// are named in Snapshot.Stale; the error joins why. It never touches queues: any goroutine may call it
// any time. Calls at the same time share a reading that began after each of them.
func (n *NIC) Stats(ctx context.Context) (stats.Snapshot, error) {
	if n.isClosed() {
		return n.source.Last(), ErrNICClosed
	}
	s, err := n.source.Full(ctx)
	if errors.Is(err, qstats.ErrClosed) {
		err = ErrNICClosed
	}
	return s, err
}

// QuickStats returns all counters as they were read last, and has those that an interface's own counters
// are made of (stats.Snapshot.Link) read again in the background, at most once each Config.StatsInterval.
// It issues no command itself, does not wait and allocates nothing; any goroutine may call it any time.
// Snapshot.Time and Groups say how old the values are. The snapshot is shared: don't write to it.
func (n *NIC) QuickStats() stats.Snapshot { return n.source.Quick() }

// QuickAllStats is QuickStats, but has all groups read again.
func (n *NIC) QuickAllStats() stats.Snapshot { return n.source.QuickAll() }

// SoftwareStats is the part of Stats that needs no command.
func (n *NIC) SoftwareStats() stats.Snapshot {
	var s stats.Snapshot
	n.softTotals(&s)
	n.softQueues(&s)
	s.Time = time.Now()
	return s
}

// softTotals and softQueues add what the driver counts itself.
func (n *NIC) softTotals(s *stats.Snapshot) { s.Counters = append(s.Counters, n.totals().Counters...) }
func (n *NIC) softQueues(s *stats.Snapshot) { n.perQueue(s) }

// sums adds up the counters of all channels that there were.
func (n *NIC) sums() (r RxStats, t TxStats) {
	for _, c := range n.queues().counts {
		r.add(c.received())
		t.add(c.sent())
	}
	return r, t
}

// checksums are the frames sent without a checksum of the card's, and with one of a frame that is in no
// tunnel; the others are TxStats.ChecksumInner. The counters are read one after the other: none falls below 0.
func (t *TxStats) checksums() (none, outer uint64) {
	return t.Packets - min(t.ChecksumPartial, t.Packets), t.ChecksumPartial - min(t.ChecksumInner, t.ChecksumPartial)
}

// totals are all queues' counters in the order of mlx5e's software group (en_stats.c, sw_stats_desc).
func (n *NIC) totals() stats.Snapshot {
	r, t := n.sums()
	none, outer := t.checksums()
	return stats.Snapshot{Counters: []stats.Counter{
		{Name: "rx_packets", Value: r.Packets},
		{Name: "rx_bytes", Value: r.Bytes},
		{Name: "tx_packets", Value: t.Packets},
		{Name: "tx_bytes", Value: t.Bytes},
		{Name: "tx_tso_packets", Value: t.LargePackets},
		{Name: "tx_tso_bytes", Value: t.LargeBytes},
		{Name: "tx_added_vlan_packets", Value: t.VLANInserted},
		{Name: "tx_mpwqe_blks", Value: t.MultiWQEs},
		{Name: "tx_mpwqe_pkts", Value: t.MultiPackets},
		{Name: "rx_lro_packets", Value: r.LargePackets},
		{Name: "rx_lro_bytes", Value: r.LargeBytes},
		{Name: "rx_removed_vlan_packets", Value: r.VLANStripped},
		{Name: "rx_csum_unnecessary", Value: r.ChecksumOK},
		{Name: "rx_csum_none", Value: r.ChecksumNone},
		{Name: "tx_csum_none", Value: none},
		{Name: "tx_csum_partial", Value: outer},
		{Name: "tx_csum_partial_inner", Value: t.ChecksumInner},
		{Name: "tx_queue_stopped", Value: t.Full},
		{Name: "tx_queue_dropped", Value: t.Dropped},
		{Name: "tx_recover", Value: t.Recovered},
		{Name: "tx_cqes", Value: t.Completions},
		{Name: "tx_cqe_err", Value: t.Errors + t.Impossible},
		{Name: "rx_wqe_err", Value: r.Errors + r.Impossible},
		{Name: "rx_buff_alloc_err", Value: r.NoBuffer},
		{Name: "rx_recover", Value: r.Recovered},
		{Name: "ch_events", Value: r.Events + t.Events},
		{Name: "ch_arm", Value: r.Arms + t.Arms},
		{Name: "ch_eq_rearm", Value: r.LostInterrupts + t.LostInterrupts},
	}}
}

// perQueue adds each channel's counters: those of channels, then of receive, then of transmit queues. Channels
// that are gone (SetChannels) keep theirs, as with mlx5e (en_stats.c, stats_nch).
func (n *NIC) perQueue(s *stats.Snapshot) {
	counts := n.queues().counts
	for i, c := range counts {
		r, t := c.received(), c.sent()
		s.Add(stats.Channel(i, "events"), r.Events+t.Events)
		s.Add(stats.Channel(i, "arm"), r.Arms+t.Arms)
		s.Add(stats.Channel(i, "eq_rearm"), r.LostInterrupts+t.LostInterrupts)
	}
	for i, c := range counts {
		r := c.received()
		s.Add(stats.RxQueue(i, "packets"), r.Packets)
		s.Add(stats.RxQueue(i, "bytes"), r.Bytes)
		s.Add(stats.RxQueue(i, "csum_unnecessary"), r.ChecksumOK)
		s.Add(stats.RxQueue(i, "csum_none"), r.ChecksumNone)
		s.Add(stats.RxQueue(i, "lro_packets"), r.LargePackets)
		s.Add(stats.RxQueue(i, "lro_bytes"), r.LargeBytes)
		s.Add(stats.RxQueue(i, "removed_vlan_packets"), r.VLANStripped)
		s.Add(stats.RxQueue(i, "wqe_err"), r.Errors+r.Impossible)
		s.Add(stats.RxQueue(i, "buff_alloc_err"), r.NoBuffer)
		s.Add(stats.RxQueue(i, "recover"), r.Recovered)
	}
	for i, c := range counts {
		t := c.sent()
		none, outer := t.checksums()
		s.Add(stats.TxQueue(i, "packets"), t.Packets)
		s.Add(stats.TxQueue(i, "bytes"), t.Bytes)
		s.Add(stats.TxQueue(i, "tso_packets"), t.LargePackets)
		s.Add(stats.TxQueue(i, "tso_bytes"), t.LargeBytes)
		s.Add(stats.TxQueue(i, "csum_partial"), outer)
		s.Add(stats.TxQueue(i, "csum_partial_inner"), t.ChecksumInner)
		s.Add(stats.TxQueue(i, "added_vlan_packets"), t.VLANInserted)
		s.Add(stats.TxQueue(i, "mpwqe_blks"), t.MultiWQEs)
		s.Add(stats.TxQueue(i, "mpwqe_pkts"), t.MultiPackets)
		s.Add(stats.TxQueue(i, "csum_none"), none)
		s.Add(stats.TxQueue(i, "stopped"), t.Full)
		s.Add(stats.TxQueue(i, "dropped"), t.Dropped)
		s.Add(stats.TxQueue(i, "recover"), t.Recovered)
		s.Add(stats.TxQueue(i, "cqes"), t.Completions)
		s.Add(stats.TxQueue(i, "cqe_err"), t.Errors+t.Impossible)
	}
}
