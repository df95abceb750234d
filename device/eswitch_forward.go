package device

import (
	"encoding/binary"

	"cxkit/device/internal/packet"
	"cxkit/device/internal/queue"
	"cxkit/device/internal/steer"
)

// How frames pass the e-switch. A vport's frame is looked up when its WQE is read and delivered when it is
// complete, for the wire may have no room; what it is looked up as and what is delivered are the same bytes,
// whatever its driver does to them meanwhile.

// switching is a port's e-switch at work on a burst.
type switching struct {
	// plans are the deliveries to vports of the burst's frames, in order.
	plans []plan
	// delivered counts deliveries, for the budget: a frame may have many.
	delivered int
	// store holds the frames of the burst that are copied or changed.
	store []byte
}

// plan is a delivery to a vport.
type plan struct {
	item      int
	to        *switchPort
	edit      *steer.Edit
	frame     []byte
	registers uint64 // the frame's metadata when FDB has decided
}

func (s *switching) begin() { s.plans, s.delivered, s.store = s.plans[:0], 0, s.store[:0] }

// room returns an empty slice with room for n bytes in the burst's store.
func (s *switching) room(n int) []byte {
	if len(s.store)+n > cap(s.store) {
		// What lies in the old one stays where it is.
		s.store = make([]byte, 0, max(2*cap(s.store), n, burst*2048))
	}
	at := len(s.store)
	s.store = s.store[:at+n]
	return s.store[at : at : at+n]
}

// copy copies a frame into the burst's store.
func (s *switching) copy(frame []byte) []byte { return append(s.room(len(frame)), frame...) }

// retag changes a frame's tags in the burst's store.
func (s *switching) retag(frame []byte, e *steer.Edit) []byte {
	return packet.Retag(s.room(len(frame)+int(e.Pushes)*packet.TagLen), frame, int(e.Pops), e.Tags[:e.Pushes])
}

// switched reports whether what the function sends passes the e-switch. f.sw is not nil.
func (f *function) switched() bool { return !f.manages() || f.sw.rooted() }

// throttled reports whether the function's vport has to be silent for now; a timer wakes it.
func (f *function) throttled() bool {
	if f.sw == nil || f.sw.rate.perSecond == 0 {
		return false
	}
	c := f.card
	wait := f.sw.rate.wait(c.now)
	if wait == 0 {
		return false
	}
	r := &f.sw.rate
	if r.timer == nil {
		r.timer = &timer{fire: f.resumeSending}
	}
	c.timers.arm(r.timer, c.now+wait)
	return true
}

// forward decides where a vport's frame goes. It returns the frame as it goes to the wire, moves no counter
// and delivers nothing: the frame may be looked at again when the wire is full.
func (d *dataPort) forward(c *Card, f *function, q *queue.SQ, item int, frame []byte) (fate, []byte) {
	p, s := f.sw, &d.sw
	if !f.up() {
		return portDown, nil
	}
	if p.isWard() {
		frame = s.copy(frame) // what its rules were held against is what is sent
	}
	h := &c.data.headers
	h.LookInto(&f.tunnels)
	packet.Parse(frame, h)
	if len(frame) > d.frameLimit(int(h.Tags)) {
		return tooLong, nil
	}
	v := &p.esw.verdict
	h.SetSource(q.Number, p.Number)
	h.SetMetadata(0, 0)
	if f.tx.Root() != nil {
		f.tx.Classify(h, v)
		d.hit(item, v)
		if !v.Missed && !v.Allowed {
			return droppedTx, nil
		}
	}
	frame, ok := d.ingress(p, item, frame, h, v, q.Number)
	if !ok {
		return denied, nil
	}
	if !p.rooted() {
		return d.uplink(f, frame)
	}
	p.esw.fdb.Classify(h, v)
	d.hit(item, v)
	out, to := frame, switchedLocal
	for i := range v.To {
		t := &v.To[i]
		if t.Vport.Number != uplinkVport {
			s.plans = append(s.plans, plan{item, p.esw.find(t.Vport.Number), t.Edit, frame, t.Registers.Of(h.Registers())})
			continue
		}
		if to != switchedWire { // it goes there once
			if t.Edit != nil {
				out = s.retag(frame, t.Edit)
			}
			to, out = d.uplink(f, out)
		}
	}
	if v.Missed && to != switchedWire {
		to, out = d.uplink(f, frame)
	}
	if to != switchedWire && len(s.plans) > 0 && s.plans[len(s.plans)-1].item == item {
		to = switchedLocal
	}
	return to, out
}

// hit takes note of the counters of a verdict.
func (d *dataPort) hit(item int, v *steer.Verdict) {
	for _, n := range v.Counters {
		d.hits = append(d.hits, hit{item, n})
	}
}

// uplink is the fate of a frame that leaves the e-switch for the wire.
func (d *dataPort) uplink(f *function, frame []byte) (fate, []byte) {
	switch {
	case len(frame) > d.frameLimit(0) && len(frame) > d.frameLimit(tags(frame)):
		return tooLong, frame
	case !d.up() || d.wire == nil:
		return linkDown, frame
	}
	return switchedWire, frame
}

// ingress applies a vport's rules to what it sends. h are the frame's headers, then those of the frame that
// is returned.
func (d *dataPort) ingress(p *switchPort, item int, frame []byte, h *packet.Headers, v *steer.Verdict, sqn uint32) ([]byte, bool) {
	changed := false
	var registers uint64
	if p.ingress != nil && p.ingress.Root() != nil {
		p.ingress.Classify(h, v)
		d.hit(item, v)
		if !v.Missed && !v.Allowed {
			return nil, false
		}
		registers = v.Registers.Of(0)
		if v.Edit != nil {
			frame, changed = d.sw.retag(frame, v.Edit), true
		}
	}
	if n := p.context.VportCVLANInsert; n != cvlanInsertOff {
		if tagged := binary.BigEndian.Uint16(frame[12:]) == packet.TypeCVID; n != cvlanInsertUntagged || !tagged {
			e := steer.Edit{Pushes: 1, Tags: [2]uint32{p.vlanTag()}}
			if n == cvlanInsertOverwrite && tagged {
				e.Pops = 1
			}
			frame, changed = d.sw.retag(frame, &e), true
		}
	}
	if changed {
		packet.Parse(frame, h)
		h.SetSource(sqn, p.Number)
	}
	h.SetRegisters(registers)
	return frame, true
}

// vlanTag is the tag that the vport's context asks for.
func (p *switchPort) vlanTag() uint32 {
	x := &p.context
	tag := uint32(packet.TypeCVID)<<16 | uint32(x.CVLANPCP)<<13 | uint32(x.CVLANID)
	if x.CVLANCFI {
		tag |= 1 << 12
	}
	return tag
}

// deliverForwarded delivers the frames of a burst whose first n WQEs are complete.
func (d *dataPort) deliverForwarded(c *Card, f *function, n int) {
	bytes := 0
	for i := range n {
		if x := d.fate[i]; x == switchedWire || x == switchedLocal {
			bytes += len(c.data.batch.Items[i].Frame)
		}
	}
	f.sw.rate.tokens -= int64(bytes)
	wire := 0
	for i := range n {
		if !d.fate[i].wire() {
			continue
		}
		frame := d.out[wire]
		wire++
		d.port.counters.tx.count(frame, priority(frame))
		f.sw.esw.uplink.counters.tx.of(frame).add(len(frame))
	}
	for i := range d.sw.plans {
		p := &d.sw.plans[i]
		if p.item < n {
			c.deliver(p.to, f.sw, p.frame, p.edit, p.registers, neverHold)
			d.sw.delivered++
		}
		*p = plan{}
	}
}

// switchIn sends a frame from the wire to the vports that FDB chooses. false: it has to be held, because no
// receive WQE is posted for it and the wire keeps frames for us. d.headers are the frame's.
func (d *dataPort) switchIn(c *Card, data []byte) bool {
	e, h := d.function.sw.esw, &d.headers
	h.SetSource(0, uplinkVport)
	h.SetMetadata(0, 0)
	v, n := &e.verdict, len(data)
	d.met = d.met[:0]
	if acl := e.uplink.ingress; acl != nil && acl.Root() != nil {
		acl.Classify(h, v)
		if !v.Missed && !v.Allowed {
			v.Count(n)
			return true
		}
		d.met = append(d.met, v.Counters...)
		if v.Edit != nil {
			c.data.tagged = packet.Retag(c.data.tagged[:0], data, int(v.Edit.Pops), v.Edit.Tags[:v.Edit.Pushes])
			data = c.data.tagged
			packet.Parse(data, h)
			h.SetSource(0, uplinkVport)
		}
		h.SetRegisters(v.Registers.Of(0))
	}
	e.fdb.Classify(h, v)
	hold := neverHold
	if d.lossless && len(v.To) == 1 {
		if hold = mayHold; d.counted {
			hold = wasHeld
		}
	}
	for i := range v.To {
		t := &v.To[i]
		if t.Vport.Number == uplinkVport {
			continue // it came from there
		}
		if !c.deliver(e.find(t.Vport.Number), e.uplink, data, t.Edit, t.Registers.Of(h.Registers()), hold) {
			d.counted = true
			return false
		}
	}
	d.sw.delivered = max(len(v.To)-1, 0)
	v.Count(len(data))
	for _, counter := range d.met {
		counter.Add(n)
	}
	return true
}

// holding says whether a frame waits where no receive WQE is posted for it.
type holding uint8

const (
	neverHold holding = iota // it is dropped
	mayHold
	wasHeld // and here it is again
)

// deliver hands a frame to the function of a vport. It returns false, having moved no counter but those of
// the vport's ACL, if the frame is to be held.
func (c *Card) deliver(to, from *switchPort, frame []byte, edit *steer.Edit, registers uint64, hold holding) bool {
	g := to.function
	if !g.active() {
		return true // nobody is there
	}
	if !g.up() {
		g.counters.rxDiscardDown++
		return true
	}
	if edit != nil {
		frame = c.retagged(frame, edit)
	}
	h, v := &c.data.inward, &c.data.verdict
	h.LookInto(&g.tunnels)
	packet.Parse(frame, h)
	h.SetSource(0, from.Number)
	h.SetRegisters(registers)
	if to.egress != nil && to.egress.Root() != nil || to.context.VportCVLANStrip {
		var ok bool
		if frame, ok = c.egress(to, from, frame, h, v, hold); !ok {
			return true
		}
	}
	h.SetRegisters(to.passes(registers))
	if to == from && !g.loopsTo(h) {
		return true
	}
	g.rx.Classify(h, v)
	in := &c.data.frame
	in.Data, in.Headers = frame, h
	if len(v.To) == 1 && to != from {
		t := v.To[0]
		q, hash, kind := t.TIR.Queue(h)
		if hold != neverHold && !q.Posted(len(frame)) {
			return false
		}
		in.Hash, in.HashType, in.Tag = hash, kind, t.Tag
		in.Tunnelled = t.TIR.Tunnelled && t.TIR.Inside(h) != nil
		if out := q.Receive(in); out != queue.Delivered {
			g.account(q, out)
		}
	} else {
		g.replicate(c, in, to == from)
	}
	if len(v.Counters) != 0 {
		v.Count(len(frame))
	}
	g.counters.rx.of(frame).add(len(frame))
	if v.Missed {
		g.counters.steeringDiscard++
	}
	return true
}

// loopsTo reports whether the function's vport takes frames of its own.
func (f *function) loopsTo(h *packet.Headers) bool {
	ctx := &f.vport.context
	if f.loopbacks == 0 || h.Multicast() && ctx.DisableMCLocalLB || !h.Multicast() && ctx.DisableUCLocalLB {
		return false
	}
	return true
}

// egress applies a vport's rules to what it gets.
func (c *Card) egress(to, from *switchPort, frame []byte, h *packet.Headers, v *steer.Verdict, hold holding) ([]byte, bool) {
	changed := false
	if to.egress != nil && to.egress.Root() != nil {
		to.egress.Classify(h, v)
		if hold != wasHeld {
			v.Count(len(frame))
		}
		if !v.Missed && !v.Allowed {
			return nil, false
		}
		if v.Edit != nil {
			frame, changed = c.retagged(frame, v.Edit), true
		}
	}
	if to.context.VportCVLANStrip && binary.BigEndian.Uint16(frame[12:]) == packet.TypeCVID {
		frame, changed = c.retagged(frame, &steer.Edit{Pops: 1}), true
	}
	if changed {
		packet.Parse(frame, h)
		h.SetSource(0, from.Number)
	}
	return frame, true
}

// passes are the metadata registers that the vport's own tables see.
func (p *switchPort) passes(registers uint64) uint64 {
	if p.context.FDBToVportRegCID&passedRegisters == 0 {
		return 0
	}
	return registers & 0xffffffff
}

// retagged changes a frame's tags, for this delivery only. frame may be what an earlier call returned.
func (c *Card) retagged(frame []byte, e *steer.Edit) []byte {
	if len(c.data.retag) > 0 && len(frame) > 0 && &c.data.retag[0] == &frame[0] {
		frame = append([]byte(nil), frame...)
	}
	c.data.retag = packet.Retag(c.data.retag[:0], frame, int(e.Pops), e.Tags[:e.Pushes])
	return c.data.retag
}
