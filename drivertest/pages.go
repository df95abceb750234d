package drivertest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"cxkit/driver"
)

// segment is a TCP segment of a flow without PSH, with right checksums.
func (f Flow) segment(n int, seq uint32) []byte {
	b := f.Packet(n, 0)
	t := b[f.l4Offset():]
	words := func() uint32 { return uint32(sum(t[4:8])) + uint32(sum(t[12:14])) }
	before := words()
	binary.BigEndian.PutUint32(t[4:], seq)
	t[13] = 0x10
	check := uint32(^binary.BigEndian.Uint16(t[16:])) + uint32(^sum(binary.BigEndian.AppendUint32(nil, before))) + words()
	for check>>16 != 0 {
		check = check&0xffff + check>>16
	}
	binary.BigEndian.PutUint16(t[16:], ^uint16(check))
	return b
}

// bulk is n full segments of a stream.
func (f Flow) bulk(n int) (list [][]byte) {
	for i := range n {
		list = append(list, f.segment(1448, uint32(i)*1448))
	}
	return list
}

// pageTests are about receive pages, merged packets and programs.
func pageTests() []Test {
	return slices.Concat(layoutTests(), memoryTests(), mergeTests(), programTests())
}

func layoutTests() (list []Test) {
	for _, c := range []struct {
		name   string
		layout driver.RxLayout
		page   int
	}{
		{"Halves", driver.RxHalves, 4 << 10}, {"HalvesOn64K", driver.RxHalves, 64 << 10}, {"PagePerSlot", driver.RxPagePerSlot, 4 << 10},
		{"PageFlip", driver.RxPageFlip, 4 << 10}, {"Blocks", driver.RxBlocks, 4 << 10}, {"Stack", driver.RxStack, 0},
	} {
		pages := driver.RxPages{RxLayout: c.layout, RxPageSize: c.page}
		list = append(list,
			Test{Name: "ReceivesOn" + c.name, Config: driver.Config{RxRing: 64, RxPages: pages}, Run: func(e *Env) {
				want := Frames(e.NIC.MAC(), 1500, 200)
				e.Background(func(e *Env) { e.Send(want...) })
				e.Same(e.Receive(0, len(want)), want)
			}},
			Test{Name: "ForwardsFrom" + c.name, Config: driver.Config{RxRing: 64, TxRing: 64, RxPages: pages}, Run: func(e *Env) {
				want := Frames(e.NIC.MAC(), 1000, 300)
				e.Background(func(e *Env) { e.Send(want...) })
				e.Background(func(e *Env) {
					var pkts [16]driver.Packet
					for n := 0; n < len(want); {
						k := e.Poll(0, pkts[:])
						e.SendPackets(0, pkts[:k])
						n += k
					}
				})
				e.Same(e.Arrived(len(want)), want)
			}},
		)
	}
	return list
}

func memoryTests() []Test {
	small := driver.Config{RxRing: 64, TxRing: 64, Buffers: 512}
	return []Test{
		{Name: "ConsumerThatKeepsPagesStallsNothing", Options: Options{Lossy: true}, Config: small, Run: func(e *Env) {
			mac := e.NIC.MAC()
			var held []driver.Packet
			for sent := uint32(0); sent < 1000; {
				frames := make([][]byte, 20)
				for i := range frames {
					frames[i] = Frame(mac, 60, sent)
					sent++
				}
				e.Send(frames...)
				e.Until("frames are counted", func() bool { return e.Counter("rx_packets_phy") == uint64(sent) })
				pkts := make([]driver.Packet, 32)
				held = append(held, pkts[:e.NIC.RxQueue(0).Poll(pkts)]...)
			}
			all := e.NIC.Config().Buffers
			if len(held) >= all || len(held) < all/2 {
				e.Errorf("%d frames held, of %d buffers", len(held), all)
			}
			lost := e.Counter("rx_out_of_buffer")
			if lost == 0 || e.NIC.RxQueue(0).Stats().NoBuffer == 0 {
				e.Errorf("%d frames without a buffer, %d times none to post", lost, e.NIC.RxQueue(0).Stats().NoBuffer)
			}
			// From another goroutine, half of them, not the oldest: the ring is filled at once.
			e.NIC.ReleaseAll(held[len(held)/2:])
			e.NIC.RxQueue(0).Poll(nil)
			again := Frames(mac, 30, 100)
			e.Send(again...)
			e.Same(e.Receive(0, len(again)), again)
			e.NIC.ReleaseAll(held)
		}},
		{Name: "NoMemoryThenRecoveryInOnePeriod", Options: Options{Lossy: true}, Config: small, Run: func(e *Env) {
			memory := e.NIC.RxMemory()
			if memory == nil {
				e.Fatalf("no pages")
			}
			mac := e.NIC.MAC()
			memory.Fail(0, 1)
			var held []driver.Packet
			pkts := make([]driver.Packet, 64)
			for len(held) < 64 || e.NIC.RxQueue(0).Posted() > 0 { // until nothing is posted
				e.Send(Frame(mac, 60, uint32(len(held))))
				held = append(held, pkts[:e.Poll(0, pkts)]...)
				if len(held) > 2000 {
					e.Fatalf("receiving without memory")
				}
			}
			if s := e.NIC.RxQueue(0).PageStats(); s.Failed == 0 || s.Order != 0 {
				e.Errorf("%+v", s)
			}
			memory.Fail(0, 0)
			// Nobody says that there is memory again: a wait looks for itself.
			begin := time.Now()
			ctx, cancel := context.WithTimeout(e.Ctx, 20*time.Second)
			defer cancel()
			e.Background(func(e *Env) {
				for i := uint32(0); ctx.Err() == nil; i++ {
					e.Send(Frame(mac, 60, i))
					time.Sleep(time.Millisecond)
				}
			})
			e.Receive(0, 1)
			cancel()
			if took := time.Since(begin); took > 10*time.Second {
				e.Errorf("receiving went on after %v", took)
			}
			e.NIC.ReleaseAll(held)
		}},
		{Name: "R46CloseNamesHoldersOfPages", Config: driver.Config{Queues: 2, RxRing: 64}, Run: func(e *Env) {
			mac := e.NIC.MAC()
			var pkts [8]driver.Packet
			e.Send(Frames(mac, len(pkts), 60)...)
			q, n := 0, 0
			for n == 0 {
				for q = range 2 {
					if n = e.NIC.RxQueue(q).Poll(pkts[:]); n > 0 {
						break
					}
				}
			}
			for n < len(pkts) {
				n += e.Poll(q, pkts[n:])
			}
			var got [3]driver.Packet
			if k := e.NIC.TxQueue(1).Get(got[:]); k != 3 {
				e.Fatalf("%d buffers", k)
			}
			nic := e.NIC
			e.NIC = nil
			err := nic.Close(e.Ctx)
			want := []driver.BuffersOutError{{Queue: q, Count: 8}, {Queue: 1, Transmit: true, Count: 3}}
			for _, w := range want {
				if !slices.ContainsFunc(outOf(err), func(b *driver.BuffersOutError) bool { return *b == w }) {
					e.Errorf("close: %v; want it to name %v", err, &w)
				}
			}
		}},
	}
}

// outOf lists the BuffersOutErrors in an error.
func outOf(err error) (list []*driver.BuffersOutError) {
	var one *driver.BuffersOutError
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range many.Unwrap() {
			list = append(list, outOf(e)...)
		}
		return list
	}
	if b, ok := err.(*driver.BuffersOutError); ok {
		return append(list, b)
	}
	if inner := errors.Unwrap(err); inner != nil {
		return outOf(inner)
	}
	if errors.As(err, &one) {
		list = append(list, one)
	}
	return list
}

func mergeTests() []Test {
	config := driver.Config{RxRing: 256, Receiving: driver.Receiving{GRO: true, GROTimeout: time.Hour}}
	return []Test{
		{Name: "GROMerges45SegmentsOn23Pages", Config: config, Run: func(e *Env) {
			flow := Flow{Dst: e.NIC.MAC(), Src: peer(), SrcPort: 5, DstPort: 6}
			frames := flow.bulk(45*4 + 1)
			e.Background(func(e *Env) { e.Send(frames...) })
			want := []byte{}
			for _, f := range frames {
				want = append(want, f[54:]...)
			}
			var got []byte
			for packet := range 4 {
				e.ReceiveEach(0, 1, func(p *driver.Packet) {
					if p.Segments() != 45 || p.Len() != 54+45*1448 {
						e.Errorf("packet %d: %d segments, %d bytes", packet, p.Segments(), p.Len())
					}
					if n := binary.BigEndian.Uint16(p.Data[16:]); int(n) != p.Len()-14 {
						e.Errorf("packet %d: IP says %d bytes", packet, n)
					}
					got = append(got, bytes.Join(slices.Collect(p.Fragments()), nil)[54:]...)
				})
			}
			if !bytes.Equal(got, want[:len(got)]) || len(got) != 180*1448 {
				e.Errorf("%d bytes, other than were sent", len(got))
			}
		}},
		{Name: "GROEndsWithPSHAndKeepsOrder", Config: config, Run: func(e *Env) {
			flow := Flow{Dst: e.NIC.MAC(), Src: peer(), SrcPort: 7, DstPort: 8}
			frames := flow.bulk(10)
			frames[7] = flow.segment(1448, 99) // not the next: what was merged comes before it
			e.Background(func(e *Env) { e.Send(frames[:8]...); e.Send(flow.Packet(100, 99+1448)) })
			var segments []int
			for len(segments) < 3 {
				e.ReceiveEach(0, 1, func(p *driver.Packet) { segments = append(segments, p.Segments()) })
			}
			// Packet has another IP identification, so it does not join the eighth.
			if !slices.Equal(segments, []int{7, 1, 1}) && !slices.Equal(segments, []int{7, 2}) {
				e.Errorf("packets of %v segments", segments)
			}
		}},
		{Name: "GROWithoutTimeoutHoldsNothingBack", Config: driver.Config{Receiving: driver.Receiving{GRO: true}}, Run: func(e *Env) {
			flow := Flow{Dst: e.NIC.MAC(), Src: peer(), SrcPort: 7, DstPort: 8}
			e.Send(flow.bulk(1)...)
			e.ReceiveEach(0, 1, func(p *driver.Packet) {
				if p.Segments() != 1 {
					e.Errorf("%d segments", p.Segments())
				}
			})
		}},
		{Name: "GROTimeoutDelivers", Config: driver.Config{Receiving: driver.Receiving{GRO: true, GROTimeout: 20 * time.Millisecond}}, Run: func(e *Env) {
			flow := Flow{Dst: e.NIC.MAC(), Src: peer(), SrcPort: 7, DstPort: 8, UDP: true}
			e.Send(flow.Packet(500, 0))
			e.ReceiveEach(0, 1, func(p *driver.Packet) {})
		}},
		{Name: "MergedPacketsAreSentAndReleasedAnywhere", Config: driver.Config{RxRing: 256, Offloads: driver.Offloads{LargeSend: true},
			Receiving: driver.Receiving{GRO: true, GROTimeout: time.Hour}}, Run: func(e *Env) {
			flow := Flow{Dst: e.NIC.MAC(), Src: peer(), SrcPort: 9, DstPort: 9}
			e.Background(func(e *Env) { e.Send(flow.bulk(91)...) })
			var pkts [2]driver.Packet
			for n := 0; n < 2; {
				n += e.Poll(0, pkts[n:])
			}
			e.NIC.ReleaseAll(pkts[1:])
			if n := e.NIC.TxQueue(0).Send(pkts[:1]); n != 1 || pkts[0].Segments() != 1 {
				e.Errorf("%d sent", n)
			}
			e.Flush(0) // cut, or dropped and counted: whatever the card's limits are, its buffers are back
		}},
	}
}
