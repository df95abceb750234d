package drivertest

import (
	"bytes"

	"cxkit/driver"
)

// Queue groups, and other rings for queues.
func groupTests() []Test {
	return []Test{
		{Name: "GroupSpreadsOverItsQueues", Config: driver.Config{Queues: 4}, Run: func(e *Env) {
			g, err := e.NIC.NewQueueGroup(e.Ctx, driver.GroupConfig{Queues: []int{1, 3}})
			e.Must(err)
			e.add(driver.Rule{Match: driver.Match{Headers: driver.Headers{Protocol: driver.Exactly[uint8](17)}}, Action: driver.RuleGroup, Group: g})
			used := func() map[int]bool {
				m := map[int]bool{}
				for i := range 40 {
					f := Flow{Dst: e.NIC.MAC(), Src: peer(), UDP: true, SrcPort: uint16(i * 17), DstPort: 53}.Packet(60, 1)
					e.Send(f)
					m[e.whichQueue(f)] = true
				}
				return m
			}
			if m := used(); len(m) != 2 || !m[1] || !m[3] {
				e.Errorf("queues used: %v", m)
			}
			e.Must(g.SetQueues(e.Ctx, []int{0, 1, 2}))
			if m := used(); len(m) != 3 || m[3] {
				e.Errorf("queues used after the change: %v", m)
			}
			if c, err := g.Config(e.Ctx); err != nil || len(c.Queues) != 3 {
				e.Errorf("config %v, %v", c, err)
			}
		}},
		{Name: "HashFieldsCanBeChosenAndChanged", Config: driver.Config{RSS: driver.RSS{Asymmetric: true, Fields: driver.HashDstIP | driver.HashDstPort}}, Run: func(e *Env) {
			f := Flow{Dst: e.NIC.MAC(), Src: peer(), SrcIP: 1, DstIP: 2, SrcPort: 3, DstPort: 4}
			hash := func(f Flow) (h uint32) {
				e.Send(f.Packet(60, 1))
				e.ReceiveEach(0, 1, func(p *driver.Packet) { h = p.RSSHash })
				return h
			}
			from, to := f, f
			from.SrcIP, from.SrcPort = 9, 9
			to.DstPort = 9
			if hash(f) != hash(from) || hash(f) == hash(to) {
				e.Error("the source changes the hash of the destination, or the destination does not")
			}
			frame := f.Packet(60, 1)
			if want := toeplitz(driver.DefaultRSSKey(), append(bytes.Clone(frame[30:34]), frame[36:38]...)); hash(f) != want {
				e.Errorf("hash %#x, want %#x", hash(f), want)
			}
			e.Must(e.NIC.DefaultGroup().SetRSS(e.Ctx, driver.RSS{Asymmetric: true, Fields: driver.HashSrcIP}))
			if hash(f) != hash(to) || hash(f) == hash(from) {
				e.Error("the change of fields did not change the hash")
			}
			if err := e.NIC.DefaultGroup().SetRSS(e.Ctx, driver.RSS{Fields: driver.HashSrcIP}); err == nil {
				e.Error("a symmetric hash of one end was accepted")
			}
		}},
		{Name: "IndirectionChangesUnderTraffic", Config: driver.Config{Queues: 4}, Run: func(e *Env) {
			const total = 6000
			stop := make(chan struct{})
			e.Background(func(e *Env) {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					e.Must(e.NIC.DefaultGroup().SetQueues(e.Ctx, [][]int{{0, 1, 2, 3}, {3}, {1, 2}, {2, 0, 1}}[i%4]))
					e.Must(e.NIC.DefaultGroup().SetRSS(e.Ctx, driver.RSS{Asymmetric: i%2 == 0}))
				}
			})
			e.Background(func(e *Env) {
				for i := range total / 4 {
					var four [][]byte
					for k := range 4 {
						four = append(four, Flow{Dst: e.NIC.MAC(), Src: peer(), SrcPort: uint16(i), DstPort: uint16(k)}.Packet(30, uint32(i)))
					}
					e.Send(four...)
				}
			})
			e.receiveAll(total, func(int, *driver.Packet) {})
			close(stop)
		}},
		{Name: "HashesWhatIsInGRETunnels", Config: driver.Config{Queues: 4, Offloads: driver.Offloads{Tunnels: true}}, Run: func(e *Env) {
			used := map[int]bool{}
			for i := range 40 {
				t := tunnels()[1]
				t.outer.Dst = e.NIC.MAC()
				frame := t.wrap(Flow{Dst: peer(), Src: peer(), SrcPort: uint16(i * 31), DstPort: 80}.Packet(60, 1))
				e.Send(frame)
				used[e.whichQueue(frame)] = true
			}
			if len(used) != 4 {
				e.Errorf("40 flows in one GRE tunnel are on %d queues", len(used))
			}
		}},
	}
}

func resizeTests() []Test {
	var tests []Test
	for name, o := range map[string]driver.Offloads{
		"": {}, "Striding": {Striding: true}, "Compressed": {CompressCompletions: true},
		"Linked": {LinkedReceive: true}, "LinkedStriding": {LinkedReceive: true, Striding: true},
	} {
		tests = append(tests, Test{Name: "ReceiveRingChangesUnderTraffic" + name, Config: driver.Config{RxRing: 64, TxRing: 64, Buffers: 1 << 10, Offloads: o}, Run: func(e *Env) {
			const total = 4000
			want := Frames(e.NIC.MAC(), total, 100)
			e.Background(func(e *Env) { e.Send(want...) })
			rx := e.NIC.RxQueue(0)
			var got [][]byte
			var pkts [16]driver.Packet
			sizes := []int{128, 8, 512, 32, 64, 16}
			for i := 0; len(got) < total; {
				k := e.Poll(0, pkts[:])
				for j := range pkts[:k] {
					got = append(got, bytes.Clone(pkts[j].Data))
				}
				rx.Release(pkts[:k])
				if len(got) > (i+1)*total/20 {
					e.Must(rx.Resize(e.Ctx, sizes[i%len(sizes)]))
					i++
				}
			}
			e.Same(got, want)
			if err := rx.Resize(e.Ctx, 100); err == nil {
				e.Error("a ring of 100 entries was accepted")
			}
		}})
	}
	return append(tests,
		Test{Name: "TransmitRingChangesUnderTraffic", Config: driver.Config{RxRing: 64, TxRing: 64}, Run: func(e *Env) {
			const total = 3000
			want := Frames(peer(), total, 80)
			e.Background(func(e *Env) {
				for i := range 30 {
					e.Transmit(0, want[i*100:(i+1)*100]...)
					e.Must(e.NIC.TxQueue(0).Resize(e.Ctx, 8<<(i%7)))
				}
				e.Flush(0)
				if n := e.NIC.TxQueue(0).Ring(); n != 8<<(29%7) {
					e.Errorf("ring of %d", n)
				}
			})
			e.Same(e.Arrived(total), want)
		}},
		Test{Name: "RulesFollowTheirQueueToOtherRings", Config: driver.Config{Queues: 2, RxRing: 64}, Run: func(e *Env) {
			e.add(driver.Rule{Action: driver.RuleQueue, Queue: 1})
			f := Frame(e.NIC.MAC(), 60, 1)
			for _, n := range []int{128, 32} {
				e.Must(e.NIC.RxQueue(1).Resize(e.Ctx, n))
				e.arrives("after the change", f, 1)
			}
		}},
	)
}
