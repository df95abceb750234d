package device

import (
	"bytes"
	"encoding/binary"
	"testing"

	"cxkit/dma"
	"cxkit/prm"
)

// large puts an LSO WQE: header is inline, what is behind it are data segments.
func (q *testSQ) large(header []byte, mss uint16, ce prm.CompletionMode, segs ...any) {
	e := eth{cs: 0xc0, inline: header, segs: segs}.bytes(q.b)
	binary.BigEndian.PutUint16(e[6:], mss)
	q.put(prm.WQELSO, ce, e)
}

// tcpHeader is a header of 54 bytes, IPv4 and TCP.
func tcpHeader(flags byte) []byte {
	h := testFrame(12, 1)
	h = append(h, 8, 0, 0x45, 0, 0, 0, 0x12, 0x34, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2)
	return append(h, 0, 80, 0x12, 0x34, 0xff, 0xff, 0xff, 0xf0, 0, 0, 0, 1, 0x50, flags, 0x10, 0, 0, 0, 0, 0)
}

// checkLarge checks the segments of a large send with tcpHeader: payload, sequence, id, sums.
func checkLarge(t *testing.T, frames [][]byte, payload []byte, mss int) {
	t.Helper()
	if want := (len(payload) + mss - 1) / mss; len(frames) != want {
		t.Fatalf("%d segments, want %d", len(frames), want)
	}
	for i, f := range frames {
		part := payload[i*mss : min(len(payload), (i+1)*mss)]
		n := 40 + len(part)
		ip := f[14 : 14+n]
		if !bytes.Equal(ip[40:], part) {
			t.Fatalf("segment %d: wrong payload", i)
		}
		seq, id := uint32(0xfffffff0), uint16(0x1234)
		if s := binary.BigEndian.Uint32(ip[24:]); s != seq+uint32(i*mss) {
			t.Errorf("segment %d: sequence %#x", i, s)
		}
		if v := binary.BigEndian.Uint16(ip[4:]); v != id+uint16(i) {
			t.Errorf("segment %d: id %#x", i, v)
		}
		if refSum(ip[:20], 0) != 0xffff || refSum(ip[12:], uint32(6+n-20)) != 0xffff {
			t.Errorf("segment %d: checksums of %x", i, ip[:40])
		}
	}
}

func TestLargeSendOfManyPieces(t *testing.T) {
	b := newDataBench(t)
	q := b.sender(6)
	data := b.place(testFrame(40_000, 3))
	q.large(tcpHeader(0x18), 1448, prm.CompletionAlways, data.Slice(0, 10_001), []byte("between"), data.Slice(10_001, 29_999))
	q.ring0()
	payload := append(append(bytes.Clone(data.Bytes[:10_001]), "between"...), data.Bytes[10_001:]...)
	checkLarge(t, b.port.tx, payload, 1448)
	if c := q.cq.take(); len(c) != 1 || c[0].WQECounter() != 0 || c[0].Opcode() != prm.CQERequester {
		t.Errorf("completions %v", c)
	}
	var out prm.QueryVportCounterOut
	b.must(&prm.QueryVportCounterIn{}, &out)
	if out.TransmittedEthUnicast.Packets != 28 {
		t.Errorf("%d frames counted, want 28: each segment", out.TransmittedEthUnicast.Packets)
	}
}

// TestLargeSendGoesOnWhereTheWireWasFull sends segments a few at a time.
func TestLargeSendGoesOnWhereTheWireWasFull(t *testing.T) {
	b := newDataBench(t)
	q := b.sender(6)
	data := b.place(testFrame(60_000, 3))
	b.port.room = 7
	q.large(tcpHeader(0x10), 500, prm.CompletionAlways, data)
	q.send(eth{segs: []any{data.Slice(0, 100)}})
	for i := 0; len(b.port.tx) < 121; i++ {
		if i == 30 {
			t.Fatalf("%d frames after 30 times room", len(b.port.tx))
		}
		if i < 17 && q.cq.next() != nil {
			t.Fatalf("completed after %d segments", len(b.port.tx))
		}
		b.port.room = 7
		b.port.wake()
		b.settle()
	}
	checkLarge(t, b.port.tx[:120], data.Bytes, 500)
}

func TestLargestSend(t *testing.T) {
	b := &dataBench{}
	*b = *dataBenchOn(t, newSizedBench(t, Config{}, 16<<20, 2048))
	q := b.sender(6)
	data := b.carve(8*65_535, 4096)
	for i := range data.Bytes {
		data.Bytes[i] = byte(i * 7 >> 3)
	}
	q.large(tcpHeader(0x10), 1460, prm.CompletionAlways, data)
	q.ring0()
	checkLarge(t, b.port.tx, data.Bytes, 1460)
}

func TestBadLargeSendsAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		header []byte
		mss    uint16
		segs   func(b *dataBench) []any
		syn    prm.CQESyndrome
	}{
		"mss 0":           {tcpHeader(16), 0, nil, prm.CQESyndromeLocalQPOp},
		"no header":       {nil, 100, nil, prm.CQESyndromeLocalQPOp},
		"header cut":      {tcpHeader(16)[:50], 100, nil, prm.CQESyndromeLocalQPOp},
		"not TCP":         {testFrame(60, 1), 100, nil, prm.CQESyndromeLocalQPOp},
		"no payload":      {tcpHeader(16), 100, func(*dataBench) []any { return nil }, prm.CQESyndromeLocalLength},
		"segment too big": {tcpHeader(16), 0xffff, func(b *dataBench) []any { return []any{b.carve(70_000, 64)} }, prm.CQESyndromeLocalLength},
		"no such memory": {tcpHeader(16), 100, func(b *dataBench) []any {
			return []any{dma.Region{Bytes: make([]byte, 1000), Bus: 1 << 50}}
		}, prm.CQESyndromeLocalProtection},
	} {
		t.Run(name, func(t *testing.T) {
			b := newDataBench(t)
			q := b.sender(4)
			segs := []any{b.place(testFrame(1000, 1))}
			if c.segs != nil {
				segs = c.segs(b)
			}
			q.large(c.header, c.mss, prm.CompletionAlways, segs...)
			q.ring0()
			got := q.cq.take()
			if len(got) != 1 || got[0].Opcode() != prm.CQERequesterError || (*prm.ErrorCQE)(&got[0]).Syndrome() != c.syn {
				t.Errorf("completions %v, want syndrome %v", got, c.syn)
			}
		})
	}
}
