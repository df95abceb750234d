package drivertest

import (
	"fmt"
	"slices"
	"strings"
)

// ethtoolNames are counters that every NIC has, in the order of ethtool -S (Linux core/en_stats.c,
// mlx5e_nic_stats_grps). Others may stand between them.
func ethtoolNames(queues int) []string {
	names := strings.Fields(`
		rx_packets rx_bytes tx_packets tx_bytes tx_added_vlan_packets
		rx_removed_vlan_packets rx_csum_unnecessary rx_csum_none
		tx_csum_none tx_csum_partial tx_queue_stopped tx_queue_dropped tx_recover tx_cqes tx_cqe_err
		rx_wqe_err rx_buff_alloc_err rx_recover ch_events ch_arm
		rx_out_of_buffer
		rx_steer_missed_packets
		rx_vport_unicast_packets rx_vport_unicast_bytes tx_vport_unicast_packets tx_vport_unicast_bytes
		rx_vport_multicast_packets rx_vport_multicast_bytes tx_vport_multicast_packets tx_vport_multicast_bytes
		rx_vport_broadcast_packets rx_vport_broadcast_bytes tx_vport_broadcast_packets tx_vport_broadcast_bytes
		tx_packets_phy rx_packets_phy rx_crc_errors_phy tx_bytes_phy rx_bytes_phy
		tx_multicast_phy tx_broadcast_phy rx_multicast_phy rx_broadcast_phy
		rx_in_range_len_errors_phy rx_out_of_range_len_phy rx_oversize_pkts_phy rx_symbol_err_phy
		tx_mac_control_phy rx_mac_control_phy rx_unsupported_op_phy rx_pause_ctrl_phy tx_pause_ctrl_phy
		rx_discards_phy tx_discards_phy tx_errors_phy
		rx_undersize_pkts_phy rx_fragments_phy rx_jabbers_phy
		rx_64_bytes_phy rx_65_to_127_bytes_phy rx_128_to_255_bytes_phy rx_256_to_511_bytes_phy
		rx_512_to_1023_bytes_phy rx_1024_to_1518_bytes_phy rx_1519_to_2047_bytes_phy
		rx_2048_to_4095_bytes_phy rx_4096_to_8191_bytes_phy rx_8192_to_10239_bytes_phy
		link_down_events_phy`)
	for p := range 8 {
		for _, name := range strings.Fields("rx_prio%d_bytes rx_prio%d_packets rx_prio%d_discards tx_prio%d_bytes tx_prio%d_packets") {
			names = append(names, fmt.Sprintf(name, p))
		}
	}
	for q := range queues {
		names = append(names, fmt.Sprintf("ch%d_events", q), fmt.Sprintf("ch%d_arm", q))
	}
	for q := range queues {
		for _, name := range strings.Fields("packets bytes csum_unnecessary csum_none removed_vlan_packets wqe_err buff_alloc_err recover") {
			names = append(names, fmt.Sprintf("rx%d_%s", q, name))
		}
	}
	for q := range queues {
		for _, name := range strings.Fields("packets bytes csum_partial added_vlan_packets csum_none stopped dropped recover cqes cqe_err") {
			names = append(names, fmt.Sprintf("tx%d_%s", q, name))
		}
	}
	return names
}

// countersHaveEthtoolsNames checks that names are there, once, and in order within their group.
func countersHaveEthtoolsNames(e *Env) {
	s, err := e.NIC.Stats(e.Ctx)
	e.Must(err)
	all := make([]string, len(s.Counters))
	for i, c := range s.Counters {
		all[i] = c.Name
	}
	for _, name := range ethtoolNames(e.NIC.Queues()) {
		if !slices.Contains(all, name) {
			e.Errorf("no counter %s", name)
		}
	}
	// Groups whose order scripts rely on: from their first name to their last.
	for _, group := range [][2]string{
		{"rx_vport_unicast_packets", "tx_vport_broadcast_bytes"}, {"tx_packets_phy", "tx_pause_ctrl_phy"},
		{"rx_undersize_pkts_phy", "rx_8192_to_10239_bytes_phy"}, {"rx_prio0_bytes", "tx_prio7_packets"},
	} {
		last := -1
		inside := false
		for _, name := range ethtoolNames(e.NIC.Queues()) {
			inside = inside || name == group[0]
			if at := slices.Index(all, name); inside && at >= 0 {
				if at < last {
					e.Errorf("%s comes too early", name)
				}
				last = at
			}
			if name == group[1] {
				break
			}
		}
	}
}
