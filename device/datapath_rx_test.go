package device

import (
	"bytes"
	"testing"

	"cxkit/prm"
)

func TestReceiveScattersAndCompletes(t *testing.T) {
	b := newDataBench(t)
	q := b.receiver(4, 2048)
	q.post(16)
	frames := [][]byte{udpFrame(100, 0x0a000001, 0x0a000002, 1, 2), testFrame(60, 2), testFrame(1514, 3)}
	b.receive(frames...)
	cqes := q.cq.take()
	if len(cqes) != len(frames) {
		t.Fatalf("%d completions of %d", len(cqes), len(frames))
	}
	for i := range cqes {
		c := &cqes[i]
		if got := q.data(c); !bytes.Equal(got, frames[i]) {
			t.Errorf("frame %d:\n%x\nwant\n%x", i, got, frames[i])
		}
		if c.Opcode() != prm.CQEResponderSend || c.WQECounter() != uint16(i) || c.RQPN() != q.n || c.UserIndex() != 0x123456 {
			t.Errorf("frame %d: opcode %v counter %d rqn %#x index %#x", i, c.Opcode(), c.WQECounter(), c.RQPN(), c.UserIndex())
		}
		if want := refSum(frames[i][14:], 0); c.Checksum() != want {
			t.Errorf("frame %d: checksum %#x, want %#x", i, c.Checksum(), want)
		}
		if c.FTMetadata() != 0 || c.FlowTag() != 0 || c.Timestamp() == 0 {
			t.Errorf("frame %d: metadata %#x tag %#x time %d", i, c.FTMetadata(), c.FlowTag(), c.Timestamp())
		}
	}
	if c := &cqes[0]; !c.L3OK() || !c.L4OK() || !c.L2OK() || c.L3HdrType() != prm.L3HdrIPv4 || c.L4HdrType() != prm.L4HdrUDP {
		t.Errorf("UDP: ok %#x type %#x", c.HDSIPExt(), c.L4L3HdrType())
	}
	if c := &cqes[1]; c.L3OK() || c.L4OK() || c.L4L3HdrType() != 0 {
		t.Errorf("not IP: ok %#x type %#x", c.HDSIPExt(), c.L4L3HdrType())
	}
}

func TestReceiveUsesACompletelyFullRing(t *testing.T) {
	b := newDataBench(t)
	q := b.receiver(3, 256)
	for round := range 40 {
		q.post(8) // posted - consumed = ring size
		var frames [][]byte
		for i := range 8 {
			frames = append(frames, testFrame(60+i, byte(round)))
		}
		b.receive(frames...)
		cqes := q.cq.take()
		if len(cqes) != 8 {
			t.Fatalf("round %d: %d completions", round, len(cqes))
		}
		for i := range cqes {
			if !bytes.Equal(q.data(&cqes[i]), frames[i]) {
				t.Fatalf("round %d frame %d differs", round, i)
			}
		}
	}
}

func TestReceiveCountersWrapAt16Bits(t *testing.T) {
	b := newDataBench(t)
	q := b.receiver(10, 64)
	total := 0
	for total < 70_000 {
		q.post(1024)
		frames := make([][]byte, 1024)
		for i := range frames {
			frames[i] = testFrame(60, byte(total+i))
		}
		b.receive(frames...)
		for _, c := range q.cq.take() {
			if c.WQECounter() != uint16(total) || q.data(&c)[14] != testFrame(60, byte(total))[14] {
				t.Fatalf("frame %d: counter %d", total, c.WQECounter())
			}
			total++
		}
	}
}

// R35: no WQE posted, 48 frames.
func TestFramesWithoutBuffersCountOutOfBuffer(t *testing.T) {
	b := newDataBench(t)
	q := b.receiver(4, 256)
	frames := make([][]byte, 48)
	for i := range frames {
		frames[i] = testFrame(60, byte(i))
	}
	b.receive(frames...)
	if n := b.outOfBuffer(); n != 48 {
		t.Errorf("out_of_buffer %d, want 48", n)
	}
	p := b.card.ports[0]
	if p.counters.rx.frames != 48 || p.counters.rx.discards != 0 || p.counters.rx.octets != 48*64 {
		t.Errorf("port: %+v", p.counters.rx)
	}
	if n := b.function().counters.rx.unicast.packets; n != 48 {
		t.Errorf("vport: %d frames", n)
	}
	if len(q.cq.take()) != 0 {
		t.Error("completions without WQEs")
	}
}

func TestLosslessPortHoldsFramesUntilThereAreBuffers(t *testing.T) {
	b := newDataBench(t)
	b.port.lossless = true
	if _, err := b.card.Plug(0, b.port); err != nil {
		t.Fatal(err)
	}
	q := b.receiver(4, 256)
	var frames [][]byte
	for i := range 100 {
		frames = append(frames, testFrame(60+i, byte(i)))
	}
	b.receive(frames...)
	got := 0
	for got < len(frames) {
		q.post(7)
		b.settle()
		cqes := q.cq.take()
		if len(cqes) == 0 {
			t.Fatalf("nothing after %d frames", got)
		}
		for i := range cqes {
			if !bytes.Equal(q.data(&cqes[i]), frames[got]) {
				t.Fatalf("frame %d differs", got)
			}
			got++
		}
	}
	p := b.card.ports[0]
	if p.counters.rx.frames != 100 || b.outOfBuffer() != 0 || b.function().counters.rx.unicast.packets != 100 {
		t.Errorf("port %d, out of buffer %d, vport %d", p.counters.rx.frames, b.outOfBuffer(), b.function().counters.rx.unicast.packets)
	}
}

func TestHeldFramesAskTheEngineToLookAgain(t *testing.T) {
	b := newDataBench(t)
	b.port.lossless = true
	b.card.Plug(0, b.port)
	b.receiver(4, 256)
	b.port.rx = [][]byte{testFrame(60, 1)}
	b.port.wake()
	if _, state := b.card.step(64); state != workPoll {
		t.Errorf("state %v, want workPoll", state)
	}
}

func TestSizeRule(t *testing.T) {
	b := newDataBench(t)
	b.card.ports[0].adminMTU = 1522 // MTU 1500
	q := b.receiver(5, 2048)
	q.post(32)
	tagged := func(n int, tags ...uint32) []byte {
		f := udpFrame(0, 1, 2, 3, 4, tags...)
		return append(f, make([]byte, n-len(f))...)
	}
	b.receive(testFrame(0, 1), testFrame(13, 1)) // runts
	b.receive(testFrame(14, 1), testFrame(59, 2), testFrame(60, 3), testFrame(1514, 4))
	b.receive(testFrame(1515, 5), tagged(1519, 0x81000001), tagged(1523, 0x88a80001, 0x81000002))
	b.receive(tagged(1518, 0x81000001), tagged(1522, 0x88a80001, 0x81000002))
	b.receive(tagged(1523, 0x88a80001, 0x81000002, 0x81000003)) // two tags are all that add room
	cqes := q.cq.take()
	var sizes []int
	for i := range cqes {
		sizes = append(sizes, int(cqes[i].ByteCnt()))
		if cqes[i].VLANStripped() {
			sizes[i] += 4
		}
	}
	want := []int{60, 60, 60, 1514, 1518, 1522}
	if len(sizes) != len(want) {
		t.Fatalf("delivered %v, want %v", sizes, want)
	}
	for i := range want {
		if sizes[i] != want[i] {
			t.Fatalf("delivered %v, want %v", sizes, want)
		}
	}
	if got, pad := q.data(&cqes[0]), testFrame(14, 1); !bytes.Equal(got[:14], pad) || !bytes.Equal(got[14:], make([]byte, 46)) {
		t.Errorf("padded frame %x", got)
	}
	p := &b.card.ports[0].counters
	if p.undersize != 2 || p.oversize != 4 || p.rx.frames != 6 {
		t.Errorf("undersize %d oversize %d good %d, want 2, 4, 6", p.undersize, p.oversize, p.rx.frames)
	}
}

func TestVLANIsStrippedUnlessDisabled(t *testing.T) {
	b := newDataBench(t)
	q := b.receiver(4, 256)
	q.post(16)
	for name, c := range map[string]struct {
		tags  []uint32
		strip bool
	}{
		"C tag":         {[]uint32{0x8100a123}, true},
		"S tag":         {[]uint32{0x88a80123}, false},
		"C tag in S":    {[]uint32{0x88a80123, 0x81000002}, false},
		"C tag, then C": {[]uint32{0x81000123, 0x81000002}, true},
	} {
		for _, vsd := range []bool{false, true} {
			in := prm.ModifyRQIn{RQState: prm.QueueStateRDY, RQN: q.n, ModifyBitmask: rqVSD}
			in.Context.State, in.Context.VSD = prm.QueueStateRDY, vsd
			b.must(&in, &prm.ModifyRQOut{})
			frame := udpFrame(80, 1, 2, 3, 4, c.tags...)
			b.receive(frame)
			q.post(1)
			cqes := q.cq.take()
			if len(cqes) != 1 {
				t.Fatalf("%s: %d completions", name, len(cqes))
			}
			want, info := frame, uint16(0)
			if c.strip && !vsd {
				want = append(append([]byte{}, frame[:12]...), frame[16:]...)
				info = uint16(c.tags[0])
			}
			if got := q.data(&cqes[0]); !bytes.Equal(got, want) {
				t.Errorf("%s, vsd %v:\n%x\nwant\n%x", name, vsd, got, want)
			}
			if cqes[0].VLANStripped() != (info != 0) || cqes[0].VLANInfo() != info {
				t.Errorf("%s, vsd %v: cv %v info %#x", name, vsd, cqes[0].VLANStripped(), cqes[0].VLANInfo())
			}
			if sum := refSum(want[14:], 0); cqes[0].Checksum() != sum {
				t.Errorf("%s, vsd %v: checksum %#x, want that of the bytes in memory, %#x", name, vsd, cqes[0].Checksum(), sum)
			}
			if !cqes[0].L4OK() {
				t.Errorf("%s: L4 is not ok", name)
			}
		}
	}
}

func TestReceiveScattersOverSegments(t *testing.T) {
	b := newDataBench(t)
	q := b.receiver(2, 2048, func(in *prm.CreateRQIn) { in.Context.WQ.LogWQStride = 6 })
	buf := q.buf(0)
	w := q.wqe(0)
	segment(w, 1<<31|100, b.key, buf.Bus) // bit 31 is a hint
	segment(w[16:], 0, b.key, buf.Bus+999)
	segment(w[32:], 20, b.key, buf.Bus+500)
	segment(w[48:], 900, b.key, buf.Bus+1000)
	q.posted = 1
	q.ring0()
	frame := udpFrame(600, 1, 2, 3, 4, 0x81000007)
	b.receive(frame)
	cqes := q.cq.take()
	if len(cqes) != 1 || cqes[0].Opcode() != prm.CQEResponderSend {
		t.Fatalf("%d completions", len(cqes))
	}
	want := append(append([]byte{}, frame[:12]...), frame[16:]...)
	got := append(append(append([]byte{}, buf.Bytes[:100]...), buf.Bytes[500:520]...), buf.Bytes[1000:1000+len(want)-120]...)
	if !bytes.Equal(got, want) || int(cqes[0].ByteCnt()) != len(want) {
		t.Errorf("%x\nwant\n%x", got, want)
	}
}

func TestTooLongForItsWQEIsDroppedAndCounted(t *testing.T) {
	b := newDataBench(t)
	q := b.receiver(2, 128, func(in *prm.CreateRQIn) { in.Context.WQ.LogWQStride = 5 })
	q.post(4) // one segment, then the terminator
	b.receive(testFrame(129, 1), testFrame(128, 2))
	cqes := q.cq.take()
	if len(cqes) != 1 || cqes[0].WQECounter() != 0 || cqes[0].ByteCnt() != 128 {
		t.Fatalf("completions %v", cqes)
	}
	if n := b.function().counters.wqeTooSmall; n != 1 {
		t.Errorf("eth_wqe_too_small %d, want 1", n)
	}
}

func TestReceiveWithABadKeyEndsInErrorAndFlushes(t *testing.T) {
	b := newDataBench(t)
	q := b.receiver(3, 256)
	q.post(4)
	segment(q.wqe(1), 256, 0xdead00, q.buf(1).Bus)
	b.receive(testFrame(60, 1), testFrame(60, 2), testFrame(60, 3))
	cqes := q.cq.take()
	if len(cqes) != 4 {
		t.Fatalf("%d completions, want data, error and two flushed", len(cqes))
	}
	for i, want := range []struct {
		op  prm.CQEOpcode
		syn prm.CQESyndrome
	}{
		{prm.CQEResponderSend, 0},
		{prm.CQEResponderError, prm.CQESyndromeLocalProtection},
		{prm.CQEResponderError, prm.CQESyndromeFlushed},
		{prm.CQEResponderError, prm.CQESyndromeFlushed},
	} {
		c := (*prm.ErrorCQE)(&cqes[i])
		if cqes[i].Opcode() != want.op || i > 0 && c.Syndrome() != want.syn || c.WQECounter() != uint16(i) {
			t.Errorf("completion %d: %v syndrome %v counter %d", i, cqes[i].Opcode(), c.Syndrome(), c.WQECounter())
		}
	}
	var out prm.QueryRQOut
	b.must(&prm.QueryRQIn{RQN: q.n}, &out)
	if out.Context.State != prm.QueueStateERR || b.function().counters.errorQueues != 1 {
		t.Errorf("state %v, %d error queues", out.Context.State, b.function().counters.errorQueues)
	}

	// Recovery as Linux does it: RST, RDY, everything from zero.
	q.state(prm.QueueStateERR, prm.QueueStateRST)
	q.posted = 0
	q.ring0()
	q.state(prm.QueueStateRST, prm.QueueStateRDY)
	q.post(2)
	b.receive(testFrame(77, 9))
	cqes = q.cq.take()
	if len(cqes) != 1 || cqes[0].WQECounter() != 0 || !bytes.Equal(q.data(&cqes[0]), testFrame(77, 9)) {
		t.Errorf("after recovery: %v", cqes)
	}
}

func TestAddressFilterStandsBeforeTheVport(t *testing.T) {
	b := newDataBench(t)
	b.promiscuous(false)
	q := b.receiver(5, 256)
	q.post(32)
	own := testFrame(60, 1)
	copy(own, b.function().vport.permanent[:])
	broadcast, group := testFrame(60, 2), testFrame(60, 3)
	copy(broadcast, bytes.Repeat([]byte{0xff}, 6))
	copy(group, []byte{1, 0, 0x5e, 1, 2, 3})
	b.receive(own, testFrame(60, 4), broadcast, group, own)
	if n := len(q.cq.take()); n != 3 {
		t.Errorf("%d frames, want 3", n)
	}
	f := b.function()
	if f.counters.rx.unicast.packets != 2 || f.counters.rx.broadcast.packets != 1 || f.counters.rx.multicast.packets != 0 {
		t.Errorf("vport: %+v", f.counters.rx)
	}
	if f.counters.steeringDiscard != 0 || b.card.ports[0].counters.rx.frames != 5 {
		t.Errorf("steering discard %d, port %d", f.counters.steeringDiscard, b.card.ports[0].counters.rx.frames)
	}
	b.promiscuous(true)
	b.receive(testFrame(60, 4), group)
	if n := len(q.cq.take()); n != 2 {
		t.Errorf("promiscuous: %d frames, want 2", n)
	}
	b.promiscuous(false)
	b.receive(testFrame(60, 4), group)
	if n := len(q.cq.take()); n != 0 {
		t.Errorf("promiscuous off again: %d frames", n)
	}
}

func TestMissedFramesCountSteeringDiscard(t *testing.T) {
	b := newDataBench(t)
	b.receive(testFrame(60, 1)) // no table at all
	q := b.newRQ(b.newCQ(4), 3, 256)
	q.state(prm.QueueStateRST, prm.QueueStateRDY)
	q.post(8)
	var mask, value prm.MatchParam
	mask.Outer.Ethertype, value.Outer.Ethertype = 0xffff, 0x0800
	table, group := b.newTable(0, 2, 1, mask)
	b.rule(table, group, 1, value, 0x77, toTIR(b.newTIR(q)))
	b.must(&prm.SetFlowTableRootIn{TableID: table}, &prm.SetFlowTableRootOut{})
	b.receive(testFrame(60, 1), udpFrame(40, 1, 2, 3, 4), testFrame(60, 2))
	cqes := q.cq.take()
	if len(cqes) != 1 || cqes[0].FlowTag() != 0x77 {
		t.Errorf("completions %v", cqes)
	}
	if f := b.function(); f.counters.steeringDiscard != 3 || f.counters.rx.unicast.packets != 4 {
		t.Errorf("steering discard %d of %d", f.counters.steeringDiscard, f.counters.rx.unicast.packets)
	}
}

func TestMACControlFramesEndInThePort(t *testing.T) {
	b := newDataBench(t)
	q := b.receiver(3, 256)
	q.post(8)
	pause := testFrame(60, 1)
	copy(pause[12:], []byte{0x88, 0x08, 0x00, 0x01})
	odd := testFrame(60, 1)
	copy(odd[12:], []byte{0x88, 0x08, 0x77, 0x77})
	length := testFrame(60, 1)
	copy(length[12:], []byte{0x00, 0x2e})
	wrong := testFrame(60, 1)
	copy(wrong[12:], []byte{0x00, 0x2f})
	between := testFrame(60, 1)
	copy(between[12:], []byte{0x05, 0xe0})
	b.receive(pause, odd, length, wrong, between)
	if n := len(q.cq.take()); n != 3 {
		t.Errorf("%d frames, want the three that are not MAC control", n)
	}
	p := &b.card.ports[0].counters
	if p.macControlRx != 2 || p.pauseRx != 1 || p.unsupportedRx != 1 || p.inRangeLength != 1 || p.outOfRange != 1 || p.rx.frames != 5 {
		t.Errorf("%+v", p)
	}
}

func TestReplicatedFramesReachEveryTIR(t *testing.T) {
	b := newDataBench(t)
	var tirs []prm.DestFormat
	var rqs []*testRQ
	for range 3 {
		q := b.newRQ(b.newCQ(4), 3, 256)
		q.state(prm.QueueStateRST, prm.QueueStateRDY)
		rqs = append(rqs, q)
		tirs = append(tirs, toTIR(b.newTIR(q)))
	}
	rqs[0].post(4)
	rqs[2].post(4)
	table, group := b.newTable(0, 0, 0, prm.MatchParam{})
	b.rule(table, group, 0, prm.MatchParam{}, 0, tirs...)
	b.must(&prm.SetFlowTableRootIn{TableID: table}, &prm.SetFlowTableRootOut{})
	b.receive(testFrame(99, 1))
	for i, want := range []int{1, 0, 1} {
		if cqes := rqs[i].cq.take(); len(cqes) != want {
			t.Errorf("RQ %d: %d frames, want %d", i, len(cqes), want)
		}
	}
	if n := b.outOfBuffer(); n != 1 {
		t.Errorf("out_of_buffer %d, want 1", n)
	}
}

func TestDropRQCountsFramesWhileTheInterfaceIsDown(t *testing.T) {
	b := newDataBench(t)
	// Linux points all RQTs at an RQ in RDY that never has WQEs.
	drop := b.newRQ(b.newCQ(1), 0, 256)
	drop.state(prm.QueueStateRST, prm.QueueStateRDY)
	var rqt prm.CreateRQTOut
	b.must(&prm.CreateRQTIn{Context: prm.RQTContext{RQTMaxSize: 2, RQTActualSize: 1}, RQNums: []uint32{drop.n}}, &rqt)
	var tir prm.CreateTIROut
	b.must(&prm.CreateTIRIn{Context: prm.TIRContext{TransportDomain: b.td, DispType: prm.TIRDispIndirect,
		IndirectTable: rqt.RQTN, RXHashFn: prm.RXHashFnInvertedXOR8}}, &tir)
	b.all(tir.TIRN)
	b.receive(testFrame(60, 1), testFrame(60, 2))
	if n := b.outOfBuffer(); n != 2 {
		t.Errorf("out_of_buffer %d, want 2", n)
	}
	// A change of the RQT takes effect with the next frame.
	q := b.newRQ(b.newCQ(3), 2, 256)
	q.state(prm.QueueStateRST, prm.QueueStateRDY)
	q.post(4)
	b.must(&prm.ModifyRQTIn{RQTN: rqt.RQTN, BitmaskRQNList: true, Context: prm.RQTContext{RQTActualSize: 2},
		RQNums: []uint32{q.n, q.n}}, &prm.ModifyRQTOut{})
	b.receive(testFrame(60, 3))
	if n := len(q.cq.take()); n != 1 || b.outOfBuffer() != 2 {
		t.Errorf("after MODIFY_RQT: %d frames, out of buffer %d", n, b.outOfBuffer())
	}
}
