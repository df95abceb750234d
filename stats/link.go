package stats

// LinkStats are the counters of a network interface as Linux's rtnetlink has them (struct
// rtnl_link_stats64): what `ip -s link` and /proc/net/dev print. Fields that mlx5 leaves at zero are not
// there.
type LinkStats struct {
	RxPackets uint64 `json:"rx_packets"`
	TxPackets uint64 `json:"tx_packets"`
	RxBytes   uint64 `json:"rx_bytes"`
	TxBytes   uint64 `json:"tx_bytes"`
	Multicast uint64 `json:"multicast"`
	// TxDropped are frames that the driver took and could not send.
	TxDropped uint64 `json:"tx_dropped"`
	// RxErrors is the sum of the three below it, TxErrors is TxAborted.
	RxErrors uint64 `json:"rx_errors"`
	RxLength uint64 `json:"rx_length_errors"`
	RxCRC    uint64 `json:"rx_crc_errors"`
	RxFrame  uint64 `json:"rx_frame_errors"`
	TxErrors uint64 `json:"tx_errors"`
	// RxMissed are good frames without a receive buffer. ifconfig adds them to "dropped"; /proc/net/dev
	// shows them there, too.
	RxMissed  uint64 `json:"rx_missed_errors"`
	TxAborted uint64 `json:"tx_aborted_errors"`
}

// Link makes an interface's counters of a snapshot as mlx5e does (Linux en_main.c, mlx5e_get_stats).
func (s Snapshot) Link() LinkStats {
	var l LinkStats
	var inRange, outOfRange, tooLong, wqe uint64
	for i := range s.Counters {
		c := &s.Counters[i]
		switch c.Name {
		case "rx_packets":
			l.RxPackets = c.Value
		case "tx_packets":
			l.TxPackets = c.Value
		case "rx_bytes":
			l.RxBytes = c.Value
		case "tx_bytes":
			l.TxBytes = c.Value
		case "tx_queue_dropped":
			l.TxDropped = c.Value
		case "rx_vport_multicast_packets":
			l.Multicast = c.Value
		case "rx_out_of_buffer":
			l.RxMissed = c.Value
		case "rx_in_range_len_errors_phy":
			inRange = c.Value
		case "rx_out_of_range_len_phy":
			outOfRange = c.Value
		case "rx_oversize_pkts_phy":
			tooLong = c.Value
		case "rx_oversize_pkts_buffer":
			wqe = c.Value
		case "rx_crc_errors_phy":
			l.RxCRC = c.Value
		case "tx_discards_phy":
			l.TxAborted = c.Value
		}
	}
	l.RxLength = inRange + outOfRange + tooLong + wqe
	l.RxErrors = l.RxLength + l.RxCRC + l.RxFrame
	l.TxErrors = l.TxAborted
	return l
}
