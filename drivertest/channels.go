package drivertest

import (
	"bytes"
	"encoding/binary"
	"errors"

	"cxkit/driver"
	"cxkit/stats"
)

// Other numbers of channels, as ethtool -L sets them.

func channelTests() []Test {
	var tests []Test
	for name, c := range map[string]driver.Config{
		"":           {},
		"Striding":   {Offloads: driver.Offloads{Striding: true}},
		"Compressed": {Offloads: driver.Offloads{CompressCompletions: true}},
		"Linked":     {Offloads: driver.Offloads{LinkedReceive: true}},
		"Merging":    {Receiving: driver.Receiving{GRO: true}},
		"Stacked":    {RxPages: driver.RxPages{RxLayout: driver.RxStack}},
		"Program": {Receiving: driver.Receiving{Program: func(f *driver.Frame) driver.Verdict {
			return driver.RedirectTo(int(f.RSSHash>>8) % 4) // to a channel that may be gone by now
		}}},
	} {
		c.Queues, c.MaxChannels, c.RxRing, c.TxRing = 2, 4, 64, 64
		tests = append(tests, Test{Name: "ChannelsChangeUnderTraffic" + name, Config: c, Run: changeChannels})
	}
	return append(tests,
		Test{Name: "ChannelsThatStayLoseNothing", Config: driver.Config{MaxChannels: 4, RxRing: 64, TxRing: 64}, Run: func(e *Env) {
			const total = 3000
			e.add(driver.Rule{Action: driver.RuleQueue})
			want := Frames(e.NIC.MAC(), total, 100)
			stop, over := make(chan struct{}), make(chan int, 1)
			e.Background(func(e *Env) { e.Send(want...) })
			e.Background(func(e *Env) {
				changes := 0
				defer func() { over <- changes }()
				for {
					select {
					case <-stop:
						return
					default:
					}
					lost, err := e.NIC.SetChannels(e.Ctx, 1+changes*3%4)
					if e.Must(err); lost != (driver.Lost{}) {
						e.Errorf("lost %+v of queues that nothing was led to", lost)
					}
					changes++
				}
			})
			got := e.Receive(0, total)
			close(stop)
			if n := <-over; n == 0 {
				e.Error("no change was made meanwhile")
			}
			e.Same(got, want)
		}},
		Test{Name: "ChannelsInUseAreKept", Config: driver.Config{Queues: 4, RxRing: 64}, Run: func(e *Env) {
			refused := func(why string, n int, want error) {
				e.Helper()
				if _, err := e.NIC.SetChannels(e.Ctx, n); err == nil || want != nil && !errors.Is(err, want) {
					e.Errorf("%s: %d channels: %v", why, n, err)
				}
				if n := e.NIC.Queues(); n != 4 {
					e.Fatalf("%s: %d queues", why, n)
				}
			}
			refused("none", 0, nil)
			refused("more than MaxChannels", 5, nil)
			id := e.add(driver.Rule{Action: driver.RuleQueue, Queue: 3})
			refused("a rule leads there", 3, driver.ErrBusy)
			e.remove(id)
			g, err := e.NIC.NewQueueGroup(e.Ctx, driver.GroupConfig{Queues: []int{0, 2}})
			e.Must(err)
			refused("a group has one", 2, driver.ErrBusy)
			e.Must(g.SetQueues(e.Ctx, []int{0}))
			e.Must(e.NIC.DefaultGroup().SetQueues(e.Ctx, []int{1, 1, 3}))
			refused("the default group has one", 3, driver.ErrBusy)
			e.Must(e.NIC.DefaultGroup().SetQueues(e.Ctx, []int{1}))
			_, err = e.NIC.SetChannels(e.Ctx, 2)
			e.Must(err)
			e.arrives("the group's choice stays", Frame(e.NIC.MAC(), 60, 1), 1)
			if _, err := e.NIC.AddRule(e.Ctx, driver.Rule{Action: driver.RuleQueue, Queue: 2}); err == nil {
				e.Error("a rule to a channel that is gone was accepted")
			}
			if err := g.SetQueues(e.Ctx, []int{0, 2}); err == nil {
				e.Error("a group with a channel that is gone was accepted")
			}
			e.Must(g.Close(e.Ctx))
		}},
		Test{Name: "ChannelsSendWhatTheyHaveBeforeTheyGo", Config: driver.Config{Queues: 4, TxRing: 512}, Run: func(e *Env) {
			want := Frames(peer(), 200, 80)
			tx := e.NIC.TxQueue(3)
			e.Transmit(3, want...)
			lost, err := e.NIC.SetChannels(e.Ctx, 1)
			if e.Must(err); lost != (driver.Lost{}) {
				e.Errorf("lost %+v", lost)
			}
			e.Same(e.Arrived(len(want)), want)
			var pkts [1]driver.Packet
			if err := tx.Flush(e.Ctx); err != driver.ErrChannelGone || tx.Get(pkts[:]) != 0 || tx.Recover(e.Ctx) != driver.ErrChannelGone {
				e.Errorf("a queue that is gone works, flush: %v", err)
			}
		}},
		Test{Name: "ChannelsThatGoSayWhatTheyLose", Config: driver.Config{Queues: 2, RxRing: 64, TxRing: 64}, Run: func(e *Env) {
			id := e.add(driver.Rule{Action: driver.RuleQueue, Queue: 1})
			e.Send(Frames(e.NIC.MAC(), 30, 100)...)
			gone := e.NIC.RxQueue(1)
			held := make([]driver.Packet, 10)
			for n := 0; n < len(held); {
				n += e.Poll(1, held[n:])
			}
			e.Until("all frames are there", func() bool { return e.Counter("rx_vport_unicast_packets") == 30 })
			e.remove(id)
			e.Must(gone.Resize(e.Ctx, 32)) // what is in the old ring is put aside
			lost, err := e.NIC.SetChannels(e.Ctx, 1)
			if e.Must(err); lost != (driver.Lost{Received: 20}) {
				e.Errorf("lost %+v, want the 20 of 30 frames that were not polled", lost)
			}
			if err := gone.Wait(e.Ctx); err != driver.ErrChannelGone || gone.Poll(held[:0]) != 0 {
				e.Errorf("waiting on a queue that is gone: %v", err)
			}
			// What the application has stays its own.
			for i := range held {
				if want := Frame(e.NIC.MAC(), 100, uint32(i)); !bytes.Equal(held[i].Data, want) {
					e.Errorf("frame %d has changed", i)
				}
			}
			_, err = e.NIC.SetChannels(e.Ctx, 2) // while it has them
			e.Must(err)
			gone.Release(held)
			f := Frame(e.NIC.MAC(), 60, 1)
			e.Send(f)
			e.whichQueue(f)
		}},
		Test{Name: "WaitsEndWithTheirChannel", Config: driver.Config{Queues: 2, RxRing: 64}, Run: func(e *Env) {
			ended := make(chan error, 1)
			rx := e.NIC.RxQueue(1)
			e.Background(func(e *Env) { ended <- rx.Wait(e.Ctx) })
			e.Until("the queue is waited for", func() bool { return rx.Stats().Waits == 1 })
			_, err := e.NIC.SetChannels(e.Ctx, 1)
			e.Must(err)
			if err := <-ended; err != driver.ErrChannelGone {
				e.Errorf("the wait says %v", err)
			}
		}},
	)
}

// changeChannels receives on all queues and changes their number in between. What is received and what is lost
// make all that was sent, and no counter falls.
func changeChannels(e *Env) {
	const total = 3000
	e.Background(func(e *Env) {
		for i := 0; i < total; i += 20 {
			var some [][]byte
			for k := range 20 {
				some = append(some, Flow{Dst: e.NIC.MAC(), Src: peer(), UDP: true, SrcPort: uint16(k * 17), DstPort: uint16(i)}.Packet(40, uint32(i+k)))
			}
			e.Send(some...)
		}
	})
	// Channels that nobody polls must not keep the others from going on: one goroutine owns them all.
	counts := []int{4, 1, 3, 2, 4, 2, 1}
	seen := make([]bool, total)
	got, lost, changes := 0, 0, 0
	var last stats.Snapshot
	var pkts [16]driver.Packet
	take := func() (n int) {
		for q := range e.NIC.Queues() {
			rx := e.NIC.RxQueue(q)
			k := rx.Poll(pkts[:])
			for i := range pkts[:k] {
				seq := binary.BigEndian.Uint16(pkts[i].Data[18:]) // the IPv4 header's identification
				if int(seq) >= total || seen[seq] {
					e.Fatalf("frame %d came twice, or was never sent", seq)
				}
				seen[seq] = true
				n += pkts[i].Segments()
			}
			rx.Release(pkts[:k])
			if err := rx.Err(); err != nil {
				e.Fatalf("queue %d: %v", q, err)
			}
		}
		return n
	}
	// What a program redirects to a channel that is gone it drops. Counters of channels stay.
	var queues [4]*driver.RxQueue
	dropped := func() (n int) {
		for i, q := range queues {
			if i < e.NIC.Queues() {
				q = e.NIC.RxQueue(i)
				queues[i] = q
			}
			if q != nil {
				s := q.ProgramStats()
				n += int(s.Dropped + s.Full)
			}
		}
		return n
	}
	e.Until("all frames are received or lost", func() bool {
		got += take()
		if done := got + lost + dropped(); done < total*(changes+1)/20 {
			return done == total
		}
		l, err := e.NIC.SetChannels(e.Ctx, counts[changes%len(counts)])
		e.Must(err)
		lost += l.Received
		changes++
		if n := e.NIC.Queues(); n != counts[(changes-1)%len(counts)] || l.Sending != 0 {
			e.Errorf("%d queues, lost %+v", n, l)
		}
		s, err := e.NIC.Stats(e.Ctx)
		e.Must(err)
		for _, c := range last.Counters {
			if now, there := s.Lookup(c.Name); !there || now < c.Value && !stats.Gauge(c.Name) {
				e.Errorf("%s is %d and was %d (there: %v)", c.Name, now, c.Value, there)
			}
		}
		last = s
		return got+lost+dropped() == total
	})
	if changes < 10 {
		e.Errorf("%d changes only", changes)
	}
	s, err := e.NIC.Stats(e.Ctx)
	e.Must(err)
	var perQueue uint64
	for i := range 4 {
		n, there := s.Lookup(stats.RxQueue(i, "packets"))
		if perQueue += n; !there {
			e.Errorf("no counters of channel %d, which is not the first to go", i)
		}
	}
	all, _ := e.since(s, "rx_packets")
	arrived, _ := e.since(s, "rx_vport_unicast_packets")
	if e.Bench.Used {
		return // others have counted in what a card remembers
	}
	if perQueue != all || arrived != total {
		e.Errorf("rx_packets %d, the queues' %d; %d arrived of %d", all, perQueue, arrived, total)
	}
	e.Logf("%d changes, %d of %d frames lost", changes, lost, total)
}
