package queue

import (
	"encoding/binary"

	"cxkit/device/internal/packet"
	"cxkit/pci"
	"cxkit/prm"
)

const (
	// batchItems is how many WQEs a batch holds.
	batchItems = 64
	// batchBytes is its room for frames that are put together from parts: more than a longest frame.
	batchBytes = 128 << 10
	// largeBytes is its room when large sends are left whole.
	largeBytes = 1 << 20
	// maxSend is the longest frame a SEND may describe, in bytes. What the port allows is less.
	maxSend = 1<<16 - 1
	// minFrame is the shortest frame on a wire, without FCS: shorter ones are padded with zeros.
	minFrame = 60
)

// Batch is a burst of WQEs on their way out. It is used again and again.
type Batch struct {
	Items []Item

	bytes   []byte
	used    int
	wqe     [maxUnits * bbSize]byte
	headers packet.Headers
	frames  bool // some item has a frame
	large   bool // LSO WQEs are not cut
}

// SetLarge makes Fetch leave large sends whole, where they are no longer than an IP datagram.
func (b *Batch) SetLarge(on bool) {
	b.large = on
	if on && len(b.bytes) < largeBytes {
		b.bytes = make([]byte, largeBytes)
	}
}

// Item is one WQE of a batch.
type Item struct {
	// Frame is what it sends, padded, without FCS; nil if it sends nothing. It may lie in the host's
	// memory, which the driver must not change before the completion, and the card never writes.
	Frame []byte

	counter  uint16
	units    uint8
	opcode   prm.WQEOpcode
	ce       prm.CompletionMode
	syndrome prm.CQESyndrome
	// Segment is the payload of each segment of a large send that is left whole, behind Header bytes of
	// headers; 0 for others.
	Segment, Header int
	// part: a segment of an LSO WQE that is not its last. It completes nothing.
	part bool
}

// NewBatch makes an empty batch.
func NewBatch() *Batch {
	return &Batch{Items: make([]Item, 0, batchItems), bytes: make([]byte, batchBytes)}
}

func (b *Batch) reset() { b.Items, b.used, b.frames = b.Items[:0], 0, false }

// take returns n bytes of room, nil if there are not so many.
func (b *Batch) take(n int) []byte {
	if n > len(b.bytes)-b.used {
		return nil
	}
	room := b.bytes[b.used : b.used+n : b.used+n]
	b.used += n
	return room
}

// Fields of a SEND WQE (reference 03 §5).
const (
	ethCSFlags    = 0x14 // which checksums to insert
	ethInline     = 0x1c // size of the inline header, or bit 15 and bit 0: insert a VLAN tag
	ethInlineData = 0x1e // the inline header's first bytes, or the tag's TCI
	ethEnd        = 0x20

	csInnerL3 = 1 << 4
	csInnerL4 = 1 << 5
	csL3      = 1 << 6
	csL4      = 1 << 7
	csAny     = csInnerL3 | csInnerL4 | csL3 | csL4

	insertVLAN  = 1 << 15
	insertSVLAN = 1 << 0
	inlineBits  = 1<<10 - 1

	segInline     = 1 << 31
	segInlineBits = 1<<10 - 1
)

// send gathers the frame of a SEND WQE. false: b has no room for it.
func (q *SQ) send(b *Batch, it *Item, wqe []byte) bool {
	if len(wqe) < ethEnd || q.config.NoSend {
		it.syndrome = prm.CQESyndromeLocalQPOp
		return true
	}
	flags := wqe[ethCSFlags]
	field := binary.BigEndian.Uint16(wqe[ethInline:])
	if field == 0 && flags&csAny == 0 && len(wqe) == ethEnd+segmentSize && q.config.InlineMode == prm.InlineModeNone {
		// The common case: one piece of memory, sent from where it lies.
		size := binary.BigEndian.Uint32(wqe[ethEnd:])
		if size >= minFrame && size <= maxSend {
			key, addr := binary.BigEndian.Uint32(wqe[ethEnd+4:]), binary.BigEndian.Uint64(wqe[ethEnd+8:])
			v, err := q.env.view(&q.grant, &q.config.User, key, addr, int(size), pci.Read)
			if err == nil && v != nil {
				it.Frame = v
				return true
			}
		}
	}
	inline := 0
	if field&insertVLAN == 0 {
		inline = int(field & inlineBits)
	}
	size, syndrome := sendLength(wqe, inline)
	if syndrome != 0 {
		it.syndrome = syndrome
		return true
	}
	tag := 0
	if field&insertVLAN != 0 {
		tag = packet.TagLen
	}
	room := b.take(max(size+tag, minFrame))
	if room == nil {
		return false
	}
	if !q.gather(room[tag:tag+size], wqe, inline) {
		it.syndrome = prm.CQESyndromeLocalProtection
		return true
	}
	if tag != 0 {
		putTag(room, field, binary.BigEndian.Uint16(wqe[ethInlineData:]))
	}
	clear(room[size+tag:])
	if q.config.InlineMode != prm.InlineModeNone || flags&csAny != 0 {
		packet.Parse(room[:size+tag], &b.headers)
		if inline < b.headers.InlineLen(int(q.config.InlineMode)) {
			it.syndrome = prm.CQESyndromeLocalQPOp
			return true
		}
		b.insert(room[:size+tag], flags)
	}
	it.Frame = room
	return true
}

// insert writes the checksums that cs_flags ask for into a frame that b.headers are the headers of.
func (b *Batch) insert(frame []byte, flags uint8) {
	b.headers.InsertInner(frame, flags&csL3 != 0, flags&csL4 != 0, flags&csInnerL3 != 0, flags&csInnerL4 != 0)
}

// putTag makes room for a tag behind the addresses of a frame that starts TagLen bytes into room.
func putTag(room []byte, field, tci uint16) {
	copy(room[:12], room[packet.TagLen:])
	kind := uint32(packet.TypeCVID)
	if field&insertSVLAN != 0 {
		kind = packet.TypeSVID
	}
	binary.BigEndian.PutUint32(room[12:], kind<<16|uint32(tci))
}

// inlineEnd is where an inline header of n bytes ends in the WQE: it starts two bytes before the
// Ethernet segment's end, and data segments start at a multiple of 16.
func inlineEnd(n int) int { return ethEnd + (max(n-2, 0)+15)&^15 }

// sendLength adds up what a SEND WQE describes. The syndrome is not 0 when it can't be a frame.
func sendLength(wqe []byte, inline int) (size int, syndrome prm.CQESyndrome) {
	size, syndrome = describedLength(wqe, inline)
	if syndrome == 0 && (size < packet.EthernetLen || size > maxSend) {
		syndrome = prm.CQESyndromeLocalLength
	}
	return size, syndrome
}

// describedLength adds up a WQE's inline header and data segments, and checks that they lie in the WQE.
func describedLength(wqe []byte, inline int) (size int, syndrome prm.CQESyndrome) {
	size = inline
	at := inlineEnd(inline)
	if at > len(wqe) {
		return 0, prm.CQESyndromeLocalQPOp
	}
	for at < len(wqe) {
		head := binary.BigEndian.Uint32(wqe[at:])
		if head&segInline != 0 {
			n := int(head & segInlineBits)
			if at+4+n > len(wqe) {
				return 0, prm.CQESyndromeLocalQPOp
			}
			size += n
			at += (4 + n + 15) &^ 15
			continue
		}
		if head > maxLSO {
			return 0, prm.CQESyndromeLocalLength
		}
		size += int(head)
		at += segmentSize
	}
	return size, 0
}

// gather copies the frame that a WQE of checked lengths describes. false: a key does not reach it.
func (q *SQ) gather(frame, wqe []byte, inline int) bool {
	n := copy(frame, wqe[ethInlineData:ethInlineData+inline])
	for at := inlineEnd(inline); at < len(wqe); {
		head := binary.BigEndian.Uint32(wqe[at:])
		if head&segInline != 0 {
			size := int(head & segInlineBits)
			n += copy(frame[n:], wqe[at+4:at+4+size])
			at += (4 + size + 15) &^ 15
			continue
		}
		if head != 0 && !q.read(frame[n:n+int(head)], binary.BigEndian.Uint32(wqe[at+4:]), binary.BigEndian.Uint64(wqe[at+8:])) {
			return false
		}
		n += int(head)
		at += segmentSize
	}
	return true
}

// read copies from memory that a key reaches.
func (q *SQ) read(p []byte, key uint32, addr uint64) bool {
	v, err := q.env.view(&q.grant, &q.config.User, key, addr, len(p), pci.Read)
	if err != nil {
		return false
	}
	if v != nil {
		copy(p, v)
		return true
	}
	return q.env.keys.Read(q.env.mem, p, key, addr, q.config.User) == nil
}
