package driver

import "time"

// Feature is one of the things a card may do to frames, by ethtool's name (ethtool -k) or, for private flags
// of mlx5_core, by theirs (--show-priv-flags). rx_linked_rq has no name there.
type Feature struct {
	Name string
	// On tells that the NIC uses it, Supported that the card has it. What is off and supported is chosen by
	// Config.
	On, Supported bool
}

// Features lists what the card can do and what the NIC uses.
func (n *NIC) Features() []Feature {
	c, g, e := n.Config(), &n.base.general, &n.base.eth
	tunnels := e.TunnelStatelessVXLAN && e.TunnelStatelessGRE
	lso := e.MaxLSOCap != 0
	realTime := func(format uint8) bool { return format == tsCapRealTime || format == tsCapBoth }
	return []Feature{
		{"rx-checksumming", e.CsumCap, e.CsumCap},
		{"tx-checksumming", e.CsumCap, e.CsumCap},
		{"scatter-gather", true, true},
		{"tcp-segmentation-offload", c.LargeSend, lso},
		{"tx-udp-segmentation", c.LargeSend, lso},
		{"tx-udp_tnl-segmentation", c.LargeSend && c.Tunnels, lso && tunnels},
		{"tx-gre-segmentation", c.LargeSend && c.Tunnels, lso && tunnels},
		{"large-receive-offload", c.LargeReceive, n.canLarge()},
		{"rx-fcs", c.ReceiveFCS, e.ScatterFCS},
		{"rx-vlan-offload", c.VLANStrip, e.VLANCap},
		{"tx-vlan-offload", true, true},
		{"rx-vlan-filter", c.VLANFilter, true},
		{"receive-hashing", true, true},
		{"ntuple-filters", true, true},
		{"rx-udp_tunnel-port-offload", c.Tunnels, tunnels},
		{"rx_cqe_compress", c.CompressCompletions, g.CQECompression},
		{"rx_striding_rq", c.Striding, g.StridingRQ},
		{"rx_linked_rq", c.LinkedReceive, true},
		{"skb_tx_mpwqe", c.MultiPacket, e.EnhancedMultiPktSendWQE},
		{"real_time_clock", c.RealTime, realTime(g.RQTSFormat) && realTime(g.SQTSFormat)},
	}
}

// Limits are the most that the card and the driver allow (ethtool -g, -l).
type Limits struct {
	Queues, RxRing, TxRing, MTU int
	// RulePriorities are the priorities of rules, RSSEntries the entries of an indirection table.
	RulePriorities, RSSEntries int
	// LargeSend is the longest payload of a large send in bytes, 0: the card has none.
	LargeSend int
	// LargeReceiveTimeouts are the periods that large receives may be held for, empty: the card has none.
	LargeReceiveTimeouts []time.Duration
}

// Limits tells what the card allows.
func (n *NIC) Limits() Limits {
	g := &n.base.general
	ring := min(MaxRing, 1<<min(g.LogMaxWQSz, g.LogMaxCQSz-1))
	l := Limits{
		Queues: min(MaxQueues, 1<<g.LogMaxRQ, 1<<g.LogMaxSQ, 1<<g.LogMaxCQ/2),
		RxRing: ring, TxRing: ring, MTU: MaxMTU, RulePriorities: RulePriorities, RSSEntries: n.tableRoom(),
	}
	if n.base.eth.MaxLSOCap != 0 {
		l.LargeSend = 1 << min(n.base.eth.MaxLSOCap, maxLogLSO)
	}
	if n.canLarge() {
		l.LargeReceiveTimeouts = n.largePeriods()
	}
	return l
}
