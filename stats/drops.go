package stats

// Drop is a counter of frames that were lost, and why.
type Drop struct {
	// Counter is its name, Rtnl the field of LinkStats that it is part of, "" if of none.
	Counter, Rtnl string
	// Why says in words where the frame was lost, Do what to look at.
	Why, Do string
}

// Drops lists the counters of lost frames, in the order of a frame's way: port, vport, steering, queue,
// driver; then the way out.
func Drops() []Drop {
	return []Drop{
		{"rx_crc_errors_phy", "rx_crc_errors", "bad FCS", "the cable, the transceiver, the far end"},
		{"rx_symbol_err_phy", "", "coding error on the wire", "the cable, the transceiver"},
		{"rx_undersize_pkts_phy", "", "shorter than Ethernet allows", "the sender"},
		{"rx_fragments_phy", "", "short and with a bad FCS", "the cable, a duplex mismatch"},
		{"rx_jabbers_phy", "", "too long and with a bad FCS", "the cable, the sender"},
		{"rx_oversize_pkts_phy", "rx_length_errors", "longer than the port's MTU", "the MTUs of both ends"},
		{"rx_unsupported_op_phy", "", "MAC control with an unknown opcode", "the sender"},
		{"rx_discards_phy", "", "the card's buffer was full: PCIe or the card too slow, not the driver",
			"PCIe width and speed, number of queues, pause"},
		{"outbound_pci_buffer_overflow", "", "PCIe could not keep up", "PCIe width and speed"},
		{"rx_steer_missed_packets", "", "no rule took the frame", "addresses, VLANs and rules of the NIC"},
		{"rx_if_down_packets", "", "the interface was down", "the interface's state"},
		{"rx_out_of_buffer", "rx_missed_errors", "no receive buffer was posted: the application is too slow",
			"ring size, the application's processors, buffers it keeps"},
		{"rx_oversize_pkts_buffer", "rx_length_errors", "longer than the receive buffer", "buffer size, MTU"},
		{"rx_wqe_err", "", "the receive queue reported an error", "the queue's error, recovery"},
		{"tx_queue_dropped", "tx_dropped", "the driver could not send the frame", "frame length, buffers, queue errors"},
		{"tx_discards_phy", "tx_aborted_errors", "dropped on the way out, as with the link down", "the link"},
		{"tx_errors_phy", "", "too long to be sent", "the MTU"},
	}
}

// Gauge tells whether the counter of that name is a level, which falls as well as rises.
func Gauge(name string) bool {
	return name == "outbound_pci_stalled_rd" || name == "outbound_pci_stalled_wr"
}
