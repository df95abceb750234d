package gro

import "encoding/binary"

// Large is what a card tells of TCP segments that it has put together itself (LRO): the headers of the first,
// and the payload of all.
type Large struct {
	// Length is of the whole, from its Ethernet header on.
	Length int
	// MinTTL is the lowest time to live or hop limit of all segments. Push says that one had PSH.
	MinTTL uint8
	Push   bool
	// Acked says that the segments acknowledge: Ack and Window are the last one's.
	Acked  bool
	Ack    uint32
	Window uint16
	// Sum is the ones-complement sum of the payload, not inverted.
	Sum uint16
}

// Complete makes the headers that b begins with those of the whole, as Linux does (en_rx.c,
// mlx5e_lro_update_hdr): lengths, time to live, PSH, acknowledgement, window and both checksums. false: b has
// no headers of TCP over IP without options and fragments, and nothing is changed.
func (l *Large) Complete(b []byte) bool {
	var h headers
	kind, ok := h.link(b)
	if !ok {
		return false
	}
	var proto uint8
	switch ip := b[h.l3:]; kind {
	case typeIPv4:
		if len(ip) < ipv4Header || ip[0] != 0x45 || binary.BigEndian.Uint16(ip[6:])&notFirst != 0 {
			return false
		}
		h.l4, proto = h.l3+ipv4Header, ip[9]
	case typeIPv6:
		if len(ip) < ipv6Header || ip[0]>>4 != 6 {
			return false
		}
		h.l4, proto, h.v6 = h.l3+ipv6Header, ip[6], true
	default:
		return false
	}
	t := b[h.l4:]
	if proto != protoTCP || len(t) < tcpHeader {
		return false
	}
	length := int(t[12]>>4) * 4
	if length < tcpHeader || length > len(t) || h.l4+length > l.Length || l.Length-h.l3 > maxLength-1 {
		return false
	}
	be, ip := binary.BigEndian, b[h.l3:]
	if h.v6 {
		ip[7] = l.MinTTL
		be.PutUint16(ip[4:], uint16(l.Length-h.l4))
	} else {
		ip[8] = l.MinTTL
		be.PutUint16(ip[2:], uint16(l.Length-h.l3))
		be.PutUint16(ip[10:], 0)
		be.PutUint16(ip[10:], ^fold(sum(0, ip[:ipv4Header])))
	}
	t[13] &^= flagPSH
	if l.Push {
		t[13] |= flagPSH
	}
	if l.Acked {
		t[13] |= flagACK
		be.PutUint32(t[8:], l.Ack)
		be.PutUint16(t[14:], l.Window)
	}
	be.PutUint16(t[16:], 0)
	be.PutUint16(t[16:], ^fold(uint64(l.Sum)+sum(h.pseudo(b, l.Length-h.l4, protoTCP), t[:length])))
	return true
}
