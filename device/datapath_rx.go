package device

import (
	"encoding/binary"

	"cxkit/device/internal/packet"
	"cxkit/device/internal/queue"
	"cxkit/device/wire"
)

// receiveBurst takes at most budget frames from the port and delivers them.
func (d *dataPort) receiveBurst(c *Card, budget int) (moved bool, state workState) {
	if !d.up() {
		return false, workIdle // what waits is the wire's business until the link is back
	}
	d.limit = d.frameLimit(0)
	d.admit = d.function.up()
	d.switched = d.function.sw.rooted()
	defer d.endBurst()
	for {
		for d.next < d.got {
			if budget <= 0 {
				return moved, workMore
			}
			if d.far != nil && d.large[d.next].Meta != (wire.Meta{}) {
				if !d.deliverLarge(c) {
					d.stop(c.now, int(d.headers.TCI>>13))
					return moved, workPoll
				}
			} else if !d.deliverNext(c) {
				d.stop(c.now, int(d.headers.TCI>>13))
				return moved, workPoll
			}
			if d.stopping.asked {
				d.resume(c.now)
			}
			d.next++
			d.counted, d.crossed = false, false
			budget -= 1 + d.sw.delivered
			d.sw.delivered = 0
			moved = true
		}
		if !d.more || d.wire == nil {
			return moved, workIdle
		}
		d.endBurst()
		// What Receive gave before is invalid from here on.
		if d.far != nil {
			d.got = d.far.ReceiveLarge(d.large[:])
			for i := range d.large[:d.got] {
				d.frames[i] = d.large[i].Data
			}
		} else {
			d.got = d.wire.Receive(d.frames[:])
		}
		d.next = 0
		d.more = d.got > 0
	}
}

// endBurst delivers what was held back to be merged, and publishes the completions.
func (d *dataPort) endBurst() {
	if d.merging > 0 {
		d.flushLROs()
	}
	d.function.card.flush()
}

// deliverNext delivers frames[next], or drops and counts it. false: it has to be held, because no receive
// WQE is posted for it and the wire keeps frames for us.
func (d *dataPort) deliverNext(c *Card) bool {
	data := d.frames[d.next]
	n := len(data)
	p := d.port
	if n < packet.EthernetLen {
		p.counters.undersize++
		return true
	}
	if n < minFrame {
		clear(d.padded[copy(d.padded[:], data):])
		data, n = d.padded[:], minFrame
	}
	h := &d.headers
	packet.Parse(data, h)
	if n > d.limit && n > d.limit+packet.TagLen*int(h.Tags) {
		p.counters.oversize++
		return true
	}
	f := d.function
	if !d.counted {
		p.counters.received(data, int(h.TCI>>13))
		if t := h.Ethertype(); (t < 0x0600 || t == typeMACControl) && !d.oddType(c, data, h) {
			return true
		}
		if f.sw != nil {
			f.sw.esw.uplink.counters.rx.of(data).add(n)
		}
	}
	if d.bus.rate != 0 && !d.crossed {
		if d.crossed = d.bus.take(c.now, n, f); !d.crossed {
			if p.lossless {
				d.counted = true
				return false
			}
			p.discard(int(h.TCI >> 13))
			return true
		}
	}
	if d.switched {
		return d.switchIn(c, data)
	}
	if f.sw != nil {
		h.SetSource(0, uplinkVport)
	}
	if !d.admit {
		f.counters.rxDiscardDown++
		return true
	}
	if key := h.Dest() | 1<<48; f.accepted != key && !f.admits(data, key) {
		return true
	}
	v := &c.data.verdict
	f.rx.Classify(h, v)
	if len(v.To) == 1 {
		to := v.To[0]
		q, hash, kind := to.TIR.Queue(h)
		if p.lossless && !q.Posted(n+d.pendingLRO(q)) {
			d.counted = true
			return false
		}
		d.frame.Data, d.frame.Hash, d.frame.HashType, d.frame.Tag = data, hash, kind, to.Tag
		d.frame.Tunnelled = to.TIR.Tunnelled && to.TIR.Inside(h) != nil
		if to.TIR.Merge != 0 && merges(to.TIR, h, q) {
			d.coalesce(q, to)
		} else if out := q.Receive(&d.frame); out != queue.Delivered {
			f.account(q, out)
		}
	} else {
		if d.merging > 0 {
			d.flushLROs() // they came before
		}
		d.frame.Data = data
		f.replicate(c, &d.frame, false)
	}
	if len(v.Counters) != 0 {
		v.Count(n)
	}
	f.counters.rx.of(data).add(n)
	if v.Missed {
		f.counters.steeringDiscard++
	}
	return true
}

// replicate delivers a frame to all TIRs of the verdict; own frames only where a TIR lets them in.
func (f *function) replicate(c *Card, frame *queue.Frame, own bool) {
	for _, to := range c.data.verdict.To {
		if own && !to.TIR.AdmitsOwn(frame.Headers) {
			continue
		}
		var q *queue.RQ
		q, frame.Hash, frame.HashType = to.TIR.Queue(frame.Headers)
		frame.Tag, frame.Tunnelled = to.Tag, to.TIR.Inside(frame.Headers) != nil
		f.account(q, q.Receive(frame))
	}
}

// account counts a frame that a receive queue could not take. A frame that is longer than its WQE is
// counted by the queue.
func (f *function) account(q *queue.RQ, out queue.Outcome) {
	switch out {
	case queue.NoBuffer:
		if n := q.Config().OutOfBuffer; n != nil {
			*n++
		}
	case queue.NotReady, queue.Failed:
		f.counters.rxErrors.packets++
	}
}

// admits applies the vport's address filter. The answer for the destination of the frame before is kept
// (accepted): frames come in trains.
func (f *function) admits(data []byte, key uint64) bool {
	if !f.vport.accepts(data) {
		return false
	}
	f.accepted = key
	return true
}

// Ethertypes below 0x600 are lengths (IEEE 802.3 3.2.6).
const (
	typeMACControl = 0x8808
	maxLength      = 1500
	opPause        = 0x0001
	opPFC          = 0x0101
)

// oddType counts frames with a length for an Ethertype, and those of the MAC itself, which end here:
// false.
func (d *dataPort) oddType(c *Card, data []byte, h *packet.Headers) bool {
	p := d.port
	switch t := h.Ethertype(); {
	case t == typeMACControl:
		p.counters.macControlRx++
		off := packet.EthernetLen + int(h.Tags)*packet.TagLen
		op := uint16(0)
		if len(data) >= off+2 {
			op = binary.BigEndian.Uint16(data[off:])
		}
		switch op {
		case opPause:
			p.counters.pauseRx++
			p.counters.rx.prioPause[0]++
			d.obeyPause(c, false, data[off+2:])
		case opPFC:
			p.counters.pauseRx++
			if len(data) >= off+4 {
				p.counters.rx.pausePriorities(data[off+3])
			}
			d.obeyPause(c, true, data[off+2:])
		default:
			p.counters.unsupportedRx++
		}
		return false
	case t > maxLength:
		p.counters.outOfRange++
	case int(t) > len(data)-packet.EthernetLen-int(h.Tags)*packet.TagLen:
		p.counters.inRangeLength++
	}
	return true
}
