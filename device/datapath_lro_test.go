package device

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"cxkit/device/wire"
	"cxkit/prm"
)

// segmentOf is a TCP segment over IPv4 with sound checksums.
func segmentOf(seq uint32, flags byte, payload []byte, edit ...func(f []byte)) []byte {
	f := append(tcpHeader(flags), payload...)
	binary.BigEndian.PutUint32(f[38:], seq)
	for _, e := range edit {
		e(f)
	}
	return finish(f)
}

// finish fills in lengths and checksums of an IPv4 TCP frame without tags.
func finish(f []byte) []byte {
	ip := f[14:]
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	binary.BigEndian.PutUint16(ip[10:], 0)
	binary.BigEndian.PutUint16(ip[10:], ^refSum(ip[:20], 0))
	binary.BigEndian.PutUint16(ip[36:], 0)
	binary.BigEndian.PutUint16(ip[36:], ^refSum(ip[12:], uint32(6+len(ip)-20)))
	return f
}

// newMerger is a striding RQ behind a TIR that merges.
func newMerger(t testing.TB) *strider {
	q := newStrider(t, 11)
	b := q.b
	var out prm.CreateTIROut
	b.must(&prm.CreateTIRIn{Context: prm.TIRContext{TransportDomain: b.td, InlineRQN: q.n, PacketMergeMask: 3,
		LROMaxIPPayloadSize: 40, LROTimeoutPeriodUsecs: 32}}, &out) // 10 KiB
	b.all(out.TIRN)
	return q
}

// large is what was received: a completion and its bytes.
type large struct {
	prm.CQE
	data []byte
}

func (q *strider) takeLarge() (got []large) {
	for _, c := range q.cq.take() {
		if c.ByteCnt()>>31 == 0 {
			got = append(got, large{c, q.at(c.WQEID(), int(c.WQECounter())*q.stride, int(c.ByteCnt()&0xffff))})
		}
	}
	return got
}

func part(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)*5 + seed
	}
	return b
}

func TestLargeReceive(t *testing.T) {
	q := newMerger(t)
	ttl := func(v byte) func([]byte) { return func(f []byte) { f[22] = v } }
	ack := func(f []byte) { binary.BigEndian.PutUint32(f[42:], 0x01020304); f[48], f[49] = 0x77, 0x66 }
	a, b, c := part(1448, 1), part(1448, 2), part(1001, 3)
	q.b.receive(segmentOf(100, 0x10, a), segmentOf(1548, 0x10, b, ttl(9)), segmentOf(2996, 0x18, c, ack))
	got := q.takeLarge()
	if len(got) != 1 {
		t.Fatalf("%d completions", len(got))
	}
	g := got[0]
	payload := slices.Concat(a, b, c)
	if g.LRONumSeg() != 3 || !bytes.Equal(g.data[54:], payload) || !bytes.Equal(g.data[:12], tcpHeader(0)[:12]) {
		t.Errorf("%d segments, %d bytes", g.LRONumSeg(), len(g.data))
	}
	if g.CQE[4] != 1<<6 || g.CQE[5] != 9 || binary.BigEndian.Uint16(g.CQE[6:]) != 0x7766 || binary.BigEndian.Uint32(g.CQE[8:]) != 0x01020304 {
		t.Errorf("push, ttl, window, ack: %x", g.CQE[4:12])
	}
	if g.Checksum() != refSum(payload, 0) {
		t.Errorf("checksum %#x is not the payload's %#x", g.Checksum(), refSum(payload, 0))
	}
	if typ := g.CQE[0x1d] >> 4 & 7; typ != 4 {
		t.Errorf("L4 type %d", typ)
	}

	// As Linux rewrites it, the frame is a sound TCP segment.
	f := bytes.Clone(g.data)
	ip := f[14:]
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	ip[8] = g.CQE[5]
	copy(ip[28:32], g.CQE[8:12])
	copy(ip[34:36], g.CQE[6:8])
	ip[33] |= 8
	ip[36], ip[37] = 0, 0
	sum := refSum(ip[20:40], uint32(g.Checksum()))
	sum = ^refSum(ip[12:20], uint32(sum)+uint32(6+len(ip)-20))
	binary.BigEndian.PutUint16(ip[36:], sum)
	if refSum(ip[12:], uint32(6+len(ip)-20)) != 0xffff {
		t.Error("the checksum that Linux makes of it is wrong")
	}
	vport := q.b.function().counters.rx.unicast
	if vport.packets != 3 || vport.octets != uint64(3*54+len(payload)) {
		t.Errorf("vport counters %+v", vport)
	}
}

// TestWhatEndsALargeReceive sends two segments that must not, or must, be merged.
func TestWhatEndsALargeReceive(t *testing.T) {
	a := part(500, 1)
	first := func(edit ...func([]byte)) []byte { return segmentOf(100, 0x10, a, edit...) }
	byteAt := func(i int, v byte) func([]byte) { return func(f []byte) { f[i] = v } }
	for name, c := range map[string]struct {
		frames [][]byte
		want   []uint8 // segments of each completion
	}{
		"follows":      {[][]byte{first(), segmentOf(600, 0x10, a)}, []uint8{2}},
		"gap":          {[][]byte{first(), segmentOf(601, 0x10, a)}, []uint8{0, 0}},
		"again":        {[][]byte{first(), first()}, []uint8{0, 0}},
		"FIN":          {[][]byte{first(), segmentOf(600, 0x11, a)}, []uint8{0, 0}},
		"ECE":          {[][]byte{first(), segmentOf(600, 0x50, a)}, []uint8{0, 0}},
		"no data":      {[][]byte{first(), segmentOf(600, 0x10, nil)}, []uint8{0, 0}},
		"TOS":          {[][]byte{first(), segmentOf(600, 0x10, a, byteAt(15, 3))}, []uint8{0, 0}},
		"other flow":   {[][]byte{first(), segmentOf(600, 0x10, a, byteAt(35, 81))}, []uint8{0, 0}},
		"by turns":     {[][]byte{first(), first(byteAt(35, 81)), segmentOf(600, 0x10, a), segmentOf(600, 0x10, a, byteAt(35, 81))}, []uint8{2, 2}},
		"other source": {[][]byte{first(), segmentOf(600, 0x10, a, byteAt(11, 9))}, []uint8{0, 0}},
		"longer":       {[][]byte{first(), segmentOf(600, 0x10, part(501, 1))}, []uint8{0, 0}},
		"shorter":      {[][]byte{first(), segmentOf(600, 0x10, part(499, 1)), segmentOf(1099, 0x10, a)}, []uint8{2, 0}},
		"push":         {[][]byte{segmentOf(100, 0x18, a), segmentOf(600, 0x10, a)}, []uint8{0, 0}},
		"push later":   {[][]byte{first(), segmentOf(600, 0x18, a), segmentOf(1100, 0x10, a)}, []uint8{2, 0}},
		"bad checksum": {[][]byte{first(), append(segmentOf(600, 0x10, a)[:553], 99)}, []uint8{0, 0}},
		"UDP between":  {[][]byte{first(), udpFrame(40, 1, 2, 3, 4), segmentOf(600, 0x10, a)}, []uint8{0, 2}},
		"size limit":   {[][]byte{segmentOf(0, 0x10, part(6000, 1)), segmentOf(6000, 0x10, part(6000, 1))}, []uint8{0, 0}},
		// lro_max_ip_payload_size, 10,240 here, counts the TCP header, too.
		"as long":  {[][]byte{segmentOf(0, 0x10, part(5110, 1)), segmentOf(5110, 0x10, part(5110, 1))}, []uint8{2}},
		"too long": {[][]byte{segmentOf(0, 0x10, part(5111, 1)), segmentOf(5111, 0x10, part(5111, 1))}, []uint8{0, 0}},
		"padded":   {[][]byte{segmentOf(100, 0x10, part(3, 1)), segmentOf(103, 0x10, part(3, 1))}, []uint8{2}},
	} {
		t.Run(name, func(t *testing.T) {
			q := newMerger(t)
			q.b.card.ports[0].adminMTU = 9000
			q.b.receive(c.frames...)
			var got []uint8
			bytes := 0
			for _, g := range q.takeLarge() {
				got = append(got, g.LRONumSeg())
				bytes += len(g.data)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("segments %v, want %v", got, c.want)
			}
		})
	}
}

// TestLargeReceiveOfACyclicQueue: only striding queues merge.
func TestLargeReceiveOfACyclicQueue(t *testing.T) {
	b := newDataBench(t)
	q := b.newRQ(b.newCQ(5), 4, 2048)
	q.state(prm.QueueStateRST, prm.QueueStateRDY)
	var out prm.CreateTIROut
	b.must(&prm.CreateTIRIn{Context: prm.TIRContext{TransportDomain: b.td, InlineRQN: q.n, PacketMergeMask: 3,
		LROMaxIPPayloadSize: 40, LROTimeoutPeriodUsecs: 32}}, &out)
	b.all(out.TIRN)
	q.post(4)
	b.receive(segmentOf(100, 0x10, part(500, 1)), segmentOf(600, 0x10, part(500, 1)))
	if n := len(q.cq.take()); n != 2 {
		t.Errorf("%d completions, want 2", n)
	}
}

// farPort is a port whose far side takes and gives large frames.
type farPort struct {
	testPort
	in  []wire.Frame
	out []wire.Frame
	on  bool
}

func (p *farPort) Offload(on bool) bool { p.on = on; return true }
func (p *farPort) ReceiveLarge(frames []wire.Frame) int {
	n := copy(frames, p.in)
	p.in = p.in[n:]
	return n
}
func (p *farPort) TransmitLarge(frames []wire.Frame) int {
	n := len(frames)
	if p.room >= 0 {
		n = min(n, p.room)
		p.room -= n
	}
	for _, f := range frames[:n] {
		p.out = append(p.out, wire.Frame{Data: bytes.Clone(f.Data), Meta: f.Meta})
	}
	return n
}

func (b *dataBench) plugFar() *farPort {
	b.Helper()
	p := &farPort{testPort: testPort{room: -1}}
	if _, err := b.card.Plug(0, p); err != nil {
		b.Fatal(err)
	}
	b.port = &p.testPort
	b.settle()
	return p
}

func (b *dataBench) receiveFar(p *farPort, frames ...wire.Frame) {
	p.in = append(p.in, frames...)
	p.wake()
	b.settle()
}

// TestLargeFrameFromThePort is one completion where its TIR and queue merge, and segments elsewhere.
func TestLargeFrameFromThePort(t *testing.T) {
	payload := part(6000, 4)
	frame := wire.Frame{Data: segmentOf(100, 0x18, payload), Meta: wire.Meta{Segment: 1448, Unfinished: true}}
	frame.Data[50] ^= 0x55 // the checksum is not finished
	t.Run("merged", func(t *testing.T) {
		q := newMerger(t)
		p := q.b.plugFar()
		q.b.receiveFar(p, frame)
		got := q.takeLarge()
		if len(got) != 1 || got[0].LRONumSeg() != 5 || !bytes.Equal(got[0].data[54:], payload) ||
			got[0].Checksum() != refSum(payload, 0) || got[0].CQE[4] != 1<<6 {
			t.Fatalf("completions %v", got)
		}
		if n := q.b.card.ports[0].counters.rx; n.frames != 5 || n.octets != uint64(5*58+len(payload)) {
			t.Errorf("port counters %+v: each segment counts", n)
		}
	})
	t.Run("cut", func(t *testing.T) {
		b := newDataBench(t)
		q := b.receiver(4, 2048)
		p := b.plugFar()
		q.post(16)
		b.receiveFar(p, wire.Frame{Data: bytes.Clone(frame.Data), Meta: frame.Meta})
		c := q.cq.take()
		var frames [][]byte
		for i := range c {
			frames = append(frames, q.data(&c[i]))
			if ok := c[i][0x1c]; ok != 7 {
				t.Errorf("segment %d: checks %#x", i, ok)
			}
		}
		if len(frames) != 5 {
			t.Fatalf("%d completions", len(frames))
		}
		at := 0
		for i, f := range frames {
			if binary.BigEndian.Uint32(f[38:]) != uint32(100+at) || !bytes.Equal(f[54:], payload[at:at+len(f)-54]) {
				t.Errorf("segment %d differs", i)
			}
			if push := f[47]&8 != 0; push != (i == 4) {
				t.Errorf("segment %d: PSH %v", i, push)
			}
			at += len(f) - 54
		}
	})
	t.Run("unfinished", func(t *testing.T) {
		b := newDataBench(t)
		q := b.receiver(4, 2048)
		p := b.plugFar()
		q.post(4)
		want := segmentOf(7, 0x10, part(90, 1))
		f := bytes.Clone(want)
		f[50], f[51] = 1, 2
		b.receiveFar(p, wire.Frame{Data: f, Meta: wire.Meta{Unfinished: true}}, wire.Frame{Data: testFrame(60, 1)},
			wire.Frame{Data: f[:20], Meta: wire.Meta{Segment: 5}}, wire.Frame{Data: f[:3], Meta: wire.Meta{Segment: 5}})
		c := q.cq.take()
		if len(c) != 2 || !bytes.Equal(q.data(&c[0]), want) {
			t.Fatalf("completions %v", c)
		}
	})
}

// TestLargeSendToALargePort leaves the cutting to the far side.
func TestLargeSendToALargePort(t *testing.T) {
	b := newDataBench(t)
	p := b.plugFar()
	if !p.on {
		t.Fatal("the card did not ask for large frames")
	}
	q := b.sender(6)
	data := b.place(testFrame(30_000, 3))
	q.large(tcpHeader(0x18), 1448, prm.CompletionAlways, data)
	p.room = 0
	q.ring0()
	p.room = -1
	p.wake()
	b.settle()
	if len(p.out) != 1 || p.out[0].Meta != (wire.Meta{Segment: 1448, Unfinished: true}) || !bytes.Equal(p.out[0].Data[54:], data.Bytes) {
		t.Fatalf("%d frames", len(p.out))
	}
	ip := p.out[0].Data[14:]
	if int(binary.BigEndian.Uint16(ip[2:])) != len(ip) || refSum(ip[:20], 0) != 0xffff ||
		binary.BigEndian.Uint16(ip[36:]) != refSum(ip[12:20], uint32(6+len(ip)-20)) {
		t.Errorf("header %x", ip[:40])
	}
	if n := b.card.ports[0].counters.tx; n.frames != 21 || n.octets != 21*58+30_000 {
		t.Errorf("port counters %+v: each segment counts", n)
	}
	if len(q.cq.take()) != 1 {
		t.Error("no completion")
	}
	// One that no IP datagram holds is cut by the card.
	p.out = nil
	q.large(tcpHeader(0x10), 1448, prm.CompletionAlways, data, data, data)
	q.ring0()
	if len(p.out) != 63 || p.out[0].Meta != (wire.Meta{}) {
		t.Errorf("%d frames", len(p.out))
	}
}

// TestStridesAndMergingDoNotAllocate: nor do compressed completions.
func TestStridesAndMergingDoNotAllocate(t *testing.T) {
	q := newStriderOn(t, 11, []func(*prm.CreateCQIn){compressed(3)})
	var out prm.CreateTIROut
	q.b.must(&prm.CreateTIRIn{Context: prm.TIRContext{TransportDomain: q.b.td, InlineRQN: q.n, PacketMergeMask: 3,
		LROMaxIPPayloadSize: 40, LROTimeoutPeriodUsecs: 32}}, &out)
	q.b.all(out.TIRN)
	port := &burstPort{testPort: testPort{room: -1, discard: true}}
	if _, err := q.b.card.Plug(0, port); err != nil {
		t.Fatal(err)
	}
	port.frames = [][]byte{segmentOf(100, 0x10, part(500, 1)), segmentOf(600, 0x10, part(500, 1)), udpFrame(20, 1, 2, 3, 4), udpFrame(21, 1, 2, 3, 4)}
	cycle := func() {
		q.posted += 3 // the same WQEs again
		q.ring0()
		port.give = 4
		port.wake()
		q.b.card.Step(64)
		q.cq.ci += 3
		q.cq.release()
	}
	for i := range uint16(testWQEs) { // a list that comes round
		binary.BigEndian.PutUint16(q.wqe(i)[2:], (i+1)%testWQEs)
		segment(q.wqe(i)[16:], 1<<14, q.b.key, q.memory.Bus)
	}
	cycle()
	if n := testing.AllocsPerRun(100, cycle); n != 0 {
		t.Errorf("%v allocations a burst", n)
	}
	if rq, _ := q.b.function().rqs.Get(q.n); rq.State() != prm.QueueStateRDY {
		t.Errorf("the queue is in %v", rq.State())
	}
}
