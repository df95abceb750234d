package device

import (
	"cxkit/device/internal/command"
	"cxkit/device/internal/object"
	"cxkit/device/internal/steer"
	"cxkit/prm"
)

// Flow counters come one by one, or in bulks of consecutive numbers, which drivers allocate, free and query
// together (Linux lib/fs_counters.c).
const (
	bulkUnit     = 128 // counters that bit 0 of flow_counter_bulk stands for
	logMaxBulk   = 14  // log2 of a bulk's numbers
	logMaxBulks  = 8
	maxBulked    = 1 << 20 // counters of all bulks: they cost the model memory
	firstBulk    = 1 << 20 // the first number of a counter in a bulk; all others are below
	bulkAlloc    = 1 << 3  // flow_counter_bulk_alloc: bulks of 1,024, which Linux takes
	maxBulkQuery = 1 << 10
)

// counterBulk is a bulk of counters.
type counterBulk struct{ counters []steer.Counter }

// number is the number of counter i of bulk k.
func bulkNumber(k uint32, i int) uint32 { return firstBulk + k<<logMaxBulk + uint32(i) }

func newBulks() object.Table[*counterBulk] { return object.New[*counterBulk](0, 1<<logMaxBulks) }

// bulkOf finds the bulk that a counter's number belongs to, and its place there.
func (f *function) bulkOf(id uint32) (b *counterBulk, k uint32, i int, ok bool) {
	if id < firstBulk {
		return nil, 0, 0, false
	}
	k, i = (id-firstBulk)>>logMaxBulk, int(id&(1<<logMaxBulk-1))
	b, ok = f.bulks.Get(k)
	return b, k, i, ok && i < len(b.counters)
}

// flowCounter finds a counter.
func (f *function) flowCounter(id uint32) (*steer.Counter, bool) {
	if b, _, i, ok := f.bulkOf(id); ok {
		return &b.counters[i], true
	}
	return f.flows.Get(id)
}

func (f *function) allocFlowCounter(c *command.Call) command.Result {
	var in prm.AllocFlowCounterIn
	in.Get(c.In)
	n := int(in.FlowCounterBulk) * bulkUnit
	if in.FlowCounterBulkLogSize != 0 {
		if n != 0 {
			return refuse(prm.StatusBadParameter, synCounterBulk, "the bulk's size is given twice")
		}
		n = 1 << in.FlowCounterBulkLogSize
	}
	if n > 1<<logMaxBulk {
		return refuse(prm.StatusBadParameter, synCounterBulk, "a bulk of %d counters: at most %d", n, 1<<logMaxBulk)
	}
	if n == 0 {
		one := &steer.Counter{}
		var ok bool
		if one.Number, ok = f.flows.Add(one); !ok {
			return fault(prm.StatusLimitExceeded, synNoNumber)
		}
		c.Reply(&prm.AllocFlowCounterOut{FlowCounterID: one.Number})
		return command.Result{}
	}
	if f.bulked+n > maxBulked {
		return refuse(prm.StatusLimitExceeded, synCounterBulk, "%d counters are all that bulks may have", maxBulked)
	}
	b := &counterBulk{counters: make([]steer.Counter, n)}
	k, ok := f.bulks.Add(b)
	if !ok {
		return fault(prm.StatusLimitExceeded, synNoNumber)
	}
	f.bulked += n
	for i := range b.counters {
		b.counters[i].Number = bulkNumber(k, i)
	}
	c.Reply(&prm.AllocFlowCounterOut{FlowCounterID: bulkNumber(k, 0)})
	return command.Result{}
}

func (f *function) deallocFlowCounter(c *command.Call) command.Result {
	var in prm.DeallocFlowCounterIn
	in.Get(c.In)
	id := in.FlowCounterID
	if b, k, i, ok := f.bulkOf(id); ok && i == 0 {
		for i := range b.counters {
			if n := &b.counters[i]; n.Held() {
				return refuse(prm.StatusBadResourceState, synInUse, "%d flow entries use counter %#x", n.Holders(), n.Number)
			}
		}
		f.bulks.Remove(k)
		f.bulked -= len(b.counters)
		return command.Result{}
	}
	n, ok := f.flows.Get(id)
	if !ok {
		return refuse(prm.StatusBadResource, synNoFlowCounter, "no flow counter %#x, or one inside a bulk", id)
	}
	if n.Held() {
		return refuse(prm.StatusBadResourceState, synInUse, "%d flow entries use counter %#x", n.Holders(), id)
	}
	f.flows.Remove(id)
	return command.Result{}
}

func (f *function) queryFlowCounter(c *command.Call) command.Result {
	var in prm.QueryFlowCounterIn
	in.Get(c.In)
	want := max(1, int(in.NumOfCounters))
	if want > maxBulkQuery {
		return refuse(prm.StatusBadParameter, synCounterBulk, "%d counters at a time: at most %d", want, maxBulkQuery)
	}
	counters := make([]*steer.Counter, want)
	for i := range counters {
		var ok bool
		if counters[i], ok = f.flowCounter(in.FlowCounterID + uint32(i)); !ok {
			return refuse(prm.StatusBadResource, synNoFlowCounter, "no flow counter %#x", in.FlowCounterID+uint32(i))
		}
	}
	if len(c.Out) < prm.QueryFlowCounterOutSize+want*prm.TrafficCounterSize {
		return fault(prm.StatusBadOutputLength, synOutputShort)
	}
	var out prm.QueryFlowCounterOut
	for _, n := range counters {
		out.FlowStatistics = append(out.FlowStatistics, prm.TrafficCounter{Packets: n.Packets, Octets: n.Octets})
		if in.Clear {
			n.Packets, n.Octets = 0, 0
		}
	}
	c.Reply(&out)
	return command.Result{}
}
