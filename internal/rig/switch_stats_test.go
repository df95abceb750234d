package rig_test

import (
	"testing"
	"time"

	"cxkit/driver"
	"cxkit/drivertest"
	"cxkit/stats"
)

// A representor's counters are those of its vport, the other way round, and cost a command a refresh; a
// virtual function's cost two.
func TestStatisticsOfRepresentorsAndVirtualFunctions(t *testing.T) {
	h := openHost(t, 2, driver.Switchdev)
	rep, err := h.pf.Representor(t.Context(), 1)
	h.ok(err)
	h.send(nicEnds(h.vfs[0]), drivertest.Frame(driver.MAC{2, 0, 0, 0, 0, 9}, 100, 1))
	until(t, "the representor has the frame", func() bool {
		pkts := make([]driver.Packet, 1)
		n := rep.Rx().Poll(pkts)
		rep.Rx().Release(pkts[:n])
		return n == 1
	})
	h.send(representorEnds(rep), drivertest.Frame(h.vfs[0].MAC(), 200, 2))
	until(t, "the virtual function has the frame", func() bool {
		return h.vfs[0].QuickStats().Get("rx_vport_unicast_packets") == 1
	})
	until(t, "the representor's counters catch up", func() bool { return rep.QuickStats().Get("vport_tx_packets") == 1 })
	s, err := rep.Stats(t.Context())
	h.ok(err)
	for name, want := range map[string]uint64{
		"rx_packets": 1, "rx_bytes": 100, "tx_packets": 1, "tx_bytes": 200,
		"vport_rx_packets": 1, "vport_rx_bytes": 100, "vport_tx_packets": 1, "vport_tx_bytes": 200,
	} {
		if got, there := s.Lookup(name); got != want || !there {
			t.Errorf("%s of the representor is %d, want %d", name, got, want)
		}
	}
	for name, c := range map[string]struct {
		s    stats.Snapshot
		want int
	}{"representor": {rep.QuickStats(), 1}, "virtual function": {h.vfs[0].QuickStats(), 2}, "physical function": {h.pf.QuickStats(), 3}} {
		n := 0
		for _, g := range c.s.Groups {
			if g.Link {
				n += g.Commands
			}
		}
		if n != c.want {
			t.Errorf("a refresh of a %s costs %d commands, want %d", name, n, c.want)
		}
	}
	// The switch's manager reads the vport's counters as the virtual function itself does.
	theirs, err := h.pf.VportStats(t.Context(), 1)
	h.ok(err)
	own, err := h.vfs[0].Stats(t.Context())
	h.ok(err)
	for _, c := range theirs.Snapshot().Counters {
		if v, there := own.Lookup(c.Name); v != c.Value || !there {
			t.Errorf("%s of vport 1 is %d, its function says %d (there: %v)", c.Name, c.Value, v, there)
		}
	}
	if s := theirs.Snapshot(); s.Get("rx_vport_unicast_packets") != 1 || s.Get("tx_vport_unicast_bytes") != 100 {
		t.Errorf("vport 1: %+v", s)
	}
	// In the other mode there is none: its counters are what they were.
	h.setMode(t.Context(), driver.Legacy)
	if s := rep.QuickStats(); s.Get("vport_rx_packets") != 1 {
		t.Errorf("after the mode the representor says %d", s.Get("vport_rx_packets"))
	}
}

// until polls for a condition that no event announces.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(time.Minute); !holds(); <-tick.C {
		if time.Now().After(limit) {
			t.Fatalf("%s: not within 30 s", what)
		}
	}
}
