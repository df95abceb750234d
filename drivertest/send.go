package drivertest

import (
	"bytes"

	"cxkit/driver"
)

func sendTests() []Test {
	return []Test{
		{Name: "SendsOneFrame", Run: func(e *Env) {
			want := Frames(peer(), 1, 60)
			e.Transmit(0, want...)
			e.Same(e.Arrived(1), want)
		}},
		{Name: "SendsEveryLengthInOrder", Run: func(e *Env) {
			var want [][]byte
			for n := 60; n <= 1514; n++ {
				want = append(want, Frame(peer(), n, uint32(n)))
			}
			e.Background(func(e *Env) { e.Transmit(0, want...); e.Flush(0) })
			e.Same(e.Arrived(len(want)), want)
		}},
		{Name: "PadsShortFrames", Run: func(e *Env) {
			for n := 14; n < 60; n++ {
				f := Frame(peer(), n, uint32(n))
				e.Transmit(0, f)
				got := e.Arrived(1)[0]
				if len(got) != 60 || !bytes.Equal(got[:n], f) || len(bytes.Trim(got[n:], "\x00")) != 0 {
					e.Errorf("frame of %d bytes left as %x", n, got)
				}
			}
		}},
		{Name: "SendRingWrapsManyTimes", Config: driver.Config{TxRing: 8}, Run: func(e *Env) {
			want := Frames(peer(), 3000, 64)
			e.Background(func(e *Env) { e.Transmit(0, want...) })
			e.Same(e.Arrived(len(want)), want)
			e.Flush(0)
		}},
		{Name: "SendTakesWhatFits", Config: driver.Config{TxRing: 8}, Run: func(e *Env) {
			tx := e.NIC.TxQueue(0)
			pkts := make([]driver.Packet, 64)
			n := tx.Get(pkts)
			if n != len(pkts) {
				e.Fatalf("%d buffers", n)
			}
			want := Frames(peer(), n, 64)
			for i := range pkts {
				pkts[i].Data = append(pkts[i].Data, want[i]...)
			}
			taken := tx.Send(pkts)
			if taken == 0 || taken > 8 {
				e.Errorf("a ring of 8 took %d frames", taken)
			}
			for i := range pkts[:taken] {
				if pkts[i].Data != nil {
					e.Errorf("taken packet %d still has its data", i)
				}
			}
			for i := range pkts[taken:] {
				if !bytes.Equal(pkts[taken+i].Data, want[taken+i]) {
					e.Errorf("packet %d was not taken and is not the application's", taken+i)
				}
			}
			e.Background(func(e *Env) { e.SendPackets(0, pkts[taken:]) })
			e.Same(e.Arrived(n), want)
		}},
		{Name: "DropsAndCountsFramesThatCannotBeSent", Run: func(e *Env) {
			tx := e.NIC.TxQueue(0)
			pkts := make([]driver.Packet, 3)
			if n := tx.Get(pkts); n != 3 {
				e.Fatalf("%d buffers", n)
			}
			good := Frame(peer(), 60, 1)
			pkts[0].Data = append(pkts[0].Data, good[:13]...)
			pkts[1].Data = append(pkts[1].Data, good...)
			pkts[2].Data = pkts[2].Data[:min(cap(pkts[2].Data), 1514+9)]
			e.SendPackets(0, pkts)
			e.Same(e.Arrived(1), [][]byte{good})
			if n := tx.Stats().Dropped; n != 2 {
				e.Errorf("%d frames dropped, want 2", n)
			}
			e.Flush(0)
		}},
		{Name: "ForwardsWithoutCopying", Run: func(e *Env) {
			const total = 2000
			var want [][]byte
			for i := range total {
				want = append(want, Frame(e.NIC.MAC(), 60+i%1000, uint32(i)))
			}
			e.Background(func(e *Env) { e.Send(want...) })
			e.Background(func(e *Env) {
				var pkts [32]driver.Packet
				for n := 0; n < total; {
					k := e.Poll(0, pkts[:])
					e.SendPackets(0, pkts[:k])
					n += k
				}
				e.Flush(0)
			})
			e.Same(e.Arrived(total), want)
		}},
		{Name: "ForwardsChangedFrames", Run: func(e *Env) {
			frame := Flow{Dst: e.NIC.MAC(), Src: peer()}.Packet(100, 1)
			e.Send(frame)
			var pkts [1]driver.Packet
			e.Poll(0, pkts[:])
			d := pkts[0].Data
			copy(d, frame[6:12])
			copy(d[6:], frame[:6])
			pkts[0].Data = d[:len(d)-20] // shortened at the end
			e.SendPackets(0, pkts[:])
			want := append(append(bytes.Clone(frame[6:12]), frame[:6]...), frame[12:len(frame)-20]...)
			e.Same(e.Arrived(1), [][]byte{want})
		}},
		{Name: "GetReturnsWhatIsThere", Config: driver.Config{RxRing: 8, TxRing: 8, Buffers: 24}, Run: func(e *Env) {
			tx := e.NIC.TxQueue(0)
			pkts := make([]driver.Packet, 64)
			n := tx.Get(pkts)
			if n > 16 {
				e.Errorf("%d buffers of 24 while 8 are posted", n)
			}
			n += tx.Get(pkts[n:])
			tx.Release(pkts[:n])
			want := Frames(peer(), 100, 60)
			e.Background(func(e *Env) { e.Transmit(0, want...) })
			e.Same(e.Arrived(100), want)
		}},
		{Name: "SendAndReceiveAtTheSameTime", Run: func(e *Env) {
			in, out := Frames(e.NIC.MAC(), 3000, 80), Frames(peer(), 3000, 90)
			e.Background(func(e *Env) { e.Send(in...) })
			e.Background(func(e *Env) { e.Transmit(0, out...) })
			e.Background(func(e *Env) { e.Same(e.Arrived(len(out)), out) })
			e.Same(e.Receive(0, len(in)), in)
		}},
	}
}
