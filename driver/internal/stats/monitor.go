package stats

import (
	"context"
	"fmt"

	"cxkit/driver/internal/cmdif"
	"cxkit/prm"
)

// Monitor has firmware say by event when one of the counters of errors moves (Linux en/monitor_stats.c).
// One goroutine uses it at a time.
type Monitor struct {
	exec cmdif.Executor
	in   prm.SetMonitorCounterIn
}

// ppcntMonitored are the port's counters that are monitored: PPCNT counter numbers.
const ppcntMonitored = 6

// outOfBuffer is the number of a queue counter set's out_of_buffer.
const outOfBuffer = 4

// NewMonitor makes a monitor of the counters that c reads; nil if the card has too few counters to be
// monitored.
func NewMonitor(c Config, general *prm.CapGeneral) *Monitor {
	m := &Monitor{exec: c.Exec}
	add := func(t prm.MonitorCounterType, counter uint16, set uint32) {
		m.in.MonitorCounter[m.in.NumOfCounters] = prm.MonitorCounter{Type: t, Counter: counter, CounterGroupID: set}
		m.in.NumOfCounters++
	}
	if general.NumPPCNTMonitorCounters < ppcntMonitored || general.NumQMonitorCounters < 1 || c.CounterSet == 0 || !c.Port {
		return nil
	}
	for i := range uint16(ppcntMonitored) {
		add(prm.MonitorPPCNT, i, 0)
	}
	add(prm.MonitorQCounter, outOfBuffer, uint32(c.CounterSet))
	if general.MaxNumOfMonitorCounters < m.in.NumOfCounters {
		return nil
	}
	return m
}

// Start names the counters to firmware. Arm makes it look.
func (m *Monitor) Start(ctx context.Context) error {
	if err := m.exec.Exec(ctx, &m.in, &prm.SetMonitorCounterOut{}); err != nil {
		return fmt.Errorf("monitor counters: %w", err)
	}
	return nil
}

// Arm asks for one event when a counter differs from what it is now.
func (m *Monitor) Arm(ctx context.Context) error {
	if err := m.exec.Exec(ctx, &prm.ArmMonitorCounterIn{}, &prm.ArmMonitorCounterOut{}); err != nil {
		return fmt.Errorf("arm monitored counters: %w", err)
	}
	return nil
}

// Stop ends it.
func (m *Monitor) Stop(ctx context.Context) error {
	if err := m.exec.Exec(ctx, &prm.SetMonitorCounterIn{}, &prm.SetMonitorCounterOut{}); err != nil {
		return fmt.Errorf("end monitoring of counters: %w", err)
	}
	return nil
}
