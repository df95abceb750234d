package device

import (
	"bytes"
	"encoding/binary"
	"testing"

	"cxkit/dma"
	"cxkit/prm"
)

// completions counts the completion events for a CQ.
func (b *dataBench) completions(q *testCQ) (n int) {
	for e := b.comp.next(); e != nil; e = b.comp.next() {
		if e.EventType() == prm.EventCompletion && e.CompletionCQN() == q.n {
			n++
		}
	}
	b.comp.arm()
	return n
}

// errors counts events of a type.
func (b *dataBench) errors(typ prm.EventType) (n int) {
	for e := b.async.next(); e != nil; e = b.async.next() {
		if e.EventType() == typ {
			n++
		}
	}
	b.async.update()
	return n
}

func TestCQFiresOncePerArm(t *testing.T) {
	b := newDataBench(t)
	q := b.receiver(4, 256)
	q.post(16)
	b.receive(testFrame(60, 1))
	if n := b.completions(q.cq); n != 0 {
		t.Fatalf("%d events before the first arm", n)
	}
	q.cq.take()
	q.cq.arm(false)
	b.receive(testFrame(60, 1), testFrame(60, 2))
	b.receive(testFrame(60, 3))
	if n := b.completions(q.cq); n != 1 {
		t.Errorf("%d events, want one for the arm", n)
	}
}

// Without it Linux transmits at a quarter of the speed (reference 06 §3).
func TestCQArmedWithPendingCQEsFiresAtOnce(t *testing.T) {
	b := newDataBench(t)
	q := b.receiver(4, 256)
	q.post(16)
	b.receive(testFrame(60, 1))
	q.cq.arm(false) // at consumer counter 0, with one CQE there
	if n := b.completions(q.cq); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
	q.cq.sn++
	q.cq.take()
	q.cq.arm(false)
	if n := b.completions(q.cq); n != 0 {
		t.Errorf("%d events although everything was taken", n)
	}
	q.cq.arm(false) // arming an armed CQ changes nothing
	b.receive(testFrame(60, 1))
	if n := b.completions(q.cq); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
}

func TestEventComesAtTheEndOfABurst(t *testing.T) {
	b := newDataBench(t)
	q := b.receiver(6, 256)
	q.post(64)
	q.cq.arm(false)
	var frames [][]byte
	for i := range 40 {
		frames = append(frames, testFrame(60, byte(i)))
	}
	b.port.rx = frames
	b.port.wake()
	b.card.Step(64)
	if n := b.completions(q.cq); n != 1 {
		t.Fatalf("%d events", n)
	}
	if n := len(q.cq.take()); n != 40 {
		t.Errorf("the event announced %d completions, want the whole burst of 40", n)
	}
}

func TestSolicitedArmWaitsForASolicitedCQE(t *testing.T) {
	b := newDataBench(t)
	q := b.sender(4)
	q.cq.arm(true)
	q.put(prm.WQENop, prm.CompletionAlways, nil)
	q.ring0()
	if n := b.completions(q.cq); n != 0 {
		t.Errorf("%d events for a plain CQE", n)
	}
	q.put(prm.WQENop, prm.CompletionSolicitedEvent, nil)
	q.ring0()
	if n := b.completions(q.cq); n != 1 {
		t.Errorf("%d events for a solicited CQE", n)
	}
	q.cq.sn++
	q.cq.take()
	q.put(prm.WQENop, prm.CompletionAlways, nil)
	q.ring0()
	q.cq.arm(true) // the solicited CQE lies before the armed index
	if n := b.completions(q.cq); n != 0 {
		t.Errorf("%d events for a solicited CQE that was taken", n)
	}
	q.put(prm.WQENop, prm.CompletionSolicitedEvent, nil)
	q.put(prm.WQENop, prm.CompletionAlways, nil)
	q.ring0()
	if n := b.completions(q.cq); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
}

func TestCQStateIsReported(t *testing.T) {
	b := newDataBench(t)
	q := b.sender(4)
	state := func() (prm.CQState, uint32, uint32) {
		var out prm.QueryCQOut
		out.PAS = make([]uint64, 1)
		b.must(&prm.QueryCQIn{CQN: q.cq.n}, &out)
		if out.PAS[0] != q.cq.ring.Bus {
			t.Errorf("page %#x, want %#x", out.PAS[0], q.cq.ring.Bus)
		}
		return out.Context.ST, out.Context.ProducerCounter, out.Context.ConsumerCounter
	}
	if s, p, _ := state(); s != 0 || p != 0 {
		t.Errorf("new CQ: state %v producer %d", s, p)
	}
	q.cq.arm(true)
	if s, _, _ := state(); s != prm.CQStateSolicitedArmed {
		t.Errorf("state %v", s)
	}
	q.cq.arm(false)
	if s, _, _ := state(); s != prm.CQStateArmed {
		t.Errorf("state %v", s)
	}
	q.put(prm.WQENop, prm.CompletionAlways, nil)
	q.ring0()
	if s, p, _ := state(); s != prm.CQStateFired || p != 1 {
		t.Errorf("state %v producer %d", s, p)
	}
}

func TestCQOverrunIsReportedAndEndsTheCQ(t *testing.T) {
	b := newDataBench(t)
	cq := b.newCQ(2)
	q := b.newSQ(cq, 4)
	q.state(prm.QueueStateRST, prm.QueueStateRDY)
	for range 4 {
		q.put(prm.WQENop, prm.CompletionAlways, nil)
	}
	q.ring0()
	if n := b.errors(prm.EventCQError); n != 0 {
		t.Fatalf("%d errors while the CQ was exactly full", n)
	}
	q.put(prm.WQENop, prm.CompletionAlways, nil)
	q.ring0()
	e := b.async.next()
	if e == nil || e.EventType() != prm.EventCQError {
		t.Fatal("no CQ error event")
	}
	if n, s := cqError(e); n != cq.n || s != prm.CQErrorOverrun {
		t.Errorf("event for CQ %#x, syndrome %v", n, s)
	}
	var out prm.QueryCQOut
	b.must(&prm.QueryCQIn{CQN: cq.n}, &out)
	var sq prm.QuerySQOut
	b.must(&prm.QuerySQIn{SQN: q.n}, &sq)
	if out.Context.Status != 9 || sq.Context.State != prm.QueueStateERR || b.function().counters.cqOverrun != 1 {
		t.Errorf("status %d, SQ %v, %d overruns", out.Context.Status, sq.Context.State, b.function().counters.cqOverrun)
	}
	if n := len(cq.take()); n != 4 {
		t.Errorf("%d completions survived, want 4", n)
	}
	q.put(prm.WQENop, prm.CompletionAlways, nil)
	q.ring0()
	if n := len(cq.take()); n != 0 {
		t.Error("a CQ that overran took a completion")
	}
}

func TestOverrunIgnoreWritesOn(t *testing.T) {
	b := newDataBench(t)
	cq := b.newCQ(2, func(in *prm.CreateCQIn) { in.Context.OI = true })
	q := b.newSQ(cq, 6)
	q.state(prm.QueueStateRST, prm.QueueStateRDY)
	for range 23 {
		q.put(prm.WQENop, prm.CompletionAlways, nil)
	}
	q.ring0() // a burst of more than five rounds
	cq.ci = 20
	cqes := cq.take()
	if len(cqes) != 3 || cqes[0].WQECounter() != 20 || cqes[2].WQECounter() != 22 {
		t.Errorf("%d completions %x", len(cqes), cqes)
	}
	if n := b.errors(prm.EventCQError); n != 0 {
		t.Errorf("%d CQ errors", n)
	}
}

func TestConsumerCounterThatNobodyCanHaveReachedIsAnOverrun(t *testing.T) {
	b := newDataBench(t)
	q := b.sender(4)
	for range 16 {
		q.put(prm.WQENop, prm.CompletionAlways, nil)
	}
	q.ring0()
	dma.StoreBE32(q.cq.record.Bytes, 0, 17) // one more than was ever written
	q.put(prm.WQENop, prm.CompletionAlways, nil)
	q.ring0()
	if n := b.errors(prm.EventCQError); n != 1 {
		t.Errorf("%d CQ errors, want 1", n)
	}
}

func TestCollapsedCQUsesEntryZero(t *testing.T) {
	b := newDataBench(t)
	cq := b.newCQ(0, func(in *prm.CreateCQIn) { in.Context.CC = true })
	q := b.newSQ(cq, 4)
	q.state(prm.QueueStateRST, prm.QueueStateRDY)
	before := append([]byte{}, cq.ring.Bytes[64:]...)
	for i := range 40 {
		q.put(prm.WQENop, prm.CompletionAlways, nil)
		q.put(prm.WQENop, prm.CompletionAlways, nil)
		q.ring0()
		c := (*prm.CQE)(cq.ring.Bytes[:64])
		if c.WQECounter() != uint16(2*i+1) || c.Opcode() != prm.CQERequester {
			t.Fatalf("round %d: counter %d", i, c.WQECounter())
		}
	}
	if !bytes.Equal(cq.ring.Bytes[64:], before) {
		t.Error("another entry was written")
	}
}

func TestCQEsOf128Bytes(t *testing.T) {
	for _, size := range []uint8{1, 2} {
		b := newDataBench(t)
		cq := b.newCQ(3, func(in *prm.CreateCQIn) { in.Context.CQESz = size })
		q := b.newSQ(cq, 4)
		q.state(prm.QueueStateRST, prm.QueueStateRDY)
		for i := range 20 {
			q.put(prm.WQENop, prm.CompletionAlways, nil)
			q.ring0()
			if cqes := cq.take(); len(cqes) != 1 || cqes[0].WQECounter() != uint16(i) {
				t.Fatalf("cqe_sz %d, round %d: %x", size, i, cqes)
			}
		}
	}
}

func TestModifyCQHonoursItsSelectMask(t *testing.T) {
	b := newDataBench(t)
	cq := b.newCQ(4)
	modify := func(fields prm.ModifyCQField, c prm.CQContext) {
		b.must(&prm.ModifyCQIn{CQN: cq.n, ModifyFieldSelect: fields, Context: c}, &prm.ModifyCQOut{})
	}
	check := func(period, count uint16, mode uint8) {
		t.Helper()
		var out prm.QueryCQOut
		b.must(&prm.QueryCQIn{CQN: cq.n}, &out)
		if c := out.Context; c.CQPeriod != period || c.CQMaxCount != count || c.CQPeriodMode != mode {
			t.Errorf("period %d count %d mode %d, want %d %d %d", c.CQPeriod, c.CQMaxCount, c.CQPeriodMode, period, count, mode)
		}
	}
	modify(0x13, prm.CQContext{CQPeriod: 8, CQMaxCount: 64, CQPeriodMode: 1})
	check(8, 64, 1)
	modify(0x10, prm.CQContext{CQPeriodMode: 0}) // Linux sends zeros in the other two
	check(8, 64, 0)
	modify(0x03, prm.CQContext{CQPeriod: 3, CQMaxCount: 1, CQPeriodMode: 1})
	check(3, 1, 0)
	b.refused(&prm.ModifyCQIn{CQN: cq.n, ModifyFieldSelect: 0x20}, &prm.ModifyCQOut{}, prm.StatusBadParameter, synModifyBits)
	b.refused(&prm.ModifyCQIn{CQN: cq.n, OpMod: 2}, &prm.ModifyCQOut{}, prm.StatusBadOperation, synOpMod)
	// Another EQ takes over.
	other := b.newEQ(b.uar, 6, 2)
	modify(prm.ModifyCQEQN, prm.CQContext{EQN: uint32(other.n)})
	b.must(&prm.DestroyEQIn{EQN: b.comp.n}, &prm.DestroyEQOut{})
	b.refused(&prm.DestroyEQIn{EQN: other.n}, &prm.DestroyEQOut{}, prm.StatusBadResourceState, synInUse)
	q := b.newSQ(cq, 4)
	q.state(prm.QueueStateRST, prm.QueueStateRDY)
	cq.arm(false)
	q.put(prm.WQENop, prm.CompletionAlways, nil)
	q.ring0()
	if e := other.next(); e == nil || e.CompletionCQN() != cq.n {
		t.Error("the new EQ got no event")
	}
}

func TestArmDoorbellsForOthersAreIgnored(t *testing.T) {
	b := newDataBench(t)
	q := b.sender(4)
	other := b.allocUAR()
	b.regs.Store64(uint64(other)<<uarShift+prm.UARCQArmOff, uint64(q.cq.n))
	b.regs.Store64(uint64(b.uar)<<uarShift+prm.UARCQArmOff, 0xabcdef)
	b.settle()
	q.put(prm.WQENop, prm.CompletionAlways, nil)
	q.ring0()
	if n := b.completions(q.cq); n != 0 {
		t.Errorf("%d events", n)
	}
	// Two 4-byte writes are as good as one of 8 bytes.
	b.regs.Store32(uint64(b.uar)<<uarShift+prm.UARCQArmOff, 0)
	b.regs.Store32(uint64(b.uar)<<uarShift+prm.UARCQArmOff+4, q.cq.n)
	b.settle()
	if n := b.completions(q.cq); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
}

// cqError reads a CQ error event (reference 02 §3).
func cqError(e *prm.EQE) (cqn uint32, syndrome prm.CQErrorSyndrome) {
	return binary.BigEndian.Uint32(e[0x20:]) & 0xffffff, prm.CQErrorSyndrome(e[0x2b])
}
