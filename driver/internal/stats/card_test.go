package stats

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"cxkit/driver/internal/cmdif"
	"cxkit/prm"
	"cxkit/stats"
)

// card answers counter commands: every 64-bit word of a set holds base plus its offset.
type card struct {
	base   uint64
	refuse prm.Opcode
	pause  prm.RegPFCC
	count  atomic.Int64       // commands
	at     chan chan struct{} // if not nil: each command waits for what it sends here
	ops    map[prm.Opcode]int // by opcode, if not nil
}

func (c *card) Exec(ctx context.Context, in cmdif.In, out cmdif.Out) error {
	c.count.Add(1)
	if c.ops != nil {
		c.ops[in.Opcode()]++
	}
	if c.at != nil {
		release := make(chan struct{})
		select {
		case c.at <- release:
			<-release
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if in.Opcode() == c.refuse {
		return &prm.CommandError{Op: in.Opcode(), Status: prm.StatusBadOperation}
	}
	b := make([]byte, out.Len())
	for off := 0; off+8 <= len(b); off += 8 {
		binary.BigEndian.PutUint64(b[off:], c.base+uint64(off))
	}
	out.Get(b)
	if in, register := in.(*prm.AccessRegIn); register {
		switch in.RegisterID {
		case prm.RegIDPPCNT:
			var reg prm.RegPPCNT
			reg.Get(in.RegisterData)
			if reg.LocalPort != 1 {
				return errors.New("wrong port")
			}
		case prm.RegIDPFCC:
			c.pause.LocalPort = 1
			b := make([]byte, c.pause.Len())
			c.pause.Put(b)
			copy(out.(*prm.AccessRegOut).RegisterData, b)
		}
	}
	return nil
}

// everything is a card with all counters.
func everything(c *card) Config {
	return Config{
		Exec: c, CounterSet: 1, LocalPort: 1, SteerMissed: true, InternalOOB: true, Oversize: true, Loopback: true, Port: true,
		PortFeatures: prm.PCAMFeatures{PPCNTStatisticalGroup: true, PerLaneErrorCounters: true, RXBufferFullnessCounters: true, PFCCMask: true},
		BusFeatures:  prm.MCAMFeatures{PCIePerformanceGroup: true, TXOverflowBufferPkt: true, PCIeOutboundStalled: true},
		Events:       &ModuleEvents{},
	}
}

// snapshot reads groups and returns all counters.
func snapshot(t *testing.T, k *Card, w which) (s stats.Snapshot, err error) {
	t.Helper()
	err = k.read(t.Context(), w, func() bool { return false })
	k.appendTo(&s)
	return s, err
}

// The order is that of ethtool -S (reference counters).
func TestCountersComeInEthtoolsOrder(t *testing.T) {
	c := &card{pause: prm.RegPFCC{PPRX: true, PFCRX: 1 << 3}}
	s, err := snapshot(t, NewCard(everything(c)), allGroups)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range s.Counters {
		got = append(got, c.Name)
	}
	want := strings.Fields(`rx_out_of_buffer rx_steer_missed_packets dev_internal_queue_oob rx_oversize_pkts_buffer
		rx_vport_unicast_packets rx_vport_unicast_bytes tx_vport_unicast_packets tx_vport_unicast_bytes
		rx_vport_multicast_packets rx_vport_multicast_bytes tx_vport_multicast_packets tx_vport_multicast_bytes
		rx_vport_broadcast_packets rx_vport_broadcast_bytes tx_vport_broadcast_packets tx_vport_broadcast_bytes
		rx_vport_rdma_unicast_packets rx_vport_rdma_unicast_bytes tx_vport_rdma_unicast_packets tx_vport_rdma_unicast_bytes
		rx_vport_rdma_multicast_packets rx_vport_rdma_multicast_bytes tx_vport_rdma_multicast_packets tx_vport_rdma_multicast_bytes
		vport_loopback_packets vport_loopback_bytes
		tx_packets_phy rx_packets_phy rx_crc_errors_phy tx_bytes_phy rx_bytes_phy tx_multicast_phy tx_broadcast_phy
		rx_multicast_phy rx_broadcast_phy rx_in_range_len_errors_phy rx_out_of_range_len_phy rx_oversize_pkts_phy
		rx_symbol_err_phy tx_mac_control_phy rx_mac_control_phy rx_unsupported_op_phy rx_pause_ctrl_phy tx_pause_ctrl_phy
		rx_discards_phy tx_discards_phy tx_errors_phy rx_undersize_pkts_phy rx_fragments_phy rx_jabbers_phy
		rx_64_bytes_phy rx_65_to_127_bytes_phy rx_128_to_255_bytes_phy rx_256_to_511_bytes_phy rx_512_to_1023_bytes_phy
		rx_1024_to_1518_bytes_phy rx_1519_to_2047_bytes_phy rx_2048_to_4095_bytes_phy rx_4096_to_8191_bytes_phy
		rx_8192_to_10239_bytes_phy link_down_events_phy rx_pcs_symbol_err_phy rx_corrected_bits_phy
		rx_err_lane_0_phy rx_err_lane_1_phy rx_err_lane_2_phy rx_err_lane_3_phy rx_buffer_passed_thres_phy
		rx_pci_signal_integrity tx_pci_signal_integrity outbound_pci_buffer_overflow
		outbound_pci_stalled_rd outbound_pci_stalled_wr outbound_pci_stalled_rd_events outbound_pci_stalled_wr_events`)
	for p := range 8 {
		want = append(want, strings.Fields(strings.ReplaceAll("rx_prioP_bytes rx_prioP_packets rx_prioP_discards tx_prioP_bytes tx_prioP_packets",
			"P", string(rune('0'+p))))...)
	}
	want = append(want, strings.Fields(`rx_prio3_pause rx_prio3_pause_duration tx_prio3_pause tx_prio3_pause_duration rx_prio3_pause_transition
		rx_global_pause rx_global_pause_duration tx_global_pause tx_global_pause_duration rx_global_pause_transition
		tx_pause_storm_warning_events tx_pause_storm_error_events
		module_unplug module_bus_stuck module_high_temp module_bad_shorted`)...)
	for i, name := range want {
		if i >= len(got) || got[i] != name {
			t.Fatalf("counter %d is %q, want %q", i, got[min(i, len(got)-1)], name)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d counters, want %d; the next is %q", len(got), len(want), got[len(want)])
	}
	// Offsets are those of the command's output, or of the register's counter set, 8 bytes behind it.
	for name, off := range map[string]uint64{
		"rx_vport_unicast_bytes": 0x98, "tx_vport_broadcast_packets": 0x80, "vport_loopback_bytes": 0xd8,
		"rx_packets_phy": 0x20, // 16 bytes of the command, 8 of the register, 8 of the set
	} {
		if v := s.Get(name); v != off {
			t.Errorf("%s reads offset %#x, want %#x", name, v, off)
		}
	}
}

// The commands that a group says it costs are those that it issues, and the link groups are three: two for
// a function that does not see its port.
func TestGroupsSayWhatTheyCost(t *testing.T) {
	for name, port := range map[string]bool{"PF": true, "VF": false} {
		c := &card{}
		config := everything(c)
		config.Port = port
		k := NewCard(config)
		for w, want := range map[which]int64{linkGroups: map[bool]int64{true: 3, false: 2}[port], allGroups: map[bool]int64{true: 19, false: 3}[port]} {
			c.count.Store(0)
			s, err := snapshot(t, k, w)
			if err != nil {
				t.Fatal(err)
			}
			var said int64
			for _, g := range s.Groups {
				if w == allGroups || g.Link {
					said += int64(g.Commands)
				}
			}
			if n := c.count.Load(); n != said || n != want {
				t.Errorf("%s: reading %d took %d commands, the groups say %d, want %d", name, w, n, said, want)
			}
		}
	}
}

func TestCountersWithoutCapabilityAreNotThere(t *testing.T) {
	s, err := snapshot(t, NewCard(Config{Exec: &card{}, LocalPort: 1, Port: true}), allGroups)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"rx_out_of_buffer", "rx_steer_missed_packets", "vport_loopback_packets", "rx_pcs_symbol_err_phy",
		"rx_pci_signal_integrity", "rx_prio0_pause", "rx_global_pause", "tx_pause_storm_error_events",
	} {
		if _, there := s.Lookup(name); there {
			t.Errorf("%s is there", name)
		}
	}
}

func TestUnreadableGroupKeepsItsLastValues(t *testing.T) {
	c := &card{base: 1000}
	k := NewCard(everything(c))
	first, err := snapshot(t, k, allGroups)
	if err != nil {
		t.Fatal(err)
	}
	c.base, c.refuse = 2000, prm.OpQueryVportCounter
	second, err := snapshot(t, k, allGroups)
	if !errors.Is(err, prm.StatusBadOperation) || !slices.Equal(second.Stale, []string{"vport"}) {
		t.Errorf("error %v, stale %q", err, second.Stale)
	}
	const refused, read = "rx_vport_unicast_packets", "rx_packets_phy"
	if second.Get(refused) != first.Get(refused) || second.Get(read) != first.Get(read)+1000 {
		t.Errorf("%s %d then %d, %s %d then %d", refused, first.Get(refused), second.Get(refused), read, first.Get(read), second.Get(read))
	}
	c.refuse = 0
	if third, err := snapshot(t, k, linkGroups); err != nil || len(third.Stale) != 0 {
		t.Errorf("readable again: error %v, stale %q", err, third.Stale)
	}
	// A group that was never read is there with zeros, so that the list does not change.
	c.refuse = prm.OpQueryVportCounter
	never, err := snapshot(t, NewCard(everything(c)), allGroups)
	if err == nil {
		t.Error("no error")
	}
	if v, there := never.Lookup(refused); !there || v != 0 || len(never.Counters) != len(first.Counters) {
		t.Errorf("%s %d, there %v; %d counters of %d", refused, v, there, len(never.Counters), len(first.Counters))
	}
}

// raw makes a card of one group, whose counters a test sets.
func raw(name string) (k *Card, set func(values ...uint64)) {
	var now []uint64
	k = &Card{groups: []group{{
		name: name, fields: []field{{"rx_out_of_buffer", 32}, {"rx_packets_phy", 64}, {"outbound_pci_stalled_rd", 32}},
		read: func(_ context.Context, v *values) error { copy(v.raw, now); return nil },
	}}}
	k.kept = []kept{{last: values{make([]uint64, 3), make([]bool, 3)}, totals: make([]uint64, 3)}}
	return k, func(v ...uint64) { now = v }
}

func totals(t *testing.T, k *Card) []uint64 {
	t.Helper()
	s, err := snapshot(t, k, allGroups)
	if err != nil {
		t.Fatal(err)
	}
	var v []uint64
	for _, c := range s.Counters {
		v = append(v, c.Value)
	}
	return v
}

// What wraps in the device, or starts from zero there, goes on here; what is a level does not.
func TestCountersNeverFall(t *testing.T) {
	k, set := raw("vport")
	for _, step := range []struct{ card, want []uint64 }{
		{[]uint64{0xfffffff0, 100, 30}, []uint64{0xfffffff0, 100, 30}},
		{[]uint64{0x10, 150, 20}, []uint64{0x1_0000_0010, 150, 20}}, // 32 bits wrap
		{[]uint64{0x20, 5, 0}, []uint64{0x1_0000_0020, 155, 0}},     // the port has started again
		{[]uint64{0x20, 6, 1}, []uint64{0x1_0000_0020, 156, 1}},
	} {
		set(step.card...)
		if got := totals(t, k); !slices.Equal(got, step.want) {
			t.Errorf("the card says %d: %d, want %d", step.card, got, step.want)
		}
	}
}

func TestInheritedCountersGoOn(t *testing.T) {
	for name, want := range map[string][]uint64{
		"vport":    {110, 1010, 7}, // what has gone on, or been reset to less
		queueGroup: {210, 2010, 7}, // a new set
	} {
		old, set := raw(name)
		set(100, 1000, 5)
		totals(t, old)
		k, set := raw(name)
		k.inherit(old)
		if s, _ := snapshotOf(k); s.Get("rx_packets_phy") != 1000 {
			t.Errorf("%s: inherited %v", name, s.Counters)
		}
		set(110, 1010, 7)
		if got := totals(t, k); !slices.Equal(got, want) {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}

func snapshotOf(k *Card) (s stats.Snapshot, names []string) {
	k.appendTo(&s)
	return s, k.names()
}

func TestModuleEventsAreCounted(t *testing.T) {
	config := everything(&card{})
	for _, e := range []prm.PortModuleEvent{
		{ModuleStatus: prm.ModulePlugged}, {ModuleStatus: prm.ModuleUnplugged}, {ModuleStatus: prm.ModuleUnplugged},
		{ModuleStatus: prm.ModuleError, ErrorType: 2}, {ModuleStatus: prm.ModuleError, ErrorType: 6},
		{ModuleStatus: prm.ModuleError, ErrorType: 7}, {ModuleStatus: prm.ModuleError, ErrorType: 1},
	} {
		config.Events.Count(e)
	}
	s, err := snapshot(t, NewCard(config), allGroups)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]uint64{"module_unplug": 2, "module_bus_stuck": 1, "module_high_temp": 1, "module_bad_shorted": 1} {
		if s.Get(name) != want {
			t.Errorf("%s: %d, want %d", name, s.Get(name), want)
		}
	}
}
