package device

import (
	"cxkit/device/internal/command"
	"cxkit/device/internal/queue"
	"cxkit/device/internal/steer"
	"cxkit/prm"
)

// rqtQueues checks the list of an RQT of at most limit queues.
func (f *function) rqtQueues(ctx *prm.RQTContext, list []uint32, limit int) ([]*queue.RQ, command.Result) {
	if ctx.ListQType != 0 || ctx.RQVHCAIDFormat {
		return nil, refuse(prm.StatusBadParameter, synRQTFeature, "an RQT holds RQs of its own function")
	}
	n := int(ctx.RQTActualSize)
	if n == 0 || n&(n-1) != 0 || n > limit {
		return nil, refuse(prm.StatusBadParameter, synRQTSize, "rqt_actual_size %d: a power of two up to %d", n, limit)
	}
	if len(list) < n {
		return nil, refuse(prm.StatusBadInputLength, synRQTList, "%d RQ numbers for an RQT of %d", len(list), n)
	}
	rqs := make([]*queue.RQ, n)
	for i := range rqs {
		q, ok := f.rqs.Get(list[i] & 0xffffff)
		if !ok {
			return nil, refuse(prm.StatusBadResource, synNoRQ, "entry %d: no RQ %#x", i, list[i])
		}
		rqs[i] = q
	}
	return rqs, command.Result{}
}

func (f *function) createRQT(c *command.Call) command.Result {
	var in prm.CreateRQTIn
	in.Get(c.In)
	limit := int(in.Context.RQTMaxSize)
	if limit == 0 || limit > 1<<logMaxRQTSize {
		return refuse(prm.StatusBadParameter, synRQTSize, "rqt_max_size %d: 1 to %d", limit, 1<<logMaxRQTSize)
	}
	rqs, r := f.rqtQueues(&in.Context, in.RQNums, limit)
	if !r.OK() {
		return r
	}
	t := &steer.RQT{Max: limit}
	n, ok := f.rqts.Add(t)
	if !ok {
		return fault(prm.StatusLimitExceeded, synNoNumber)
	}
	t.Number = n
	t.Set(rqs)
	c.Reply(&prm.CreateRQTOut{RQTN: n})
	return command.Result{}
}

func (f *function) modifyRQT(c *command.Call) command.Result {
	var in prm.ModifyRQTIn
	in.Get(c.In)
	t, ok := f.rqts.Get(in.RQTN)
	if !ok {
		return refuse(prm.StatusBadResource, synNoRQT, "no RQT %#x", in.RQTN)
	}
	if !in.BitmaskRQNList {
		return command.Result{}
	}
	rqs, r := f.rqtQueues(&in.Context, in.RQNums, t.Max)
	if !r.OK() {
		return r
	}
	t.Set(rqs)
	return command.Result{}
}

func (f *function) queryRQT(c *command.Call) command.Result {
	n := number24(c)
	t, ok := f.rqts.Get(n)
	if !ok {
		return refuse(prm.StatusBadResource, synNoRQT, "no RQT %#x", n)
	}
	out := prm.QueryRQTOut{Context: prm.RQTContext{RQTMaxSize: uint16(t.Max), RQTActualSize: uint16(len(t.RQs))}}
	for _, q := range t.RQs {
		out.RQNums = append(out.RQNums, q.Number)
	}
	c.Reply(&out)
	return command.Result{}
}

func (f *function) destroyRQT(c *command.Call) command.Result {
	n := number24(c)
	t, ok := f.rqts.Get(n)
	if !ok {
		return refuse(prm.StatusBadResource, synNoRQT, "no RQT %#x", n)
	}
	if t.Held() {
		return refuse(prm.StatusBadResourceState, synInUse, "%d TIRs use RQT %#x", t.Holders(), n)
	}
	t.Release()
	f.rqts.Remove(n)
	return command.Result{}
}
