package device

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"cxkit/dma"
	"cxkit/prm"
)

// extra makes an arena of its own, which a test may take away.
func (b *dataBench) extra(n int) *dma.Arena {
	b.Helper()
	a, err := b.fn.NewArena(n, dma.Heap)
	if err != nil {
		b.Fatal(err)
	}
	return a
}

func TestRingsOfScatteredPagesWork(t *testing.T) {
	b := newDataBench(t)
	// 64 WQEs of 256 bytes lie in four pages, in another order and with holes between them; CQEs, too.
	area := b.carve(16*dma.PageSize, dma.PageSize)
	page := func(i int) dma.Region { return area.Slice(i*dma.PageSize, dma.PageSize) }
	rqPages, cqPages := []int{5, 2, 9, 0}, []int{14, 11}
	cq := b.newCQ(7, func(in *prm.CreateCQIn) { in.PAS = []uint64{page(14).Bus, page(11).Bus} })
	for _, p := range cqPages {
		for at := 63; at < dma.PageSize; at += 64 {
			page(p).Bytes[at] = prm.CQEOwnInit
		}
	}
	q := b.newRQ(cq, 6, 1600, func(in *prm.CreateRQIn) { in.Context.WQ.LogWQStride = 8 })
	b.must(&prm.DestroyRQIn{RQN: q.n}, &prm.DestroyRQOut{})
	in := prm.CreateRQIn{Context: prm.RQContext{CQN: cq.n, VSD: true}}
	in.Context.WQ = prm.WQContext{WQType: prm.WQTypeCyclic, PD: b.pd, LogWQStride: 8, LogWQSz: 6, DBRAddr: q.record.Bus}
	for _, p := range rqPages {
		in.PAS = append(in.PAS, page(p).Bus)
	}
	var out prm.CreateRQOut
	b.must(&in, &out)
	q.n = out.RQN
	q.state(prm.QueueStateRST, prm.QueueStateRDY)
	b.all(b.newTIR(q))
	for i := range uint16(64) {
		w := page(rqPages[i/16]).Bytes[int(i%16)*256:]
		segment(w, 1600, b.key, q.buf(i).Bus)
		segment(w[16:], 0, prm.TerminateScatterLKey, 0)
	}
	for round := range 5 {
		q.posted += 64
		q.ring0()
		var frames [][]byte
		for i := range 64 {
			frames = append(frames, testFrame(60+20*i, byte(round)))
		}
		b.receive(frames...)
		for i := range 64 {
			n := round*64 + i
			slot := page(cqPages[n/64%2]).Bytes[n%64*64:][:64]
			c := (*prm.CQE)(slot)
			if dma.LoadBE32(slot, 60)&1 != uint32(n)>>7&1 || int(c.ByteCnt()) != len(frames[i]) || !bytes.Equal(q.data(c), frames[i]) {
				t.Fatalf("round %d frame %d: %x", round, i, slot)
			}
		}
		dma.StoreBE32(cq.record.Bytes, 0, uint32(64*round+64))
	}
}

func TestRingsMayStartInsideAPage(t *testing.T) {
	b := newDataBench(t)
	var area dma.Region
	q := b.newSQ(b.newCQ(4), 5, func(in *prm.CreateSQIn) {
		in.Context.WQ.PageOffset = 17 // of 64ths of a page
		area = b.carve(2*dma.PageSize, dma.PageSize)
		in.PAS = []uint64{area.Bus}
	})
	q.ring = area.Slice(17*64, 64<<5)
	q.state(prm.QueueStateRST, prm.QueueStateRDY)
	for i := range 70 {
		frame := testFrame(60+i, byte(i))
		q.send(eth{segs: []any{b.place(frame)}})
		b.sendsExactly(frame)
		q.cq.take()
	}
}

func TestMemoryTakenAwayInMidRun(t *testing.T) {
	type parts struct {
		b      *dataBench
		rq     *testRQ
		sq     *testSQ
		gone   *dma.Arena
		region dma.Region
	}
	for name, c := range map[string]struct {
		set   func(p *parts)
		event prm.EventType // 0: an error completion instead
	}{
		"receive buffers": {func(p *parts) {
			for i := range uint16(16) {
				segment(p.rq.wqe(i), 256, p.b.key, p.gone.Bus()+uint64(i)*256)
			}
		}, 0},
		"RQ record": {func(p *parts) { p.rq.record = p.region }, prm.EventWQAccess},
		"RQ ring":   {func(p *parts) { p.rq.ring = p.region }, prm.EventWQAccess},
		"SQ record": {func(p *parts) { p.sq.record = p.region }, prm.EventWQAccess},
		"SQ ring":   {func(p *parts) { p.sq.ring = p.region }, prm.EventWQAccess},
		"CQ ring":   {func(p *parts) { p.sq.cq.ring = p.region }, prm.EventCQError},
		"CQ record": {func(p *parts) { p.sq.cq.record = p.region }, prm.EventCQError},
	} {
		t.Run(name, func(t *testing.T) {
			b := newDataBench(t)
			gone := b.extra(1 << 20)
			p := &parts{b: b, gone: gone, region: gone.Region(0, dma.PageSize)}
			// Queues are made by hand so that the part in question can lie in the arena that goes away.
			p.rq = &testRQ{b: b, log: 4, size: 256, stride: 16}
			p.sq = &testSQ{b: b, log: 4}
			p.rq.cq, p.sq.cq = b.newCQ(5), &testCQ{b: b, log: 2, stride: 6}
			p.rq.ring, p.rq.record = b.ring(4096)
			p.sq.ring, p.sq.record = b.ring(4096)
			p.sq.cq.ring, p.sq.cq.record = b.ring(4096)
			p.rq.bufs = b.carve(256<<4, 4096)
			c.set(p)
			for at := 63; at < 4096; at += 64 {
				p.sq.cq.ring.Bytes[at] = prm.CQEOwnInit
			}
			var cq prm.CreateCQOut
			b.must(&prm.CreateCQIn{Context: prm.CQContext{LogCQSize: 2, UARPage: b.uar, EQN: uint32(b.comp.n),
				DBRAddr: p.sq.cq.record.Bus}, PAS: []uint64{p.sq.cq.ring.Bus}}, &cq)
			p.sq.cq.n = cq.CQN
			rin := prm.CreateRQIn{Context: prm.RQContext{CQN: p.rq.cq.n}, PAS: []uint64{p.rq.ring.Bus}}
			rin.Context.WQ = prm.WQContext{WQType: prm.WQTypeCyclic, PD: b.pd, LogWQStride: 4, LogWQSz: 4, DBRAddr: p.rq.record.Bus}
			var rq prm.CreateRQOut
			b.must(&rin, &rq)
			sin := prm.CreateSQIn{Context: prm.SQContext{CQN: cq.CQN, TISLstSz: 1, TISNum0: b.tis}, PAS: []uint64{p.sq.ring.Bus}}
			sin.Context.WQ = prm.WQContext{WQType: prm.WQTypeCyclic, PD: b.pd, UARPage: b.uar, LogWQStride: 6, LogWQSz: 4, DBRAddr: p.sq.record.Bus}
			var sq prm.CreateSQOut
			b.must(&sin, &sq)
			p.rq.n, p.sq.n = rq.RQN, sq.SQN
			p.rq.state(prm.QueueStateRST, prm.QueueStateRDY)
			p.sq.state(prm.QueueStateRST, prm.QueueStateRDY)
			b.all(b.newTIR(p.rq))
			if name != "receive buffers" {
				p.rq.prefill()
			}
			p.rq.posted = 4
			p.rq.ring0()
			frame := b.place(testFrame(60, 1))
			b.receive(testFrame(60, 1))
			p.sq.put(prm.WQESend, prm.CompletionAlways, eth{segs: []any{frame}}.bytes(b))
			p.sq.ring0()
			if len(p.rq.cq.take()) != 1 || len(p.sq.cq.take()) != 1 || len(b.port.tx) != 1 {
				t.Fatal("does not work before the memory goes away")
			}
			// Copies of what goes away, so that the test can go on using its own side.
			for _, r := range []*dma.Region{&p.rq.ring, &p.rq.record, &p.sq.ring, &p.sq.record, &p.sq.cq.ring, &p.sq.cq.record} {
				if r.Bus == p.region.Bus {
					r.Bytes = slices.Clone(r.Bytes)
				}
			}
			if err := gone.Close(); err != nil {
				t.Fatal(err)
			}
			b.errors(0)
			for range 6 {
				p.rq.posted = 8
				p.rq.ring0()
				b.receive(testFrame(60, 2), testFrame(60, 3))
				p.sq.put(prm.WQESend, prm.CompletionAlways, eth{segs: []any{frame}}.bytes(b))
				p.sq.ring0()
			}
			if c.event != 0 {
				if n := b.errors(c.event); n != 1 {
					t.Errorf("%d events %v, want 1", n, c.event)
				}
				return
			}
			failed := 0
			for _, e := range p.rq.cq.take() {
				if e.Opcode() == prm.CQEResponderError && (*prm.ErrorCQE)(&e).Syndrome() == prm.CQESyndromeLocalProtection {
					failed++
				}
			}
			if failed != 1 {
				t.Errorf("%d protection errors, want 1", failed)
			}
		})
	}
}

func TestFramesThroughTranslatedKeys(t *testing.T) {
	b := newDataBench(t)
	// A key of four scattered pages that starts inside its first page.
	area := b.carve(16*dma.PageSize, dma.PageSize)
	order := []int{7, 3, 12, 1}
	const start = 0x7000_0000_0100
	in := prm.CreateMKeyIn{Context: prm.MKeyContext{LR: true, LW: true, PD: b.pd, QPN: prm.MKeyAnyQPN, MKey7_0: 9,
		StartAddr: start, Length: 4*dma.PageSize - 0x100, LogPageSize: 12, TranslationsOctwordSize: 2}}
	in.Context.SetAccessMode(prm.MKeyAccessMTT)
	for _, p := range order {
		in.Translations = append(in.Translations, area.Bus+uint64(p)*dma.PageSize|prm.MTTRead|prm.MTTWrite)
	}
	in.TranslationsOctwordActualSize = 2
	var out prm.CreateMKeyOut
	b.must(&in, &out)
	key := out.MKeyIndex<<8 | 9
	at := func(off int) []byte {
		off += 0x100
		return area.Bytes[order[off/dma.PageSize]*dma.PageSize+off%dma.PageSize:][:1]
	}
	rq := b.receiver(2, 256, func(in *prm.CreateRQIn) { in.Context.VSD = true })
	segment(rq.wqe(0), 9000, key, start+50)
	rq.posted = 1
	rq.ring0()
	frame := testFrame(8000, 1)
	b.receive(frame)
	if c := rq.cq.take(); len(c) != 1 || c[0].Opcode() != prm.CQEResponderSend {
		t.Fatalf("completions %x", c)
	}
	for i := range frame {
		if at(50 + i)[0] != frame[i] {
			t.Fatalf("byte %d differs", i)
		}
	}
	sq := b.sender(3)
	sq.send(eth{key: key, segs: []any{dma.Region{Bytes: frame, Bus: start + 50}}})
	b.sendsExactly(frame)
}

func TestPostedCounterBeyondTheRing(t *testing.T) {
	b := newDataBench(t)
	q := b.sender(4)
	dma.StoreBE32(q.record.Bytes, 4, 0x8000)
	b.regs.Store64(uint64(b.uar)<<uarShift+prm.UARBlueFlameOff, uint64(q.n)<<8)
	b.settle()
	cqes := q.cq.take()
	if len(cqes) == 0 || (*prm.ErrorCQE)(&cqes[0]).Syndrome() != prm.CQESyndromeLocalQPOp {
		t.Errorf("%d completions", len(cqes))
	}
	if len(cqes) > 16 {
		t.Errorf("%d completions of a queue of 16", len(cqes))
	}
	rq := b.receiver(2, 256)
	rq.prefill()
	dma.StoreBE32(rq.record.Bytes, 0, 0xfedc0000|0x7fff)
	for range 3 {
		b.receive(testFrame(60, 1), testFrame(60, 2))
	}
	if n := len(rq.cq.take()); n != 6 {
		t.Errorf("%d frames, want 6", n)
	}
}

func TestDestroyedQueuesAreLeftAlone(t *testing.T) {
	b := newDataBench(t)
	b.port.room = 0
	q := b.sender(4)
	q.put(prm.WQESend, prm.CompletionAlways, eth{segs: []any{b.boxFrame(0)}}.bytes(b))
	q.ring0() // waits for the wire
	b.must(&prm.DestroySQIn{SQN: q.n}, &prm.DestroySQOut{})
	b.port.room = -1
	b.port.wake()
	b.settle()
	q.bell()
	b.settle()
	if len(b.port.tx) != 0 || len(q.cq.take()) != 0 {
		t.Error("a destroyed queue sent a frame")
	}
}

func TestResetForgetsQueuesAndTheirWork(t *testing.T) {
	b := newDataBench(t)
	b.port.room = 0
	q := b.sender(4)
	q.put(prm.WQESend, prm.CompletionAlways, eth{segs: []any{b.boxFrame(0)}}.bytes(b))
	q.ring0()
	rq := b.receiver(4, 256)
	rq.post(16)
	if err := b.fn.Reset(b.Context()); err != nil {
		t.Fatal(err)
	}
	b.port.room = -1
	b.receive(testFrame(60, 1))
	if len(b.port.tx) != 0 || len(q.cq.take()) != 0 || len(rq.cq.take()) != 0 {
		t.Error("queues of before the reset moved frames")
	}
	f := b.function()
	if f.cqs.Len()+f.rqs.Len()+f.sqs.Len()+f.tirs.Len()+f.tiss.Len()+f.rqts.Len() != 0 {
		t.Error("objects survived")
	}
}

// FuzzSend makes a send ring of bytes: whatever is in it, nothing panics, work is bounded, and the
// completions stay within the ring.
func FuzzSend(f *testing.F) {
	f.Add(uint16(1), make([]byte, 64))
	f.Add(uint16(3), bytes.Repeat([]byte{0, 0, 0, 10, 0, 0, 1, 3}, 32))
	f.Add(uint16(0xfff0), []byte{0, 0, 0, 10, 0, 0, 1, 4, 0, 0, 0, 8, 12: 0, 30: 0xff, 0x28: 0x80})
	f.Fuzz(func(t *testing.T, posted uint16, ring []byte) {
		b := newDataBench(t)
		q := b.sender(3, func(in *prm.CreateSQIn) { in.Context.RLKY = true })
		q.cq = b.newCQ(4)
		copy(q.ring.Bytes[:512], ring)
		// Half of the keys are good, and addresses often meet memory.
		rnd := rand.New(rand.NewPCG(uint64(posted), uint64(len(ring))))
		for at := 32; at+16 <= 512; at += 16 {
			if rnd.IntN(2) == 0 {
				binary.BigEndian.PutUint32(q.ring.Bytes[at+4:], b.key)
				binary.BigEndian.PutUint64(q.ring.Bytes[at+8:], b.arena.Bus()+uint64(rnd.IntN(9<<20)))
			}
		}
		for range 3 {
			dma.StoreBE32(q.record.Bytes, 4, uint32(posted))
			b.regs.Store64(uint64(b.uar)<<uarShift+prm.UARBlueFlameOff, uint64(q.n)<<8)
			b.settle()
			if n := len(q.cq.take()); n > 16 {
				t.Fatalf("%d completions of a ring of 8", n)
			}
			posted += 3
		}
		for _, frame := range b.port.tx {
			if len(frame) < 60 {
				t.Fatalf("a frame of %d bytes on the wire", len(frame))
			}
		}
	})
}

// FuzzReceive makes receive WQEs and frames of bytes: what comes in is delivered or counted.
func FuzzReceive(f *testing.F) {
	f.Add(uint16(4), make([]byte, 64), udpFrame(30, 1, 2, 3, 4))
	f.Add(uint16(9), bytes.Repeat([]byte{0, 0, 1, 0, 0, 0, 1, 0}, 32), testFrame(13, 1))
	f.Fuzz(func(t *testing.T, posted uint16, ring, frame []byte) {
		b := newDataBench(t)
		q := b.receiver(3, 256, func(in *prm.CreateRQIn) { in.Context.WQ.LogWQStride = 6 })
		copy(q.ring.Bytes[:512], ring)
		for at := 0; at+16 <= 512; at += 48 {
			binary.BigEndian.PutUint32(q.ring.Bytes[at+4:], b.key)
			binary.BigEndian.PutUint64(q.ring.Bytes[at+8:], b.arena.Bus()+uint64(binary.BigEndian.Uint32(q.ring.Bytes[at+8:]))%(9<<20))
		}
		// The bench's own queue, rings and completions lie in the same arena: a WQE may name them. Only
		// the card's books are looked at afterwards.
		dma.StoreBE32(q.record.Bytes, 0, uint32(posted))
		b.port.rx = [][]byte{frame, frame, frame, frame}
		b.port.wake()
		for range 50 {
			b.card.Step(64)
		}
		p, fn := &b.card.ports[0].counters, b.function()
		if p.rx.frames+p.undersize+p.oversize != 4 {
			t.Fatalf("%d good, %d too short, %d too long of 4", p.rx.frames, p.undersize, p.oversize)
		}
		if fn.counters.rx.unicast.packets+fn.counters.rx.multicast.packets+fn.counters.rx.broadcast.packets+p.macControlRx != p.rx.frames {
			t.Fatalf("vport %+v of %d", fn.counters.rx, p.rx.frames)
		}
	})
}

func TestStoppedTrafficTouchesNoMemory(t *testing.T) {
	b := newDataBench(t)
	q, rq := b.sender(4), b.receiver(4, 256)
	rq.post(4)
	q.put(prm.WQENop, prm.CompletionAlways, nil)
	b.must(&prm.TeardownHCAIn{Profile: prm.TeardownPrepareFast}, &prm.TeardownHCAOut{})
	q.ring0()
	b.receive(testFrame(60, 1))
	q.state(prm.QueueStateRDY, prm.QueueStateERR)
	rq.state(prm.QueueStateRDY, prm.QueueStateERR)
	if n := len(q.cq.take()) + len(rq.cq.take()); n != 0 || len(b.port.tx) != 0 {
		t.Errorf("%d completions after the function was told to stop", n)
	}
}
