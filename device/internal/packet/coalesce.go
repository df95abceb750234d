package packet

import (
	"bytes"
	"encoding/binary"
)

// A large receive is put together from TCP segments that differ in nothing but their place (reference 06 §4).

// tcpTimestamp is the only option that segments of a large receive have: 12 bytes, with two NOPs before it.
const tcpTimestamp = 0x0101080a

// Coalesces reports whether b, which h are the headers of, may become part of a large receive: a sound TCP
// segment with data and with no flags but ACK and PSH, without IP options, and with no TCP option but a time
// stamp.
func (h *Headers) Coalesces(b []byte) bool {
	if !h.Plain(b) {
		return false
	}
	_, ok := h.Check(b, h.L3Off)
	return ok&(L3OK|L4OK) == L3OK|L4OK
}

// Plain is Coalesces but for the checksums, which are not looked at.
func (h *Headers) Plain(b []byte) bool {
	if h.L4 != TCPAckData || h.Options || h.Fragment || !h.whole || h.Key[keyIP]>>shiftFlags&tcpFlagBits&^(tcpACK|tcpPSH) != 0 {
		return false
	}
	switch b[h.L4Off+12] >> 4 {
	case 5:
	case 8:
		if binary.BigEndian.Uint32(b[h.L4Off+20:]) != tcpTimestamp {
			return false
		}
	default:
		return false
	}
	return true
}

// SameFlow reports whether b, which h are the headers of, has the Ethernet header, addresses and ports of first,
// a frame that coalesces. Fragments have no ports: those of the flow's hosts count as of the flow.
func (h *Headers) SameFlow(b, first []byte) bool {
	if h.L3 == NoL3 || len(first) < h.L3Off+ipv6Len {
		return false
	}
	same := func(from, to int) bool { return bytes.Equal(b[from:to], first[from:to]) }
	l3 := h.L3Off
	if !same(0, l3) {
		return false
	}
	ports := l3 + ipv4Len // of first, which has no options
	if h.L3 == IPv4 {
		if !same(l3+12, l3+20) {
			return false
		}
	} else {
		ports = l3 + ipv6Len
		if !same(l3+8, l3+40) {
			return false
		}
	}
	if h.L4Off == 0 {
		return true
	}
	return h.L4 != UDP && len(first) >= ports+4 && bytes.Equal(b[h.L4Off:h.L4Off+4], first[ports:ports+4])
}

// Continues reports whether b follows on first, a segment of the same flow, in every header but for what
// Large rewrites; seq is the sequence number that it has to have. Both coalesce; h are the headers of both.
func (h *Headers) Continues(b, first []byte, seq uint32) bool {
	if len(first) < h.L4Off+tcpLen || binary.BigEndian.Uint32(b[h.L4Off+4:]) != seq {
		return false
	}
	same := func(from, to int) bool { return bytes.Equal(b[from:to], first[from:to]) }
	l3, l4 := h.L3Off, h.L4Off
	if !same(0, l3) || !same(l4, l4+4) || b[l4+12] != first[l4+12] {
		return false
	}
	if h.L3 == IPv4 {
		// Version, length and TOS; flags; protocol; addresses.
		if !same(l3, l3+2) || !same(l3+6, l3+8) || b[l3+9] != first[l3+9] || !same(l3+12, l3+20) {
			return false
		}
	} else if !same(l3, l3+4) || b[l3+6] != first[l3+6] || !same(l3+8, l3+40) {
		return false
	}
	end := h.PayloadOff(b)
	return same(l4+tcpLen, end)
}

// Seq, Ack, Window and Push are TCP's.
func (h *Headers) Seq(b []byte) uint32 { return binary.BigEndian.Uint32(b[h.L4Off+4:]) }

// Ack is the acknowledgement number.
func (h *Headers) Ack(b []byte) uint32 { return binary.BigEndian.Uint32(b[h.L4Off+8:]) }

// Window is the window as the header has it.
func (h *Headers) Window(b []byte) uint16 { return binary.BigEndian.Uint16(b[h.L4Off+14:]) }

// Push reports whether PSH is set.
func (h *Headers) Push(b []byte) bool { return b[h.L4Off+13]&tcpPSH != 0 }

// TTL is the time to live or hop limit.
func (h *Headers) TTL() uint8 { return uint8(h.Key[keyL4] >> shiftTTL) }

// SetLength makes the IP header of b tell the length of b.
func (h *Headers) SetLength(b []byte) {
	ip := b[h.L3Off:]
	if h.L3 == IPv4 {
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	} else {
		binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-ipv6Len))
	}
}
