package rig_test

import (
	"cxkit/device"
	"cxkit/device/fault"
	"cxkit/driver"
	"cxkit/drivertest"
	"cxkit/internal/rig"
	"cxkit/prm"
)

// rowsOf are the same growth of several counters.
func rowsOf(n uint64, names ...string) map[string]uint64 {
	m := map[string]uint64{}
	for _, name := range names {
		m[name] = n
	}
	return m
}

func with(m map[string]uint64, more map[string]uint64) map[string]uint64 {
	for name, n := range more {
		m[name] = n
	}
	return m
}

// peer is who sits at the far end.
func peer() driver.MAC { return driver.MAC{2, 0, 0, 0, 0, 1} }

func groupAddress() driver.MAC { return driver.MAC{1, 0, 0x5e, 0, 0, 1} }

// typed makes a frame of 60 bytes with an Ethertype and what follows it.
func typed(e *drivertest.Env, body ...byte) []byte {
	f := drivertest.Frame(e.NIC.MAC(), 60, 1)
	copy(f[12:], body)
	return f
}

// causes are listed in docs/counters.md under their names.
func causes() []cause {
	return []cause{
		{name: "receives", nic: driver.Config{VLANStrip: true, AllMulticast: true}, do: func(e *drivertest.Env, r *rig.Rig) {
			flow := drivertest.Flow{Dst: e.NIC.MAC(), Src: peer(), UDP: true, VLANs: []uint16{3<<13 | 7}}
			for i := range uint32(10) {
				e.Send(flow.Packet(40, i))
			}
			e.Send(drivertest.Frames(drivertest.Broadcast(), 5, 60)...)
			e.Send(drivertest.Frames(groupAddress(), 3, 60)...)
			e.Receive(0, 18)
		}, want: with(rowsOf(some, "rx_bytes", "rx0_bytes", "rx_bytes_phy", "rx_prio3_bytes", "rx_vport_unicast_bytes"), map[string]uint64{
			"rx_packets": 18, "rx0_packets": 18, "rx_packets_phy": 18, "rx_csum_unnecessary": 10, "rx0_csum_unnecessary": 10,
			"rx_csum_none": 8, "rx0_csum_none": 8, "rx_removed_vlan_packets": 10, "rx0_removed_vlan_packets": 10,
			"rx_vport_unicast_packets": 10, "rx_vport_broadcast_packets": 5, "rx_vport_broadcast_bytes": 300,
			"rx_vport_multicast_packets": 3, "rx_vport_multicast_bytes": 180, "rx_broadcast_phy": 5, "rx_multicast_phy": 3,
			"rx_prio3_packets": 10,
		})},
		{name: "large receives", nic: driver.Config{Offloads: driver.Offloads{Striding: true, LargeReceive: true}}, do: func(e *drivertest.Env, r *rig.Rig) {
			flow := drivertest.Flow{Dst: e.NIC.MAC(), Src: peer()}
			for e.Counter("rx_lro_packets") == 0 { // until some come at once
				e.Send(flow.Segments(flow.Packet(30_000, 1), 1000)...)
				for n := 0; n < 30; {
					e.ReceiveEach(0, 1, func(p *driver.Packet) { n += p.Segments() })
				}
			}
		}, want: rowsOf(some, "rx_lro_packets", "rx0_lro_packets", "rx_lro_bytes", "rx0_lro_bytes")},
		{name: "wakes", do: wakes, want: rowsOf(some, "ch_events", "ch_arm", "ch0_events", "ch0_arm")},
		{name: "sends", do: func(e *drivertest.Env, r *rig.Rig) {
			flow := drivertest.Flow{Dst: peer(), Src: e.NIC.MAC(), UDP: true}
			frames := [][]byte{flow.Packet(40, 1), flow.Packet(40, 2), drivertest.Frame(groupAddress(), 60, 3), drivertest.Frame(drivertest.Broadcast(), 60, 4)}
			i := 0
			e.TransmitEach(0, frames, func(p *driver.Packet) {
				if i < 2 {
					p.TxFlags, p.VLAN = driver.TxChecksum|driver.TxInsertVLAN, 5<<13|7
				}
				i++
			})
			e.Flush(0)
			e.Arrived(4)
		}, want: with(rowsOf(some, "tx_bytes", "tx0_bytes", "tx_bytes_phy", "tx_prio5_bytes", "tx_vport_unicast_bytes", "tx_cqes", "tx0_cqes"), map[string]uint64{
			"tx_packets": 4, "tx0_packets": 4, "tx_packets_phy": 4, "tx_csum_partial": 2, "tx0_csum_partial": 2, "tx_csum_none": 2, "tx0_csum_none": 2,
			"tx_added_vlan_packets": 2, "tx0_added_vlan_packets": 2, "tx_prio5_packets": 2, "tx_vport_unicast_packets": 2,
			"tx_vport_multicast_packets": 1, "tx_vport_multicast_bytes": 60, "tx_vport_broadcast_packets": 1, "tx_vport_broadcast_bytes": 60,
			"tx_multicast_phy": 1, "tx_broadcast_phy": 1,
		})},
		{name: "large sends", nic: driver.Config{BufferSize: 1 << 13, Offloads: driver.Offloads{LargeSend: true}}, do: func(e *drivertest.Env, r *rig.Rig) {
			flow := drivertest.Flow{Dst: peer(), Src: e.NIC.MAC()}
			e.TransmitEach(0, [][]byte{flow.Packet(3000, 1)}, func(p *driver.Packet) { p.Segment = 1000 })
			e.Flush(0)
			e.Arrived(3)
		}, want: map[string]uint64{"tx_tso_packets": 1, "tx0_tso_packets": 1, "tx_tso_bytes": 3000, "tx0_tso_bytes": 3000}},
		{name: "packed sends", nic: driver.Config{Offloads: driver.Offloads{MultiPacket: true}}, do: func(e *drivertest.Env, r *rig.Rig) {
			e.Transmit(0, drivertest.Frames(peer(), 32, 60)...)
			e.Flush(0)
			e.Arrived(32)
		}, want: rowsOf(some, "tx_mpwqe_blks", "tx0_mpwqe_blks", "tx_mpwqe_pkts", "tx0_mpwqe_pkts")},
		{name: "sends in tunnels", nic: driver.Config{Offloads: driver.Offloads{Tunnels: true}}, do: func(e *drivertest.Env, r *rig.Rig) {
			flow := drivertest.Flow{Dst: peer(), Src: e.NIC.MAC(), UDP: true}
			e.TransmitEach(0, [][]byte{flow.Packet(100, 1)}, func(p *driver.Packet) { p.TxFlags = driver.TxChecksum | driver.TxInnerChecksum })
		}, want: rowsOf(1, "tx_csum_partial_inner", "tx0_csum_partial_inner")},
		{name: "full ring", nic: driver.Config{TxRing: 8}, do: func(e *drivertest.Env, r *rig.Rig) {
			stopped(e, r, func() {
				pkts := make([]driver.Packet, 16)
				for i := range pkts[:e.NIC.TxQueue(0).Get(pkts)] {
					pkts[i].Data = append(pkts[i].Data, drivertest.Frame(peer(), 60, 1)...)
				}
				n := e.NIC.TxQueue(0).Send(pkts)
				e.NIC.TxQueue(0).Release(pkts[n:])
			})
			e.Flush(0)
		}, want: rowsOf(1, "tx_queue_stopped", "tx0_stopped")},
		{name: "unsendable frame", do: func(e *drivertest.Env, r *rig.Rig) {
			pkts := make([]driver.Packet, 1)
			e.NIC.TxQueue(0).Get(pkts)
			pkts[0].Data = pkts[0].Data[:5]
			e.SendPackets(0, pkts)
		}, want: rowsOf(1, "tx_queue_dropped", "tx0_dropped")},
		{name: "receive queue in error", do: func(e *drivertest.Env, r *rig.Rig) {
			in := &prm.ModifyRQIn{RQState: prm.QueueStateRDY, RQN: queueNumber(e, func(n uint32) error {
				return e.NIC.Exec(e.Ctx, &prm.QueryRQIn{RQN: n}, &prm.QueryRQOut{})
			})}
			in.Context.State = prm.QueueStateERR
			e.Must(e.NIC.Exec(e.Ctx, in, &prm.ModifyRQOut{}))
			failed(e, func() error { e.NIC.RxQueue(0).Poll(make([]driver.Packet, 1)); return e.NIC.RxQueue(0).Err() })
		}, want: with(rowsOf(some, "rx_wqe_err", "rx0_wqe_err"), rowsOf(1, "rx_recover", "rx0_recover"))},
		{name: "transmit queue in error", do: func(e *drivertest.Env, r *rig.Rig) {
			in := &prm.ModifySQIn{SQState: prm.QueueStateRDY, SQN: queueNumber(e, func(n uint32) error {
				return e.NIC.Exec(e.Ctx, &prm.QuerySQIn{SQN: n}, &prm.QuerySQOut{})
			})}
			in.Context.State = prm.QueueStateERR
			e.Must(e.NIC.Exec(e.Ctx, in, &prm.ModifySQOut{}))
			e.Transmit(0, drivertest.Frame(peer(), 60, 1))
			failed(e, func() error { e.NIC.TxQueue(0).Reap(); return e.NIC.TxQueue(0).Err() })
		}, want: with(rowsOf(some, "tx_cqe_err", "tx0_cqe_err"), rowsOf(1, "tx_recover", "tx0_recover"))},
		// Reports R35.
		{name: "no receive buffers", lossy: true, nic: driver.Config{RxRing: 8, TxRing: 8, Buffers: 8, RxPages: driver.RxPages{RxLayout: driver.RxStack}}, do: func(e *drivertest.Env, r *rig.Rig) {
			e.Send(drivertest.Frames(e.NIC.MAC(), 8, 60)...)
			pkts := make([]driver.Packet, 8)
			for n := 0; n < 8; {
				n += e.Poll(0, pkts[n:])
			}
			e.Send(drivertest.Frames(e.NIC.MAC(), 48, 60)...)
			patiently(e, e.NIC.RxQueue(0).Wait)
			e.Until("48 frames are lost", func() bool { return e.Counter("rx_out_of_buffer") == 48 })
			if s := all(e); s.Get("rx_packets_phy") != 56 || s.Get("rx_discards_phy") != 0 || s.Link().RxMissed != 48 {
				e.Errorf("rx_packets_phy %d, rx_discards_phy %d, rx_missed_errors %d; want 56, 0, 48", s.Get("rx_packets_phy"), s.Get("rx_discards_phy"), s.Link().RxMissed)
			}
			e.NIC.RxQueue(0).Release(pkts)
		}, want: with(rowsOf(some, "rx_buff_alloc_err", "rx0_buff_alloc_err"), rowsOf(48, "rx_out_of_buffer"))},
		{name: "frames that no rule takes", nic: driver.Config{VLANFilter: true}, do: func(e *drivertest.Env, r *rig.Rig) {
			e.Send(drivertest.Flow{Dst: e.NIC.MAC(), Src: peer(), VLANs: []uint16{9}}.Packet(50, 1))
		}, want: rowsOf(1, "rx_steer_missed_packets")},
		{name: "frames longer than their buffer", do: func(e *drivertest.Env, r *rig.Rig) {
			portMTU(e, 9000)
			e.Send(drivertest.Frame(e.NIC.MAC(), 4000, 1))
		}, want: rowsOf(1, "rx_oversize_pkts_buffer")},
		{name: "frames of odd types and lengths", do: func(e *drivertest.Env, r *rig.Rig) {
			e.Send(typed(e, 0, 0x2f), typed(e, 5, 0xe0), typed(e, 0x88, 8, 0x77, 0x77), typed(e, 0x88, 8, 0, 1),
				drivertest.Frame(e.NIC.MAC(), 3000, 1))
			e.Receive(0, 2)
		}, want: map[string]uint64{
			"rx_in_range_len_errors_phy": 1, "rx_out_of_range_len_phy": 1, "rx_mac_control_phy": 2, "rx_unsupported_op_phy": 1,
			"rx_pause_ctrl_phy": 1, "rx_oversize_pkts_phy": 1,
		}},
		{name: "frames of all sizes", nic: driver.Config{MTU: 9978}, do: func(e *drivertest.Env, r *rig.Rig) {
			for _, n := range []int{60, 100, 200, 400, 800, 1400, 1800, 3000, 6000, 9000} {
				e.Send(drivertest.Frame(e.NIC.MAC(), n, 1))
			}
			e.Receive(0, 10)
		}, want: rowsOf(1, "rx_64_bytes_phy", "rx_65_to_127_bytes_phy", "rx_128_to_255_bytes_phy", "rx_256_to_511_bytes_phy",
			"rx_512_to_1023_bytes_phy", "rx_1024_to_1518_bytes_phy", "rx_1519_to_2047_bytes_phy", "rx_2048_to_4095_bytes_phy",
			"rx_4096_to_8191_bytes_phy", "rx_8192_to_10239_bytes_phy")},
		{name: "frames without a whole header", do: func(e *drivertest.Env, r *rig.Rig) {
			e.Send(make([]byte, 10))
		}, want: rowsOf(1, "rx_undersize_pkts_phy")},
		// Reports R36.
		{name: "bus too slow", lossy: true, card: device.Config{Bus: device.Bus{BytesPerSecond: 1, Buffer: 2000}}, do: func(e *drivertest.Env, r *rig.Rig) {
			for i := range uint32(20) {
				e.Send(drivertest.Flow{Dst: e.NIC.MAC(), Src: peer(), VLANs: []uint16{3 << 13}}.Packet(46, i))
			}
			e.Until("frames are discarded", func() bool { return e.Counter("rx_discards_phy") > 0 })
			e.Receive(0, 20-int(e.Counter("rx_discards_phy")))
			if n := e.Counter("rx_out_of_buffer"); n != 0 {
				e.Errorf("rx_out_of_buffer is %d", n)
			}
		}, want: rowsOf(some, "rx_discards_phy", "rx_prio3_discards", "outbound_pci_buffer_overflow")},
		{name: "link down", do: func(e *drivertest.Env, r *rig.Rig) {
			e.Bench.Far.SetLink(false)
			e.Until("the link is down", func() bool { return !e.NIC.Link().Up })
			e.Transmit(0, drivertest.Frame(peer(), 60, 1))
			e.Flush(0)
		}, want: rowsOf(1, "link_down_events_phy", "tx_discards_phy")},
		{name: "frames too long for the port", do: func(e *drivertest.Env, r *rig.Rig) {
			portMTU(e, 1000)
			e.Transmit(0, drivertest.Frame(peer(), 1514, 1))
			e.Flush(0)
		}, want: rowsOf(1, "tx_errors_phy")},
		{name: "pause frames", do: func(e *drivertest.Env, r *rig.Rig) {
			pause(e)
			e.Send(typed(e, 0x88, 8, 0, 1), typed(e, 0x88, 8, 1, 1, 0, 1<<3))
		}, want: rowsOf(1, "rx_global_pause", "rx_prio3_pause")},
		{name: "obeys a pause", do: func(e *drivertest.Env, r *rig.Rig) {
			pause(e)
			e.Send(typed(e, 0x88, 8, 0, 1, 0xff, 0xff), typed(e, 0x88, 8, 1, 1, 0, 1<<3, 0, 0, 0, 0, 0, 0, 0xff, 0xff))
		}, want: with(rowsOf(some, "rx_global_pause_duration", "rx_prio3_pause_duration"),
			rowsOf(1, "rx_global_pause_transition", "rx_prio3_pause_transition"))},
		{name: "asks the peer to stop", nic: scarce(), do: func(e *drivertest.Env, r *rig.Rig) {
			register(e, prm.RegIDPFCC, &prm.RegPFCC{LocalPort: 1, PPTX: true})
			overfill(e, 0, "tx_global_pause")
		}, want: rowsOf(some, "tx_global_pause", "tx_global_pause_duration", "tx_pause_ctrl_phy", "tx_mac_control_phy")},
		{name: "asks the peer to stop a priority", nic: scarce(), do: func(e *drivertest.Env, r *rig.Rig) {
			register(e, prm.RegIDPFCC, &prm.RegPFCC{LocalPort: 1, PFCTX: 1 << 3, PrioMaskTX: 0xff})
			overfill(e, 3, "tx_prio3_pause")
		}, want: rowsOf(some, "tx_prio3_pause", "tx_prio3_pause_duration")},
		{name: "bad line", do: strikes(fault.Plan{Faults: []fault.Fault{
			{Kind: fault.PortErrors, What: fault.BadFCS, Count: 3}, {Kind: fault.PortErrors, What: fault.BadSymbol, Count: 4},
			{Kind: fault.PortErrors, What: fault.Fragment, Count: 5}, {Kind: fault.PortErrors, What: fault.Jabber, Count: 6},
			{Kind: fault.PortErrors, What: fault.UncorrectedSymbol, Count: 7}, {Kind: fault.PortErrors, What: fault.CorrectedBit, Count: 8},
		}}), want: map[string]uint64{
			"rx_crc_errors_phy": 3, "rx_symbol_err_phy": 4, "rx_fragments_phy": 5, "rx_jabbers_phy": 6, "rx_pcs_symbol_err_phy": 7, "rx_corrected_bits_phy": 8,
		}},
		{name: "bad PCIe link", do: strikes(fault.Plan{Faults: []fault.Fault{
			{Kind: fault.PCIeErrors, What: fault.OwnRecovery, Count: 2}, {Kind: fault.PCIeErrors, What: fault.PeerRecovery, Count: 3},
		}}), want: map[string]uint64{"rx_pci_signal_integrity": 2, "tx_pci_signal_integrity": 3}},
		{name: "module unplugged", do: strikes(module(prm.ModuleUnplugged, 0)), want: rowsOf(1, "module_unplug")},
		{name: "module's bus stuck", do: strikes(module(prm.ModuleError, 2)), want: rowsOf(1, "module_bus_stuck")},
		{name: "module too hot", do: strikes(module(prm.ModuleError, 6)), want: rowsOf(1, "module_high_temp")},
		{name: "module shorted", do: strikes(module(prm.ModuleError, 7)), want: rowsOf(1, "module_bad_shorted")},
		{name: "lost interrupt", card: device.Config{Faults: fault.Plan{Faults: []fault.Fault{{Kind: fault.LostInterrupt, Vectors: []int{1}, Times: 1}}}},
			do: func(e *drivertest.Env, r *rig.Rig) { wakes(e, r) }, want: rowsOf(1, "ch_eq_rearm", "ch0_eq_rearm")},
	}
}

// scarce is a NIC with few receive buffers.
func scarce() driver.Config {
	return driver.Config{RxRing: 8, TxRing: 8, Buffers: 8, RxPages: driver.RxPages{RxLayout: driver.RxStack}}
}

// overfill sends more frames of a priority than a scarce NIC has buffers for, over a wire that loses none,
// and takes them once the counter has moved.
func overfill(e *drivertest.Env, priority uint16, counter string) {
	const frames = 48
	for i := range uint32(frames) {
		e.Send(drivertest.Flow{Dst: e.NIC.MAC(), Src: peer(), VLANs: []uint16{priority << 13}}.Packet(46, i))
	}
	pkts := make([]driver.Packet, 8)
	n := 0
	for n < len(pkts) {
		n += e.Poll(0, pkts[n:])
	}
	e.Until("the peer is asked to stop", func() bool { return e.Counter(counter) > 0 })
	e.NIC.RxQueue(0).Release(pkts)
	e.Receive(0, frames-n)
}

// strikes breaks the card.
func strikes(p fault.Plan) func(*drivertest.Env, *rig.Rig) {
	return func(e *drivertest.Env, r *rig.Rig) { e.Must(r.Card.Inject(p)) }
}

// queueNumber finds the first queue that the card has.
func queueNumber(e *drivertest.Env, query func(n uint32) error) uint32 {
	for n := uint32(1); n < 1<<10; n++ {
		if query(n) == nil {
			return n
		}
	}
	e.Fatalf("no queue")
	return 0
}
