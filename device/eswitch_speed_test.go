package device

import (
	"runtime"
	"testing"

	"cxkit/prm"
)

// BenchmarkForwardToVport measures a frame from the physical function to a virtual one through one rule, and
// one received by a function without an e-switch, each with its WQEs, in ns a frame.
func BenchmarkForwardToVport(b *testing.B) {
	b.Run("through a rule", func(b *testing.B) {
		s := newSwitchBench(b, 1)
		table, group := s.fdb(prm.MatchMiscParameters, prm.MatchParam{Misc: prm.MatchMisc{SourcePort: 0xffff}})
		s.entry(table, group, 0, prm.MatchParam{}, prm.FlowContext{}, toVport(1))
		forwardLoop(b, s.dataBench, s.vfs[0])
	})
	b.Run("through one of 100,000 rules", func(b *testing.B) {
		s := newSwitchBench(b, 1)
		full := prm.MatchParam{Outer: prm.MatchLayer24{DMAC: broadcast}}
		s.function().appetite.Included = 1 << 20
		s.manyRules(100_000, full)
		forwardLoop(b, s.dataBench, s.vfs[0])
	})
	b.Run("received from the wire", func(b *testing.B) {
		d := newDataBench(b)
		q := d.receiver(8, 256)
		frames := make([][]byte, 64)
		for i := range frames {
			frames[i] = frameTo(vportMAC(1), vportMAC(0), byte(i))
		}
		n := 0
		for b.Loop() {
			q.post(64)
			d.port.rx = append(d.port.rx[:0], frames...)
			d.port.wake()
			d.card.Step(256)
			q.cq.ci += 64
			q.cq.release()
			n += 64
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/frame")
	})
}

// forwardLoop sends bursts of 64 frames.
func forwardLoop(b *testing.B, from, to *dataBench) {
	s, q := from.sender(8), to.receiver(8, 256)
	at := from.place(frameTo(vportMAC(1), vportMAC(0), 1))
	wqe := eth{segs: []any{at}}.bytes(from)
	n := 0
	for b.Loop() {
		q.post(64)
		for range 64 {
			s.put(prm.WQESend, prm.CompletionOnError, wqe)
		}
		s.bell()
		from.card.Step(256)
		q.cq.ci += 64
		q.cq.release()
		n += 64
	}
	if got := to.function().counters.rx.unicast.packets; got < uint64(n) {
		b.Fatalf("%d frames of %d came", got, n)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/frame")
}

// manyRules makes n rules for addresses, the last of which is that of vport 1.
func (b *switchBench) manyRules(n uint32, mask prm.MatchParam) {
	b.Helper()
	var t prm.CreateFlowTableOut
	b.must(&prm.CreateFlowTableIn{TableType: prm.FlowTableFDB, FlowTableContext: prm.FlowTableContext{LogSize: 17}}, &t)
	var g prm.CreateFlowGroupOut
	b.must(&prm.CreateFlowGroupIn{TableType: prm.FlowTableFDB, TableID: t.TableID, EndFlowIndex: 1<<17 - 1,
		MatchCriteriaEnable: prm.MatchOuterHeaders, MatchCriteria: mask}, &g)
	for i := range n {
		mac := [6]byte{2, 1, byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)}
		if i == n-1 {
			mac = vportMAC(1)
		}
		b.entry(t.TableID, g.GroupID, i, prm.MatchParam{Outer: prm.MatchLayer24{DMAC: mac}}, prm.FlowContext{}, toVport(1))
	}
	b.must(&prm.SetFlowTableRootIn{TableType: prm.FlowTableFDB, TableID: t.TableID}, &prm.SetFlowTableRootOut{})
}

func TestForwardingAllocatesNothing(t *testing.T) {
	s := newSwitchBench(t, 2)
	table, group := s.fdb(prm.MatchMiscParameters, prm.MatchParam{Misc: prm.MatchMisc{SourcePort: 0xffff}})
	s.entry(table, group, 0, prm.MatchParam{}, prm.FlowContext{Action: prm.FlowActionPushVLAN, PushVLAN: prm.VLANTag{EthType: 0x8100, VID: 3}}, toVport(1), toVport(2))
	s.entry(table, group, 1, prm.MatchParam{Misc: prm.MatchMisc{SourcePort: 1}}, prm.FlowContext{}, toVport(0))
	q, back := s.sender(6), s.vfs[0].sender(6)
	rx := []*testRQ{s.receiver(8, 256), s.vfs[0].receiver(8, 256, keepTags), s.vfs[1].receiver(8, 256)}
	wqe := eth{segs: []any{s.place(frameTo(vportMAC(1), vportMAC(0), 1))}}.bytes(s.dataBench)
	wqe1 := eth{segs: []any{s.vfs[0].place(frameTo(vportMAC(0), vportMAC(1), 1))}}.bytes(s.vfs[0])
	round := func() {
		for _, r := range rx {
			r.post(16)
		}
		for range 16 {
			q.put(prm.WQESend, prm.CompletionOnError, wqe)
			back.put(prm.WQESend, prm.CompletionOnError, wqe1)
		}
		q.bell()
		back.bell()
		s.card.Step(256)
		for _, r := range rx {
			r.cq.ci += 16
			r.cq.release()
		}
	}
	// What the bench allocates for WQEs is the same with a card that sends nothing.
	for range 10 {
		round()
	}
	puts := testing.AllocsPerRun(50, func() {
		for range 32 {
			(&testSQ{b: q.b, ring: q.ring, n: q.n, log: q.log}).put(prm.WQESend, prm.CompletionOnError, wqe)
		}
	})
	if n := testing.AllocsPerRun(50, round); n > puts {
		t.Errorf("%v allocations for 32 frames and 48 deliveries, %v of them the bench's", n, puts)
	}
}

func TestFunctionsTakeLittleMemory(t *testing.T) {
	grown := func(vfs int) uint64 {
		var before, after heapSize
		before.read()
		card, err := New(Config{VFs: vfs})
		if err != nil {
			t.Fatal(err)
		}
		after.read()
		defer card.Close()
		return after.heap - before.heap
	}
	one, all := grown(1), grown(maxVFs)
	if each := (all - one) / (maxVFs - 1); each > 1<<20 {
		t.Errorf("a virtual function that nobody uses takes %d bytes", each)
	} else {
		t.Logf("%d bytes a virtual function", each)
	}
}

// heapSize is what the heap holds.
type heapSize struct{ heap uint64 }

func (m *heapSize) read() {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	m.heap = s.HeapAlloc
}
