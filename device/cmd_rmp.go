package device

import (
	"cxkit/device/internal/command"
	"cxkit/device/internal/object"
	"cxkit/device/internal/queue"
	"cxkit/prm"
)

// rmp is a receive memory pool: a ring of receive WQEs that several RQs take from. They hold it.
type rmp struct {
	object.Refs
	wq      *queue.WQ
	context prm.RMPContext // as created; State as modified
}

func (f *function) createRMP(c *command.Call) command.Result {
	var in prm.CreateRMPIn
	in.Get(c.In)
	ctx := &in.Context
	if ctx.State != prm.QueueStateRST && ctx.State != prm.QueueStateRDY {
		return refuse(prm.StatusBadParameter, synTransition, "a pool is made in RST or RDY, not %v", ctx.State)
	}
	// Completions of a shared ring name WQEs by index, so its WQEs are linked unless the driver says that it
	// keeps count.
	if ctx.WQ.WQType == prm.WQTypeCyclic && !ctx.BasicCyclicRcvWQE {
		return refuse(prm.StatusBadParameter, synWQType, "a cyclic pool without basic_cyclic_rcv_wqe")
	}
	pd, ok := f.pds.Get(ctx.WQ.PD)
	if !ok {
		return fault(prm.StatusBadResource, synNoPD)
	}
	wq, r := f.receiveWQ(&ctx.WQ, c.In[prm.CreateRMPInSize:])
	if !r.OK() {
		return r
	}
	wq.Stop(ctx.State != prm.QueueStateRDY)
	n, ok := f.rmps.Add(&rmp{wq: wq, context: *ctx})
	if !ok {
		return fault(prm.StatusLimitExceeded, synNoNumber)
	}
	pd.Hold()
	wq.Config().Uses.Hold()
	c.Reply(&prm.CreateRMPOut{RMPN: n})
	return command.Result{}
}

func (f *function) modifyRMP(c *command.Call) command.Result {
	var in prm.ModifyRMPIn
	in.Get(c.In)
	p, ok := f.rmps.Get(in.RMPN)
	if !ok {
		return refuse(prm.StatusBadResource, synNoRMP, "no RMP %#x", in.RMPN)
	}
	if in.BitmaskLWM { // the limit event is one of shared receive queues
		return refuse(prm.StatusBadParameter, synModifyBits, "the limit water mark is not supported")
	}
	if r := transition(p.context.State, in.RMPState, in.Context.State); !r.OK() {
		return r
	}
	if in.Context.State == prm.QueueStateRST && p.context.State != prm.QueueStateRST {
		p.wq.Reset()
	}
	p.context.State = in.Context.State
	p.wq.Stop(p.context.State != prm.QueueStateRDY)
	return command.Result{}
}

func (f *function) queryRMP(c *command.Call) command.Result {
	n := number24(c)
	p, ok := f.rmps.Get(n)
	if !ok {
		return refuse(prm.StatusBadResource, synNoRMP, "no RMP %#x", n)
	}
	out := prm.QueryRMPOut{Context: p.context, PAS: p.wq.Config().Buffer.Pages().Addrs()}
	used, posted := p.wq.Counters()
	out.Context.WQ.HWCounter, out.Context.WQ.SWCounter = uint32(used), uint32(posted)
	c.Reply(&out)
	return command.Result{}
}

func (f *function) destroyRMP(c *command.Call) command.Result {
	n := number24(c)
	p, ok := f.rmps.Get(n)
	if !ok {
		return refuse(prm.StatusBadResource, synNoRMP, "no RMP %#x", n)
	}
	if p.Held() {
		return refuse(prm.StatusBadResourceState, synInUse, "%d RQs take from RMP %#x", p.Holders(), n)
	}
	if pd, ok := f.pds.Get(p.context.WQ.PD); ok {
		pd.Drop()
	}
	p.wq.Config().Uses.Drop()
	f.rmps.Remove(n)
	return command.Result{}
}
