package queue

import (
	"encoding/binary"

	"cxkit/device/internal/packet"
	"cxkit/prm"
)

const (
	// LogMaxLSO is log2 of the longest payload that one LSO WQE is sure to send, in bytes; maxLSO is what is
	// let through: Linux asks for up to GSO_MAX_SIZE (8 * 65,535) whatever the capability says.
	LogMaxLSO = 18
	maxLSO    = 1 << 19

	ethMSS = 0x16
)

// lso cuts what an LSO WQE describes into segments, an item of the batch each: it is the first one. All
// but the last are parts, which complete nothing. Segments that were sent before are left out; those that
// b has no room for come with the next batch. false: b has no room for any.
func (q *SQ) lso(b *Batch, it *Item, wqe []byte) bool {
	plan, syndrome := q.planLSO(wqe)
	if syndrome != 0 {
		it.syndrome = syndrome
		return true
	}
	tunnel := wqe[ethCSFlags]&(csInnerL3|csInnerL4) != 0
	first := 0
	if it.counter == q.next {
		first = q.segment
	}
	src := gatherer{q: q, wqe: wqe, at: inlineEnd(plan.header)}
	if !src.skip(first * plan.mss) {
		it.syndrome = prm.CQESyndromeLocalProtection
		return true
	}
	if b.large && first == 0 && !tunnel && plan.segments > 1 && plan.header+plan.payload <= maxSend {
		if room, done := q.whole(b, it, wqe, &plan, &src); done {
			return room
		}
		src = gatherer{q: q, wqe: wqe, at: inlineEnd(plan.header)}
	}
	whole := *it
	for i := first; i < plan.segments; i++ {
		if i > first {
			if len(b.Items) == cap(b.Items) {
				return true
			}
		}
		size := plan.header + min(plan.mss, plan.payload-i*plan.mss)
		room := b.take(max(size, minFrame))
		if room == nil {
			return i > first
		}
		if i > first {
			b.Items = b.Items[:len(b.Items)+1]
			it = &b.Items[len(b.Items)-1]
		}
		*it = whole
		it.part = i < plan.segments-1
		copy(room, wqe[ethInlineData:ethInlineData+plan.header])
		if !src.read(room[plan.header:size]) {
			it.part, it.syndrome = false, prm.CQESyndromeLocalProtection
			return true
		}
		clear(room[size:])
		if i == first {
			if !b.headers.ParseLarge(room[:size], plan.header, tunnel) {
				it.part, it.syndrome = false, prm.CQESyndromeLocalQPOp
				return true
			}
		}
		if tunnel {
			b.headers.SegmentInner(room[:size], i, uint32(i*plan.mss), !it.part, wqe[ethCSFlags]&csInnerL4 != 0)
		} else {
			b.headers.Segment(room[:size], i, uint32(i*plan.mss), !it.part, wqe[ethCSFlags]&csL4 != 0)
		}
		it.Frame = room
	}
	return true
}

// whole makes one item of a large send, for a wire whose far side cuts it: lengths of the whole, and the
// pseudo header's sum for a checksum. fits is false when b has no room for it. done is false for what the
// far side may not know how to cut, which is all but TCP.
func (q *SQ) whole(b *Batch, it *Item, wqe []byte, plan *lsoPlan, src *gatherer) (fits, done bool) {
	used := b.used
	room := b.take(plan.header + plan.payload)
	if room == nil {
		return false, true
	}
	copy(room, wqe[ethInlineData:ethInlineData+plan.header])
	if !src.read(room[plan.header:]) {
		it.syndrome = prm.CQESyndromeLocalProtection
		return true, true
	}
	if !b.headers.ParseLarge(room, plan.header, false) {
		it.syndrome = prm.CQESyndromeLocalQPOp
		return true, true
	}
	if b.headers.L4 == packet.UDP {
		b.used = used
		return false, false
	}
	b.headers.Unfinish(room)
	it.Frame, it.Segment, it.Header = room, plan.mss, plan.header
	return true, true
}

// lsoPlan is what an LSO WQE asks for, in bytes.
type lsoPlan struct{ header, payload, mss, segments int }

// planLSO checks an LSO WQE.
func (q *SQ) planLSO(wqe []byte) (p lsoPlan, syndrome prm.CQESyndrome) {
	if len(wqe) < ethEnd || q.config.NoSend {
		return p, prm.CQESyndromeLocalQPOp
	}
	field := binary.BigEndian.Uint16(wqe[ethInline:])
	p.header = int(field & inlineBits)
	p.mss = int(binary.BigEndian.Uint16(wqe[ethMSS:]))
	if field&insertVLAN != 0 || p.header < packet.EthernetLen || p.mss == 0 {
		return p, prm.CQESyndromeLocalQPOp
	}
	size, syndrome := describedLength(wqe, p.header)
	if syndrome != 0 {
		return p, syndrome
	}
	p.payload = size - p.header
	if p.payload == 0 || p.payload > maxLSO || p.header+min(p.mss, p.payload) > maxSend {
		return p, prm.CQESyndromeLocalLength
	}
	p.segments = (p.payload + p.mss - 1) / p.mss
	return p, 0
}

// gatherer reads what the data segments of a WQE describe, one piece after the other. The lengths have been
// checked.
type gatherer struct {
	q   *SQ
	wqe []byte
	at  int // the data segment
	off int // in it
}

// segment is the present data segment: its length, and its bytes if they are inline.
func (g *gatherer) segment() (size int, inline []byte) {
	head := binary.BigEndian.Uint32(g.wqe[g.at:])
	if head&segInline != 0 {
		size = int(head & segInlineBits)
		return size, g.wqe[g.at+4 : g.at+4+size]
	}
	return int(head), nil
}

// next moves to the next data segment.
func (g *gatherer) next(size int, inline []byte) {
	g.off = 0
	if inline != nil {
		g.at += (4 + size + 15) &^ 15
		return
	}
	g.at += segmentSize
}

// skip passes over n bytes. false: there are not so many.
func (g *gatherer) skip(n int) bool {
	for n > 0 && g.at < len(g.wqe) {
		size, inline := g.segment()
		take := min(n, size-g.off)
		n -= take
		if g.off += take; g.off == size {
			g.next(size, inline)
		}
	}
	return n == 0
}

// read fills p. false: a key does not reach it, or there is not so much.
func (g *gatherer) read(p []byte) bool {
	for len(p) > 0 && g.at < len(g.wqe) {
		size, inline := g.segment()
		take := min(len(p), size-g.off)
		switch {
		case take == 0:
		case inline != nil:
			copy(p, inline[g.off:g.off+take])
		default:
			key := binary.BigEndian.Uint32(g.wqe[g.at+4:])
			addr := binary.BigEndian.Uint64(g.wqe[g.at+8:]) + uint64(g.off)
			if !g.q.read(p[:take], key, addr) {
				return false
			}
		}
		p = p[take:]
		if g.off += take; g.off == size {
			g.next(size, inline)
		}
	}
	return len(p) == 0
}
