package device

import (
	"encoding/binary"
	"testing"

	"cxkit/dma"
	"cxkit/prm"
)

// burstPort gives out the same frames again and again, as many as it is told to.
type burstPort struct {
	testPort
	frames [][]byte
	give   int
}

func (p *burstPort) Receive(frames [][]byte) int {
	n := copy(frames, p.frames[:p.give])
	p.give = 0
	return n
}

// cycleBench is a data bench that moves bursts with as little driver as possible.
type cycleBench struct {
	*dataBench
	port *burstPort
	rq   *testRQ
	sq   *testSQ
}

const benchBurst = 32

func newCycleBench(t testing.TB, size int) *cycleBench {
	b := &cycleBench{dataBench: dataBenchOn(t, newBench(t, Config{Memory: Memory{Included: 1 << 16}}))}
	b.port = &burstPort{testPort: testPort{room: -1, discard: true}}
	for i := range benchBurst {
		b.port.frames = append(b.port.frames, udpFrame(size-42, 0x0a000001+uint32(i), 0x0a000002, uint16(i), 9))
	}
	if _, err := b.card.Plug(0, b.port); err != nil {
		t.Fatal(err)
	}
	return b
}

// receiveCycle refills the ring, lets a burst come in and reads its completions.
func (b *cycleBench) receiveCycle() (n int) {
	b.rq.posted += benchBurst
	b.rq.ring0()
	b.port.give = benchBurst
	b.port.wake()
	b.card.Step(benchBurst)
	q := b.rq.cq
	for c := q.next(); c != nil; c = q.next() {
		n += int(c.ByteCnt() & 1)
		n++
	}
	q.release()
	return n
}

// sendCycle writes a burst of WQEs, one completion at the end, and reads it.
func (b *cycleBench) sendCycle(buf dma.Region, size int) {
	q := b.sq
	for i := range benchBurst {
		at := int(q.pi&(1<<q.log-1)) * 64
		w := q.ring.Bytes[at : at+64 : at+64]
		binary.BigEndian.PutUint64(w, uint64(q.pi)<<40|uint64(prm.WQESend)<<32|uint64(q.n)<<8|3)
		ce := uint64(0)
		if i == benchBurst-1 {
			ce = uint64(prm.CompletionAlways) << 2
		}
		binary.BigEndian.PutUint64(w[8:], ce<<32)
		binary.BigEndian.PutUint64(w[16:], 0)
		binary.BigEndian.PutUint64(w[24:], 0)
		binary.BigEndian.PutUint64(w[32:], uint64(size)<<32|uint64(b.key))
		binary.BigEndian.PutUint64(w[40:], buf.Bus+uint64(i)*2048)
		q.pi++
	}
	q.bell()
	b.card.Step(benchBurst)
	for q.cq.next() != nil {
	}
	q.cq.release()
}

// prefill writes all WQEs of the RQ once: the buffers are used again and again.
func (q *testRQ) prefill() {
	for i := range 1 << q.log {
		segment(q.wqe(uint16(i)), uint32(q.size), q.b.key, q.buf(uint16(i)).Bus)
	}
}

// linuxTables puts the tables that Linux makes before a TIR: PROMISC or VLAN, L2, TTC (reference 03 §9).
func (b *dataBench) linuxTables(tir uint32) {
	b.Helper()
	toTable := func(id uint32) prm.DestFormat {
		return prm.DestFormat{DestinationType: prm.DestinationFlowTable, DestinationID: id}
	}
	var ttcMask, value prm.MatchParam
	ttcMask.Outer.IPVersion, ttcMask.Outer.IPProtocol = 15, 0xff
	ttc, g := b.newTable(3, 7, 1, ttcMask)
	for i, proto := range []uint8{6, 17, 50, 51} {
		value = prm.MatchParam{}
		value.Outer.IPVersion, value.Outer.IPProtocol = 4, proto
		b.rule(ttc, g, uint32(2*i), value, 0, toTIR(tir))
		value.Outer.IPVersion = 6
		b.rule(ttc, g, uint32(2*i+1), value, 0, toTIR(tir))
	}
	var l2Mask prm.MatchParam
	copy(l2Mask.Outer.DMAC[:], "\xff\xff\xff\xff\xff\xff")
	l2, g := b.newTable(2, 16, 1, l2Mask)
	for i := range 64 {
		value = prm.MatchParam{}
		copy(value.Outer.DMAC[:], testFrame(60, 1))
		value.Outer.DMAC[5] += byte(i)
		b.rule(l2, g, uint32(i), value, 0, toTable(ttc))
	}
	var vlanMask prm.MatchParam
	vlanMask.Outer.CVLANTag = true
	vlan, g := b.newTable(1, 16, 1, vlanMask)
	b.rule(vlan, g, 0, prm.MatchParam{}, 0, toTable(l2))
	b.must(&prm.SetFlowTableRootIn{TableID: vlan}, &prm.SetFlowTableRootOut{})
}

func BenchmarkReceive(b *testing.B) {
	for _, c := range []struct {
		name  string
		size  int
		linux bool
		rss   bool
		idle  int // queue pairs beside
	}{{"64/direct", 64, false, false, 0}, {"64/linux tables, rss", 64, true, true, 0}, {"1514/direct", 1514, false, false, 0},
		{"64/one queue pair of 1024", 64, false, false, 1023}} {
		b.Run(c.name, func(b *testing.B) {
			t := newCycleBench(b, c.size)
			if c.idle > 0 {
				t.idle(c.idle)
				t.idleRQs(c.idle)
			}
			t.rq = t.newRQ(t.newCQ(9), 8, 2048)
			t.rq.prefill()
			t.rq.state(prm.QueueStateRST, prm.QueueStateRDY)
			tir := t.newTIR(t.rq)
			if c.rss {
				tir = t.newRSS([]uint32{t.rq.n}, 1)
			}
			if c.linux {
				t.linuxTables(tir)
			} else {
				t.all(tir)
			}
			for b.Loop() {
				if t.receiveCycle() != benchBurst {
					b.Fatal("not all frames arrived")
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchBurst, "ns/frame")
		})
	}
}

// newRSS makes an indirect TIR with a Toeplitz hash over the 4-tuple and an RQT of 1<<log entries.
func (b *dataBench) newRSS(rqns []uint32, entries int) uint32 {
	b.Helper()
	list := make([]uint32, entries)
	for i := range list {
		list[i] = rqns[i%len(rqns)]
	}
	var rqt prm.CreateRQTOut
	b.must(&prm.CreateRQTIn{Context: prm.RQTContext{RQTMaxSize: uint16(entries), RQTActualSize: uint16(entries)},
		RQNums: list}, &rqt)
	in := prm.CreateTIRIn{Context: prm.TIRContext{TransportDomain: b.td, DispType: prm.TIRDispIndirect,
		IndirectTable: rqt.RQTN, RXHashFn: prm.RXHashFnToeplitz, RXHashSymmetric: true}}
	in.Context.RXHashFieldSelectorOuter = prm.RXHashFieldSelect{L4ProtType: prm.L4ProtUDP, SelectedFields: 15}
	for i := range in.Context.RXHashToeplitzKey {
		in.Context.RXHashToeplitzKey[i] = byte(i*37 + 11)
	}
	var out prm.CreateTIROut
	b.must(&in, &out)
	return out.TIRN
}

// idle makes SQs in RDY that share a ring and a CQ, and never get work.
func (b *dataBench) idle(n int) {
	b.Helper()
	cq := b.newCQ(1)
	first := b.newSQ(cq, 1)
	for range n - 1 {
		in := prm.CreateSQIn{Context: prm.SQContext{CQN: cq.n}, PAS: pages(first.ring)}
		in.Context.WQ = prm.WQContext{WQType: prm.WQTypeCyclic, PD: b.pd, UARPage: b.uar, LogWQStride: 6, LogWQSz: 1,
			DBRAddr: first.record.Bus}
		var out prm.CreateSQOut
		b.must(&in, &out)
		(&testSQ{b: b, n: out.SQN}).state(prm.QueueStateRST, prm.QueueStateRDY)
	}
}

// idleRQs makes RQs in RDY that share a ring and a CQ, and never get frames.
func (b *dataBench) idleRQs(n int) {
	b.Helper()
	cq := b.newCQ(1)
	first := b.newRQ(cq, 1, 64)
	for range n - 1 {
		in := prm.CreateRQIn{Context: prm.RQContext{CQN: cq.n}, PAS: pages(first.ring)}
		in.Context.WQ = prm.WQContext{WQType: prm.WQTypeCyclic, PD: b.pd, LogWQStride: 4, LogWQSz: 1, DBRAddr: first.record.Bus}
		var out prm.CreateRQOut
		b.must(&in, &out)
		(&testRQ{b: b, n: out.RQN}).state(prm.QueueStateRST, prm.QueueStateRDY)
	}
}

func BenchmarkSend(b *testing.B) {
	for _, c := range []struct {
		name       string
		size, idle int
	}{{"64", 64, 0}, {"64, one queue pair of 1024", 64, 1023}, {"1514", 1514, 0}} {
		b.Run(c.name, func(b *testing.B) {
			size := c.size
			t := newCycleBench(b, size)
			if c.idle > 0 {
				t.idle(c.idle)
				t.idleRQs(c.idle)
			}
			t.sq = t.sender(8)
			buf := t.carve(benchBurst*2048, 4096)
			for b.Loop() {
				t.sendCycle(buf, size)
			}
			if t.port.sent != b.N*benchBurst {
				b.Fatalf("%d frames sent of %d", t.port.sent, b.N*benchBurst)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchBurst, "ns/frame")
		})
	}
}

func TestMovingFramesDoesNotAllocate(t *testing.T) {
	b := newCycleBench(t, 64)
	b.rq = b.newRQ(b.newCQ(9), 8, 2048)
	b.rq.prefill()
	b.rq.state(prm.QueueStateRST, prm.QueueStateRDY)
	b.linuxTables(b.newRSS([]uint32{b.rq.n}, 128))
	b.sq = b.sender(8)
	buf := b.carve(benchBurst*2048, 4096)
	b.receiveCycle()
	b.sendCycle(buf, 64)
	if n := testing.AllocsPerRun(100, func() {
		if b.receiveCycle() != benchBurst {
			t.Fatal("not all frames arrived")
		}
	}); n != 0 {
		t.Errorf("receive: %v allocations a burst", n)
	}
	if n := testing.AllocsPerRun(100, func() { b.sendCycle(buf, 64) }); n != 0 {
		t.Errorf("send: %v allocations a burst", n)
	}
}
