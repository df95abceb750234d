package device

import (
	"encoding/binary"
	"testing"

	"cxkit/prm"
)

// TestMultiPacketWQE sends frames from memory and inline in one WQE, with one completion.
func TestMultiPacketWQE(t *testing.T) {
	b := newDataBench(t)
	q := b.sender(6)
	want := udpFrame(100, 1, 2, 3, 4)
	spoilt := append([]byte{}, want...)
	spoilt[24], spoilt[40] = 1, 2 // both checksums
	short, long := testFrame(33, 5), testFrame(900, 6)
	q.put(prm.WQEEnhancedMPSW, prm.CompletionAlways, eth{cs: 0xc0, segs: []any{b.place(spoilt), short, b.place(long), spoilt}}.bytes(b))
	q.ring0()
	b.sendsExactly(want, append(append([]byte{}, short...), make([]byte, 27)...), long, want)
	if c := q.cq.take(); len(c) != 1 || c[0].WQECounter() != 0 || c[0].SendOpcode() != prm.WQEEnhancedMPSW {
		t.Errorf("completions %v", c)
	}
	q.put(prm.WQEEnhancedMPSW, prm.CompletionAlways, eth{vlan: 1<<31 | 5, segs: []any{b.place(long), b.place(long)}}.bytes(b))
	q.ring0()
	tagged := append(append(append([]byte{}, long[:12]...), 0x81, 0, 0, 5), long[12:]...)
	b.sendsExactly(tagged, tagged)
}

// TestMultiPacketWQEGoesOnWhereTheWireWasFull sends 40 frames of a WQE a few at a time.
func TestMultiPacketWQEGoesOnWhereTheWireWasFull(t *testing.T) {
	b := newDataBench(t)
	q := b.sender(6)
	var e eth
	var want [][]byte
	for i := range 40 {
		want = append(want, testFrame(100+i, byte(i)))
		e.segs = append(e.segs, b.place(want[i]))
	}
	b.port.room = 3
	q.put(prm.WQEEnhancedMPSW, prm.CompletionAlways, e.bytes(b))
	q.ring0()
	for range 13 {
		if q.cq.next() != nil {
			t.Fatalf("complete after %d frames", len(b.port.tx))
		}
		b.port.room = 3
		b.port.wake()
		b.settle()
	}
	b.sendsExactly(want...)
	if len(q.cq.take()) != 1 {
		t.Error("no completion")
	}
}

func TestBadMultiPacketWQEs(t *testing.T) {
	for name, c := range map[string]struct {
		wqe func(b *dataBench) []byte
		syn prm.CQESyndrome
	}{
		"nothing in it": {func(b *dataBench) []byte { return eth{}.bytes(b) }, prm.CQESyndromeLocalQPOp},
		"inline header": {func(b *dataBench) []byte {
			return eth{inline: testFrame(14, 1), segs: []any{b.place(testFrame(60, 1))}}.bytes(b)
		}, prm.CQESyndromeLocalQPOp},
		"short frame":    {func(b *dataBench) []byte { return eth{segs: []any{testFrame(13, 1)}}.bytes(b) }, prm.CQESyndromeLocalLength},
		"long frame":     {func(b *dataBench) []byte { return eth{segs: []any{b.carve(70_000, 64)}}.bytes(b) }, prm.CQESyndromeLocalLength},
		"no such memory": {func(b *dataBench) []byte { return eth{key: 0x77700, segs: []any{b.place(testFrame(60, 1))}}.bytes(b) }, prm.CQESyndromeLocalProtection},
		"inline data past the end": {func(b *dataBench) []byte {
			w := eth{segs: []any{testFrame(20, 1)}}.bytes(b)
			binary.BigEndian.PutUint32(w[16:], 1<<31|300)
			return w
		}, prm.CQESyndromeLocalQPOp},
	} {
		t.Run(name, func(t *testing.T) {
			b := newDataBench(t)
			q := b.sender(6)
			q.put(prm.WQEEnhancedMPSW, prm.CompletionAlways, c.wqe(b))
			q.ring0()
			got := q.cq.take()
			if len(got) != 1 || got[0].Opcode() != prm.CQERequesterError || (*prm.ErrorCQE)(&got[0]).Syndrome() != c.syn {
				t.Errorf("completions %v, want %v", got, c.syn)
			}
		})
	}
}
