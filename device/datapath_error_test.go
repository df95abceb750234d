package device

import (
	"encoding/binary"
	"testing"

	"cxkit/dma"
	"cxkit/prm"
)

func TestBadWorkRequestsEndInError(t *testing.T) {
	for name, c := range map[string]struct {
		put func(b *dataBench, q *testSQ)
		syn prm.CQESyndrome
	}{
		"unknown opcode": {func(b *dataBench, q *testSQ) { q.put(0x77, 2, nil) }, prm.CQESyndromeLocalQPOp},
		"UMR":            {func(b *dataBench, q *testSQ) { q.put(prm.WQEUMR, 2, make([]byte, 48)) }, prm.CQESyndromeLocalQPOp},
		"empty frame":    {func(b *dataBench, q *testSQ) { q.put(prm.WQEEnhancedMPSW, 2, make([]byte, 48)) }, prm.CQESyndromeLocalLength},
		"no Ethernet segment": {func(b *dataBench, q *testSQ) {
			q.put(prm.WQESend, 2, nil)
		}, prm.CQESyndromeLocalQPOp},
		"ds 0": {func(b *dataBench, q *testSQ) {
			q.put(prm.WQESend, 2, eth{segs: []any{b.boxFrame(0)}}.bytes(b))
			q.ring.Bytes[7] = 0
		}, prm.CQESyndromeLocalQPOp},
		"longer than what is posted": {func(b *dataBench, q *testSQ) {
			q.put(prm.WQESend, 2, eth{segs: []any{b.boxFrame(0)}}.bytes(b))
			q.ring.Bytes[7] = 63
		}, prm.CQESyndromeLocalQPOp},
		"wrong wqe_index": {func(b *dataBench, q *testSQ) {
			q.put(prm.WQESend, 2, eth{segs: []any{b.boxFrame(0)}}.bytes(b))
			q.ring.Bytes[2] = 1
		}, prm.CQESyndromeLocalQPOp},
		"inline header past the WQE": {func(b *dataBench, q *testSQ) {
			w := eth{segs: []any{b.boxFrame(0)}}.bytes(b)
			binary.BigEndian.PutUint16(w[12:], 900)
			q.put(prm.WQESend, 2, w)
		}, prm.CQESyndromeLocalQPOp},
		"inline data past the WQE": {func(b *dataBench, q *testSQ) {
			w := eth{segs: []any{b.boxFrame(0)}}.bytes(b)
			binary.BigEndian.PutUint32(w[16:], 1<<31|13)
			q.put(prm.WQESend, 2, w)
		}, prm.CQESyndromeLocalQPOp},
		"13 bytes": {func(b *dataBench, q *testSQ) {
			q.put(prm.WQESend, 2, eth{segs: []any{b.place(make([]byte, 13))}}.bytes(b))
		}, prm.CQESyndromeLocalLength},
		"nothing": {func(b *dataBench, q *testSQ) { q.put(prm.WQESend, 2, eth{}.bytes(b)) }, prm.CQESyndromeLocalLength},
		"2 GiB": {func(b *dataBench, q *testSQ) {
			w := eth{segs: []any{b.boxFrame(0)}}.bytes(b)
			binary.BigEndian.PutUint32(w[16:], 1<<31-1)
			q.put(prm.WQESend, 2, w)
		}, prm.CQESyndromeLocalLength},
		"sum over 64 KiB": {func(b *dataBench, q *testSQ) {
			w := eth{segs: []any{b.boxFrame(0), b.boxFrame(1)}}.bytes(b)
			binary.BigEndian.PutUint32(w[16:], 60_000)
			binary.BigEndian.PutUint32(w[32:], 60_000)
			q.put(prm.WQESend, 2, w)
		}, prm.CQESyndromeLocalLength},
		"unknown key": {func(b *dataBench, q *testSQ) {
			q.put(prm.WQESend, 2, eth{key: 0x999900, segs: []any{b.boxFrame(0)}}.bytes(b))
		}, prm.CQESyndromeLocalProtection},
		"wrong variant of a key": {func(b *dataBench, q *testSQ) {
			q.put(prm.WQESend, 2, eth{key: b.key ^ 1, segs: []any{b.boxFrame(0)}}.bytes(b))
		}, prm.CQESyndromeLocalProtection},
		"key without read": {func(b *dataBench, q *testSQ) {
			key := b.newKey(prm.MKeyContext{LW: true, Length64: true})
			q.put(prm.WQESend, 2, eth{key: key, segs: []any{b.boxFrame(0)}}.bytes(b))
		}, prm.CQESyndromeLocalProtection},
		"outside a key": {func(b *dataBench, q *testSQ) {
			r := b.boxFrame(0)
			key := b.newKey(prm.MKeyContext{LR: true, StartAddr: r.Bus, Length: uint64(len(r.Bytes)) - 1})
			q.put(prm.WQESend, 2, eth{key: key, segs: []any{r}}.bytes(b))
		}, prm.CQESyndromeLocalProtection},
		"reserved key not allowed": {func(b *dataBench, q *testSQ) {
			q.put(prm.WQESend, 2, eth{key: b.reservedKey(), segs: []any{b.boxFrame(0)}}.bytes(b))
		}, prm.CQESyndromeLocalProtection},
		"address that is not mapped": {func(b *dataBench, q *testSQ) {
			q.put(prm.WQESend, 2, eth{segs: []any{dma.Region{Bytes: make([]byte, 100), Bus: 0x10}}}.bytes(b))
		}, prm.CQESyndromeLocalProtection},
		"address that wraps": {func(b *dataBench, q *testSQ) {
			q.put(prm.WQESend, 2, eth{segs: []any{dma.Region{Bytes: make([]byte, 100), Bus: 1<<64 - 50}}}.bytes(b))
		}, prm.CQESyndromeLocalProtection},
	} {
		t.Run(name, func(t *testing.T) {
			b := newDataBench(t)
			q := b.sender(4)
			c.put(b, q)
			q.put(prm.WQESend, prm.CompletionOnError, eth{segs: []any{b.boxFrame(0)}}.bytes(b))
			q.put(prm.WQENop, prm.CompletionAlways, nil)
			posted := q.pi
			q.ring0()
			if len(b.port.tx) != 0 {
				t.Errorf("%d frames were sent", len(b.port.tx))
			}
			cqes := q.cq.take()
			if len(cqes) == 0 {
				t.Fatal("no completion")
			}
			for i := range cqes {
				e := (*prm.ErrorCQE)(&cqes[i])
				want := prm.CQESyndromeFlushed
				if i == 0 {
					want = c.syn
				}
				if cqes[i].Opcode() != prm.CQERequesterError || e.Syndrome() != want || e.QPN() != q.n {
					t.Errorf("completion %d: %v %v, want %v", i, cqes[i].Opcode(), e.Syndrome(), want)
				}
			}
			if cqes[0].WQECounter() != 0 || cqes[len(cqes)-1].WQECounter() != posted-1 {
				t.Errorf("completions from %d to %d, want 0 to %d", cqes[0].WQECounter(), cqes[len(cqes)-1].WQECounter(), posted-1)
			}
			var out prm.QuerySQOut
			b.must(&prm.QuerySQIn{SQN: q.n}, &out)
			if out.Context.State != prm.QueueStateERR {
				t.Errorf("state %v, want ERR", out.Context.State)
			}
		})
	}
}

// reservedKey asks for the reserved lkey.
func (b *dataBench) reservedKey() uint32 {
	b.Helper()
	var out prm.QuerySpecialContextsOut
	b.must(&prm.QuerySpecialContextsIn{}, &out)
	return out.ReservedLKey
}

func TestReservedKeyNeedsRLKY(t *testing.T) {
	b := newDataBench(t)
	q := b.sender(4, func(in *prm.CreateSQIn) { in.Context.RLKY = true })
	frame := testFrame(99, 3)
	q.send(eth{key: b.reservedKey(), segs: []any{b.place(frame)}})
	b.sendsExactly(frame)
}

// What Linux needs for its recovery (reference 03 §2.2): state ERR, every outstanding WQE flushed with its
// own counter, doorbells in ERR flushed, and RST, RDY starting from zero although the record is old.
func TestSendQueueRecovers(t *testing.T) {
	b := newDataBench(t)
	q := b.sender(4)
	q.put(0x77, prm.CompletionOnError, nil)
	q.put(prm.WQESend, prm.CompletionOnError, eth{inline: testFrame(100, 1)}.bytes(b)) // two blocks
	q.ring0()
	cqes := q.cq.take()
	if len(cqes) != 2 || cqes[1].WQECounter() != 1 {
		t.Fatalf("completions %x", cqes)
	}
	q.put(prm.WQENop, prm.CompletionOnError, nil)
	at := q.pi - 1
	q.ring0()
	cqes = q.cq.take()
	if len(cqes) != 1 || cqes[0].WQECounter() != at || (*prm.ErrorCQE)(&cqes[0]).Syndrome() != prm.CQESyndromeFlushed {
		t.Fatalf("a doorbell in ERR: %x", cqes)
	}
	bad := prm.ModifySQIn{SQState: prm.QueueStateERR, SQN: q.n}
	bad.Context.State = prm.QueueStateRDY
	b.refused(&bad, &prm.ModifySQOut{}, prm.StatusBadQPState, synTransition)
	q.state(prm.QueueStateERR, prm.QueueStateRST)
	q.state(prm.QueueStateRST, prm.QueueStateRDY)
	b.settle()
	if n := len(q.cq.take()); n != 0 || len(b.port.tx) != 0 {
		t.Fatalf("the old record was obeyed: %d completions", n)
	}
	q.pi = 0
	frame := testFrame(80, 7)
	q.send(eth{segs: []any{b.place(frame)}})
	b.sendsExactly(frame)
	if cqes = q.cq.take(); len(cqes) != 1 || cqes[0].WQECounter() != 0 {
		t.Errorf("after recovery: %x", cqes)
	}
}

func TestModifyToERRFlushes(t *testing.T) {
	b := newDataBench(t)
	b.port.room = 0
	q := b.sender(4)
	for range 3 {
		q.put(prm.WQESend, prm.CompletionOnError, eth{segs: []any{b.boxFrame(0)}}.bytes(b))
	}
	q.ring0()
	q.state(prm.QueueStateRDY, prm.QueueStateERR)
	cqes := q.cq.take()
	if len(cqes) != 3 {
		t.Fatalf("%d completions, want 3", len(cqes))
	}
	b.port.room = -1
	b.port.wake()
	b.settle()
	if len(b.port.tx) != 0 {
		t.Error("a flushed frame was sent")
	}
}

func TestWithoutFlushInErrorOnlyTheErrorCompletes(t *testing.T) {
	b := newDataBench(t)
	q := b.sender(4, func(in *prm.CreateSQIn) { in.Context.FlushInErrorEn = false })
	q.put(0x77, prm.CompletionOnError, nil)
	q.put(prm.WQENop, prm.CompletionAlways, nil)
	q.ring0()
	if n := len(q.cq.take()); n != 1 {
		t.Errorf("%d completions, want 1", n)
	}
}

func TestInlineModeIsEnforced(t *testing.T) {
	frame := udpFrame(60, 1, 2, 3, 4, 0x81000005)
	for _, c := range []struct {
		mode prm.InlineMode
		need int
	}{{prm.InlineModeL2, 14}, {prm.InlineModeIP, 38}, {prm.InlineModeTCPUDP, 46}} {
		for _, n := range []int{c.need - 1, c.need} {
			b := newDataBench(t)
			q := b.sender(4, func(in *prm.CreateSQIn) { in.Context.MinWQEInlineMode = c.mode })
			q.send(eth{inline: frame[:n], segs: []any{b.place(frame[n:])}})
			if sent := len(b.port.tx) == 1; sent != (n == c.need) {
				t.Errorf("mode %v, %d bytes inline: sent %v", c.mode, n, sent)
			}
		}
	}
}

func TestDoorbellsForOthersAreIgnored(t *testing.T) {
	b := newDataBench(t)
	q := b.sender(4)
	other := b.allocUAR()
	q.put(prm.WQESend, prm.CompletionAlways, eth{segs: []any{b.boxFrame(0)}}.bytes(b))
	dma.StoreBE32(q.record.Bytes, 4, uint32(q.pi))
	for _, at := range []uint64{uint64(other)<<uarShift + prm.UARBlueFlameOff, uint64(b.uar)<<uarShift + prm.UARBlueFlameOff} {
		n := q.n
		if at>>uarShift == uint64(b.uar) {
			n = 0xabcdef // no such SQ
		}
		b.regs.Store64(at, uint64(prm.WQESend)<<32|uint64(n)<<8|3)
		b.settle()
	}
	if len(b.port.tx) != 0 {
		t.Error("a doorbell in another page, or of another queue, sent a frame")
	}
	// Every BlueFlame buffer of its own page will do.
	b.regs.Store64(uint64(b.uar)<<uarShift+prm.UARBlueFlameOff+0x100, uint64(prm.WQESend)<<32|uint64(q.n)<<8|3)
	b.settle()
	if len(b.port.tx) != 1 {
		t.Error("the doorbell at the second buffer was not obeyed")
	}
}

func TestDoorbellInRSTIsForgotten(t *testing.T) {
	b := newDataBench(t)
	q := b.newSQ(b.newCQ(4), 4)
	q.put(prm.WQENop, prm.CompletionAlways, nil)
	q.ring0()
	q.state(prm.QueueStateRST, prm.QueueStateRDY)
	b.settle()
	if n := len(q.cq.take()); n != 0 {
		t.Errorf("%d completions", n)
	}
}
