package queue

import (
	"encoding/binary"

	"cxkit/device/internal/packet"
	"cxkit/pci"
	"cxkit/prm"
)

// multi makes items of a multi-packet WQE (reference 03 §5): an Ethernet segment that holds for all, then a
// data segment for each frame. All but the last are parts, which complete nothing; frames that were sent
// before are left out, and those that b has no room for come with the next batch. false: b has no room for
// any. allow_multi_pkt_send_wqe is not asked: Linux uses these WQEs without it.
func (q *SQ) multi(b *Batch, it *Item, wqe []byte) bool {
	if !q.config.MultiPacket || q.config.NoSend || q.config.InlineMode != prm.InlineModeNone || len(wqe) < ethEnd+segmentSize {
		it.syndrome = prm.CQESyndromeLocalQPOp
		return true
	}
	field := binary.BigEndian.Uint16(wqe[ethInline:])
	if field&insertVLAN == 0 && field != 0 {
		it.syndrome = prm.CQESyndromeLocalQPOp // the inline header would be every frame's
		return true
	}
	first := 0
	if it.counter == q.next {
		first = q.segment
	}
	whole := *it
	made := 0
	for i, at := 0, ethEnd; at < len(wqe); i++ {
		seg, end, ok := frameSegment(wqe, at)
		if !ok {
			it.part, it.syndrome = false, prm.CQESyndromeLocalQPOp
			return true
		}
		at = end
		if i < first {
			continue
		}
		if made > 0 {
			if len(b.Items) == cap(b.Items) {
				return true
			}
			b.Items = b.Items[:len(b.Items)+1]
			it = &b.Items[len(b.Items)-1]
		}
		*it = whole
		it.part = end < len(wqe)
		if !q.frame(b, it, wqe, seg) {
			if made == 0 {
				return false
			}
			b.Items = b.Items[:len(b.Items)-1]
			return true
		}
		if it.syndrome != 0 {
			it.part = false
			return true
		}
		made++
	}
	if made == 0 { // the driver has changed the WQE under way
		it.part, it.syndrome = false, prm.CQESyndromeLocalQPOp
	}
	return true
}

// frameSegment returns the data segment at an offset of a WQE, and where the next begins. ok is false when
// the WQE does not hold it whole.
func frameSegment(wqe []byte, at int) (seg []byte, end int, ok bool) {
	if len(wqe)-at < segmentSize {
		return nil, 0, false
	}
	head := binary.BigEndian.Uint32(wqe[at:])
	if head&segInline == 0 {
		return wqe[at : at+segmentSize], at + segmentSize, true
	}
	n := 4 + int(head&segInlineBits)
	if at+n > len(wqe) {
		return nil, 0, false
	}
	return wqe[at : at+n], at + (n+15)&^15, true
}

// frame gathers a frame that a data segment describes, with what the Ethernet segment of wqe asks for. false:
// b has no room for it.
func (q *SQ) frame(b *Batch, it *Item, wqe, seg []byte) bool {
	flags, field := wqe[ethCSFlags], binary.BigEndian.Uint16(wqe[ethInline:])
	head := binary.BigEndian.Uint32(seg)
	size := int(head & segInlineBits)
	if head&segInline == 0 {
		size = int(head)
	}
	if size < packet.EthernetLen || size > maxSend {
		it.syndrome = prm.CQESyndromeLocalLength
		return true
	}
	var key uint32
	var addr uint64
	if head&segInline == 0 {
		key, addr = binary.BigEndian.Uint32(seg[4:]), binary.BigEndian.Uint64(seg[8:])
		if size >= minFrame && field == 0 && flags&csAny == 0 {
			if v, err := q.env.view(&q.grant, &q.config.User, key, addr, size, pci.Read); err == nil && v != nil {
				it.Frame = v
				return true
			}
		}
	}
	tag := 0
	if field&insertVLAN != 0 {
		tag = packet.TagLen
	}
	room := b.take(max(size+tag, minFrame))
	if room == nil {
		return false
	}
	if head&segInline != 0 {
		copy(room[tag:], seg[4:])
	} else if !q.read(room[tag:tag+size], key, addr) {
		it.syndrome = prm.CQESyndromeLocalProtection
		return true
	}
	if tag != 0 {
		putTag(room, field, binary.BigEndian.Uint16(wqe[ethInlineData:]))
	}
	clear(room[size+tag:])
	if flags&csAny != 0 {
		packet.Parse(room[:size+tag], &b.headers)
		b.insert(room[:size+tag], flags)
	}
	it.Frame = room
	return true
}
