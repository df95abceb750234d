package gro

import (
	"encoding/binary"
	"maps"
	"slices"
)

// reference merges as Linux's functions read, one after the other, on decoded fields and copied bytes. It
// is slow, and shares nothing with the Merger but the types of its input.
type reference struct {
	lists [8][]*aggregate // newest first, as Linux's lists
	out   [][]byte
}

// decoded is a frame, field by field.
type decoded struct {
	ok                     bool // a handler of Linux is reached that knows flows
	flush                  bool
	l2, network, transport []byte
	payload                []byte
	v6                     bool
	fields                 map[string]uint64
	addresses              string
}

// aggregate is a packet on a list.
type aggregate struct {
	decoded
	hash, tag uint32
	count     int
	total     int // skb->len
	gsoSize   int
	fixed     bool
}

func (a *aggregate) bytes() []byte {
	if a.count > 1 {
		a.finish()
	}
	return slices.Concat(a.l2, a.network, a.transport, a.payload)
}

// finish is inet_gro_complete or ipv6_gro_complete, and what they call.
func (a *aggregate) finish() {
	length := len(a.transport) + len(a.payload)
	if a.v6 {
		binary.BigEndian.PutUint16(a.network[4:], uint16(length))
	} else {
		binary.BigEndian.PutUint16(a.network[2:], uint16(length+20))
		a.network[10], a.network[11] = 0, 0
		binary.BigEndian.PutUint16(a.network[10:], ^naive(a.network))
	}
	at := 16
	if a.fields["proto"] == 17 {
		binary.BigEndian.PutUint16(a.transport[4:], uint16(length))
		at = 6
	}
	binary.BigEndian.PutUint16(a.transport[at:], naive(a.pseudo(length)))
}

// pseudo is the pseudo-header in bytes.
func (d *decoded) pseudo(length int) []byte {
	return slices.Concat([]byte(d.addresses), []byte{0, byte(d.fields["proto"]), byte(length >> 8), byte(length)})
}

// naive is the ones-complement sum, byte by byte.
func naive(b []byte) uint16 {
	var s uint32
	for i, v := range b {
		if i%2 == 0 {
			s += uint32(v) << 8
		} else {
			s += uint32(v)
		}
		if s > 0xffff {
			s -= 0xffff
		}
	}
	return uint16(s)
}

func decode(f *Frame) (d decoded) {
	b := slices.Clone(f.Data)
	d.fields = map[string]uint64{}
	take := func(n int) []byte {
		if n > len(b) {
			return nil
		}
		head := b[:n:n]
		b = b[n:]
		return head
	}
	if len(b) < 42 {
		return d // no IP frame with a transport header
	}
	d.l2 = take(14)
	kind := string(d.l2[12:14])
	for range 2 {
		if kind == "\x81\x00" || kind == "\x88\xa8" {
			tag := take(4)
			if tag == nil {
				return d
			}
			d.l2 = append(d.l2, tag...)
			kind = string(tag[2:])
		}
	}
	switch {
	case kind == "\x08\x00" && len(b) >= 20:
		whole := len(b)
		d.network = take(20)
		n := d.network
		if n[0] != 0x45 || n[6]&0x3f != 0 || n[7] != 0 {
			return d
		}
		if !f.Verified && naive(n) != 0xffff {
			return d
		}
		d.flush = int(n[2])<<8+int(n[3]) != whole || n[6]&0x80 != 0
		d.fields["proto"], d.fields["ttl"], d.fields["tos"] = uint64(n[9]), uint64(n[8]), uint64(n[1])
		d.fields["df"], d.fields["id"] = uint64(n[6]>>6&1), uint64(n[4])<<8+uint64(n[5])
		d.addresses = string(n[12:20])
	case kind == "\x86\xdd" && len(b) >= 40:
		d.v6 = true
		d.network = take(40)
		n := d.network
		if n[0]>>4 != 6 {
			return d
		}
		d.flush = int(n[4])<<8+int(n[5]) != len(b)
		d.fields["proto"], d.fields["ttl"] = uint64(n[6]), uint64(n[7])
		d.fields["tos"], d.fields["label"] = uint64(n[0]&15)<<4+uint64(n[1]>>4), uint64(n[1]&15)<<16+uint64(n[2])<<8+uint64(n[3])
		d.addresses = string(n[8:40])
	default:
		return d
	}
	segment := slices.Clone(b)
	switch d.fields["proto"] {
	case 6:
		if len(b) < 20 || b[12]>>4 < 5 || len(b) < int(b[12]>>4)*4 {
			return d
		}
		d.transport = take(int(b[12]>>4) * 4)
		t := d.transport
		d.fields["seq"], d.fields["ack"] = uint64(binary.BigEndian.Uint32(t[4:])), uint64(binary.BigEndian.Uint32(t[8:]))
		d.fields["flags"], d.fields["window"] = uint64(t[13])+uint64(t[12]&15)<<8, uint64(t[14])<<8+uint64(t[15])
	case 17:
		if len(b) < 8 || b[6] == 0 && b[7] == 0 {
			return d
		}
		ulen := int(b[4])<<8 + int(b[5])
		if ulen <= 8 || ulen != len(b) {
			return d
		}
		d.transport = take(8)
		d.fields["flags"] = 0
	default:
		return d
	}
	d.payload = b
	if !d.flush && !f.Verified && naive(append(d.pseudo(len(segment)), segment...)) != 0xffff {
		return d
	}
	d.ok = true
	return d
}

// add is dev_gro_receive.
func (r *reference) add(f *Frame) {
	d := decode(f)
	list := &r.lists[f.Hash&7]
	deliver := func(a *aggregate) {
		r.out = append(r.out, a.bytes())
		*list = slices.DeleteFunc(*list, func(x *aggregate) bool { return x == a })
	}
	if !d.ok {
		r.out = append(r.out, slices.Clone(f.Data))
		return
	}
	var p *aggregate
	for _, a := range *list {
		if a.hash == f.Hash && a.tag == f.Tag && string(a.l2) == string(d.l2) && a.v6 == d.v6 && a.addresses == d.addresses &&
			a.fields["label"] == d.fields["label"] && a.fields["proto"] == d.fields["proto"] && string(a.transport[:4]) == string(d.transport[:4]) {
			p = a
		}
	}
	fresh := &aggregate{decoded: d, hash: f.Hash, tag: f.Tag, count: 1, total: len(d.network) + len(d.transport) + len(d.payload), gsoSize: len(d.payload)}
	merged, flush := false, d.flush
	if d.fields["proto"] == 6 {
		merged, flush = r.tcp(p, fresh)
	} else if p != nil {
		merged = r.udp(p, fresh)
	}
	udpFull := merged && d.fields["proto"] == 17 && (len(d.payload) != p.gsoSize || p.count >= MaxSegments)
	if p != nil && (!merged || d.fields["proto"] == 6 && flush || udpFull) {
		deliver(p)
	}
	if merged {
		return
	}
	if flush || d.flush {
		r.out = append(r.out, slices.Clone(f.Data))
		return
	}
	if len(*list) == 8 {
		deliver((*list)[7])
	}
	*list = slices.Insert(*list, 0, fresh)
}

// tcp is tcp_gro_receive.
func (r *reference) tcp(p, skb *aggregate) (merged, flush bool) {
	const fin, syn, rst, psh, urg, cwr = 1, 2, 4, 8, 32, 128
	n, mss, flags := len(skb.payload), 1, skb.fields["flags"]
	if p != nil {
		differ := func(name string) bool { return p.fields[name] != skb.fields[name] }
		bad := flags&cwr != 0 || (flags^p.fields["flags"])&^(cwr|fin|psh) != 0 || differ("window") || differ("ack")
		bad = bad || string(p.transport[20:]) != string(skb.transport[20:]) || n == 0 || n > p.gsoSize
		bad = bad || uint32(p.fields["seq"])+uint32(len(p.payload)) != uint32(skb.fields["seq"])
		bad = r.network(p, skb) || bad
		if merged = !bad && r.receive(p, skb); merged {
			mss = p.gsoSize
			p.fields["flags"] |= flags & (fin | psh)
			p.transport[13] |= byte(flags & (fin | psh))
		}
	}
	return merged, n < mss || flags&(urg|psh|rst|syn|fin) != 0
}

// udp is udp_gro_receive_segment.
func (r *reference) udp(p, skb *aggregate) bool {
	return !r.network(p, skb) && len(skb.payload) <= p.gsoSize && r.receive(p, skb)
}

// network is gro_receive_network_flush.
func (r *reference) network(p, skb *aggregate) bool {
	if p.fields["ttl"] != skb.fields["ttl"] || p.fields["tos"] != skb.fields["tos"] || p.fields["df"] != skb.fields["df"] {
		return true
	}
	if p.v6 {
		return false
	}
	offset := uint16(skb.fields["id"] - p.fields["id"])
	if p.count == 1 && p.fields["df"] == 1 && offset == 0 {
		p.fixed = true
	}
	if p.fixed {
		return offset != 0
	}
	return offset != uint16(p.count)
}

// receive is skb_gro_receive.
func (r *reference) receive(p, skb *aggregate) bool {
	if p.total+len(skb.payload) >= 65536 || skb.flush || p.count >= MaxSegments {
		return false
	}
	p.payload = slices.Concat(p.payload, skb.payload)
	p.total += len(skb.payload)
	p.count++
	return true
}

// end is napi_gro_flush.
func (r *reference) end() {
	for i := range r.lists {
		for _, a := range slices.Backward(r.lists[i]) {
			r.out = append(r.out, a.bytes())
		}
		r.lists[i] = nil
	}
}

// keys are the names of a frame's fields, for messages.
func (d *decoded) keys() []string { return slices.Sorted(maps.Keys(d.fields)) }
