package device

import (
	"testing"
	"time"

	"cxkit/prm"

	faults "cxkit/device/fault"
)

func TestFaultLostEQECompletesWithoutAnEvent(t *testing.T) {
	b := newFaultBench(t, Config{}, faults.Fault{Kind: faults.LostEQE, Opcodes: []prm.Opcode{prm.OpAllocPD}})
	b.must(&prm.AllocPDIn{}, &prm.AllocPDOut{})
	b.nop(2)
	if v := b.vectors(); len(v) != 1 || v[0] != 1<<2 {
		t.Errorf("events %x, want only the NOP's", v)
	}
	if producer, _ := b.function().events.Get(b.cmd.n).Counters(); producer != 1 {
		t.Errorf("producer at %d: a lost event takes no entry", producer)
	}
}

func TestFaultLostEQEOfOtherTypes(t *testing.T) {
	b := newDataBench(t)
	q := b.receiver(4, 256)
	q.post(16)
	b.inject(faults.Fault{Kind: faults.LostEQE, Events: []prm.EventType{prm.EventCompletion}, Queues: []uint32{q.cq.n}, Times: 1})
	q.cq.arm(false)
	b.receive(testFrame(60, 1))
	if n := b.completions(q.cq); n != 0 {
		t.Errorf("%d completion events, want none", n)
	}
	q.cq.sn++
	if len(q.cq.take()) != 1 {
		t.Error("the completion itself is lost, too")
	}
	q.cq.arm(false)
	b.receive(testFrame(60, 1))
	if n := b.completions(q.cq); n != 1 {
		t.Errorf("%d completion events, want one: the fault is over", n)
	}
}

// Report R14: every MSI-X of vector 0 is lost.
func TestR14FaultLostInterruptLeavesTheEvent(t *testing.T) {
	b := newFaultBench(t, Config{}, faults.Fault{Kind: faults.LostInterrupt, Vectors: []int{3}, Times: 1})
	b.nop(2)
	if b.raised(3) {
		t.Error("the interrupt came")
	}
	b.nop(4)
	if b.raised(3) {
		t.Error("an EQ that has fired interrupted again")
	}
	if v := b.vectors(); len(v) != 2 { // this arms, too
		t.Errorf("events %x, want two", v)
	}
	b.nop(5)
	if !b.raised(3) {
		t.Error("no interrupt after arming again")
	}
	b.struck(1)
}

func TestFaultMisdirectedInterrupt(t *testing.T) {
	b := newFaultBench(t, Config{}, faults.Fault{Kind: faults.MisdirectedInterrupt, Vectors: []int{3}, To: 5},
		faults.Fault{Kind: faults.MisdirectedInterrupt, Vectors: []int{6}, To: 5000})
	b.nop(2)
	if b.raised(3) || !b.raised(5) {
		t.Error("the interrupt did not arrive at vector 5")
	}
	other := b.newEQ(b.cmd.uar, 4, 6)
	f := b.function()
	b.card.Do(func() { f.enter(); f.events.Completion(other.n, 1); f.raise(6) })
	if b.raised(6) {
		t.Error("an interrupt that goes nowhere came")
	}
}

func TestFaultLostEQDoorbell(t *testing.T) {
	b := newFaultBench(t, Config{})
	b.inject(faults.Fault{Kind: faults.LostDoorbell, Doorbell: faults.EQBell, EQs: []uint8{b.cmd.n}, Times: 1})
	b.nop(1)
	b.raised(3)
	b.vectors() // arms: lost
	b.nop(1)
	if b.raised(3) {
		t.Error("armed by a doorbell that was lost")
	}
	b.vectors()
	b.nop(1)
	if !b.raised(3) {
		t.Error("not armed by the next")
	}
}

func TestFaultLostCQDoorbell(t *testing.T) {
	b := newDataBench(t)
	q := b.receiver(4, 256)
	q.post(16)
	b.inject(faults.Fault{Kind: faults.LostDoorbell, Doorbell: faults.CQBell, Queues: []uint32{q.cq.n}, Times: 1})
	q.cq.arm(false)
	b.receive(testFrame(60, 1))
	if n := b.completions(q.cq); n != 0 {
		t.Errorf("%d events for an arm that was lost", n)
	}
	q.cq.arm(false)
	if n := b.completions(q.cq); n != 1 {
		t.Errorf("%d events after arming again", n)
	}
}

// Report R32: a doorbell of a send queue is lost. Nothing moves until the next one.
func TestR32FaultLostSendDoorbell(t *testing.T) {
	b := newDataBench(t)
	q := b.sender(4)
	b.inject(faults.Fault{Kind: faults.LostDoorbell, Doorbell: faults.SQBell, Queues: []uint32{q.n}, Times: 1})
	frame := testFrame(60, 1)
	q.send(eth{segs: []any{b.place(frame)}})
	b.sendsExactly()
	if len(q.cq.take()) != 0 {
		t.Error("a completion without a doorbell")
	}
	q.send(eth{segs: []any{b.place(frame)}})
	b.sendsExactly(frame, frame)
}

// Report R32: a completion is lost. The frame is on the wire, and a later completion is there.
func TestR32FaultLostCQE(t *testing.T) {
	b := newDataBench(t)
	q := b.sender(4)
	r := b.receiver(4, 256)
	r.post(16)
	b.inject(faults.Fault{Kind: faults.LostCQE, Direction: faults.Sent, Times: 1})
	frame := testFrame(60, 1)
	q.send(eth{segs: []any{b.place(frame)}})
	b.sendsExactly(frame)
	if cqes := q.cq.take(); len(cqes) != 0 {
		t.Errorf("completions %x", cqes)
	}
	q.send(eth{segs: []any{b.place(frame)}})
	if cqes := q.cq.take(); len(cqes) != 1 || cqes[0].WQECounter() == 0 {
		t.Errorf("completions %x, want that of the second WQE", cqes)
	}
	b.receive(frame)
	if len(r.cq.take()) != 1 {
		t.Error("a receive completion is lost, too")
	}
	b.struck(1)
}

func TestFaultLostCQEByItsQueue(t *testing.T) {
	b := newDataBench(t)
	r := b.receiver(4, 256)
	r.post(16)
	b.inject(faults.Fault{Kind: faults.LostCQE, Queues: []uint32{r.cq.n + 1}}, faults.Fault{Kind: faults.LostCQE, Queues: []uint32{r.cq.n}, Skip: 1, Times: 2})
	for i := range 5 {
		b.receive(testFrame(60, byte(i)))
	}
	cqes := r.cq.take()
	if len(cqes) != 3 || cqes[1].WQECounter() != 3 || cqes[2].WQECounter() != 4 {
		t.Errorf("%d completions %x, want those of frames 0, 3 and 4", len(cqes), cqes)
	}
	b.struck(0, 2)
}

// Report R33: completions of sent frames come 16 s late, with many WQEs outstanding.
func TestR33FaultLateCQEsKeepTheirOrder(t *testing.T) {
	b := newDataBench(t)
	q := b.sender(6)
	b.inject(faults.Fault{Kind: faults.LateCQE, Direction: faults.Sent, Delay: 16 * time.Second, Times: 2})
	q.cq.arm(false)
	for range 5 {
		q.send(eth{segs: []any{b.place(testFrame(60, 1))}})
		b.clock.advance(time.Second)
	}
	b.port.tx = nil
	if cqes := q.cq.take(); len(cqes) != 0 {
		t.Fatalf("completions %x before their time", cqes)
	}
	b.clock.advance(11 * time.Second) // 16 s after the first frame
	b.settle()
	if cqes := q.cq.take(); len(cqes) != 1 || cqes[0].WQECounter() != 0 {
		t.Fatalf("completions %x, want the first", cqes)
	}
	if n := b.completions(q.cq); n != 1 {
		t.Errorf("%d events", n)
	}
	b.clock.advance(time.Second)
	b.settle()
	cqes := q.cq.take()
	if len(cqes) != 4 {
		t.Fatalf("%d completions, want the second and the three that waited behind it", len(cqes))
	}
	for i := range cqes {
		if got, want := cqes[i].WQECounter(), uint16(i+1); got != want {
			t.Errorf("completion %d is of WQE %d", i, got)
		}
	}
	q.send(eth{segs: []any{b.place(testFrame(60, 1))}})
	if len(q.cq.take()) != 1 {
		t.Error("late although the fault is over")
	}
}

func TestFaultLateCQEsOfAQueueThatIsGone(t *testing.T) {
	b := newDataBench(t)
	q := b.sender(4)
	b.inject(faults.Fault{Kind: faults.LateCQE, Delay: time.Second})
	q.send(eth{segs: []any{b.place(testFrame(60, 1))}})
	q.state(prm.QueueStateRDY, prm.QueueStateRST)
	b.must(&prm.DestroySQIn{SQN: q.n}, &prm.DestroySQOut{})
	b.must(&prm.DestroyCQIn{CQN: q.cq.n}, &prm.DestroyCQOut{})
	b.clock.advance(time.Second)
	b.settle()
	if cqes := q.cq.take(); len(cqes) != 0 {
		t.Errorf("completions %x written to memory that is the driver's again", cqes)
	}
	if n := len(b.function().states.held); n != 0 {
		t.Errorf("completions of %d queues are kept", n)
	}
}
