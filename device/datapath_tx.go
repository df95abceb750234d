package device

import (
	"encoding/binary"

	"cxkit/device/internal/packet"
	"cxkit/device/internal/queue"
	"cxkit/device/internal/steer"
	"cxkit/device/wire"
)

// fate is what becomes of a frame to be sent.
type fate uint8

const (
	noFrame   fate = iota // the WQE sends nothing
	toWire                //
	toSelf                // looped back: an own unicast address
	toBoth                // multicast that this function receives, too
	droppedTx             // by a NIC_TX rule
	linkDown              // counted as a discard
	portDown              // the vport is down
	tooLong               // counted as an error

	switchedWire  // by the e-switch, to the wire and perhaps to vports
	switchedLocal // by the e-switch, to vports or nowhere
	denied        // by the vport's ingress ACL
)

// wire reports whether the frame goes to the wire.
func (f fate) wire() bool { return f == toWire || f == toBoth || f == switchedWire }

// hit is a flow counter of NIC_TX that an item's frame moves once its WQE is complete.
type hit struct {
	item    int
	counter *steer.Counter
}

// sendBurst executes WQEs of SQs with work, in turns of a burst, until about budget frames are sent. The
// turns go round among functions first, then among the SQs of each.
func (d *dataPort) sendBurst(c *Card, budget int) (moved bool, state workState) {
	for d.senders.len() > 0 {
		if budget <= 0 {
			return moved, workMore
		}
		f := d.senders.pop()
		f.sender.listed = false
		if f.sender.pending.len() == 0 || !f.active() || f.throttled() {
			continue // resumeSending lists it again
		}
		if d.paused != 0 && !d.turn(f) {
			d.blocked = append(d.blocked, f)
			f.sender.listed = true
			continue
		}
		q := f.sender.pending.first()
		n, more, full := d.send(c, f, q)
		moved = moved || n > 0
		budget -= max(n, 1) + d.sw.delivered
		if full {
			d.blocked = append(d.blocked, f) // the SQ stays first
			f.sender.listed = true
			continue
		}
		f.sender.pending.pop()
		q.Pending = false
		if more {
			f.pend(q)
		}
		f.resumeSending()
	}
	return moved, workIdle
}

// send executes WQEs of an SQ, at most a burst. It returns how many, whether there are more, and whether the
// wire had no room.
func (d *dataPort) send(c *Card, f *function, q *queue.SQ) (n int, more, full bool) {
	b := c.data.batch
	switched := f.sw != nil && f.switched()
	b.SetLarge(d.far != nil && f.loopbacks == 0 && f.tx.Root() == nil)
	more = q.Fetch(b)
	d.out, d.outLarge, d.hits = d.out[:0], d.outLarge[:0], d.hits[:0]
	d.sw.begin()
	for i := range b.Items {
		frame := b.Items[i].Frame
		to := noFrame
		switch {
		case frame == nil:
		case switched:
			to, frame = d.forward(c, f, q, i, frame)
		default:
			to = d.decide(c, f, q, i, &b.Items[i])
		}
		if to.wire() {
			d.out = append(d.out, frame)
			if d.far != nil {
				n := b.Items[i].Segment
				d.outLarge = append(d.outLarge, wire.Frame{Data: frame, Meta: wire.Meta{Segment: uint16(n), Unfinished: n > 0}})
			}
		}
		d.fate[i] = to
	}
	taken := 0
	if len(d.out) > 0 {
		if d.far != nil {
			taken = d.far.TransmitLarge(d.outLarge)
		} else {
			taken = d.wire.Transmit(d.out)
		}
		full = taken < len(d.out)
	}
	for n < len(b.Items) {
		if d.fate[n].wire() {
			if taken == 0 {
				break
			}
			taken--
		}
		n++
	}
	d.countSent(c, f, b.Items[:n])
	if switched {
		d.deliverForwarded(c, f, n)
	}
	q.Complete(b, n)
	c.flush()
	return n, !full && (more || q.HasWork()), full
}

// decide chooses the fate of a frame. It moves no counter: the frame may be looked at again when the wire
// is full.
func (d *dataPort) decide(c *Card, f *function, q *queue.SQ, item int, it *queue.Item) fate {
	frame := it.Frame
	if f.tx.Root() == nil && f.loopbacks == 0 {
		if it.Segment > 0 {
			frame = frame[:it.Header+it.Segment] // what the longest of its segments has
		}
		return d.outward(f, frame)
	}
	h, v := &c.data.headers, &c.data.verdict
	h.LookInto(&f.tunnels)
	packet.Parse(frame, h)
	if f.tx.Root() != nil {
		h.SetSourceSQN(q.Number)
		f.tx.Classify(h, v)
		for _, n := range v.Counters {
			d.hits = append(d.hits, hit{item, n})
		}
		// A miss means the wire (reference 03 §11).
		if !v.Missed && !v.Allowed {
			return droppedTx
		}
	}
	out := d.outward(f, frame)
	if f.loopbacks == 0 || !f.loopsBack(c, frame) {
		return out
	}
	if !h.Multicast() {
		return toSelf
	}
	if out == toWire {
		return toBoth
	}
	return toSelf
}

// outward is the fate of a frame that leaves the card.
func (d *dataPort) outward(f *function, frame []byte) fate {
	switch {
	case len(frame) > d.frameLimit(0) && len(frame) > d.frameLimit(tags(frame)):
		return tooLong
	case !d.up() || d.wire == nil:
		return linkDown
	case !f.up():
		return portDown
	}
	return toWire
}

// tags counts the VLAN tags of a frame that is long enough for them.
func tags(frame []byte) (n int) {
	for n < packet.MaxTags {
		t := binary.BigEndian.Uint16(frame[12+n*packet.TagLen:])
		if t != packet.TypeCVID && t != packet.TypeSVID {
			break
		}
		n++
	}
	return n
}

// loopsBack applies the rule of reference 03 §4.1 to a frame whose headers are in c.data.headers: the
// destination is the function's own, its vport loops back, and a TIR that steering chooses lets it in.
// It leaves the deliveries in c.data.verdict.
func (f *function) loopsBack(c *Card, frame []byte) bool {
	h, v := &c.data.headers, &c.data.verdict
	ctx := &f.vport.context
	if h.Multicast() {
		if ctx.DisableMCLocalLB || !f.vport.accepts(frame) {
			return false
		}
	} else if ctx.DisableUCLocalLB || !f.vport.owns(frame) {
		return false
	}
	h.SetSourceSQN(0)
	f.rx.Classify(h, v)
	for _, to := range v.To {
		if to.TIR.AdmitsOwn(h) {
			return true
		}
	}
	return false
}

// countSent moves the counters for frames whose WQEs are complete, and delivers those that are looped
// back.
func (d *dataPort) countSent(c *Card, f *function, items []queue.Item) {
	p := d.port
	for i := range items {
		frame := items[i].Frame
		switch d.fate[i] {
		case toWire:
			if items[i].Segment > 0 {
				d.countSegments(f, &items[i])
				continue
			}
			p.counters.tx.count(frame, priority(frame))
			f.counters.tx.of(frame).add(len(frame))
		case toBoth:
			p.counters.tx.count(frame, priority(frame))
			f.counters.tx.of(frame).add(len(frame))
			f.loopBack(c, frame)
		case toSelf:
			f.counters.tx.of(frame).add(len(frame))
			f.loopBack(c, frame)
		case linkDown:
			p.counters.tx.discards++
		case portDown:
			f.counters.txDiscardDown++
		case tooLong:
			p.counters.tx.errors++
		case droppedTx:
			f.counters.txErrors.add(len(frame))
		case switchedWire, switchedLocal:
			f.counters.tx.of(frame).add(len(frame))
		}
	}
	for _, hit := range d.hits {
		if hit.item < len(items) {
			hit.counter.Add(len(items[hit.item].Frame))
		}
	}
}

// countSegments counts the segments of a large send that the wire cuts.
func (d *dataPort) countSegments(f *function, it *queue.Item) {
	n := f.counters.tx.of(it.Frame)
	for at := it.Header; at < len(it.Frame); at += it.Segment {
		part := it.Frame[:it.Header+min(it.Segment, len(it.Frame)-at)]
		d.port.counters.tx.count(part, priority(part))
		n.add(len(part))
	}
}

// priority is the PCP of a frame, 0 without a VLAN tag.
func priority(frame []byte) int {
	if t := binary.BigEndian.Uint16(frame[12:]); t != packet.TypeCVID && t != packet.TypeSVID {
		return 0
	}
	return int(frame[14] >> 5)
}

// loopBack delivers an own frame to the function's receive queues.
func (f *function) loopBack(c *Card, frame []byte) {
	c.data.headers.LookInto(&f.tunnels)
	packet.Parse(frame, &c.data.headers)
	if !f.loopsBack(c, frame) {
		return
	}
	v := &c.data.verdict
	own := queue.Frame{Data: frame, Headers: &c.data.headers}
	f.replicate(c, &own, true)
	v.Count(len(frame))
	f.counters.loopback.add(len(frame))
	f.counters.rx.of(frame).add(len(frame))
}
