package device

import (
	"testing"
	"time"

	"cxkit/pci"
	"cxkit/prm"
)

// moderated is a receiver whose CQ is armed and held back.
func moderated(t *testing.T, period, count uint16, mode uint8) (*dataBench, *testRQ) {
	b := newDataBench(t)
	q := b.receiver(6, 256)
	q.post(64)
	b.must(&prm.ModifyCQIn{CQN: q.cq.n, ModifyFieldSelect: 0x13,
		Context: prm.CQContext{CQPeriod: period, CQMaxCount: count, CQPeriodMode: mode}}, &prm.ModifyCQOut{})
	q.cq.arm(false)
	return b, q
}

// pass lets time go by.
func (b *dataBench) pass(d time.Duration) {
	b.clock.advance(d)
	b.card.Step(64)
}

func (b *dataBench) wantEvents(q *testCQ, want int, when string) {
	b.Helper()
	if n := b.completions(q); n != want {
		b.Errorf("%d events %s, want %d", n, when, want)
	}
}

func TestModerationFromTheCompletionHoldsAnEventForItsPeriod(t *testing.T) {
	b, q := moderated(t, 100, 0, 1)
	b.receive(testFrame(60, 1))
	b.pass(60 * time.Microsecond)
	b.receive(testFrame(60, 2)) // the period is the first one's
	b.wantEvents(q.cq, 0, "before the period is over")
	b.pass(39 * time.Microsecond)
	b.wantEvents(q.cq, 0, "a microsecond early")
	b.pass(time.Microsecond)
	b.wantEvents(q.cq, 1, "after the period")
	if n := len(q.cq.take()); n != 2 {
		t.Errorf("%d completions", n)
	}
	b.pass(time.Millisecond)
	b.wantEvents(q.cq, 0, "without an arm")
}

func TestModerationFromTheEventTellsAtOnceWhatComesAfterAPause(t *testing.T) {
	b, q := moderated(t, 100, 0, 0)
	b.receive(testFrame(60, 1))
	b.wantEvents(q.cq, 1, "for the first completion")
	q.cq.sn++
	q.cq.take()
	q.cq.arm(false)
	b.pass(30 * time.Microsecond)
	b.receive(testFrame(60, 2))
	b.wantEvents(q.cq, 0, "30 µs after the event before")
	b.pass(70 * time.Microsecond)
	b.wantEvents(q.cq, 1, "100 µs after the event before")
	q.cq.sn++
	q.cq.take()
	q.cq.arm(false)
	b.pass(100 * time.Microsecond)
	b.receive(testFrame(60, 3))
	b.wantEvents(q.cq, 1, "after a pause")
}

func TestModerationEndsWithTheCount(t *testing.T) {
	b, q := moderated(t, 4000, 3, 1)
	b.receive(testFrame(60, 1), testFrame(60, 2))
	b.wantEvents(q.cq, 0, "for two of three completions")
	b.receive(testFrame(60, 3))
	b.wantEvents(q.cq, 1, "for three")
	q.cq.sn++
	q.cq.take()
	b.receive(testFrame(60, 4))
	q.cq.arm(false) // the driver asks because it did not see it
	b.wantEvents(q.cq, 1, "for an arm behind a completion")
}

func TestShortPeriodsAndNoneHoldNothing(t *testing.T) {
	for _, period := range []uint16{0, 16, 49} {
		b, q := moderated(t, period, 64, 1)
		b.receive(testFrame(60, 1))
		b.wantEvents(q.cq, 1, "with a short period")
	}
}

func TestAChangeOfModerationMeetsAnEventThatIsHeld(t *testing.T) {
	b, q := moderated(t, 4000, 0, 1)
	b.receive(testFrame(60, 1))
	modify := func(period uint16) {
		b.must(&prm.ModifyCQIn{CQN: q.cq.n, ModifyFieldSelect: prm.ModifyCQPeriod, Context: prm.CQContext{CQPeriod: period}}, &prm.ModifyCQOut{})
	}
	modify(200)
	b.pass(200 * time.Microsecond)
	b.wantEvents(q.cq, 1, "after the new period")
	q.cq.sn++
	q.cq.take()
	q.cq.arm(false)
	b.receive(testFrame(60, 2))
	modify(0)
	b.wantEvents(q.cq, 1, "when moderation was turned off")
}

func TestEventsThatAreHeldEndWithTheirCQAndFunction(t *testing.T) {
	b, q := moderated(t, 100, 0, 1)
	b.receive(testFrame(60, 1))
	other := b.newCQ(4)
	b.must(&prm.ModifyCQIn{CQN: other.n, ModifyFieldSelect: 3, Context: prm.CQContext{CQPeriod: 100}}, &prm.ModifyCQOut{})
	sq := b.newSQ(other, 4)
	sq.state(prm.QueueStateRST, prm.QueueStateRDY)
	other.arm(false)
	sq.put(prm.WQENop, prm.CompletionAlways, nil)
	sq.ring0()
	b.must(&prm.DestroySQIn{SQN: sq.n}, &prm.DestroySQOut{})
	b.must(&prm.DestroyCQIn{CQN: other.n}, &prm.DestroyCQOut{})
	b.pass(100 * time.Microsecond)
	b.wantEvents(q.cq, 1, "for the CQ that is left")
	q.cq.sn++
	q.cq.take()
	q.cq.arm(false)
	b.receive(testFrame(60, 2))
	b.card.Function(0).Reset(pci.ResetFLR)
	b.pass(time.Millisecond)
	b.wantEvents(q.cq, 0, "after a reset")
}
