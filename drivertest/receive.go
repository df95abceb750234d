package drivertest

import (
	"bytes"
	"context"
	"errors"
	"time"

	"cxkit/driver"
)

func receiveTests() []Test {
	return []Test{
		{Name: "ReceivesOneFrame", Run: func(e *Env) {
			want := Frames(e.NIC.MAC(), 1, 60)
			e.Send(want...)
			e.Same(e.Receive(0, 1), want)
		}},
		{Name: "ReceivesEveryLengthInOrder", Run: func(e *Env) {
			var want [][]byte
			for n := 60; n <= 1514; n++ {
				want = append(want, Frame(e.NIC.MAC(), n, uint32(n)))
			}
			e.Background(func(e *Env) { e.Send(want...) })
			e.Same(e.Receive(0, len(want)), want)
		}},
		{Name: "PadsShortFramesTo60Bytes", Run: func(e *Env) {
			for n := 14; n < 60; n++ {
				f := Frame(e.NIC.MAC(), n, uint32(n))
				e.Send(f)
				got := e.Receive(0, 1)[0]
				if len(got) < n || len(got) > 60 || !bytes.Equal(got[:n], f) || len(bytes.Trim(got[n:], "\x00")) != 0 {
					e.Errorf("frame of %d bytes arrived as %x", n, got)
				}
			}
		}},
		{Name: "CountsRunts", Run: func(e *Env) {
			mac := e.NIC.MAC()
			e.OnlyArrives(Frame(mac, 60, 1), mac[:0], mac[:1], Frame(mac, 14, 0)[:13])
			if n := e.Counter("rx_undersize_pkts_phy"); n != 3 {
				e.Errorf("rx_undersize_pkts_phy: %d, want 3", n)
			}
		}},
		{Name: "CountsFramesLongerThanTheMTU", Run: func(e *Env) {
			mac := e.NIC.MAC()
			e.OnlyArrives(Frame(mac, 1514, 1), Frame(mac, 1515, 0), Frame(mac, 1518, 0), Frame(mac, 9000, 0), Frame(mac, 65536, 0))
			if n := e.Counter("rx_oversize_pkts_phy"); n != 4 {
				e.Errorf("rx_oversize_pkts_phy: %d, want 4", n)
			}
		}},
		{Name: "VLANTagsDoNotCountForTheMTU", Run: func(e *Env) {
			one := Flow{Dst: e.NIC.MAC(), Src: peer(), UDP: true, VLANs: []uint16{5}}
			two := Flow{Dst: e.NIC.MAC(), Src: peer(), UDP: true, VLANs: []uint16{5, 6}}
			want := [][]byte{one.Packet(1472, 1), two.Packet(1472, 2)}
			e.Send(one.Packet(1473, 0), want[0], two.Packet(1473, 0), want[1])
			e.Same(e.Receive(0, 2), want)
		}},
		{Name: "RingWrapsManyTimes", Config: driver.Config{RxRing: 8, Buffers: 64}, Run: func(e *Env) {
			want := Frames(e.NIC.MAC(), 5000, 64)
			e.Background(func(e *Env) { e.Send(want...) })
			e.Same(e.Receive(0, len(want)), want)
		}},
		{Name: "PollTakesNoMoreThanAsked", Run: func(e *Env) {
			want := Frames(e.NIC.MAC(), 10, 60)
			e.Send(want...)
			var pkts [3]driver.Packet
			var got [][]byte
			for len(got) < len(want) {
				n := e.Poll(0, pkts[:])
				if n > len(pkts) {
					e.Fatalf("poll returned %d for %d", n, len(pkts))
				}
				for _, p := range pkts[:n] {
					got = append(got, bytes.Clone(p.Data))
				}
				e.NIC.RxQueue(0).Release(pkts[:n])
			}
			e.Same(got, want)
		}},
		{Name: "PacketsStayWhileTheApplicationHoldsThem", Run: func(e *Env) {
			want := Frames(e.NIC.MAC(), 200, 60)
			e.Send(want...)
			held := make([]driver.Packet, 0, 200)
			for len(held) < 200 {
				n := e.Poll(0, held[len(held):200])
				held = held[:len(held)+n]
			}
			more := Frames(e.NIC.MAC(), 500, 60)
			e.Background(func(e *Env) { e.Send(more...) })
			e.Same(e.Receive(0, len(more)), more)
			for i, p := range held {
				e.Same([][]byte{p.Data}, want[i:i+1])
			}
			e.NIC.RxQueue(0).Release(held)
		}},
		{Name: "ReleaseFromAnotherGoroutine", Run: func(e *Env) {
			const total = 2000
			want := Frames(e.NIC.MAC(), total, 60)
			e.Background(func(e *Env) { e.Send(want...) })
			batches := make(chan []driver.Packet, 4)
			e.Background(func(e *Env) {
				for b := range batches {
					e.NIC.ReleaseAll(b)
				}
			})
			defer close(batches)
			for n := 0; n < total; {
				b := make([]driver.Packet, 16)
				k := e.Poll(0, b)
				for i := range b[:k] {
					e.Same([][]byte{b[i].Data}, want[n+i:n+i+1])
				}
				n += k
				batches <- b[:k]
			}
		}},
		{Name: "WaitReturnsWhenAFrameCame", Run: func(e *Env) {
			for i := range 200 {
				f := Frame(e.NIC.MAC(), 60, uint32(i))
				e.Background(func(e *Env) { e.Send(f) })
				e.Same(e.Receive(0, 1), [][]byte{f})
			}
		}},
		{Name: "WaitEndsWithItsContext", Run: func(e *Env) {
			ctx, cancel := context.WithTimeout(e.Ctx, 10*time.Millisecond)
			defer cancel()
			if err := e.NIC.RxQueue(0).Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
				e.Errorf("wait: %v", err)
			}
		}},
		{Name: "WaitReturnsAtOnceWhenFramesAreThere", Run: func(e *Env) {
			e.Send(Frames(e.NIC.MAC(), 2, 60)...)
			e.Receive(0, 1)
			if err := e.NIC.RxQueue(0).Wait(e.Ctx); err != nil {
				e.Errorf("wait: %v", err)
			}
			e.Receive(0, 1)
		}},
		{Name: "FlowControlHoldsFramesWithoutBuffers", Config: driver.Config{RxRing: 8, Buffers: 24}, Run: func(e *Env) {
			want := Frames(e.NIC.MAC(), 100, 60)
			e.Background(func(e *Env) { e.Send(want...) })
			var held [24]driver.Packet
			n := 0
			for n < 16 {
				n += e.Poll(0, held[n:16])
			}
			e.NIC.RxQueue(0).Release(held[:n])
			e.Same(e.Receive(0, len(want)-n), want[n:])
			e.Counters(map[string]uint64{"rx_out_of_buffer": 0})
		}},
		{Name: "CountsFramesWithoutBuffers", Options: Options{Lossy: true}, Config: driver.Config{RxRing: 8, Buffers: 8}, Run: func(e *Env) {
			// R35: what has no buffer shows as rx_out_of_buffer and was still a packet on the wire.
			frames := Frames(e.NIC.MAC(), 56, 60)
			e.Send(frames...)
			e.Until("all frames seen", func() bool { return e.Counter("rx_packets_phy") == 56 })
			e.Same(e.Receive(0, 8), frames[:8])
			e.Counters(map[string]uint64{"rx_out_of_buffer": 48, "rx_packets_phy": 56, "rx_discards_phy": 0, "rx_packets": 8})
			// The buffers are the queue's again, but Poll is what posts them: a frame that came first would
			// find none.
			e.NIC.RxQueue(0).Poll(nil)
			again := Frames(e.NIC.MAC(), 8, 100)
			e.Send(again...)
			e.Same(e.Receive(0, 8), again)
		}},
	}
}
