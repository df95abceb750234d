package device

import (
	"encoding/binary"

	"cxkit/device/internal/command"
	"cxkit/device/internal/object"
	"cxkit/device/internal/queue"
	"cxkit/prm"
)

// qp is a queue pair. The card has no RDMA transport: a QP exists, in RST and INIT, and never gets to where it would
// receive or send. The commands that take it there are not implemented, and say so.
type qp struct {
	context prm.QPContext // as created and modified; State is the present one
	ring    queue.Buffer
	uses    object.Uses
}

const (
	// QPs share the space of numbers with SQs and have its upper half.
	firstQP   = 1 << (logMaxQP - 1)
	logMaxQP  = 18
	logMaxQPW = 15 // log2 of the entries of its rings: fields of four bits
)

func (f *function) createQP(c *command.Call) command.Result {
	var in prm.CreateQPIn
	in.Get(c.In)
	ctx := &in.Context
	if in.QpcExt || in.InputQPN != 0 || in.OptParamMask != 0 || in.ECE != 0 {
		return refuse(prm.StatusBadParameter, synQPFeature, "extensions, special numbers, options and ECE are not supported")
	}
	if ctx.State != prm.QPStateRST {
		return refuse(prm.StatusBadParameter, synTransition, "a QP is made in RST, not %v", ctx.State)
	}
	switch ctx.ST {
	case prm.QPServiceRC, prm.QPServiceUC, prm.QPServiceUD:
	default:
		return refuse(prm.StatusBadParameter, synQPFeature, "service type %v", ctx.ST)
	}
	receives := ctx.RQType == qpOwnRQ
	if !receives && ctx.RQType != qpNoRQ {
		return refuse(prm.StatusBadParameter, synQPFeature, "rq_type %d: shared receive queues are not supported", ctx.RQType)
	}
	if r := checkTimestamps(ctx.TSFormat, f.caps.General.SQTSFormat); !r.OK() {
		return r
	}
	q := &qp{context: *ctx}
	pd, ok := f.pds.Get(ctx.PD)
	if !ok {
		return fault(prm.StatusBadResource, synNoPD)
	}
	q.uses = append(q.uses, &pd.Refs)
	u, ok := f.uars.Get(ctx.UARPage)
	if !ok {
		return fault(prm.StatusBadResource, synNoUAR)
	}
	q.uses = append(q.uses, &u.Refs)
	bytes := 0
	if receives {
		bytes += 1 << (ctx.LogRQSize + ctx.LogRQStride + minRQStride)
	}
	if !ctx.NoSQ {
		bytes += 1 << (ctx.LogSQSize + queue.LogBB)
	}
	for _, has := range []struct {
		queue bool
		cqn   uint32
	}{{receives, ctx.CQNRcv}, {!ctx.NoSQ, ctx.CQNSnd}} {
		if !has.queue {
			continue
		}
		cq, ok := f.cqs.Get(has.cqn)
		if !ok {
			return refuse(prm.StatusBadResource, synNoCQ, "no CQ %#x", has.cqn)
		}
		q.uses = append(q.uses, &cq.Refs)
	}
	set, r := f.counterSet(ctx.CounterSetID)
	if !r.OK() {
		return r
	}
	if set != nil {
		q.uses = append(q.uses, &set.Refs)
	}
	if bytes != 0 {
		q.ring, r = f.ringMemory(place{in.WQUMEMValid, in.WQUMEMID, in.WQUMEMOffset}, c.In[prm.CreateQPInSize:], ringShape{
			bytes: bytes, logPage: ctx.LogPageSize, offset: ctx.PageOffset, offsetUnits: 64,
		}, false, &q.uses)
		if !r.OK() {
			return r
		}
		if _, r := f.recordMemory(place{ctx.DBRUMEMValid, ctx.DBRUMEMID, ctx.DBRAddr}, &q.uses); !r.OK() {
			return r
		}
	}
	n, ok := f.qps.Add(q)
	if !ok {
		return fault(prm.StatusLimitExceeded, synNoNumber)
	}
	q.uses.Hold()
	c.Reply(&prm.CreateQPOut{QPN: n})
	return command.Result{}
}

// Values of rq_type.
const (
	qpOwnRQ = 0
	qpNoRQ  = 3
)

func (f *function) queryQP(c *command.Call) command.Result {
	q, r := f.qp(number24(c))
	if !r.OK() {
		return r
	}
	if binary.BigEndian.Uint32(c.In[8:])>>31 != 0 {
		return refuse(prm.StatusBadParameter, synQPFeature, "qpc_ext is not supported")
	}
	out := prm.QueryQPOut{Context: q.context}
	if pages := q.ring.Pages(); pages != nil {
		for i, addr := range pages.Addrs() {
			if 8*i >= len(out.QPPASOrQpcExtAndPAS) {
				break
			}
			binary.BigEndian.PutUint64(out.QPPASOrQpcExtAndPAS[8*i:], addr)
		}
	}
	c.Reply(&out)
	return command.Result{}
}

// qp finds a QP.
func (f *function) qp(n uint32) (*qp, command.Result) {
	q, ok := f.qps.Get(n)
	if !ok {
		return nil, refuse(prm.StatusBadResource, synNoQP, "no QP %#x", n)
	}
	return q, command.Result{}
}

// rst2InitQP takes over what a QP has to know before it has a peer.
func (f *function) rst2InitQP(c *command.Call) command.Result {
	var in prm.Rst2InitQPIn
	in.Get(c.In)
	q, r := f.qp(in.QPN)
	if !r.OK() {
		return r
	}
	if in.OptParamMask != 0 || in.ECE != 0 {
		return refuse(prm.StatusBadParameter, synModifyBits, "opt_param_mask %#x, ece %#x", in.OptParamMask, in.ECE)
	}
	ctx, set := &q.context, &in.Context
	if ctx.State != prm.QPStateRST {
		return refuse(prm.StatusBadQPState, synQueueState, "the QP is in %v, not %v", ctx.State, prm.QPStateRST)
	}
	if port := set.PrimaryAddressPath.VHCAPortNum; port > 1 {
		return refuse(prm.StatusBadParameter, synQPFeature, "port %d of one", port)
	}
	ctx.RRE, ctx.RWE, ctx.RAE, ctx.AtomicMode, ctx.QKey = set.RRE, set.RWE, set.RAE, set.AtomicMode, set.QKey
	ctx.PMState = set.PMState
	ctx.PrimaryAddressPath.PKeyIndex, ctx.PrimaryAddressPath.VHCAPortNum = set.PrimaryAddressPath.PKeyIndex, set.PrimaryAddressPath.VHCAPortNum
	ctx.State = prm.QPStateINIT
	return command.Result{}
}

func (f *function) toRstQP(c *command.Call) command.Result {
	q, r := f.qp(number24(c))
	if r.OK() {
		q.context.State = prm.QPStateRST
	}
	return r
}

func (f *function) destroyQP(c *command.Call) command.Result {
	n := number24(c)
	q, r := f.qp(n)
	if !r.OK() {
		return r
	}
	q.uses.Drop()
	f.qps.Remove(n)
	return command.Result{}
}
