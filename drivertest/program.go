package drivertest

import (
	"bytes"
	"encoding/binary"
	"slices"

	"cxkit/driver"
)

// byNumber is a program that judges Frames by their number modulo 4: pass, drop, send back, redirect to
// queue 1.
func byNumber(f *driver.Frame) driver.Verdict {
	if len(f.Data) < 18 {
		return driver.Pass
	}
	switch binary.BigEndian.Uint32(f.Data[14:]) % 4 {
	case 0:
		return driver.Pass
	case 1:
		return driver.Drop
	case 2:
		return driver.Tx
	}
	return driver.RedirectTo(1)
}

func programTests() []Test {
	return []Test{
		{Name: "ProgramVerdicts", Config: driver.Config{Queues: 2, RxRing: 64, Receiving: driver.Receiving{Program: byNumber}}, Run: func(e *Env) {
			const n = 400
			frames := Frames(e.NIC.MAC(), n, 100)
			e.Background(func(e *Env) { e.Send(frames...) })
			var want [4][][]byte
			for i, f := range frames {
				want[i%4] = append(want[i%4], f)
			}
			var got [2][][]byte
			var pkts [16]driver.Packet
			home := -1
			e.Until("all frames were judged", func() bool {
				for q := range 2 {
					rx := e.NIC.RxQueue(q)
					k := rx.Poll(pkts[:])
					for i := range pkts[:k] {
						kind := binary.BigEndian.Uint32(pkts[i].Data[14:]) % 4
						got[kind&1] = append(got[kind&1], bytes.Clone(pkts[i].Data))
						if kind == 3 && q != 1 {
							e.Errorf("redirected to queue 1, polled from %d", q)
						}
						if kind == 0 {
							home = q
						}
					}
					rx.Release(pkts[:k])
				}
				return len(got[0])+len(got[1]) == n/2
			})
			e.Same(got[0], want[0])
			e.Same(got[1], want[3])
			e.Same(e.Arrived(n/4), want[2])
			s := e.NIC.RxQueue(home).ProgramStats()
			if (s != driver.ProgramStats{Passed: n / 4, Dropped: n / 4, Sent: n / 4, Redirected: n / 4}) {
				e.Errorf("%+v", s)
			}
		}},
		{Name: "ProgramPutsAHeaderInFront", Config: driver.Config{Receiving: driver.Receiving{Program: func(f *driver.Frame) driver.Verdict {
			old := slices.Clone(f.Data[:12])
			if !f.Extend(4) {
				return driver.Drop
			}
			copy(f.Data, old)
			copy(f.Data[12:], "\x81\x00\x00\x05")
			return driver.Tx
		}}}, Run: func(e *Env) {
			frames := Frames(e.NIC.MAC(), 20, 100)
			e.Background(func(e *Env) { e.Send(frames...) })
			e.Until("all were sent", func() bool {
				e.NIC.RxQueue(0).Poll(make([]driver.Packet, 8))
				return e.NIC.RxQueue(0).ProgramStats().Sent == 20
			})
			for i, f := range frames {
				frames[i] = slices.Concat(f[:12], []byte{0x81, 0, 0, 5}, f[12:])
			}
			e.Same(e.Arrived(20), frames)
		}},
		{Name: "ProgramIsToggledUnderTrafficWithPagesInFlight", Config: driver.Config{Queues: 2, RxRing: 64, TxRing: 64, Receiving: driver.Receiving{Program: byNumber}}, Run: func(e *Env) {
			const n = 3000
			e.Background(func(e *Env) { e.Send(Frames(e.NIC.MAC(), n, 100)...) })
			var sent uint64
			var held []driver.Packet
			var pkts [16]driver.Packet
			polled, round := 0, 0
			e.Until("all frames were seen", func() bool {
				for q := range 2 {
					rx := e.NIC.RxQueue(q)
					k := rx.Poll(pkts[:])
					polled += k
					held = append(held, pkts[:k]...)
					if round++; round%7 == 0 {
						p := driver.Program(byNumber)
						if round%14 == 0 {
							p = nil
						}
						e.Must(rx.SetProgram(p))
					}
				}
				if len(held) > 100 {
					e.NIC.ReleaseAll(held)
					held = held[:0]
				}
				var dropped uint64
				sent = 0
				for q := range 2 {
					s := e.NIC.RxQueue(q).ProgramStats()
					dropped, sent = dropped+s.Dropped+s.Full, sent+s.Sent
				}
				return polled+int(dropped+sent) == n
			})
			e.NIC.ReleaseAll(held)
			e.Arrived(int(sent))
		}},
		{Name: "SetProgramWantsAConfiguredOne", Run: func(e *Env) {
			if err := e.NIC.RxQueue(0).SetProgram(byNumber); err == nil {
				e.Errorf("a program without a send queue was loaded")
			}
		}},
	}
}
