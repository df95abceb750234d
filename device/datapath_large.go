package device

import (
	"cxkit/device/internal/packet"
	"cxkit/device/internal/queue"
	"cxkit/device/wire"
)

// Large frames from a port whose far side did not cut them: as one large receive where the frame's TIR and
// queue take those, else cut here, as the sender's hardware would have done.

// deliverLarge delivers large[next]. false: it has to be held, as in deliverNext.
func (d *dataPort) deliverLarge(c *Card) bool {
	f := &d.large[d.next]
	data := f.Data
	if len(data) < packet.EthernetLen {
		return d.deliverNext(c)
	}
	h := &d.headers
	if f.Segment == 0 {
		packet.Parse(data, h)
		h.Insert(data, false, true)
		f.Meta = wire.Meta{} // it may be held and come here again
		return d.deliverNext(c)
	}
	if !h.ParseLarge(data, len(data), false) {
		d.function.counters.rxErrors.add(len(data))
		return true
	}
	header, segment := h.HeaderLen(data), int(f.Segment)
	if d.cut == 0 && d.merge(c, data, header, segment) {
		return true
	}
	if len(data)-header <= segment {
		segment = max(1, len(data)-header) // one, but unfinished
	}
	if d.piece == nil {
		d.piece = make([]byte, wire.MaxFrame)
	}
	for at := header + d.cut*segment; at < len(data) || d.cut == 0; at += segment {
		n := min(segment, len(data)-at)
		piece := d.piece[:header+n]
		copy(piece, data[:header])
		copy(piece[header:], data[at:at+n])
		h.ParseLarge(data, len(data), false) // deliveries leave theirs
		h.Segment(piece, d.cut, uint32(at-header), at+n == len(data), true)
		d.frames[d.next] = piece
		if !d.deliverNext(c) {
			return false
		}
		d.cut++
		d.counted = false
	}
	d.cut = 0
	return true
}

// merge delivers a large frame as one large receive. false: it has to be cut. h are its headers.
func (d *dataPort) merge(c *Card, data []byte, header, segment int) bool {
	h, f, v := &d.headers, d.function, &c.data.verdict
	n := (len(data) - header + segment - 1) / segment
	if n < 2 || n > 255 || len(data) > maxLRO || !h.Plain(data) || !d.admit || !f.vport.accepts(data) ||
		header+segment > d.limit+packet.TagLen*int(h.Tags) {
		return false
	}
	f.rx.Classify(h, v)
	if len(v.To) != 1 {
		return false
	}
	to := v.To[0]
	q, hash, kind := to.TIR.Queue(h)
	if !merges(to.TIR, h, q) || len(data) > min(h.L4Off+to.TIR.MaxMerge, q.Longest()) || d.lossless && !q.Posted(len(data)+d.pendingLRO(q)) {
		return false
	}
	d.flushLROs() // what came before stays before
	d.whole = queue.Large{Segments: uint8(n), MinTTL: h.TTL(), Push: h.Push(data), Window: h.Window(data), Ack: h.Ack(data)}
	frame := queue.Frame{Data: data, Headers: h, Hash: hash, HashType: kind, Tag: to.Tag, Large: &d.whole}
	if out := q.Receive(&frame); out != queue.Delivered {
		f.account(q, out)
	}
	count := f.counters.rx.of(data)
	for at := header; at < len(data); at += segment {
		part := data[:header+min(segment, len(data)-at)]
		d.port.counters.received(part, int(h.TCI>>13))
		count.add(len(part))
		v.Count(len(part))
	}
	return true
}
