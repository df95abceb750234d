package device

import (
	"cxkit/device/internal/command"
	"cxkit/device/internal/object"
	"cxkit/prm"
)

// counterHandlers are the commands that read counters.
func (f *function) counterHandlers() command.Table {
	const initialised = command.Initialised
	return command.Table{
		prm.OpQueryVportCounter: {Handle: f.queryVportCounter, Phase: initialised, MinIn: prm.QueryVportCounterInSize},
		prm.OpQueryVNICEnv:      {Handle: f.queryVNICEnv, Phase: initialised},
		prm.OpAllocQCounter:     {Handle: f.allocQCounter, Phase: initialised, MinOut: 12, Creates: object.QCounter},
		prm.OpDeallocQCounter:   {Handle: f.deallocQCounter, Phase: initialised},
		prm.OpQueryQCounter:     {Handle: f.queryQCounter, Phase: initialised, MinIn: prm.QueryQCounterInSize},
		prm.OpSetMonitorCounter: {Handle: f.setMonitor, Phase: initialised, MinIn: prm.SetMonitorCounterInSize},
		prm.OpArmMonitorCounter: {Handle: f.armMonitor, Phase: initialised},
	}
}

func (t traffic) prm() prm.TrafficCounter {
	return prm.TrafficCounter{Packets: t.packets, Octets: t.octets}
}

func (f *function) queryVportCounter(c *command.Call) command.Result {
	var in prm.QueryVportCounterIn
	in.Get(c.In)
	p, r := f.vportOf(in.OtherVport, in.VportNumber)
	if !r.OK() {
		return r
	}
	if in.PortNum > localPort {
		return fault(prm.StatusBadParameter, synRegisterPort)
	}
	n := &p.counters
	if p.function != nil {
		n = &p.function.counters
	}
	c.Reply(&prm.QueryVportCounterOut{
		ReceivedErrors: n.rxErrors.prm(), TransmitErrors: n.txErrors.prm(),
		ReceivedEthBroadcast: n.rx.broadcast.prm(), TransmittedEthBroadcast: n.tx.broadcast.prm(),
		ReceivedEthUnicast: n.rx.unicast.prm(), TransmittedEthUnicast: n.tx.unicast.prm(),
		ReceivedEthMulticast: n.rx.multicast.prm(), TransmittedEthMulticast: n.tx.multicast.prm(),
		LocalLoopback: n.loopback.prm(),
	})
	if in.Clear {
		n.rx, n.tx = castCounters{}, castCounters{}
		n.rxErrors, n.txErrors, n.loopback = traffic{}, traffic{}, traffic{}
	}
	return command.Result{}
}

func (f *function) queryVNICEnv(c *command.Call) command.Result {
	var in prm.QueryVNICEnvIn
	in.Get(c.In)
	g, r := f.functionVport(in.OtherVport, in.VportNumber)
	if !r.OK() {
		return r
	}
	if c.OpMod != 0 {
		return fault(prm.StatusBadOperation, synOpMod)
	}
	n := &g.counters
	c.Reply(&prm.QueryVNICEnvOut{VportEnv: prm.VNICDiagnosticStatistics{
		TotalErrorQueues:          n.errorQueues,
		NICReceiveSteeringDiscard: n.steeringDiscard,
		ReceiveDiscardVportDown:   n.rxDiscardDown,
		TransmitDiscardVportDown:  n.txDiscardDown,
		AsyncEQOverrun:            g.events.AsyncOverruns,
		CompEQOverrun:             g.events.CompletionOverruns,
		InvalidCommand:            n.invalidCommands,
		QuotaExceededCommand:      n.quotaExceeded,
		CQOverrun:                 n.cqOverrun,
		EthWQETooSmall:            n.wqeTooSmall,
	}})
	return command.Result{}
}

func (f *function) allocQCounter(c *command.Call) command.Result {
	n, ok := f.qsets.Add(&qCounterSet{})
	if !ok {
		return fault(prm.StatusLimitExceeded, synNoNumber)
	}
	c.Reply(&prm.AllocQCounterOut{CounterSetID: uint8(n)})
	return command.Result{}
}

func (f *function) deallocQCounter(c *command.Call) command.Result {
	n := uint32(c.In[11])
	q, ok := f.qsets.Get(n)
	switch {
	case !ok:
		return fault(prm.StatusBadResource, synNoCounterSet)
	case q.Held():
		return fault(prm.StatusBadResourceState, synInUse)
	}
	f.qsets.Remove(n)
	return command.Result{}
}

func (f *function) queryQCounter(c *command.Call) command.Result {
	var in prm.QueryQCounterIn
	in.Get(c.In)
	if in.OtherVport || in.VportNumber != 0 {
		return fault(prm.StatusBadParameter, synOtherVport)
	}
	q, ok := f.qsets.Get(uint32(in.CounterSetID))
	if !ok || in.Aggregate {
		return fault(prm.StatusBadResource, synNoCounterSet)
	}
	c.Reply(&prm.QueryQCounterOut{OutOfBuffer: q.outOfBuffer, CQOverflow: q.cqOverflow})
	if in.Clear {
		q.qCounter = qCounter{}
	}
	return command.Result{}
}
