package device

import (
	"cxkit/device/internal/command"
	"cxkit/prm"
)

// Counters that firmware watches for a driver (reference 01d §2): so many in all, so many of the port's.
const (
	maxMonitored   = 7
	ppcntMonitored = 6
	outOfBuffer    = 4 // of a queue counter set
)

// monitor is what a driver has firmware watch. Armed, it raises one event when a counter moves.
type monitor struct {
	counters [maxMonitored]prm.MonitorCounter
	n        int
	armed    bool
	values   [maxMonitored]uint64 // at the time of arming
}

func (f *function) setMonitor(c *command.Call) command.Result {
	if f.caps.General.MaxNumOfMonitorCounters == 0 {
		return fault(prm.StatusBadOperation, synMonitorNone)
	}
	var in prm.SetMonitorCounterIn
	in.Get(c.In)
	if in.NumOfCounters > maxMonitored {
		return fault(prm.StatusLimitExceeded, synMonitorCount)
	}
	n := int(in.NumOfCounters)
	for i := range n {
		if _, ok := f.monitored(in.MonitorCounter[i]); !ok {
			return fault(prm.StatusBadParameter, synMonitorCounter)
		}
	}
	f.stopMonitor()
	f.monitor.n = n
	copy(f.monitor.counters[:], in.MonitorCounter[:n])
	return command.Result{}
}

// armMonitor remembers the counters. Arming again forgets what they were before.
func (f *function) armMonitor(*command.Call) command.Result {
	m := &f.monitor
	if m.n == 0 {
		return fault(prm.StatusBadResourceState, synMonitorIdle)
	}
	for i := range m.n {
		m.values[i], _ = f.monitored(m.counters[i])
	}
	if !m.armed {
		m.armed = true
		f.card.monitors++
	}
	return command.Result{}
}

// stopMonitor forgets everything.
func (f *function) stopMonitor() {
	if f.monitor.armed {
		f.card.monitors--
	}
	f.monitor = monitor{}
}

// monitored reads a counter; ok is false if there is none.
func (f *function) monitored(m prm.MonitorCounter) (value uint64, ok bool) {
	if m.Type == prm.MonitorQCounter {
		set, there := f.qsets.Get(m.CounterGroupID)
		if !there || m.Counter != outOfBuffer {
			return 0, false
		}
		return uint64(set.outOfBuffer), true
	}
	if m.Type != prm.MonitorPPCNT {
		return 0, false
	}
	p := &f.port.counters
	switch m.Counter {
	case 0:
		return p.inRangeLength, true
	case 1:
		return p.outOfRange, true
	case 2:
		return p.oversize, true
	case 3:
		return p.line.fcs, true
	case 4:
		return p.line.alignment, true
	case 5:
		return p.tx.discards, true
	}
	return 0, false
}

// checkMonitors tells drivers of counters that moved. A counter set that is gone does not move.
func (c *Card) checkMonitors() {
	for _, f := range c.functions {
		m := &f.monitor
		if !m.armed {
			continue
		}
		for i := range m.n {
			if v, ok := f.monitored(m.counters[i]); ok && v != m.values[i] {
				m.armed = false
				c.monitors--
				f.enter()
				f.events.Post(prm.EventMonitorCounter, 0, nil)
				break
			}
		}
	}
}
