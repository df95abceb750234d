package device

import (
	"bytes"
	"encoding/binary"
	"testing"

	"cxkit/dma"
	"cxkit/prm"
)

// sendsExactly checks what went to the wire.
func (b *dataBench) sendsExactly(frames ...[]byte) {
	b.Helper()
	if len(b.port.tx) != len(frames) {
		b.Fatalf("%d frames on the wire, want %d", len(b.port.tx), len(frames))
	}
	for i, want := range frames {
		if got := b.port.tx[i]; !bytes.Equal(got, want) {
			b.Errorf("frame %d:\n%x\nwant\n%x", i, got, want)
		}
	}
	b.port.tx = nil
}

func TestSendGathersAndCompletes(t *testing.T) {
	b := newDataBench(t)
	q := b.sender(4)
	frame := udpFrame(300, 1, 2, 3, 4)
	short := testFrame(33, 5)
	padded := append(append([]byte{}, short...), make([]byte, 27)...)
	parts := func(f []byte, at ...int) (segs []any) {
		last := 0
		for _, n := range append(at, len(f)) {
			segs = append(segs, b.place(f[last:n]))
			last = n
		}
		return segs
	}
	for name, c := range map[string]struct {
		e    eth
		want []byte
	}{
		"one segment":               {eth{segs: parts(frame)}, frame},
		"three segments":            {eth{segs: parts(frame, 14, 100)}, frame},
		"inline header":             {eth{inline: frame[:18], segs: parts(frame[18:])}, frame},
		"inline header of 1 byte":   {eth{inline: frame[:1], segs: parts(frame[1:])}, frame},
		"inline header of 2 bytes":  {eth{inline: frame[:2], segs: parts(frame[2:])}, frame},
		"inline header of 3 bytes":  {eth{inline: frame[:3], segs: parts(frame[3:])}, frame},
		"all inline":                {eth{inline: frame[:100], segs: []any{frame[100:]}}, frame},
		"inline data, then pointer": {eth{segs: append([]any{frame[:37]}, parts(frame[37:])...)}, frame},
		"an empty segment":          {eth{segs: []any{dma.Region{Bus: 1}, b.place(frame)}}, frame},
		"padded to 60":              {eth{segs: parts(short)}, padded},
		"inline and padded":         {eth{inline: short}, padded},
	} {
		at := q.pi
		q.send(c.e)
		t.Log(name)
		b.sendsExactly(c.want)
		cqes := q.cq.take()
		if len(cqes) != 1 || cqes[0].Opcode() != prm.CQERequester || cqes[0].WQECounter() != at ||
			cqes[0].SendOpcode() != prm.WQESend || cqes[0].QPN() != q.n || cqes[0].UserIndex() != 0x654321 {
			t.Fatalf("completions %x", cqes)
		}
	}
	f, p := b.function(), b.card.ports[0]
	if f.counters.tx.unicast.packets != 11 || p.counters.tx.frames != 11 || p.counters.tx.octets != 9*346+2*64 {
		t.Errorf("vport %+v port %+v", f.counters.tx.unicast, p.counters.tx)
	}
}

func TestSendIsZeroCopyForOneSegment(t *testing.T) {
	b := newDataBench(t)
	q := b.sender(4)
	r := b.place(testFrame(100, 1))
	q.put(prm.WQESend, prm.CompletionAlways, eth{segs: []any{r}}.bytes(b))
	dma.StoreBE32(q.record.Bytes, 4, uint32(q.pi))
	f := b.function()
	sq, _ := f.sqs.Get(q.n)
	f.begin()
	sq.Fetch(b.card.data.batch)
	if &b.card.data.batch.Items[0].Frame[0] != &r.Bytes[0] {
		t.Error("the frame was copied")
	}
	b.card.end()
}

func TestSendInsertsChecksums(t *testing.T) {
	b := newDataBench(t)
	q := b.sender(4)
	want := udpFrame(101, 0x0a000001, 0x0a000002, 53, 5353)
	blank := append([]byte{}, want...)
	copy(blank[24:26], []byte{0xde, 0xad}) // anything may be there
	copy(blank[40:42], []byte{0xbe, 0xef})
	r := b.place(blank)
	q.send(eth{cs: 0xc0, segs: []any{r}})
	b.sendsExactly(want)
	if !bytes.Equal(r.Bytes, blank) {
		t.Error("the card wrote to the frame in memory")
	}
	ipOnly := append([]byte{}, want...)
	copy(ipOnly[40:42], []byte{0xbe, 0xef})
	q.send(eth{cs: 0x40, segs: []any{b.place(blank)}})
	b.sendsExactly(ipOnly)
	q.send(eth{cs: 0xc0, inline: blank[:20], segs: []any{b.place(blank[20:])}})
	b.sendsExactly(want)
	plain := testFrame(60, 1)
	q.send(eth{cs: 0xc0, segs: []any{b.place(plain)}}) // not IP: left alone
	b.sendsExactly(plain)
}

func TestSendInsertsVLANTags(t *testing.T) {
	b := newDataBench(t)
	q := b.sender(4)
	frame := udpFrame(60, 1, 2, 3, 4)
	with := func(tag uint32) []byte {
		return append(binary.BigEndian.AppendUint32(append([]byte{}, frame[:12]...), tag), frame[12:]...)
	}
	q.send(eth{vlan: 1<<31 | 0xa123, segs: []any{b.place(frame)}})
	b.sendsExactly(with(0x8100a123))
	q.send(eth{vlan: 1<<31 | 1<<16 | 0x0007, segs: []any{b.place(frame)}})
	b.sendsExactly(with(0x88a80007))
	blank := append([]byte{}, frame...)
	blank[24], blank[40] = 0x55, 0x55
	q.send(eth{cs: 0xc0, vlan: 1<<31 | 5, segs: []any{b.place(blank[:14]), b.place(blank[14:])}})
	b.sendsExactly(with(0x81000005))
	if p := b.card.ports[0].counters.tx; p.prioFrames[5] != 1 || p.prioFrames[0] != 2 {
		t.Errorf("frames by priority %v", p.prioFrames)
	}
}

func TestCompletionModes(t *testing.T) {
	b := newDataBench(t)
	q := b.sender(4)
	frame := eth{segs: []any{b.place(testFrame(60, 1))}}.bytes(b)
	for _, ce := range []prm.CompletionMode{prm.CompletionOnError, prm.CompletionFirstError, prm.CompletionAlways, prm.CompletionSolicitedEvent} {
		q.put(prm.WQESend, ce, frame)
	}
	q.put(prm.WQENop, prm.CompletionOnError, nil)
	q.put(prm.WQENop, prm.CompletionAlways, nil)
	q.ring0()
	cqes := q.cq.take()
	if len(cqes) != 3 || cqes[0].WQECounter() != 2 || cqes[1].WQECounter() != 3 || cqes[2].WQECounter() != 5 {
		t.Fatalf("%d completions %x", len(cqes), cqes)
	}
	if cqes[0].SE() || !cqes[1].SE() || cqes[2].SendOpcode() != prm.WQENop {
		t.Errorf("solicited %v %v, opcode %v", cqes[0].SE(), cqes[1].SE(), cqes[2].SendOpcode())
	}
	if len(b.port.tx) != 4 {
		t.Errorf("%d frames", len(b.port.tx))
	}
}

// Linux kicks each channel at open with a NOP on an SQ without a TIS (reference 03 §5).
func TestNopCompletesOnAnSQWithoutTIS(t *testing.T) {
	b := newDataBench(t)
	q := b.sender(4, func(in *prm.CreateSQIn) { in.Context.TISLstSz, in.Context.TISNum0 = 0, 0 })
	q.cq.arm(false)
	b.comp.arm()
	q.put(prm.WQENop, prm.CompletionAlways, nil)
	q.ring0()
	e := b.comp.next()
	if e == nil || e.EventType() != prm.EventCompletion {
		t.Fatal("no completion event")
	}
	cqes := q.cq.take()
	if len(cqes) != 1 || cqes[0].Opcode() != prm.CQERequester || cqes[0].WQECounter() != 0 {
		t.Fatalf("completions %x", cqes)
	}
	q.send(eth{segs: []any{b.place(testFrame(60, 1))}})
	if c := (*prm.ErrorCQE)(q.cq.next()); c.Syndrome() != prm.CQESyndromeLocalQPOp || len(b.port.tx) != 0 {
		t.Errorf("a SEND without a TIS: %v", c.Syndrome())
	}
}

func TestSendRingWraps(t *testing.T) {
	b := newDataBench(t)
	q := b.sender(2) // four WQEBBs
	for i := range 50 {
		frame := testFrame(200+i, byte(i))
		// Inline data makes the WQE two to four blocks long, so it wraps at every place.
		q.send(eth{inline: frame[:20+i], segs: []any{b.place(frame[20+i:])}})
		b.sendsExactly(frame)
		if n := len(q.cq.take()); n != 1 {
			t.Fatalf("round %d: %d completions", i, n)
		}
	}
}

func TestManySendsInOneDoorbell(t *testing.T) {
	b := newDataBench(t)
	q := b.sender(9)
	var want [][]byte
	total := 0
	for round := range 140 { // past 65,536 WQEBBs
		for i := range 500 {
			q.put(prm.WQESend, prm.CompletionMode(2*(i%2)), eth{segs: []any{b.boxFrame(i)}}.bytes(b))
			if round == 0 {
				want = append(want, b.boxFrame(i).Bytes)
			}
		}
		q.ring0()
		if round == 0 {
			b.sendsExactly(want...)
			b.port.discard = true
		}
		cqes := q.cq.take()
		if len(cqes) != 250 {
			t.Fatalf("round %d: %d completions", round, len(cqes))
		}
		for i := range cqes {
			if want := uint16(total + 2*i + 1); cqes[i].WQECounter() != want {
				t.Fatalf("round %d: counter %d, want %d", round, cqes[i].WQECounter(), want)
			}
		}
		total += 500
	}
	if b.port.sent != total {
		t.Errorf("%d frames sent of %d", b.port.sent, total)
	}
}

// boxFrame is one of 16 frames in DMA memory, made when first asked for.
func (b *dataBench) boxFrame(i int) dma.Region {
	i %= 16
	for len(b.frames) <= i {
		b.frames = append(b.frames, b.place(testFrame(60+10*len(b.frames), byte(len(b.frames)))))
	}
	return b.frames[i]
}

func TestFullWireHoldsSends(t *testing.T) {
	b := newDataBench(t)
	q := b.sender(6)
	b.port.room = 5
	var want [][]byte
	for i := range 40 {
		q.put(prm.WQESend, prm.CompletionAlways, eth{segs: []any{b.boxFrame(i)}}.bytes(b))
		want = append(want, b.boxFrame(i).Bytes)
	}
	q.ring0()
	if n := len(q.cq.take()); n != 5 || len(b.port.tx) != 5 {
		t.Fatalf("%d completions, %d frames, want 5 of each", n, len(b.port.tx))
	}
	if b.card.Step(64) {
		t.Error("the engine is busy while the wire is full")
	}
	b.port.room = -1
	b.port.wake()
	b.settle()
	if n := len(q.cq.take()); n != 35 {
		t.Errorf("%d completions, want 35", n)
	}
	b.sendsExactly(want...)
	if p := b.card.ports[0].counters.tx; p.frames != 40 {
		t.Errorf("port counts %d frames", p.frames)
	}
}

func TestSendRespectsMTUAndLink(t *testing.T) {
	b := newDataBench(t)
	b.card.ports[0].adminMTU = 1522
	q := b.sender(4)
	ok := testFrame(1514, 1)
	q.send(eth{segs: []any{b.place(testFrame(1515, 1))}})
	q.send(eth{segs: []any{b.place(ok)}})
	b.sendsExactly(ok)
	b.port.down = true
	b.settle()
	q.send(eth{segs: []any{b.place(ok)}})
	b.sendsExactly()
	if p := b.card.ports[0].counters.tx; p.errors != 1 || p.discards != 1 || p.frames != 1 {
		t.Errorf("%+v", p)
	}
	if n := len(q.cq.take()); n != 3 {
		t.Errorf("%d completions, want one for each frame", n)
	}
}

func TestSendSteeringDropsAllowsAndCounts(t *testing.T) {
	b := newDataBench(t)
	q := b.sender(4)
	var counter prm.AllocFlowCounterOut
	b.must(&prm.AllocFlowCounterIn{}, &counter)
	var table prm.CreateFlowTableOut
	b.must(&prm.CreateFlowTableIn{TableType: prm.FlowTableNICTX, FlowTableContext: prm.FlowTableContext{LogSize: 2}}, &table)
	var group prm.CreateFlowGroupOut
	in := prm.CreateFlowGroupIn{TableType: prm.FlowTableNICTX, TableID: table.TableID, EndFlowIndex: 3, MatchCriteriaEnable: 1}
	in.MatchCriteria.Outer.UDPDPort = 0xffff
	b.must(&in, &group)
	rule := func(index uint32, port uint16, action prm.FlowAction) {
		in := prm.SetFlowTableEntryIn{TableType: prm.FlowTableNICTX, TableID: table.TableID, FlowIndex: index}
		in.FlowContext = prm.FlowContext{GroupID: group.GroupID, Action: action | prm.FlowActionCount, FlowCounterListSize: 1}
		in.FlowContext.MatchValue.Outer.UDPDPort = port
		in.Counters = []uint32{counter.FlowCounterID}
		b.must(&in, &prm.SetFlowTableEntryOut{})
	}
	rule(0, 7, prm.FlowActionDrop)
	rule(1, 8, prm.FlowActionAllow)
	b.must(&prm.SetFlowTableRootIn{TableType: prm.FlowTableNICTX, TableID: table.TableID}, &prm.SetFlowTableRootOut{})
	b.port.room = 1
	for port := uint16(7); port < 10; port++ {
		q.put(prm.WQESend, prm.CompletionAlways, eth{segs: []any{b.place(udpFrame(60, 1, 2, 3, port))}}.bytes(b))
	}
	q.ring0()
	b.port.room = -1
	b.port.wake()
	b.settle()
	b.sendsExactly(udpFrame(60, 1, 2, 3, 8), udpFrame(60, 1, 2, 3, 9))
	var out prm.QueryFlowCounterOut
	out.FlowStatistics = make([]prm.TrafficCounter, 1)
	b.must(&prm.QueryFlowCounterIn{FlowCounterID: counter.FlowCounterID, Clear: true}, &out)
	if s := out.FlowStatistics[0]; s.Packets != 2 || s.Octets != 204 {
		t.Errorf("flow counter %+v, want 2 packets, 204 octets", s)
	}
	if b.function().counters.txErrors.packets != 1 {
		t.Errorf("dropped %d", b.function().counters.txErrors.packets)
	}
}

func TestLocalLoopback(t *testing.T) {
	b := newDataBench(t)
	rq := b.receiver(4, 256)
	rq.post(16)
	sq := b.sender(4)
	own, group, other := testFrame(60, 1), testFrame(60, 2), testFrame(60, 3)
	copy(own, b.function().vport.permanent[:])
	copy(group, []byte{1, 0, 0x5e, 0, 0, 1})
	send := func() (wire, looped int) {
		for _, f := range [][]byte{own, group, other} {
			sq.send(eth{segs: []any{b.place(f)}})
		}
		wire = len(b.port.tx)
		b.port.tx = nil
		sq.cq.take()
		return wire, len(rq.cq.take())
	}
	modify := func(block uint8) {
		in := prm.ModifyTIRIn{TIRN: 1, BitmaskSelfLBEn: true}
		in.Context.SelfLBBlock = block
		b.must(&in, &prm.ModifyTIROut{})
	}
	disable := func(uc, mc bool) {
		in := prm.ModifyNICVportContextIn{FieldSelectDisableUCLocalLB: true, FieldSelectDisableMCLocalLB: true}
		in.NICVportContext.DisableUCLocalLB, in.NICVportContext.DisableMCLocalLB = uc, mc
		b.must(&in, &prm.ModifyNICVportContextOut{})
	}
	for _, c := range []struct {
		block        uint8
		noUC, noMC   bool
		wire, looped int
	}{
		{0, false, false, 3, 0},
		{1, false, false, 2, 1}, // unicast does not go to the wire, too
		{2, false, false, 3, 1}, // multicast does
		{3, false, false, 2, 2},
		{3, true, false, 3, 1},
		{3, true, true, 3, 0},
		{0, false, false, 3, 0},
	} {
		modify(c.block)
		disable(c.noUC, c.noMC)
		if wire, looped := send(); wire != c.wire || looped != c.looped {
			t.Errorf("block %d, disabled %v %v: %d to the wire, %d looped back; want %d and %d",
				c.block, c.noUC, c.noMC, wire, looped, c.wire, c.looped)
		}
	}
	if n := b.function().counters.loopback.packets; n != 5 {
		t.Errorf("local_loopback %d, want 5", n)
	}
}

func TestOneActiveQueueOfManyCostsTheSame(t *testing.T) {
	b := newDataBench(t)
	cq := b.newCQ(4)
	q := b.newSQ(cq, 2)
	q.state(prm.QueueStateRST, prm.QueueStateRDY)
	q.send(eth{segs: []any{b.boxFrame(0)}})
	if n := b.function().sender.pending.len(); n != 0 {
		t.Errorf("%d queues in the list of those with work", n)
	}
	for range 3 { // ringing again and again adds it once
		q.put(prm.WQENop, prm.CompletionOnError, nil)
		q.bell()
	}
	b.card.mu.Lock()
	b.card.begin()
	b.card.drain()
	if n := b.function().sender.pending.len(); n != 1 {
		t.Errorf("%d entries in the list for one queue", n)
	}
	b.card.end()
	b.card.mu.Unlock()
}
