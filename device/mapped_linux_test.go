package device

import (
	"context"
	"encoding/binary"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	faults "cxkit/device/fault"
	"cxkit/dma"
	"cxkit/prm"
)

// newMappedBench is a bench whose driver rings by memory.
func newMappedBench(t testing.TB) *dataBench {
	t.Helper()
	return dataBenchOn(t, newBench(t, Config{MapDoorbells: true}))
}

// armQuietly arms a CQ, and leaves it to the next doorbell to be seen or to overwrite it.
func (q *testCQ) armQuietly() {
	word := q.sn<<28 | q.ci&0xffffff
	dma.StoreBE32(q.record.Bytes, 4, word)
	q.b.regs.Store64(uint64(q.b.uar)<<uarShift+prm.UARCQArmOff, uint64(word)<<32|uint64(q.n))
}

func TestDoorbellsInMemoryThatAreOverwrittenLoseNoWork(t *testing.T) {
	b := newMappedBench(t)
	var want [][]byte
	var queues []*testSQ
	for i := range 3 {
		q := b.sender(4)
		frame := testFrame(100, byte(i))
		q.put(prm.WQESend, prm.CompletionAlways, eth{segs: []any{b.place(frame)}}.bytes(b))
		queues, want = append(queues, q), append(want, frame)
	}
	for _, q := range queues {
		q.bell() // each overwrites the one before
	}
	b.settle()
	b.sendsExactly(want...)
	for i, q := range queues {
		if n := len(q.cq.take()); n != 1 {
			t.Errorf("queue %d: %d completions", i, n)
		}
	}
}

func TestArmsInMemoryThatAreOverwrittenLoseNoEvent(t *testing.T) {
	b := newMappedBench(t)
	frame := testFrame(100, 1)
	var queues []*testSQ
	for range 3 {
		queues = append(queues, b.sender(4))
	}
	events := func() (n int) {
		for e := b.comp.next(); e != nil; e = b.comp.next() {
			n++
		}
		return n
	}
	send := func() {
		for _, q := range queues {
			q.send(eth{segs: []any{b.place(frame)}})
			q.cq.take()
		}
	}
	send() // a first arm looks like no arm: new CQs are armed
	if n := events(); n != 3 {
		t.Fatalf("%d events of 3 new CQs", n)
	}
	send()
	if n := events(); n != 0 {
		t.Fatalf("%d events of CQs that were not armed again", n)
	}
	for range 10 { // counts of events wrap at 4
		for _, q := range queues {
			q.cq.sn = (q.cq.sn + 1) & 3
			q.cq.armQuietly() // each overwrites the one before
		}
		send()
		if n := events(); n != 3 {
			t.Fatalf("%d events of 3 CQs", n)
		}
	}
}

func TestAnArmInMemoryBehindCompletionsFires(t *testing.T) {
	b := newMappedBench(t)
	q := b.sender(4)
	frame := testFrame(100, 1)
	q.send(eth{segs: []any{b.place(frame)}})
	for b.comp.next() != nil {
	}
	q.send(eth{segs: []any{b.place(frame)}}) // not armed
	q.cq.next()                              // one of two
	q.cq.sn = 1
	q.cq.armQuietly()
	b.settle()
	if b.comp.next() == nil {
		t.Error("a CQ that was armed with a completion left sent no event")
	}
}

func TestEQsInterruptWithoutAnArmInMemory(t *testing.T) {
	b := newMappedBench(t)
	q := b.sender(4)
	for i := range 3 {
		q.send(eth{segs: []any{b.place(testFrame(100, 1))}})
		if !b.raised(1) {
			t.Errorf("event %d did not interrupt", i)
		}
		if b.raised(1) {
			t.Errorf("event %d interrupted twice", i)
		}
		q.cq.take()
		b.comp.next()
		q.cq.sn = (q.cq.sn + 1) & 3
		q.cq.armQuietly()
	}
	// More than the EQ has entries, of which the card never learns that they were taken.
	for i := range 1 << b.comp.log {
		q.send(eth{segs: []any{b.place(testFrame(60, 1))}})
		q.cq.take()
		if b.comp.next() == nil || !b.raised(1) {
			t.Fatalf("event %d is missing", i)
		}
		q.cq.sn = (q.cq.sn + 1) & 3
		q.cq.armQuietly()
	}
}

// TestAResetSQIsNotRungByTheRecordOfBefore: Linux does not clear the record when it recovers an SQ.
func TestAResetSQIsNotRungByTheRecordOfBefore(t *testing.T) {
	b := newMappedBench(t)
	q, other := b.sender(4), b.sender(4)
	frame := testFrame(100, 1)
	q.send(eth{segs: []any{b.place(frame)}})
	q.state(prm.QueueStateRDY, prm.QueueStateRST)
	q.state(prm.QueueStateRST, prm.QueueStateRDY)
	b.port.tx = nil
	other.send(eth{segs: []any{b.place(frame)}})
	b.sendsExactly(frame)
	if n := b.errors(prm.EventWQInvalidRequest) + b.errors(prm.EventWQCatastrophic); n != 0 {
		t.Fatalf("%d errors of a queue that was not rung", n)
	}
	q.pi = 0
	q.send(eth{segs: []any{b.place(frame)}}) // the record is as before
	b.sendsExactly(frame)
}

func TestDoorbellPagesInMemoryAreHandedOutEmpty(t *testing.T) {
	b := newMappedBench(t)
	memory := b.function().info.Mapped.Memory.Bytes()
	page := func(n uint32) []byte { return memory[n<<uarShift:][:1<<uarShift] }
	left := page(b.uar + 1)
	copy(left, "what a driver wrote to a page that is not its own")
	n := b.allocUAR()
	if n != b.uar+1 {
		t.Fatalf("page %d behind page %d", n, b.uar)
	}
	if binary.BigEndian.Uint64(left) != 0 {
		t.Error("the page was handed out with something in it")
	}
	copy(page(n), "secret")
	b.fn.Reset(context.Background())
	if binary.BigEndian.Uint64(page(n)) != 0 {
		t.Error("a reset leaves what was in a page")
	}
}

func TestNonsenseInDoorbellPagesIsHarmless(t *testing.T) {
	b := newMappedBench(t)
	q := b.sender(4)
	base := uint64(b.uar) << uarShift
	for v := uint32(1); v != 0; v <<= 1 {
		for off := uint64(0); off < 1<<uarShift; off += 4 {
			b.regs.Store32(base+off, v*0x9e3779b1)
		}
		b.settle()
	}
	for b.comp.next() != nil {
	}
	frame := testFrame(100, 1)
	q.send(eth{segs: []any{b.place(frame)}})
	b.sendsExactly(frame)
}

// TestAnIdleCardLooksForDoorbellsAThousandTimesASecond: and not at all without queues.
func TestAnIdleCardLooksForDoorbellsAThousandTimesASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int64
		on := newBench(t, Config{MapDoorbells: true, Clock: func() time.Time {
			looks.Add(1)
			return time.Now()
		}})
		time.Sleep(time.Second) // it boots
		b := dataBenchOn(t, on)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.card.Run(ctx) }()
		defer func() {
			cancel()
			<-done
		}()
		count := func() int64 {
			time.Sleep(time.Second)
			before := looks.Load()
			time.Sleep(time.Second)
			return looks.Load() - before
		}
		if n := count(); n > 2 {
			t.Errorf("%d looks in a second without queues", n)
		}
		b.rest = func() { time.Sleep(time.Second); synctest.Wait() } // Run steps
		b.sender(4)
		if n := count(); n < 900 || n > 4000 {
			t.Errorf("%d looks in a second with queues, want one or two a millisecond", n)
		}
	})
}

func TestLookingForDoorbellsDoesNotAllocate(t *testing.T) {
	b := newMappedBench(t)
	q := b.sender(4)
	if n := testing.AllocsPerRun(100, func() {
		q.cq.sn = (q.cq.sn + 1) & 3
		q.cq.armQuietly()
		b.card.Step(1)
	}); n != 0 {
		t.Errorf("%v allocations a look", n)
	}
}

func TestFaultLostDoorbellInMemory(t *testing.T) {
	b := newMappedBench(t)
	q := b.sender(4)
	frame := testFrame(60, 1)
	b.inject(faults.Fault{Kind: faults.LostDoorbell, Doorbell: faults.SQBell, Queues: []uint32{q.n}, Times: 1})
	q.send(eth{segs: []any{b.place(frame)}})
	b.sendsExactly()
	q.send(eth{segs: []any{b.place(frame)}})
	b.sendsExactly(frame, frame)

	b.function().unreachable.Store(true) // as the fault of a BAR that reads as ones does
	q.send(eth{segs: []any{b.place(frame)}})
	b.function().unreachable.Store(false)
	b.settle()
	b.sendsExactly()
	q.send(eth{segs: []any{b.place(frame)}})
	b.sendsExactly(frame, frame)
}
