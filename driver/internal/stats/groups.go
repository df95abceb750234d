package stats

import (
	"context"
	"encoding/binary"

	"cxkit/prm"
)

// queueGroup is the group whose counters a new NIC starts from zero.
const queueGroup = "queue counters"

// groups are those that the card has, in ethtool's order.
func (r reader) groups() (all []group) {
	add := func(g group) {
		if len(g.fields) > 0 {
			all = append(all, g)
		}
	}
	if r.Represents != 0 {
		return []group{r.representorGroup()}
	}
	if r.CounterSet != 0 {
		add(group{name: queueGroup, link: true, commands: 1, fields: []field{{"rx_out_of_buffer", 32}}, read: r.queue})
	}
	add(group{name: "vnic environment", commands: 1, fields: r.environmentFields(), read: r.environment})
	add(group{name: "vport", link: true, commands: 1, fields: r.vportFields(), read: r.vport})
	if !r.Port {
		return all
	}
	f := &r.PortFeatures
	add(r.portGroup("802.3", true, prm.PPCNTGroup8023, port8023))
	add(r.portGroup("RFC 2863", false, prm.PPCNTGroup2863, port2863))
	add(r.portGroup("RFC 2819", false, prm.PPCNTGroup2819, port2819))
	add(group{name: "physical layer", commands: 1, fields: []field{{"link_down_events_phy", 32}}, read: r.physical})
	if f.PPCNTStatisticalGroup {
		rows := portStatistical
		if f.PerLaneErrorCounters {
			rows = append(rows[:len(rows):len(rows)], portLanes...)
		}
		add(r.portGroup("physical layer statistics", false, prm.PPCNTGroupPhysicalStatistical, rows))
	}
	if f.RXBufferFullnessCounters {
		add(r.portGroup("extended", false, prm.PPCNTGroupExtended, portExtended))
	}
	add(group{name: "PCIe", commands: 1, fields: r.busFields(), read: r.bus})
	add(group{name: "per priority", commands: priorities + 1, fields: r.priorityFields(), hides: true, read: r.priorities})
	if r.Events != nil {
		add(group{name: "module events", fields: moduleFields, read: r.Events.read})
	}
	return all
}

// row is a 64-bit counter of a port counter group: ethtool's name and the offset in the counter set.
type row struct {
	name string
	off  int
}

// The tables are in ethtool's order; reference counters §5.
var (
	port8023 = []row{
		{"tx_packets_phy", 0x00}, {"rx_packets_phy", 0x08}, {"rx_crc_errors_phy", 0x10},
		{"tx_bytes_phy", 0x20}, {"rx_bytes_phy", 0x28}, {"tx_multicast_phy", 0x30},
		{"tx_broadcast_phy", 0x38}, {"rx_multicast_phy", 0x40}, {"rx_broadcast_phy", 0x48},
		{"rx_in_range_len_errors_phy", 0x50}, {"rx_out_of_range_len_phy", 0x58}, {"rx_oversize_pkts_phy", 0x60},
		{"rx_symbol_err_phy", 0x68}, {"tx_mac_control_phy", 0x70}, {"rx_mac_control_phy", 0x78},
		{"rx_unsupported_op_phy", 0x80}, {"rx_pause_ctrl_phy", 0x88}, {"tx_pause_ctrl_phy", 0x90},
	}
	port2863 = []row{{"rx_discards_phy", 0x10}, {"tx_discards_phy", 0x38}, {"tx_errors_phy", 0x40}}
	port2819 = []row{
		{"rx_undersize_pkts_phy", 0x30}, {"rx_fragments_phy", 0x40}, {"rx_jabbers_phy", 0x48},
		{"rx_64_bytes_phy", 0x58}, {"rx_65_to_127_bytes_phy", 0x60}, {"rx_128_to_255_bytes_phy", 0x68},
		{"rx_256_to_511_bytes_phy", 0x70}, {"rx_512_to_1023_bytes_phy", 0x78}, {"rx_1024_to_1518_bytes_phy", 0x80},
		{"rx_1519_to_2047_bytes_phy", 0x88}, {"rx_2048_to_4095_bytes_phy", 0x90}, {"rx_4096_to_8191_bytes_phy", 0x98},
		{"rx_8192_to_10239_bytes_phy", 0xa0},
	}
	portStatistical = []row{{"rx_pcs_symbol_err_phy", 0x10}, {"rx_corrected_bits_phy", 0x18}}
	portLanes       = []row{
		{"rx_err_lane_0_phy", 0x20}, {"rx_err_lane_1_phy", 0x28}, {"rx_err_lane_2_phy", 0x30}, {"rx_err_lane_3_phy", 0x38},
	}
	portExtended = []row{{"rx_buffer_passed_thres_phy", 0x28}}
)

// portGroup is a group of the port's counters.
func (r reader) portGroup(name string, link bool, id prm.PPCNTGroup, rows []row) group {
	g := group{name: name, link: link, commands: 1}
	for _, row := range rows {
		g.fields = append(g.fields, field{row.name, 64})
	}
	g.read = func(ctx context.Context, v *values) error {
		set, err := r.counterSet(ctx, id, 0)
		if err != nil {
			return err
		}
		for i, row := range rows {
			v.raw[i] = binary.BigEndian.Uint64(set[row.off:])
		}
		return nil
	}
	return g
}

// vportKinds are the kinds of frames a virtual port counts, in order.
var vportKinds = [...]struct {
	name   string // between direction and unit
	rx, tx func(*prm.QueryVportCounterOut) prm.TrafficCounter
}{
	{"unicast",
		func(o *prm.QueryVportCounterOut) prm.TrafficCounter { return o.ReceivedEthUnicast },
		func(o *prm.QueryVportCounterOut) prm.TrafficCounter { return o.TransmittedEthUnicast }},
	{"multicast",
		func(o *prm.QueryVportCounterOut) prm.TrafficCounter { return o.ReceivedEthMulticast },
		func(o *prm.QueryVportCounterOut) prm.TrafficCounter { return o.TransmittedEthMulticast }},
	{"broadcast",
		func(o *prm.QueryVportCounterOut) prm.TrafficCounter { return o.ReceivedEthBroadcast },
		func(o *prm.QueryVportCounterOut) prm.TrafficCounter { return o.TransmittedEthBroadcast }},
	{"rdma_unicast",
		func(o *prm.QueryVportCounterOut) prm.TrafficCounter { return o.ReceivedIBUnicast },
		func(o *prm.QueryVportCounterOut) prm.TrafficCounter { return o.TransmittedIBUnicast }},
	{"rdma_multicast",
		func(o *prm.QueryVportCounterOut) prm.TrafficCounter { return o.ReceivedIBMulticast },
		func(o *prm.QueryVportCounterOut) prm.TrafficCounter { return o.TransmittedIBMulticast }},
}

func (r reader) vportFields() (fields []field) {
	for _, k := range vportKinds {
		for _, name := range []string{
			"rx_vport_" + k.name + "_packets", "rx_vport_" + k.name + "_bytes",
			"tx_vport_" + k.name + "_packets", "tx_vport_" + k.name + "_bytes",
		} {
			fields = append(fields, field{name, 64})
		}
	}
	if r.Loopback {
		fields = append(fields, field{"vport_loopback_packets", 64}, field{"vport_loopback_bytes", 64})
	}
	return fields
}

func (r reader) vport(ctx context.Context, v *values) error {
	var out prm.QueryVportCounterOut
	if err := r.Exec.Exec(ctx, &prm.QueryVportCounterIn{}, &out); err != nil {
		return err
	}
	raw := v.raw[:0]
	for _, k := range vportKinds {
		rx, tx := k.rx(&out), k.tx(&out)
		raw = append(raw, rx.Packets, rx.Octets, tx.Packets, tx.Octets)
	}
	if r.Loopback {
		raw = append(raw, out.LocalLoopback.Packets, out.LocalLoopback.Octets)
	}
	v.raw = raw
	return nil
}
