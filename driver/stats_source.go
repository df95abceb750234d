package driver

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"cxkit/driver/internal/hca"
	qstats "cxkit/driver/internal/stats"
	"cxkit/prm"
	"cxkit/stats"
)

// makeStats prepares reading the card's counters, and starts the worker that does what quick readings ask
// for.
func (n *NIC) makeStats(ctx context.Context) error {
	g := &n.base.general
	c := qstats.Config{
		Exec: n.base.objects, CounterSet: n.counterSet, LocalPort: localPort,
		SteerMissed: g.NICReceiveSteeringDiscard, InternalOOB: g.VNICEnvIntRQOOB, Oversize: g.EthWQETooSmall,
		Loopback: g.VportCounterLocalLoopback, Events: &qstats.ModuleEvents{},
	}
	if err := n.portFeatures(ctx, &c); err != nil {
		return err
	}
	monitor := qstats.NewMonitor(c, g)
	s := qstats.SourceConfig{
		Card: qstats.NewCard(c), Interval: *n.config.StatsInterval, Totals: n.softTotals, Queues: n.softQueues,
	}
	if monitor != nil {
		s.Arm = monitor.Arm
	}
	n.source = qstats.NewSource(s)
	cancel := n.base.events.OnOther(func(e prm.EQE) {
		switch e.EventType() {
		case prm.EventPortModule:
			var d prm.PortModuleEvent
			d.Get(e.Data()[:])
			c.Events.Count(d)
		case prm.EventMonitorCounter:
			if monitor != nil {
				n.source.Notify()
			}
		}
	})
	n.base.undo.Add("stop counting events", func(context.Context) error { cancel(); return nil })
	if err := n.monitor(ctx, monitor); err != nil {
		return err
	}
	n.startStatsWorker()
	return nil
}

// makeRepresentorStats prepares reading the counters of the vport that n's queues represent. They are what
// Linux has for a representor (en_rep.c): one command.
func (n *NIC) makeRepresentorStats(v Vport) error {
	n.source = qstats.NewSource(qstats.SourceConfig{
		Card: qstats.NewCard(qstats.Config{Exec: n.base.objects, Represents: uint16(v)}), Interval: *n.config.StatsInterval,
		Totals: n.representorTotals, Queues: func(*stats.Snapshot) {},
	})
	n.startStatsWorker()
	return nil
}

// representorTotals are a representor's own counters (en_rep.c, sw_rep_stats_desc).
func (n *NIC) representorTotals(s *stats.Snapshot) {
	r, t := n.sums()
	s.Add("rx_packets", r.Packets)
	s.Add("rx_bytes", r.Bytes)
	s.Add("tx_packets", t.Packets)
	s.Add("tx_bytes", t.Bytes)
}

// Stats reads the representor's counters: those of its queues, and those of its vport as the switch sees them,
// under the names of Linux's representors. vport_rx is what the virtual function has sent. See NIC.Stats.
func (r *Representor) Stats(ctx context.Context) (stats.Snapshot, error) { return r.nic.Stats(ctx) }

// QuickStats returns the counters as they were read last: see NIC.QuickStats. A refresh is one command.
func (r *Representor) QuickStats() stats.Snapshot { return r.nic.QuickStats() }

// startStatsWorker starts what serves quick readings. It ends when the NIC, or the representor, is taken down.
func (n *NIC) startStatsWorker() {
	work, stop := context.WithCancel(context.Background())
	var worker sync.WaitGroup
	n.base.undo.Add("stop statistics", func(ctx context.Context) error {
		// In this order: a command that is given up counts as failed, and its slot is out until it ends.
		err := n.source.Close(ctx)
		stop()
		worker.Wait()
		return err
	})
	worker.Go(func() { n.source.Work(work) })
}

// portFeatures asks which counters of port and bus there are (Linux mlx5_get_pcam_reg, mlx5_get_mcam_reg).
// A virtual function leaves them to the function that owns the port.
func (n *NIC) portFeatures(ctx context.Context, c *qstats.Config) error {
	g := &n.base.general
	if hca.Virtual(n.base.info.DeviceID) {
		return nil
	}
	c.Port = true
	if g.PCAMReg {
		var reg prm.RegPCAM
		if err := n.register(ctx, prm.RegIDPCAM, accessRead, &reg); err != nil {
			return fmt.Errorf("query counters of the port: %w", err)
		}
		const ppcnt = 8 // 0x5008: bit 8, counted from the end
		c.Port = reg.PortAccessRegCapMask[len(reg.PortAccessRegCapMask)-1-ppcnt/8]>>(ppcnt%8)&1 != 0
		c.PortFeatures.Get(reg.FeatureCapMask[:])
	}
	if g.MCAMReg {
		var reg prm.RegMCAM
		if err := n.register(ctx, prm.RegIDMCAM, accessRead, &reg); err != nil {
			return fmt.Errorf("query counters of the bus: %w", err)
		}
		c.BusFeatures.Get(reg.MngFeatureCapMask[:])
	}
	return nil
}

// monitor has firmware announce changes of counters of errors, if it can. A card that refuses is asked by
// command, like one that can't.
func (n *NIC) monitor(ctx context.Context, m *qstats.Monitor) error {
	if m == nil {
		return nil
	}
	err := m.Start(ctx)
	if err == nil {
		n.base.undo.Add("end monitoring of counters", m.Stop)
		err = m.Arm(ctx)
	}
	var refused *prm.CommandError
	switch {
	case errors.As(err, &refused):
		n.log.Warn("counters are not monitored", "err", err)
		return nil
	case err != nil:
		return err
	}
	n.source.Monitored()
	return nil
}

// inheritStats makes counters go on from where those of a closed NIC of the same function ended. Nobody
// uses n yet.
func (n *NIC) inheritStats(old *NIC) {
	n.source.Inherit(old.source, func() { n.inheritCounts(old) })
}
