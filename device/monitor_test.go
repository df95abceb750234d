package device

import (
	"testing"

	"cxkit/prm"
)

// monitorBench is a card that can watch counters, with an event queue that is told, and a counter set.
func monitorBench(t *testing.T) (b *bench, e *eq, set uint8) {
	b = newBench(t, Config{Profile: "cx6dx"})
	b.bringUp()
	e = b.newEQ(b.allocUAR(), 8, 1, prm.EventMonitorCounter)
	e.arm()
	var out prm.AllocQCounterOut
	b.must(&prm.AllocQCounterIn{}, &out)
	return b, e, out.CounterSetID
}

func watch(counters ...prm.MonitorCounter) *prm.SetMonitorCounterIn {
	in := &prm.SetMonitorCounterIn{NumOfCounters: uint16(len(counters))}
	copy(in.MonitorCounter[:], counters)
	return in
}

func TestMonitoredCounterRaisesOneEventAnArm(t *testing.T) {
	b, e, set := monitorBench(t)
	for name, c := range map[string]struct {
		counter prm.MonitorCounter
		move    func(f *function)
	}{
		"out of buffer": {prm.MonitorCounter{Type: prm.MonitorQCounter, Counter: 4, CounterGroupID: uint32(set)}, func(f *function) {
			q, _ := f.qsets.Get(uint32(set))
			q.outOfBuffer++
		}},
		"in range length":     {prm.MonitorCounter{Counter: 0}, func(f *function) { f.port.counters.inRangeLength++ }},
		"out of range length": {prm.MonitorCounter{Counter: 1}, func(f *function) { f.port.counters.outOfRange++ }},
		"too long":            {prm.MonitorCounter{Counter: 2}, func(f *function) { f.port.counters.oversize++ }},
		"out discards":        {prm.MonitorCounter{Counter: 5}, func(f *function) { f.port.counters.tx.discards++ }},
	} {
		b.must(watch(c.counter), &prm.SetMonitorCounterOut{})
		b.card.Do(func() { c.move(b.function()) })
		b.settle()
		if got := e.next(); got != nil {
			t.Errorf("%s: an event before it was armed", name)
		}
		for range 2 {
			b.must(&prm.ArmMonitorCounterIn{}, &prm.ArmMonitorCounterOut{})
			b.settle()
			if e.next() != nil {
				t.Errorf("%s: an event for what moved before it was armed", name)
			}
			b.card.Do(func() { c.move(b.function()) })
			b.settle()
			b.card.Do(func() { c.move(b.function()) })
			b.settle()
			got := e.next()
			if got == nil || got.EventType() != prm.EventMonitorCounter {
				t.Fatalf("%s: no event", name)
			}
			if e.next() != nil {
				t.Errorf("%s: two events", name)
			}
			e.arm()
		}
	}
}

func TestMonitoringEnds(t *testing.T) {
	b, e, _ := monitorBench(t)
	b.must(watch(prm.MonitorCounter{Counter: 2}), &prm.SetMonitorCounterOut{})
	b.must(&prm.ArmMonitorCounterIn{}, &prm.ArmMonitorCounterOut{})
	b.must(watch(), &prm.SetMonitorCounterOut{})
	b.card.Do(func() { b.function().port.counters.oversize++ })
	b.settle()
	if e.next() != nil || b.card.monitors != 0 {
		t.Errorf("an event after the end, or %d functions that wait for one", b.card.monitors)
	}
	b.refused(&prm.ArmMonitorCounterIn{}, &prm.ArmMonitorCounterOut{}, prm.StatusBadResourceState, synMonitorIdle)
}

func TestMonitorRefusesWhatIsNotThere(t *testing.T) {
	b, _, set := monitorBench(t)
	for _, in := range []*prm.SetMonitorCounterIn{
		watch(prm.MonitorCounter{Counter: 6}),
		watch(prm.MonitorCounter{Type: 2}),
		watch(prm.MonitorCounter{Type: prm.MonitorQCounter, Counter: 5, CounterGroupID: uint32(set)}),
		watch(prm.MonitorCounter{Type: prm.MonitorQCounter, Counter: 4, CounterGroupID: uint32(set) + 1}),
	} {
		b.refused(in, &prm.SetMonitorCounterOut{}, prm.StatusBadParameter, synMonitorCounter)
	}
	many := watch()
	many.NumOfCounters = 8
	b.refused(many, &prm.SetMonitorCounterOut{}, prm.StatusLimitExceeded, synMonitorCount)

	old := newBench(t, Config{Profile: "cx5"})
	old.bringUp()
	old.refused(watch(), &prm.SetMonitorCounterOut{}, prm.StatusBadOperation, synMonitorNone)
}

// A counter set that is given back while it is watched moves no more.
func TestMonitoredCounterSetMayGo(t *testing.T) {
	b, e, set := monitorBench(t)
	b.must(watch(prm.MonitorCounter{Type: prm.MonitorQCounter, Counter: 4, CounterGroupID: uint32(set)}), &prm.SetMonitorCounterOut{})
	b.must(&prm.ArmMonitorCounterIn{}, &prm.ArmMonitorCounterOut{})
	b.must(&prm.DeallocQCounterIn{CounterSetID: set}, &prm.DeallocQCounterOut{})
	b.settle()
	if e.next() != nil {
		t.Error("an event of a counter set that is gone")
	}
}
