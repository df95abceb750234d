package drivertest

import (
	"time"

	"cxkit/driver"
)

// Striding and linked receive queues, compressed completions, moderated events.
func strideTests() []Test {
	var tests []Test
	for _, c := range []struct {
		name     string
		offloads driver.Offloads
	}{
		{"StridingQueue", driver.Offloads{Striding: true}},
		{"CompressedCompletions", driver.Offloads{CompressCompletions: true}},
		{"StridingQueueWithCompressedCompletions", driver.Offloads{Striding: true, CompressCompletions: true}},
		{"LinkedQueue", driver.Offloads{LinkedReceive: true}},
		{"LinkedQueueWithCompressedCompletions", driver.Offloads{LinkedReceive: true, CompressCompletions: true}},
		{"LinkedStridingQueue", driver.Offloads{LinkedReceive: true, Striding: true}},
	} {
		tests = append(tests,
			Test{Name: c.name + "DeliversEveryLength", Config: driver.Config{RxRing: 64, Offloads: c.offloads}, Run: func(e *Env) {
				var want [][]byte
				for n := 60; n <= 1514; n += 3 {
					want = append(want, Frame(e.NIC.MAC(), n, uint32(n)))
				}
				e.Background(func(e *Env) { e.Send(want...) })
				e.Same(e.Receive(0, len(want)), want)
			}},
			Test{Name: c.name + "WrapsManyTimes", Config: driver.Config{RxRing: 16, TxRing: 16, Buffers: 128, Offloads: c.offloads}, Run: func(e *Env) {
				var want [][]byte
				for i := range 20_000 {
					n := 60
					if i%100 < 20 {
						n = 60 + i%1400
					}
					want = append(want, Frame(e.NIC.MAC(), n, uint32(i)))
				}
				e.Background(func(e *Env) { e.Send(want...) })
				e.Same(e.Receive(0, len(want)), want)
			}},
			Test{Name: c.name + "KeepsMetadata", Config: driver.Config{Queues: 2, VLANStrip: true, Offloads: c.offloads}, Run: func(e *Env) {
				for name, f := range kinds(e.NIC.MAC()) {
					f.SrcPort, f.DstPort = 7, 9
					frame := f.Packet(200, 1)
					e.Send(frame)
					q := e.firstQueue()
					e.ReceiveEach(q, 1, func(p *driver.Packet) {
						if !p.Rx.ChecksumOK() || p.RSSHash == 0 || p.HashType.L4() == driver.L4None || p.Timestamp == 0 {
							e.Errorf("%s: flags %#x, hash %#x of type %#x", name, p.Rx, p.RSSHash, p.HashType)
						}
						if p.Rx.VLANStripped() != (f.VLANs != nil) || f.VLANs != nil && p.VLAN != 7 {
							e.Errorf("%s: stripped %v, tag %d", name, p.Rx.VLANStripped(), p.VLAN)
						}
					})
				}
			}},
			Test{Name: c.name + "WaitsForBuffers", Config: driver.Config{RxRing: 8, TxRing: 8, Buffers: 24, Offloads: c.offloads}, Run: func(e *Env) {
				want := Frames(e.NIC.MAC(), 600, 70)
				e.Background(func(e *Env) { e.Send(want...) })
				var got [][]byte
				rx := e.NIC.RxQueue(0)
				for len(got) < len(want) {
					var held []driver.Packet // until there are no buffers
					for {
						pkts := make([]driver.Packet, 8)
						n := rx.Poll(pkts)
						held = append(held, pkts[:n]...)
						if n == 0 && len(held) > 0 {
							break
						}
						if n == 0 {
							e.Must(rx.Wait(e.Ctx))
						}
					}
					for i := range held {
						got = append(got, append([]byte(nil), held[i].Data...))
					}
					rx.Release(held)
				}
				e.Same(got, want)
			}},
		)
	}
	return append(tests,
		Test{Name: "StridingQueueTakesJumboFrames", Config: driver.Config{MTU: 9000, RxRing: 64, Offloads: driver.Offloads{Striding: true}}, Run: func(e *Env) {
			want := Frames(e.NIC.MAC(), 300, 9014)
			e.Background(func(e *Env) { e.Send(want...) })
			e.Same(e.Receive(0, len(want)), want)
		}},
		Test{Name: "CompressedHashesAreEachFramesOwn", Config: driver.Config{RSS: driver.RSS{Asymmetric: true}, Offloads: driver.Offloads{CompressCompletions: true}}, Run: func(e *Env) {
			var frames [][]byte
			for i := range 500 {
				frames = append(frames, Flow{Dst: e.NIC.MAC(), Src: peer(), SrcPort: uint16(i), DstPort: 80}.Packet(60, 1))
			}
			e.Background(func(e *Env) { e.Send(frames...) })
			i, mini := 0, 0
			e.ReceiveEach(0, len(frames), func(p *driver.Packet) {
				if p.Checksum == 0 {
					mini++ // which tells the hash alone
				}
				input := append(append([]byte{}, frames[i][26:34]...), frames[i][34:38]...)
				if want := toeplitz(driver.DefaultRSSKey(), input); p.RSSHash != want {
					e.Errorf("frame %d: hash %#08x, want %#08x", i, p.RSSHash, want)
				}
				i++
			})
			if mini == 0 {
				e.Error("no completion was compressed")
			}
		}},
		Test{Name: "LargestMTU", Config: driver.Config{MTU: driver.MaxMTU}, Run: func(e *Env) {
			want := Frames(e.NIC.MAC(), 3, driver.MaxMTU+14)
			e.Background(func(e *Env) { e.Send(want...) })
			e.Same(e.Receive(0, 3), want)
			out := Frames(peer(), 3, driver.MaxMTU+14)
			e.Transmit(0, out...)
			e.Same(e.Arrived(3), out)
		}},
		Test{Name: "ModeratedEventsComeInTime", Config: driver.Config{Offloads: driver.Offloads{RxModeration: driver.Moderation{Frames: 64, Period: 100 * time.Microsecond}}}, Run: moderated},
	)
}

// moderated receives by waiting while events are held back, and changes how.
func moderated(e *Env) {
	for _, m := range []driver.Moderation{{}, {Frames: 16, Period: time.Millisecond}, {Period: 50 * time.Microsecond}, {Frames: 1}} {
		want := Frames(e.NIC.MAC(), 300, 60)
		e.Background(func(e *Env) { e.Send(want...) })
		e.Same(e.Receive(0, len(want)), want)
		e.Must(e.NIC.SetModeration(e.Ctx, m, m))
		if rx, tx := e.NIC.Moderation(); rx != m || tx != m {
			e.Errorf("moderation %v, %v; want %v", rx, tx, m)
		}
		e.Transmit(0, Frame(peer(), 60, 1))
		e.Flush(0)
		e.Arrived(1)
	}
	if err := e.NIC.SetModeration(e.Ctx, driver.Moderation{Frames: 1 << 16}, driver.Moderation{}); err == nil {
		e.Error("65,536 completions were accepted")
	}
}

// firstQueue waits for a frame on any queue and names it.
func (e *Env) firstQueue() int {
	e.Helper()
	queue := -1
	e.Until("frame on a queue", func() bool {
		for q := range e.NIC.Queues() {
			if e.NIC.RxQueue(q).Ready() {
				queue = q
				return true
			}
		}
		return false
	})
	return queue
}
