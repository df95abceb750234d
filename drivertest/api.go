package drivertest

import (
	"context"
	"errors"
	"time"

	"cxkit/driver"
)

// What else the driver promises.
func apiTests() []Test {
	return []Test{
		{Name: "RecoverLeavesWorkingQueuesAlone", Config: driver.Config{Queues: 2}, Run: func(e *Env) {
			e.OnlyArrives(Frame(e.NIC.MAC(), 60, 1))
			e.Must(e.NIC.Recover(e.Ctx))
			want := Frames(peer(), 10, 60)
			e.Transmit(1, want...)
			e.Same(e.Arrived(10), want)
			e.OnlyArrives(Frame(e.NIC.MAC(), 60, 2))
			e.Counters(map[string]uint64{"rx_recover": 0, "tx_recover": 0})
		}},
		{Name: "ReleaseAllTakesPacketsOfAllQueues", Config: driver.Config{Queues: 4, RxRing: 64, TxRing: 64}, Run: func(e *Env) {
			// Received on several queues, taken to send, empty, and more than one batch.
			var pkts []driver.Packet
			for i := range 40 {
				f := Flow{Dst: e.NIC.MAC(), Src: peer(), SrcPort: uint16(i), DstPort: 80}.Packet(20, uint32(i))
				e.Send(f)
				var one [1]driver.Packet
				e.Until("frame on a queue", func() bool {
					for q := range e.NIC.Queues() {
						if e.NIC.RxQueue(q).Poll(one[:]) == 1 {
							return true
						}
					}
					return false
				})
				pkts = append(pkts, one[0], driver.Packet{})
			}
			taken := make([]driver.Packet, 50)
			n := e.NIC.TxQueue(1).Get(taken)
			pkts = append(pkts, taken[:n]...)
			if out := e.NIC.Books().Buffers.Application; out != 40+n {
				e.Errorf("the application has %d buffers, want %d", out, 40+n)
			}
			e.NIC.ReleaseAll(pkts)
			for i := range pkts {
				if pkts[i].Data != nil {
					e.Fatalf("packet %d still has its data", i)
				}
			}
			e.NIC.ReleaseAll(pkts) // they are empty
			e.NIC.ReleaseAll(nil)
			if b := e.NIC.Books().Buffers; b.Application != 0 || b.Violations != 0 {
				e.Errorf("books: %+v", b)
			}
		}},
		{Name: "ReleasesPacketsOfOtherQueues", Config: driver.Config{Queues: 2, RxRing: 64, TxRing: 64}, Run: func(e *Env) {
			want := Frames(e.NIC.MAC(), 3000, 60) // all on queue 0
			e.Background(func(e *Env) { e.Send(want...) })
			var pkts [32]driver.Packet
			for n := 0; n < len(want); {
				k := e.Poll(0, pkts[:])
				n += k
				if n%2 == 0 {
					e.NIC.RxQueue(1).Release(pkts[:k])
				} else {
					e.NIC.TxQueue(1).Release(pkts[:k])
				}
			}
		}},
		{Name: "ForwardsBetweenQueues", Config: driver.Config{Queues: 2, RxRing: 64, TxRing: 64}, Run: func(e *Env) {
			want := Frames(e.NIC.MAC(), 2000, 100) // all on queue 0
			e.Background(func(e *Env) { e.Send(want...) })
			e.Background(func(e *Env) {
				var pkts [16]driver.Packet
				for n := 0; n < len(want); {
					k := e.Poll(0, pkts[:])
					e.SendPackets(1, pkts[:k])
					n += k
				}
				e.Flush(1)
			})
			e.Same(e.Arrived(len(want)), want)
		}},
		{Name: "TellsRoomAndPending", Config: driver.Config{TxRing: 64}, Run: func(e *Env) {
			tx := e.NIC.TxQueue(0)
			if tx.Index() != 0 || e.NIC.RxQueue(0).Index() != 0 {
				e.Error("queues do not know their index")
			}
			room := tx.Room()
			if room < 32 || room > 64 || tx.Pending() != 0 {
				e.Errorf("an idle ring of 64 has room for %d, %d pending", room, tx.Pending())
			}
			pkts := make([]driver.Packet, 10)
			tx.Get(pkts)
			for i := range pkts {
				pkts[i].Data = append(pkts[i].Data, Frame(peer(), 60, uint32(i))...)
			}
			if n := tx.Send(pkts); n != 10 {
				e.Fatalf("%d frames taken", n)
			}
			if tx.Pending() != 10 || tx.Room() > room-10 {
				e.Errorf("after 10 frames: %d pending, room for %d", tx.Pending(), tx.Room())
			}
			e.Flush(0)
			e.Arrived(10)
			if tx.Pending() != 0 || tx.Room() != room {
				e.Errorf("after a flush: %d pending, room for %d of %d", tx.Pending(), tx.Room(), room)
			}
		}},
		{Name: "TransmitWaitReturnsWithRoom", Config: driver.Config{TxRing: 8}, Run: func(e *Env) {
			if err := e.NIC.TxQueue(0).Wait(e.Ctx); err != nil {
				e.Errorf("wait on an idle queue: %v", err)
			}
			ctx, cancel := context.WithTimeout(e.Ctx, 10*time.Millisecond)
			defer cancel()
			tx := e.NIC.TxQueue(0)
			frame := Frame(peer(), 1514, 1)
			var pkts [1]driver.Packet
			for n := 0; ; n++ { // fill ring and wire
				for tx.Get(pkts[:]) == 0 {
					e.Must(tx.Wait(e.Ctx))
				}
				pkts[0].Data = append(pkts[0].Data, frame...)
				for tx.Send(pkts[:]) == 0 {
					err := tx.Wait(ctx)
					if errors.Is(err, context.DeadlineExceeded) {
						tx.Release(pkts[:])
						e.Arrived(n)
						e.Flush(0)
						return
					}
					e.Must(err)
				}
			}
		}},
		{Name: "ClosedNICRefusesEverything", Run: func(e *Env) {
			nic := e.NIC
			e.Send(Frame(nic.MAC(), 60, 1))
			e.Receive(0, 1)
			changes := nic.LinkChanges(e.Ctx)
			e.Close()
			for range changes { // closed, after what was last
			}
			if _, open := <-nic.LinkChanges(e.Ctx); open {
				e.Error("a closed NIC announces its link")
			}
			rx, tx := nic.RxQueue(0), nic.TxQueue(0)
			pkts := make([]driver.Packet, 4)
			if rx.Poll(pkts) != 0 || tx.Get(pkts) != 0 || tx.Send(pkts) != 0 || tx.Reap() != 0 {
				e.Error("a closed NIC moves packets")
			}
			rx.Release(pkts)
			tx.Release(pkts)
			nic.ReleaseAll(pkts)
			s, err := nic.Stats(e.Ctx)
			if s.Get("rx_packets") != 1 {
				e.Errorf("rx_packets of a closed NIC: %d", s.Get("rx_packets"))
			}
			for what, err := range map[string]error{
				"stats": err, "rx wait": rx.Wait(e.Ctx), "tx wait": tx.Wait(e.Ctx), "flush": tx.Flush(e.Ctx),
				"rx error": rx.Err(), "tx error": tx.Err(), "recover": nic.Recover(e.Ctx),
				"promiscuous": nic.SetPromiscuous(e.Ctx, true), "multicast": nic.SetAllMulticast(e.Ctx, true),
				"MAC": nic.AddMAC(e.Ctx, driver.MAC{2, 1, 1, 1, 1, 1}), "VLAN": nic.AddVLAN(e.Ctx, 1),
				"MTU": nic.SetMTU(e.Ctx, 1000), "link": nic.SetLink(e.Ctx, false),
			} {
				if !errors.Is(err, driver.ErrNICClosed) {
					e.Errorf("%s after close: %v", what, err)
				}
			}
		}},
		{Name: "WorkingNICHasNoError", Run: func(e *Env) {
			select {
			case <-e.NIC.Failed():
				e.Error("failed")
			default:
			}
			if e.NIC.Err() != nil || e.NIC.RxQueue(0).Err() != nil || e.NIC.TxQueue(0).Err() != nil {
				e.Errorf("errors: %v, %v, %v", e.NIC.Err(), e.NIC.RxQueue(0).Err(), e.NIC.TxQueue(0).Err())
			}
		}},
		{Name: "ConfigIsFilledIn", Config: driver.Config{Queues: 2}, Run: func(e *Env) {
			c := e.NIC.Config()
			if c.Queues != 2 || c.RxRing != 1024 || c.TxRing != 1024 || c.MTU != 1500 || c.BufferSize < 1522 ||
				c.Buffers < 2*(c.RxRing+c.TxRing) || *c.ReclaimLimit != 50_000 {
				e.Errorf("config in force: %+v", c)
			}
			if e.NIC.MTU() != 1500 {
				e.Errorf("MTU is %d", e.NIC.MTU())
			}
		}},
		{Name: "ChangesThatMakeNoSenseAreNamed", Run: func(e *Env) {
			group := driver.MAC{1, 0, 0x5e, 0, 0, 9}
			e.Must(e.NIC.AddVLAN(e.Ctx, 7))
			e.Must(e.NIC.AddMulticast(e.Ctx, group))
			for what, c := range map[string]struct{ got, want error }{
				"VLAN twice":       {e.NIC.AddVLAN(e.Ctx, 7), driver.ErrPresent},
				"VLAN absent":      {e.NIC.RemoveVLAN(e.Ctx, 8), driver.ErrAbsent},
				"group twice":      {e.NIC.AddMulticast(e.Ctx, group), driver.ErrPresent},
				"group absent":     {e.NIC.RemoveMulticast(e.Ctx, driver.MAC{1, 2, 3, 4, 5, 6}), driver.ErrAbsent},
				"own MAC":          {e.NIC.AddMAC(e.Ctx, e.NIC.MAC()), driver.ErrPresent},
				"MAC absent":       {e.NIC.RemoveMAC(e.Ctx, driver.MAC{2, 2, 3, 4, 5, 6}), driver.ErrAbsent},
				"promiscuous same": {e.NIC.SetPromiscuous(e.Ctx, false), nil},
			} {
				if !errors.Is(c.got, c.want) {
					e.Errorf("%s: %v, want %v", what, c.got, c.want)
				}
			}
			if e.NIC.AddVLAN(e.Ctx, 4096) == nil || e.NIC.AddMulticast(e.Ctx, e.NIC.MAC()) == nil || e.NIC.AddMAC(e.Ctx, driver.MAC{}) == nil {
				e.Error("a VLAN of 4096, a unicast group or a MAC of zero is not refused")
			}
			e.OnlyArrives(Frame(e.NIC.MAC(), 60, 1))
		}},
		{Name: "SoftwareCountersNeedNoCommand", Run: func(e *Env) {
			e.Send(Frames(e.NIC.MAC(), 5, 60)...)
			e.Receive(0, 5)
			s := e.NIC.SoftwareStats()
			if s.Get("rx_packets") != 5 || s.Get("rx0_bytes") != 300 {
				e.Errorf("software counters: %+v", s.Counters)
			}
			if _, ok := s.Lookup("rx_packets_phy"); ok {
				e.Error("a counter of the port is among them")
			}
		}},
		{Name: "LinkWatchersEndWithTheirContext", Run: func(e *Env) {
			ctx, cancel := context.WithCancel(e.Ctx)
			var watchers []<-chan driver.Link
			for range 5 {
				watchers = append(watchers, e.NIC.LinkChanges(ctx))
			}
			stays := e.NIC.LinkChanges(e.Ctx)
			cancel()
			for _, w := range watchers {
				for range w { // until it is closed
				}
			}
			e.waitLink(stays, true)
			e.Bench.Far.SetLink(false)
			e.waitLink(stays, false)
		}},
	}
}
