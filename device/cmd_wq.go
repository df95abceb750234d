package device

import (
	"cxkit/device/internal/command"
	"cxkit/device/internal/mkey"
	"cxkit/device/internal/queue"
	"cxkit/prm"
)

// Commands on receive queues, send queues and TIS.

func (f *function) createRQ(c *command.Call) command.Result {
	var in prm.CreateRQIn
	in.Get(c.In)
	ctx := &in.Context
	if ctx.DelayDropEn || ctx.Hairpin || ctx.MemRQType > prm.MemRQRMP {
		return refuse(prm.StatusBadParameter, synRQFeature, "delay drop and hairpin are not supported")
	}
	if r := checkTimestamps(ctx.TSFormat, f.caps.General.RQTSFormat); !r.OK() {
		return r
	}
	if ctx.State != prm.QueueStateRST {
		return refuse(prm.StatusBadParameter, synTransition, "a queue is made in RST, not %v", ctx.State)
	}
	var wq *queue.WQ
	var shared *rmp
	var r command.Result
	pdn, ok := ctx.WQ.PD, true
	if ctx.MemRQType == prm.MemRQRMP {
		if shared, ok = f.rmps.Get(ctx.RMPN); !ok {
			return refuse(prm.StatusBadResource, synNoRMP, "no RMP %#x", ctx.RMPN)
		}
		wq, pdn = shared.wq, shared.context.WQ.PD
	} else if wq, r = f.receiveWQ(&ctx.WQ, c.In[prm.CreateRQInSize:]); !r.OK() {
		return r
	}
	cq, ok := f.cqs.Get(ctx.CQN)
	if !ok {
		return refuse(prm.StatusBadResource, synNoCQ, "no CQ %#x", ctx.CQN)
	}
	// An RQ may name PD 0, which nobody is given: no key reaches memory for it. Linux's drop RQ does.
	pd, ok := f.pds.Get(pdn)
	if !ok && pdn != 0 {
		return fault(prm.StatusBadResource, synNoPD)
	}
	set, r := f.counterSet(ctx.CounterSetID)
	if !r.OK() {
		return r
	}
	q := queue.NewRQ(f.env, queue.RQConfig{
		WQ: wq, Shared: shared != nil, CQ: cq, User: mkey.User{PD: pdn, Reserved: ctx.RLKY}, KeepVLAN: ctx.VSD,
		ScatterFCS: ctx.ScatterFCS, Flush: ctx.FlushInErrorEn, RealTime: ctx.TSFormat == prm.TSFormatRealTime, Context: *ctx,
	})
	n, ok := f.rqs.Add(q)
	if !ok {
		return fault(prm.StatusLimitExceeded, synNoNumber)
	}
	q.SetNumber(n, f.userIndex(ctx.UserIndex))
	cq.Hold()
	if shared != nil {
		shared.Hold()
	} else {
		wq.Config().Uses.Hold()
	}
	if pd != nil {
		pd.Hold()
	}
	if set != nil {
		set.Hold()
		q.Config().OutOfBuffer = &set.outOfBuffer
	}
	c.Reply(&prm.CreateRQOut{RQN: n})
	return command.Result{}
}

// Values of rq_ts_format and sq_ts_format: what a card's CQEs can show.
const (
	tsCapRealTime = 1
	tsCapBoth     = 2
)

// checkTimestamps checks a queue's ts_format against the capability.
func checkTimestamps(format prm.TSFormat, supported uint8) command.Result {
	ok := true
	switch format {
	case prm.TSFormatFreeRunning:
		ok = supported != tsCapRealTime
	case prm.TSFormatDefault:
	case prm.TSFormatRealTime:
		ok = supported == tsCapRealTime || supported == tsCapBoth
	default:
		ok = false
	}
	if !ok {
		return refuse(prm.StatusBadParameter, synTSFormat, "ts_format %v", format)
	}
	return command.Result{}
}

// userIndex is what completions carry at 0x20: the queue's user_index when the driver has left
// cqe_version at 1.
func (f *function) userIndex(index uint32) uint32 {
	if f.caps.General.CQEVersion == 0 {
		return 0
	}
	return index
}

// counterSet finds a q-counter set; 0 is none.
func (f *function) counterSet(id uint8) (*qCounterSet, command.Result) {
	if id == 0 {
		return nil, command.Result{}
	}
	set, ok := f.qsets.Get(uint32(id))
	if !ok {
		return nil, fault(prm.StatusBadResource, synNoCounterSet)
	}
	return set, command.Result{}
}

// Bits of MODIFY_RQ's modify_bitmask.
const (
	rqVSD          = 1 << 1
	rqScatterFCS   = 1 << 2
	rqCounterSetID = 1 << 3
)

func (f *function) modifyRQ(c *command.Call) command.Result {
	var in prm.ModifyRQIn
	in.Get(c.In)
	q, ok := f.rqs.Get(in.RQN)
	if !ok {
		return refuse(prm.StatusBadResource, synNoRQ, "no RQ %#x", in.RQN)
	}
	if in.ModifyBitmask&^(rqVSD|rqScatterFCS|rqCounterSetID) != 0 {
		return refuse(prm.StatusBadParameter, synModifyBits, "modify_bitmask %#x", in.ModifyBitmask)
	}
	if r := transition(q.State(), in.RQState, in.Context.State); !r.OK() {
		return r
	}
	config := q.Config()
	if in.ModifyBitmask&rqCounterSetID != 0 {
		set, r := f.counterSet(in.Context.CounterSetID)
		if !r.OK() {
			return r
		}
		config.OutOfBuffer = nil
		if set != nil {
			set.Hold()
			config.OutOfBuffer = &set.outOfBuffer
		}
		f.dropCounterSet(config.Context.CounterSetID)
		config.Context.CounterSetID = in.Context.CounterSetID
	}
	if in.ModifyBitmask&rqVSD != 0 {
		config.KeepVLAN, config.Context.VSD = in.Context.VSD, in.Context.VSD
	}
	if in.ModifyBitmask&rqScatterFCS != 0 {
		q.SetScatterFCS(in.Context.ScatterFCS)
	}
	f.begin()
	q.SetState(in.Context.State)
	f.env.Flush()
	return command.Result{}
}

func (f *function) dropCounterSet(id uint8) {
	if set, ok := f.qsets.Get(uint32(id)); ok {
		set.Drop()
	}
}

func (f *function) queryRQ(c *command.Call) command.Result {
	n := number24(c)
	q, ok := f.rqs.Get(n)
	if !ok {
		return refuse(prm.StatusBadResource, synNoRQ, "no RQ %#x", n)
	}
	c.Reply(&prm.QueryRQOut{Context: q.Query(), PAS: f.rqPages(q)})
	return command.Result{}
}

// rqPages lists the pages of an RQ's own ring.
func (f *function) rqPages(q *queue.RQ) []uint64 {
	if q.Config().Shared {
		return nil
	}
	return q.Config().WQ.Config().Buffer.Pages().Addrs()
}

func (f *function) destroyRQ(c *command.Call) command.Result {
	n := number24(c)
	q, ok := f.rqs.Get(n)
	if !ok {
		return refuse(prm.StatusBadResource, synNoRQ, "no RQ %#x", n)
	}
	if q.Held() {
		return refuse(prm.StatusBadResourceState, synInUse, "%d TIRs or RQTs lead to RQ %#x", q.Holders(), n)
	}
	config := q.Config()
	config.CQ.Drop()
	if pd, ok := f.pds.Get(config.User.PD); ok {
		pd.Drop()
	}
	if config.Shared {
		if shared, ok := f.rmps.Get(config.Context.RMPN); ok {
			shared.Drop()
		}
	} else {
		config.WQ.Config().Uses.Drop()
	}
	f.dropCounterSet(config.Context.CounterSetID)
	f.rqs.Remove(n)
	return command.Result{}
}

func (f *function) createSQ(c *command.Call) command.Result {
	var in prm.CreateSQIn
	in.Get(c.In)
	ctx := &in.Context
	if ctx.AllowSWP || ctx.Hairpin || ctx.NonWire ||
		ctx.TSCQEToDestCQN != 0 || ctx.PacketPacingRateLimitIndex != 0 || ctx.QOSQueueGroupID != 0 {
		return refuse(prm.StatusBadParameter, synSQFeature, "the SQ asks for a feature without a capability")
	}
	if ctx.MinWQEInlineMode > prm.InlineModeTCPUDP {
		return fault(prm.StatusBadParameter, synInlineMode)
	}
	if r := checkTimestamps(ctx.TSFormat, f.caps.General.SQTSFormat); !r.OK() {
		return r
	}
	if ctx.State != prm.QueueStateRST {
		return refuse(prm.StatusBadParameter, synTransition, "a queue is made in RST, not %v", ctx.State)
	}
	if ctx.WQ.WQType != prm.WQTypeCyclic {
		return refuse(prm.StatusBadParameter, synWQType, "wq_type %v: a send queue is cyclic", ctx.WQ.WQType)
	}
	m, r := f.wqMemory(&ctx.WQ, c.In[prm.CreateSQInSize:], queue.LogBB, queue.LogBB)
	if !r.OK() {
		return r
	}
	cq, ok := f.cqs.Get(ctx.CQN)
	if !ok {
		return refuse(prm.StatusBadResource, synNoCQ, "no CQ %#x", ctx.CQN)
	}
	pd, ok := f.pds.Get(ctx.WQ.PD)
	if !ok {
		return fault(prm.StatusBadResource, synNoPD)
	}
	u, ok := f.uars.Get(ctx.WQ.UARPage)
	if !ok {
		return fault(prm.StatusBadResource, synNoUAR)
	}
	if ctx.TISLstSz > 1 {
		return refuse(prm.StatusBadParameter, synTISCount, "tis_lst_sz %d: at most 1", ctx.TISLstSz)
	}
	var t *tis
	if ctx.TISLstSz == 1 {
		if t, ok = f.tiss.Get(ctx.TISNum0); !ok {
			return refuse(prm.StatusBadResource, synNoTIS, "no TIS %#x", ctx.TISNum0)
		}
	}
	prio := uint8(0)
	if t != nil {
		prio = t.context.Prio >> 1 & 7
	}
	q := queue.NewSQ(f.env, queue.SQConfig{
		Buffer: m.ring, Record: m.record, Uses: m.uses, LogSize: ctx.WQ.LogWQSz, CQ: cq,
		User: mkey.User{PD: ctx.WQ.PD, Reserved: ctx.RLKY}, UAR: ctx.WQ.UARPage, Flush: ctx.FlushInErrorEn,
		InlineMode: ctx.MinWQEInlineMode, NoSend: t == nil, Priority: prio, RegUMR: ctx.RegUMR, MultiPacket: f.caps.Ethernet.EnhancedMultiPktSendWQE, RealTime: ctx.TSFormat == prm.TSFormatRealTime,
		UserIndex: f.userIndex(ctx.UserIndex), Context: *ctx,
	})
	if q.Number, ok = f.sqs.Add(q); !ok {
		return fault(prm.StatusLimitExceeded, synNoNumber)
	}
	q.Config().User.QPN = q.Number
	m.uses.Hold()
	cq.Hold()
	pd.Hold()
	u.Hold()
	if t != nil {
		t.Hold()
	}
	c.Reply(&prm.CreateSQOut{SQN: q.Number})
	return command.Result{}
}

func (f *function) modifySQ(c *command.Call) command.Result {
	var in prm.ModifySQIn
	in.Get(c.In)
	q, ok := f.sqs.Get(in.SQN)
	if !ok {
		return refuse(prm.StatusBadResource, synNoSQ, "no SQ %#x", in.SQN)
	}
	if in.ModifyBitmask != 0 {
		// Bit 0 is packet pacing, bit 2 the queue group: capabilities this card lacks.
		return refuse(prm.StatusBadParameter, synModifyBits, "modify_bitmask %#x", in.ModifyBitmask)
	}
	if r := transition(q.State(), in.SQState, in.Context.State); !r.OK() {
		return r
	}
	before := q.State()
	running := f.begin()
	q.SetState(in.Context.State)
	if running {
		f.startSQ(q, before)
	}
	f.env.Flush()
	return command.Result{}
}

func (f *function) querySQ(c *command.Call) command.Result {
	n := number24(c)
	q, ok := f.sqs.Get(n)
	if !ok {
		return refuse(prm.StatusBadResource, synNoSQ, "no SQ %#x", n)
	}
	c.Reply(&prm.QuerySQOut{Context: q.Query(), PAS: q.Config().Buffer.Pages().Addrs()})
	return command.Result{}
}

func (f *function) destroySQ(c *command.Call) command.Result {
	n := number24(c)
	q, ok := f.sqs.Get(n)
	if !ok {
		return refuse(prm.StatusBadResource, synNoSQ, "no SQ %#x", n)
	}
	config := q.Config()
	q.SetState(prm.QueueStateRST) // if it is in the list of those with work, it has none
	config.CQ.Drop()
	config.Uses.Drop()
	if pd, ok := f.pds.Get(config.User.PD); ok {
		pd.Drop()
	}
	f.dropUAR(config.UAR)
	if t, ok := f.tiss.Get(config.Context.TISNum0); ok && !config.NoSend {
		t.Drop()
	}
	f.sqs.Remove(n)
	return command.Result{}
}

func (f *function) createTIS(c *command.Call) command.Result {
	var in prm.CreateTISIn
	in.Get(c.In)
	ctx := &in.Context
	if ctx.TLSEn || ctx.StrictLAGTXPortAffinity || ctx.LAGTXPortAffinity != 0 || ctx.UnderlayQPN != 0 {
		return refuse(prm.StatusBadParameter, synTISFeature, "TLS, LAG and IPoIB are not supported")
	}
	domain, ok := f.domains.Get(ctx.TransportDomain)
	if !ok {
		return fault(prm.StatusBadResource, synNoTransportDomain)
	}
	n, ok := f.tiss.Add(&tis{context: *ctx})
	if !ok {
		return fault(prm.StatusLimitExceeded, synNoNumber)
	}
	domain.Hold()
	c.Reply(&prm.CreateTISOut{TISN: n})
	return command.Result{}
}

func (f *function) modifyTIS(c *command.Call) command.Result {
	var in prm.ModifyTISIn
	in.Get(c.In)
	t, ok := f.tiss.Get(in.TISN)
	if !ok {
		return refuse(prm.StatusBadResource, synNoTIS, "no TIS %#x", in.TISN)
	}
	if in.BitmaskLAGTXPortAffinity && in.Context.LAGTXPortAffinity != 0 ||
		in.BitmaskStrictLAGTXPortAffinity && in.Context.StrictLAGTXPortAffinity {
		return refuse(prm.StatusBadParameter, synTISFeature, "LAG is not supported")
	}
	if in.BitmaskPrio {
		t.context.Prio = in.Context.Prio
	}
	return command.Result{}
}

func (f *function) queryTIS(c *command.Call) command.Result {
	n := number24(c)
	t, ok := f.tiss.Get(n)
	if !ok {
		return refuse(prm.StatusBadResource, synNoTIS, "no TIS %#x", n)
	}
	c.Reply(&prm.QueryTISOut{Context: t.context})
	return command.Result{}
}

func (f *function) destroyTIS(c *command.Call) command.Result {
	n := number24(c)
	t, ok := f.tiss.Get(n)
	if !ok {
		return refuse(prm.StatusBadResource, synNoTIS, "no TIS %#x", n)
	}
	if t.Held() {
		return refuse(prm.StatusBadResourceState, synInUse, "%d SQs use TIS %#x", t.Holders(), n)
	}
	f.dropDomain(t.context.TransportDomain)
	f.tiss.Remove(n)
	return command.Result{}
}

// dropDomain lets go of a transport domain.
func (f *function) dropDomain(n uint32) {
	if d, ok := f.domains.Get(n); ok {
		d.Drop()
	}
}
