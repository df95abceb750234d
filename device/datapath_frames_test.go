package device

import (
	"encoding/binary"

	"cxkit/dma"
	"cxkit/prm"
)

// testSQ is the producer of an SQ.
type testSQ struct {
	b      *dataBench
	cq     *testCQ
	ring   dma.Region
	record dma.Region
	n      uint32
	log    uint8
	pi     uint16
}

func (b *dataBench) newSQ(cq *testCQ, log uint8, edit ...func(*prm.CreateSQIn)) *testSQ {
	b.Helper()
	q := &testSQ{b: b, cq: cq, log: log}
	q.ring, q.record = b.ring(64 << log)
	in := prm.CreateSQIn{Context: prm.SQContext{CQN: cq.n, FlushInErrorEn: true, TISLstSz: 1, TISNum0: b.tis, UserIndex: 0x654321}}
	in.Context.WQ = prm.WQContext{
		WQType: prm.WQTypeCyclic, PD: b.pd, UARPage: b.uar, LogWQStride: 6, LogWQSz: log, DBRAddr: q.record.Bus,
	}
	in.PAS = pages(q.ring)
	for _, f := range edit {
		f(&in)
	}
	var out prm.CreateSQOut
	b.must(&in, &out)
	q.n = out.SQN
	return q
}

func (q *testSQ) state(from, to prm.QueueState) {
	q.b.Helper()
	in := prm.ModifySQIn{SQState: from, SQN: q.n}
	in.Context.State = to
	q.b.must(&in, &prm.ModifySQOut{})
}

// sender is an SQ in RDY.
func (b *dataBench) sender(log uint8, edit ...func(*prm.CreateSQIn)) *testSQ {
	b.Helper()
	q := b.newSQ(b.newCQ(log), log, edit...)
	q.state(prm.QueueStateRST, prm.QueueStateRDY)
	return q
}

// put writes a WQE of ds units at the producer: control segment and what follows it. It does not ring.
func (q *testSQ) put(op prm.WQEOpcode, ce prm.CompletionMode, rest []byte) {
	ds := 1 + (len(rest)+15)/16
	wqe := make([]byte, (ds+3)/4*64)
	binary.BigEndian.PutUint32(wqe, uint32(q.pi)<<8|uint32(op))
	binary.BigEndian.PutUint32(wqe[4:], q.n<<8|uint32(ds))
	wqe[11] = byte(ce) << 2
	copy(wqe[16:], rest)
	for i := 0; i < len(wqe); i += 64 {
		copy(q.ring.Bytes[int(q.pi&(1<<q.log-1))*64:][:64], wqe[i:])
		q.pi++
	}
}

// bell stores the record and rings the doorbell; the engine runs when the bench settles.
func (q *testSQ) bell() {
	dma.StoreBE32(q.record.Bytes, 4, uint32(q.pi))
	last := q.ring.Bytes[int((q.pi-1)&(1<<q.log-1))*64:]
	head := binary.BigEndian.Uint64(last)
	q.b.regs.Store64(uint64(q.b.uar)<<uarShift+prm.UARBlueFlameOff, head&^(0xffffffff)|uint64(q.n)<<8|head&0xff)
}

func (q *testSQ) ring0() { q.bell(); q.b.settle() }

// eth is an Ethernet segment and what follows it.
type eth struct {
	cs     uint8
	inline []byte // inline header
	vlan   uint32 // field at 0x1c: bit 31 to insert a tag
	segs   []any  // dma.Region, or []byte for inline data
	key    uint32 // 0: the bench's
}

// bytes encodes it.
func (e eth) bytes(b *dataBench) []byte {
	out := make([]byte, 14, 256)
	out[4] = e.cs
	if e.vlan != 0 {
		binary.BigEndian.PutUint16(out[12:], uint16(e.vlan>>16))
		out = binary.BigEndian.AppendUint16(out, uint16(e.vlan))
	} else {
		binary.BigEndian.PutUint16(out[12:], uint16(len(e.inline)))
		out = append(out, e.inline...)
	}
	for len(out) < 16 || len(out)&15 != 0 {
		out = append(out, 0)
	}
	key := e.key
	if key == 0 {
		key = b.key
	}
	for _, s := range e.segs {
		switch s := s.(type) {
		case dma.Region:
			var d [16]byte
			segment(d[:], uint32(len(s.Bytes)), key, s.Bus)
			out = append(out, d[:]...)
		case []byte:
			out = binary.BigEndian.AppendUint32(out, 1<<31|uint32(len(s)))
			out = append(out, s...)
			for len(out)&15 != 0 {
				out = append(out, 0)
			}
		}
	}
	return out
}

// send puts a SEND and rings.
func (q *testSQ) send(e eth) {
	q.put(prm.WQESend, prm.CompletionAlways, e.bytes(q.b))
	q.ring0()
}

// place copies a frame to new DMA memory.
func (b *dataBench) place(frame []byte) dma.Region {
	b.Helper()
	r := b.carve(len(frame), 64)
	copy(r.Bytes, frame)
	return r
}

// testFrame makes a frame of n bytes with an Ethertype that means nothing.
func testFrame(n int, seed byte) []byte {
	f := make([]byte, n)
	for i := range f {
		f[i] = byte(i)*3 + seed
	}
	copy(f, []byte{0x02, 1, 2, 3, 4, 5, 0x02, 9, 8, 7, 6, seed})
	if n >= 14 {
		f[12], f[13] = 0x88, 0xb5 // IEEE 802 local experimental
	}
	return f
}

// udpFrame is an IPv4 UDP frame with sound checksums; tags are Ethertype and TCI.
func udpFrame(payload int, src, dst uint32, sport, dport uint16, tags ...uint32) []byte {
	f := testFrame(12, 1)
	for _, t := range tags {
		f = binary.BigEndian.AppendUint32(f, t)
	}
	f = binary.BigEndian.AppendUint16(f, 0x0800)
	ip := make([]byte, 28+payload)
	ip[0], ip[8], ip[9] = 0x45, 64, 17
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	binary.BigEndian.PutUint32(ip[12:], src)
	binary.BigEndian.PutUint32(ip[16:], dst)
	binary.BigEndian.PutUint16(ip[20:], sport)
	binary.BigEndian.PutUint16(ip[22:], dport)
	binary.BigEndian.PutUint16(ip[24:], uint16(8+payload))
	for i := range payload {
		ip[28+i] = byte(i*5 + 1)
	}
	binary.BigEndian.PutUint16(ip[10:], ^refSum(ip[:20], 0))
	pseudo := uint32(17 + 8 + payload)
	binary.BigEndian.PutUint16(ip[26:], ^refSum(ip[12:], pseudo))
	return append(f, ip...)
}

// refSum is the ones'-complement sum by RFC 1071.
func refSum(b []byte, s uint32) uint16 {
	for i := 0; i < len(b); i += 2 {
		w := uint32(b[i]) << 8
		if i+1 < len(b) {
			w |= uint32(b[i+1])
		}
		s += w
	}
	for s>>16 != 0 {
		s = s&0xffff + s>>16
	}
	return uint16(s)
}
