package gro

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"time"
)

const (
	// MaxSegments is the most segments of a merged packet: 45 of 1448 bytes make the 64 KiB.
	MaxSegments = 45
	// maxLength bounds a merged packet, IP header included (Linux GRO_LEGACY_MAX_SIZE).
	maxLength = 65536

	// Linux's hash table: buckets, and flows in each (GRO_HASH_BUCKETS, MAX_GRO_SKBS).
	buckets   = 8
	perBucket = 8

	// Flows is how many flows are held at most.
	Flows = buckets * perBucket
	// None is no flow.
	None = -1
)

// Frame is a frame as the card received it.
type Frame struct {
	Data []byte
	// Hash is the card's hash of the flow: frames with different ones are not of one flow.
	Hash uint32
	// Tag is the stripped VLAN tag, with a bit above it if there is one; it must be the same.
	Tag uint32
	// Verified says that the card found all checksums right. Else they are checked here.
	Verified bool
	// Merged says that the card has put it together from segments: it ends its flow, and is delivered alone.
	Merged bool
}

// Decision is what to do with a frame.
type Decision struct {
	// Before is a flow that is finished and to be delivered before the frame; None if there is none. Flow
	// may be the same number, used anew.
	Before int
	// Flow is the flow that the frame belongs to now, None if it is delivered alone. The flow's first frame
	// counts whole, of the others what follows their first Header bytes.
	Flow   int
	First  bool
	Header int
	// Last says that the flow is finished with this frame, and to be delivered.
	Last bool
}

// flow is a packet that is being merged.
type flow struct {
	head    []byte // its first frame
	hash    uint32
	tag     uint32
	h       headers
	next    uint32 // TCP: the sequence number that follows
	size    int    // payload of the first segment
	length  int    // of the packet so far, from the IP header on
	count   int
	fixedID bool
	since   time.Duration
}

// Merger is what one receive queue merges. One goroutine uses it.
type Merger struct {
	flows  [Flows]flow
	order  [buckets][perBucket]uint8 // flows of a bucket, oldest first
	held   [buckets]uint8
	active uint32 // buckets that have flows
}

// Add decides about the next frame; now is the time. The frame's memory is written to when its flow ends:
// the caller keeps it until he has delivered that.
func (m *Merger) Add(f *Frame, now time.Duration) Decision {
	h, ok := parse(f)
	if !ok {
		return Decision{Before: None, Flow: None}
	}
	length := len(f.Data) - h.payload
	var flags uint8
	if !h.udp {
		flags = f.Data[h.l4+13]
	}
	d := Decision{Before: None, Flow: None, Header: h.payload}
	bucket := f.Hash % buckets
	at, size := m.lookup(bucket, f, &h), 1
	if at != None {
		p := &m.flows[at]
		if p.fits(f, &h, length, flags) {
			size = p.size
			p.count++
			p.length += length
			p.next += uint32(length)
			if !h.udp {
				p.head[p.h.l4+13] |= flags & (flagFIN | flagPSH)
			}
			d.Flow, d.Last = at, length < size || flags&flagsLast != 0
			if h.udp {
				d.Last = length != size || p.count >= MaxSegments
			}
			if d.Last {
				m.finish(at)
			}
			return d
		}
		d.Before = at
		m.finish(at)
	}
	if h.alone || length < size || flags&flagsLast != 0 {
		return d
	}
	if at == None && m.held[bucket] == perBucket {
		d.Before = int(m.order[bucket][0]) // the oldest makes room
		m.finish(d.Before)
	}
	d.Flow, d.First = m.place(bucket), true
	m.flows[d.Flow] = flow{
		head: f.Data, hash: f.Hash, tag: f.Tag, h: h, size: length, length: len(f.Data) - h.l3, count: 1, since: now,
	}
	if !h.udp {
		m.flows[d.Flow].next = binary.BigEndian.Uint32(f.Data[h.l4+4:]) + uint32(length)
	}
	return d
}

// lookup finds the flow that a frame belongs to.
func (m *Merger) lookup(bucket uint32, f *Frame, h *headers) int {
	b := f.Data
	for _, i := range m.order[bucket][:m.held[bucket]] {
		p := &m.flows[i]
		if p.hash != f.Hash || p.tag != f.Tag || p.h.l3 != h.l3 || p.h.v6 != h.v6 || p.h.udp != h.udp {
			continue
		}
		if bytes.Equal(p.head[:h.l3], b[:h.l3]) && sameAddresses(p.head[h.l3:], b[h.l3:], h.v6) &&
			binary.BigEndian.Uint32(p.head[h.l4:]) == binary.BigEndian.Uint32(b[h.l4:]) { // ports
			return int(i)
		}
	}
	return None
}

// sameAddresses compares what of an IP header makes the flow.
func sameAddresses(p, b []byte, v6 bool) bool {
	if v6 {
		word := binary.BigEndian.Uint32(p) ^ binary.BigEndian.Uint32(b)
		return word&0xf00fffff == 0 && bytes.Equal(p[8:ipv6Header], b[8:ipv6Header])
	}
	return binary.BigEndian.Uint64(p[12:]) == binary.BigEndian.Uint64(b[12:])
}

// fits tells whether a frame of the flow is the next of the packet.
func (p *flow) fits(f *Frame, h *headers, length int, flags uint8) bool {
	if h.alone || p.count >= MaxSegments || p.length+length >= maxLength || length > p.size {
		return false
	}
	if !h.udp && !p.continues(f.Data[h.l4:h.payload], length, flags) {
		return false
	}
	return p.sameNetwork(f.Data[h.l3:], h.v6)
}

// continues compares TCP headers: all but ports, sequence number, checksum, FIN and PSH must be equal,
// options among them.
func (p *flow) continues(tcp []byte, length int, flags uint8) bool {
	first := p.head[p.h.l4:p.h.payload]
	const lengthFlagsWindow = 0xffffffff &^ ((flagCWR | flagFIN | flagPSH) << 16)
	return length > 0 && flags&flagCWR == 0 && len(tcp) == len(first) &&
		(binary.BigEndian.Uint32(tcp[12:])^binary.BigEndian.Uint32(first[12:]))&lengthFlagsWindow == 0 &&
		binary.BigEndian.Uint32(tcp[4:]) == p.next &&
		binary.BigEndian.Uint32(tcp[8:]) == binary.BigEndian.Uint32(first[8:]) &&
		bytes.Equal(tcp[tcpHeader:], first[tcpHeader:])
}

// sameNetwork compares the rest of the IP headers: type of service with ECN, hop limit, and for IPv4 DF and
// the identification, which counts up or stands still.
func (p *flow) sameNetwork(ip []byte, v6 bool) bool {
	first := p.head[p.h.l3:]
	if v6 {
		return ip[0] == first[0] && ip[1]>>4 == first[1]>>4 && ip[7] == first[7]
	}
	id, firstID := binary.BigEndian.Uint16(ip[4:]), binary.BigEndian.Uint16(first[4:])
	df := ip[6] & (dontFrag >> 8)
	if ip[8] != first[8] || ip[1] != first[1] || df != first[6]&(dontFrag>>8) {
		return false
	}
	if p.count == 1 && df != 0 && id == firstID {
		p.fixedID = true
	}
	if p.fixedID {
		return id == firstID
	}
	return id-firstID == uint16(p.count)
}

// place takes a free flow of a bucket, which has one.
func (m *Merger) place(bucket uint32) int {
	var used uint8
	n := m.held[bucket]
	for _, i := range m.order[bucket][:n] {
		used |= 1 << (i % perBucket)
	}
	at := uint8(bucket)*perBucket + uint8(bits.TrailingZeros8(^used))
	m.order[bucket][n] = at
	m.held[bucket]++
	m.active |= 1 << bucket
	return int(at)
}

// finish takes a flow out of its bucket and completes the headers of its packet.
func (m *Merger) finish(at int) {
	bucket := at / perBucket
	list := m.order[bucket][:m.held[bucket]]
	for i, f := range list {
		if int(f) == at {
			copy(list[i:], list[i+1:])
			break
		}
	}
	if m.held[bucket]--; m.held[bucket] == 0 {
		m.active &^= 1 << bucket
	}
	p := &m.flows[at]
	if p.count > 1 {
		p.complete()
	}
	p.head = nil
}

// complete writes the lengths and checksums of the merged packet.
func (p *flow) complete() {
	ip, t := p.head[p.h.l3:], p.head[p.h.l4:]
	length := p.length - ipv6Header
	if p.h.v6 {
		binary.BigEndian.PutUint16(ip[4:], uint16(length))
	} else {
		binary.BigEndian.PutUint16(ip[2:], uint16(p.length))
		binary.BigEndian.PutUint16(ip[10:], 0)
		binary.BigEndian.PutUint16(ip[10:], ^fold(sum(0, ip[:ipv4Header])))
		length = p.length - ipv4Header
	}
	if p.h.udp {
		binary.BigEndian.PutUint16(t[4:], uint16(length))
		binary.BigEndian.PutUint16(t[6:], fold(p.h.pseudo(p.head, length, protoUDP)))
		return
	}
	binary.BigEndian.PutUint16(t[16:], fold(p.h.pseudo(p.head, length, protoTCP)))
}

// Held is how many flows are held.
func (m *Merger) Held() (n int) {
	for _, k := range m.held {
		n += int(k)
	}
	return n
}

// Flush finishes a flow that is held since before or longer, and returns it for delivery; None when there
// is no other. Calling it until then with the current time delivers all.
func (m *Merger) Flush(before time.Duration) int {
	for left := m.active; left != 0; left &= left - 1 {
		bucket := bits.TrailingZeros32(left)
		if at := int(m.order[bucket][0]); m.flows[at].since <= before {
			m.finish(at)
			return at
		}
	}
	return None
}

// Oldest is since when the flow that was begun first has been held; the largest time if none is held.
func (m *Merger) Oldest() time.Duration {
	oldest := time.Duration(1<<63 - 1)
	for left := m.active; left != 0; left &= left - 1 {
		bucket := bits.TrailingZeros32(left)
		oldest = min(oldest, m.flows[m.order[bucket][0]].since)
	}
	return oldest
}
