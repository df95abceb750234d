package device

import (
	"math"
	"testing"
	"time"

	"cxkit/prm"
)

// busBench is a card behind a bus of 1000 bytes a millisecond, with room for 10,000 bytes.
func busBench(t *testing.T, perQueue int) *dataBench {
	t.Helper()
	return dataBenchOn(t, newBench(t, Config{Bus: Bus{BytesPerSecond: 1_000_000, PerQueue: perQueue, Buffer: 10_000}}))
}

func burstOf(n int) [][]byte {
	frames := make([][]byte, n)
	for i := range frames {
		frames[i] = testFrame(120, byte(i)) // 200 bytes on the bus
	}
	return frames
}

// Reports R36: at the bus' limit good frames are lost as rx_discards_phy, though every ring has buffers, and
// the more queues there are the earlier.
func TestFramesThatTheBusHasNoRoomForAreDiscardsNotOutOfBuffer(t *testing.T) {
	b := busBench(t, 0)
	q := b.receiver(8, 256)
	q.post(256)
	b.receive(burstOf(80)...) // room for 50
	p := b.card.ports[0]
	delivered := len(q.cq.take())
	if delivered != 50 || p.counters.rx.discards != 30 || p.counters.overflow != 30 || b.outOfBuffer() != 0 {
		t.Errorf("%d delivered, %d discards, %d overflows, out of buffer %d; want 50, 30, 30, 0",
			delivered, p.counters.rx.discards, p.counters.overflow, b.outOfBuffer())
	}
	if p.counters.rx.frames != 80 || p.counters.rx.prioDiscards[0] != 30 {
		t.Errorf("the port counted %d frames, %d discards of priority 0", p.counters.rx.frames, p.counters.rx.prioDiscards[0])
	}
	b.clock.advance(time.Millisecond) // five more
	b.receive(burstOf(20)...)
	if n := len(q.cq.take()); n != 5 {
		t.Errorf("%d delivered a millisecond later, want 5", n)
	}
	var bus prm.RegMPCNT
	b.reg(prm.AccessRegRead, prm.RegIDMPCNT, &bus)
	var c prm.MPCNTPerformance
	c.Get(bus.CounterSet[:])
	if c.TXOverflowBufferPkt != 45 {
		t.Errorf("MPCNT says %d frames overflowed, want 45", c.TXOverflowBufferPkt)
	}
}

func TestManyQueuesCostTheBusMore(t *testing.T) {
	var delivered []int
	for _, queues := range []int{1, 16} {
		b := busBench(t, 50)
		q := b.receiver(8, 256)
		if queues > 1 {
			b.idleRQs(queues - 1)
		}
		q.post(256)
		b.receive(burstOf(80)...)
		delivered = append(delivered, len(q.cq.take()))
	}
	if delivered[0] != 40 || delivered[1] != 10 {
		t.Errorf("%d frames over 1 and 16 queues, want 40 and 10", delivered)
	}
}

// A wire with flow control waits for the bus.
func TestLosslessPortWaitsForTheBus(t *testing.T) {
	b := busBench(t, 0)
	b.port.lossless = true
	if _, err := b.card.Plug(0, b.port); err != nil {
		t.Fatal(err)
	}
	q := b.receiver(8, 256)
	q.post(256)
	b.receive(burstOf(80)...)
	got := len(q.cq.take())
	for range 10 {
		b.clock.advance(time.Millisecond)
		b.settle()
		got += len(q.cq.take())
	}
	if p := b.card.ports[0]; got != 80 || p.counters.rx.discards != 0 || p.counters.rx.frames != 80 {
		t.Errorf("%d frames, %d discards, %d counted", got, p.counters.rx.discards, p.counters.rx.frames)
	}
}

func TestBusIsChecked(t *testing.T) {
	for _, bus := range []Bus{{BytesPerSecond: -1}, {PerQueue: -1}, {Buffer: -1}, {BytesPerSecond: 1 << 50}, {Buffer: math.MaxInt}} {
		if _, err := New(Config{Bus: bus}); err == nil {
			t.Errorf("%+v is not refused", bus)
		}
	}
}

func TestPauseFramesCountByPriority(t *testing.T) {
	b := newDataBench(t)
	pause := testFrame(60, 1)
	copy(pause[12:], []byte{0x88, 0x08, 0x00, 0x01})
	priorities := testFrame(60, 1)
	copy(priorities[12:], []byte{0x88, 0x08, 0x01, 0x01, 0x00, 0x28}) // 3 and 5
	b.receive(pause, priorities)
	if got, want := b.card.ports[0].counters.rx.prioPause, [8]uint64{0: 1, 3: 1, 5: 1}; got != want {
		t.Errorf("%d, want %d", got, want)
	}
	var reg prm.RegPPCNT
	reg.LocalPort, reg.Grp, reg.PrioTC = 1, prm.PPCNTGroupPerPriority, 5
	b.reg(prm.AccessRegRead, prm.RegIDPPCNT, &reg)
	var c prm.PPCNTPerPriority
	c.Get(reg.CounterSet[:])
	if c.RXPause != 1 {
		t.Errorf("PPCNT of priority 5 says %d", c.RXPause)
	}
}
