package gro

import "encoding/binary"

// Lengths and values of headers.
const (
	ethernet   = 14
	vlanTag    = 4
	ipv4Header = 20
	ipv6Header = 40
	tcpHeader  = 20
	udpHeader  = 8

	typeIPv4  = 0x0800
	typeIPv6  = 0x86dd
	typeVLAN  = 0x8100
	typeQinQ  = 0x88a8
	protoTCP  = 6
	protoUDP  = 17
	dontFrag  = 0x4000
	notFirst  = 0x3fff // more fragments, and the offset
	flagFIN   = 1 << 0
	flagSYN   = 1 << 1
	flagRST   = 1 << 2
	flagPSH   = 1 << 3
	flagACK   = 1 << 4
	flagURG   = 1 << 5
	flagCWR   = 1 << 7
	flagsLast = flagURG | flagPSH | flagRST | flagSYN | flagFIN
)

// headers is where the headers of a frame begin, and what their lengths say.
type headers struct {
	l3, l4, payload int
	v6, udp         bool
	// alone: the frame may not be merged, though a flow it belongs to is delivered before it.
	alone bool
}

// parse finds the headers. ok is false where Linux does not look at flows at all.
func parse(f *Frame) (h headers, ok bool) {
	b := f.Data
	if len(b) < ethernet+ipv4Header+udpHeader {
		return h, false
	}
	kind, ok := h.link(b)
	if !ok {
		return h, false
	}
	var proto uint8
	switch ip := b[h.l3:]; kind {
	case typeIPv4:
		if len(ip) < ipv4Header || ip[0] != 0x45 {
			return h, false // options
		}
		fragment := binary.BigEndian.Uint16(ip[6:])
		if fragment&notFirst != 0 || !f.Verified && fold(sum(0, ip[:ipv4Header])) != 0xffff {
			return h, false
		}
		h.alone = fragment&^dontFrag != 0 || int(binary.BigEndian.Uint16(ip[2:])) != len(ip)
		h.l4, proto = h.l3+ipv4Header, ip[9]
	case typeIPv6:
		if len(ip) < ipv6Header || ip[0]>>4 != 6 {
			return h, false
		}
		h.alone = int(binary.BigEndian.Uint16(ip[4:])) != len(ip)-ipv6Header
		h.l4, proto, h.v6 = h.l3+ipv6Header, ip[6], true
	default:
		return h, false
	}
	h.alone = h.alone || f.Merged
	return h, h.transport(f, proto)
}

// link finds where the header behind Ethernet's and up to two tags begins, and its EtherType.
func (h *headers) link(b []byte) (kind uint16, ok bool) {
	at := ethernet - 2
	if len(b) < ethernet {
		return 0, false
	}
	kind = binary.BigEndian.Uint16(b[at:])
	for tags := 0; kind == typeVLAN || kind == typeQinQ; tags++ {
		at += vlanTag
		if tags == 2 || at+2 > len(b) {
			return 0, false
		}
		kind = binary.BigEndian.Uint16(b[at:])
	}
	h.l3 = at + 2
	return kind, true
}

// transport finds the end of the transport header, and checks what must be right for the flow to be looked
// at.
func (h *headers) transport(f *Frame, proto uint8) bool {
	t := f.Data[h.l4:]
	length := 0
	switch proto {
	case protoTCP:
		if len(t) < tcpHeader {
			return false
		}
		length = int(t[12]>>4) * 4
		if length < tcpHeader || length > len(t) {
			return false
		}
	case protoUDP:
		// No checksum: nothing to be made for the merged packet.
		if len(t) < udpHeader || binary.BigEndian.Uint16(t[6:]) == 0 {
			return false
		}
		if n := int(binary.BigEndian.Uint16(t[4:])); n <= udpHeader || n != len(t) {
			return false
		}
		length, h.udp = udpHeader, true
	default:
		return false
	}
	h.payload = h.l4 + length
	// As Linux, without a look at frames that are alone anyway.
	return h.alone || f.Verified || fold(h.pseudo(f.Data, len(t), proto)+sum(0, t)) == 0xffff
}

// pseudo is the sum of the pseudo-header, for a transport packet of so many bytes.
func (h *headers) pseudo(b []byte, length int, proto uint8) uint64 {
	s := uint64(length) + uint64(proto)
	if h.v6 {
		return sum(s, b[h.l3+8:h.l3+ipv6Header])
	}
	return sum(s, b[h.l3+12:h.l3+ipv4Header])
}

// sum adds the 16-bit words of b to a ones-complement sum that is not folded.
func sum(s uint64, b []byte) uint64 {
	for len(b) >= 8 {
		v := binary.BigEndian.Uint64(b)
		s += v>>32 + v&0xffffffff
		b = b[8:]
	}
	for len(b) >= 2 {
		s += uint64(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		s += uint64(b[0]) << 8
	}
	return s
}

func fold(s uint64) uint16 {
	s = s>>32 + s&0xffffffff
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}
