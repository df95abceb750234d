package drivertest

import (
	"strings"

	"cxkit/driver"
)

func countTests() []Test {
	return []Test{
		{Name: "CountsWhatItReceives", Run: func(e *Env) {
			e.Send(Frames(e.NIC.MAC(), 10, 100)...)
			e.Send(Frames(Broadcast(), 5, 60)...)
			e.Receive(0, 15)
			e.Counters(map[string]uint64{
				"rx_packets": 15, "rx_bytes": 1300, "rx0_packets": 15, "rx0_bytes": 1300,
				"rx_vport_unicast_packets": 10, "rx_vport_unicast_bytes": 1000,
				"rx_vport_broadcast_packets": 5, "rx_vport_broadcast_bytes": 300,
				"rx_packets_phy": 15, "rx_bytes_phy": 1300 + 15*4, "rx_broadcast_phy": 5, "rx_out_of_buffer": 0,
			})
		}},
		{Name: "CountsWhatItSends", Run: func(e *Env) {
			e.Transmit(0, Frames(peer(), 10, 100)...)
			e.Transmit(0, Frames(driver.MAC{1, 0, 0x5e, 0, 0, 1}, 3, 60)...)
			e.Transmit(0, Frames(Broadcast(), 2, 60)...)
			e.Flush(0)
			e.Arrived(15)
			e.Counters(map[string]uint64{
				"tx_packets": 15, "tx_bytes": 1300, "tx0_packets": 15,
				"tx_vport_unicast_packets": 10, "tx_vport_multicast_packets": 3, "tx_vport_broadcast_packets": 2,
				"tx_packets_phy": 15,
			})
		}},
		{Name: "CountsFramesNobodyWants", Run: func(e *Env) {
			other := driver.MAC{2, 0, 0, 0, 0, 0x99}
			e.OnlyArrives(Frame(e.NIC.MAC(), 60, 1), Frames(other, 7, 60)...)
			// The port's MAC filter stands in front of the vport and of steering.
			e.Counters(map[string]uint64{"rx_packets": 1, "rx_packets_phy": 8, "rx_vport_unicast_packets": 1, "rx_steer_missed_packets": 0})
		}},
		{Name: "CountsFramesThatSteeringMisses", Config: driver.Config{VLANFilter: true}, Run: func(e *Env) {
			tagged := Flow{Dst: e.NIC.MAC(), Src: peer(), VLANs: []uint16{9}}.Packet(50, 1)
			e.OnlyArrives(Frame(e.NIC.MAC(), 60, 1), tagged, tagged, tagged)
			e.Counters(map[string]uint64{"rx_packets": 1, "rx_packets_phy": 4, "rx_vport_unicast_packets": 4, "rx_steer_missed_packets": 3})
		}},
		{Name: "CountersHaveOneNameEach", Run: func(e *Env) {
			s, err := e.NIC.Stats(e.Ctx)
			e.Must(err)
			seen := map[string]bool{}
			for _, c := range s.Counters {
				if seen[c.Name] || c.Name == "" || strings.ContainsAny(c.Name, " :\n") {
					e.Errorf("counter %q", c.Name)
				}
				seen[c.Name] = true
			}
			if len(seen) < 50 {
				e.Errorf("%d counters only", len(seen))
			}
		}},
		{Name: "CountersHaveEthtoolsNames", Config: driver.Config{Queues: 2}, Run: countersHaveEthtoolsNames},
		{Name: "ReadingsCostWhatTheirGroupsSay", Run: readingsCost},
		{Name: "QuickStatsAreReadBehindTheReader", Run: quickStats},
		{Name: "CountersGoOnAfterAReset", Config: driver.Config{Queues: 2, RxRing: 64, TxRing: 64}, Run: countersGoOn},
		{Name: "ReadingDuringCloseIsSafe", Run: readingDuringClose},
		{Name: "StatsFromManyGoroutinesUnderTraffic", Run: func(e *Env) {
			want := Frames(e.NIC.MAC(), 2000, 60)
			e.Background(func(e *Env) { e.Send(want...) })
			for range 8 {
				e.Background(func(e *Env) {
					var last uint64
					for range 20 {
						s, err := e.NIC.Stats(e.Ctx)
						if err != nil {
							e.Errorf("stats: %v", err)
							return
						}
						if n := s.Get("rx_packets"); n < last {
							e.Errorf("rx_packets fell from %d to %d", last, n)
						} else {
							last = n
						}
					}
				})
			}
			e.Same(e.Receive(0, len(want)), want)
		}},
	}
}
