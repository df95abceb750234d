package device

import (
	"time"

	"cxkit/device/internal/command"
	"cxkit/device/internal/object"
	"cxkit/prm"
)

// Rates of vports: a token bucket each, whose bandwidth a scheduling element of the e-switch gives
// (reference 01d §4). Shares of bandwidth are kept for queries: the model's port has no bandwidth to share.

const (
	tsarDWRR    = 0
	maxRateKbps = 100_000_000
	logMaxRates = 10
	// rateDepth is how long a vport that has been silent may send at full speed.
	rateDepth = time.Millisecond
)

// rates are the scheduling elements of an e-switch.
type rates struct{ elements object.Table[*element] }

type element struct {
	object.Refs
	kind       prm.SchedulingElementType
	attributes uint32
	parent     uint32
	share      uint32
	mbps       uint32
}

func (r *rates) reset() { r.elements = object.New[*element](1, 1<<logMaxRates) }

// rate bounds what a vport sends. The engine owns it.
type rate struct {
	perSecond uint64 // bytes; 0: no bound
	tokens    int64  // bytes; negative: sent on credit
	at        time.Duration
	timer     *timer
}

// wait is how long the vport has to be silent at now: 0 if it may send.
func (r *rate) wait(now time.Duration) time.Duration {
	if r.perSecond == 0 {
		return 0
	}
	passed := min(now-r.at, time.Second)
	depth := int64(r.perSecond * uint64(rateDepth) / uint64(time.Second))
	r.tokens = min(r.tokens+int64(r.perSecond*uint64(passed)/uint64(time.Second)), depth+1)
	r.at = now
	if r.tokens > 0 {
		return 0
	}
	return time.Duration(uint64(1-r.tokens)*uint64(time.Second)/r.perSecond) + 1
}

// limit bounds what the vport sends from now on; 0 ends that.
func (p *switchPort) limit(mbps uint32) {
	p.rate.perSecond = uint64(mbps) * 1_000_000 / 8
	p.rate.tokens, p.rate.at = 1, p.function.card.now
}

// limits finds the vport that an element bounds; nil if it is none's.
func (e *eswitch) limits(x *element) *switchPort {
	if x.kind != prm.SchedulingVport {
		return nil
	}
	p := e.find(uint16(x.attributes))
	if p == nil || p.function == nil {
		return nil
	}
	return p
}

func (f *function) createScheduling(c *command.Call) command.Result {
	var in prm.CreateSchedulingElementIn
	in.Get(c.In)
	e := f.sw.esw
	x := &element{kind: in.ElementType, attributes: in.ElementAttributes, parent: in.ParentElementID, share: in.BWShare, mbps: in.MaxAverageBW}
	known := x.kind == prm.SchedulingTSAR || e.limits(x) != nil
	if in.SchedulingHierarchy != prm.SchedulingESwitch || !known {
		return fault(prm.StatusBadParameter, synScheduling)
	}
	var parent *element
	if x.parent != 0 {
		var ok bool
		if parent, ok = e.rates.elements.Get(x.parent); !ok || parent.kind != prm.SchedulingTSAR {
			return fault(prm.StatusBadResource, synScheduling)
		}
	}
	n, ok := e.rates.elements.Add(x)
	if !ok {
		return fault(prm.StatusLimitExceeded, synNoNumber)
	}
	if parent != nil {
		parent.Hold()
	}
	if p := e.limits(x); p != nil {
		p.limit(x.mbps)
	}
	c.Reply(&prm.CreateSchedulingElementOut{SchedulingElementID: n})
	return command.Result{}
}

// scheduling finds an element.
func (f *function) scheduling(hierarchy prm.SchedulingHierarchy, id uint32) (*element, command.Result) {
	x, ok := f.sw.esw.rates.elements.Get(id)
	if !ok || hierarchy != prm.SchedulingESwitch {
		return nil, fault(prm.StatusBadResource, synScheduling)
	}
	return x, command.Result{}
}

// Bits of MODIFY_SCHEDULING_ELEMENT's modify_bitmask.
const (
	modifyShare = 1 << 0
	modifyRate  = 1 << 1
)

func (f *function) modifyScheduling(c *command.Call) command.Result {
	var in prm.ModifySchedulingElementIn
	in.Get(c.In)
	x, r := f.scheduling(in.SchedulingHierarchy, in.SchedulingElementID)
	if !r.OK() {
		return r
	}
	if in.ModifyBitmask&^(modifyShare|modifyRate) != 0 {
		return fault(prm.StatusBadParameter, synScheduling)
	}
	if in.ModifyBitmask&modifyShare != 0 {
		x.share = in.BWShare
	}
	if in.ModifyBitmask&modifyRate != 0 {
		x.mbps = in.MaxAverageBW
		if p := f.sw.esw.limits(x); p != nil {
			p.limit(x.mbps)
		}
	}
	return command.Result{}
}

func (f *function) queryScheduling(c *command.Call) command.Result {
	var in prm.QuerySchedulingElementIn
	in.Get(c.In)
	x, r := f.scheduling(in.SchedulingHierarchy, in.SchedulingElementID)
	if !r.OK() {
		return r
	}
	c.Reply(&prm.QuerySchedulingElementOut{ElementType: x.kind, ElementAttributes: x.attributes,
		ParentElementID: x.parent, BWShare: x.share, MaxAverageBW: x.mbps})
	return command.Result{}
}

func (f *function) destroyScheduling(c *command.Call) command.Result {
	var in prm.DestroySchedulingElementIn
	in.Get(c.In)
	x, r := f.scheduling(in.SchedulingHierarchy, in.SchedulingElementID)
	if !r.OK() {
		return r
	}
	if x.Held() {
		return fault(prm.StatusBadResourceState, synScheduling)
	}
	e := f.sw.esw
	if parent, ok := e.rates.elements.Get(x.parent); ok {
		parent.Drop()
	}
	if p := e.limits(x); p != nil {
		p.limit(0)
	}
	e.rates.elements.Remove(in.SchedulingElementID)
	return command.Result{}
}
