package packet

import (
	"encoding/binary"
	"math/bits"
)

// Bits of TCP's flag byte that not every segment of a large send carries.
const (
	tcpFIN = 1 << 0
	tcpPSH = 1 << 3
	tcpCWR = 1 << 7
)

// ParseLarge reads the headers of a large send: the first headerLen bytes of b, which is its first segment
// with whatever lengths and checksums the driver has put there; Linux leaves the lengths of the whole, or
// 0 where the whole is too long for them. It reports whether the send can be cut: TCP or UDP, not a
// fragment, with all of its headers in the first headerLen bytes. With tunnel, what is cut is in a tunnel.
func (h *Headers) ParseLarge(b []byte, headerLen int, tunnel bool) bool {
	Parse(b, h)
	if h.L3 == NoL3 {
		return false
	}
	h.SetLength(b)
	Parse(b, h)
	if h.Fragment {
		return false
	}
	if !tunnel {
		return h.fits(b, headerLen)
	}
	if h.innerAt == 0 || h.inner.L3 == NoL3 {
		return false
	}
	h.inner.SetLength(b[h.innerAt:])
	Parse(b, h)
	return h.innerAt != 0 && !h.inner.Fragment && h.inner.fits(b[h.innerAt:], headerLen-h.innerAt)
}

// fits reports whether there is a transport header and all headers lie in the first n bytes.
func (h *Headers) fits(b []byte, n int) bool {
	if h.L4Off == 0 {
		return false
	}
	if h.L4 == UDP {
		return h.L4Off+udpLen <= n
	}
	return h.L4Off+int(b[h.L4Off+12]>>4)*4 <= n
}

// SegmentInner is Segment for a send in a tunnel: both IP headers and the outer UDP header get their lengths,
// both identifications count. The outer UDP checksum is left as it is: 0, or what makes all full segments right.
func (h *Headers) SegmentInner(b []byte, index int, off uint32, last, l4 bool) {
	h.inner.Segment(b[h.innerAt:], index, off, last, l4)
	be := binary.BigEndian
	h.SetLength(b)
	if ip := b[h.L3Off:]; h.L3 == IPv4 {
		be.PutUint16(ip[4:], be.Uint16(ip[4:])+uint16(index))
	}
	if h.L4 == UDP {
		be.PutUint16(b[h.L4Off+4:], uint16(len(b)-h.L4Off))
	}
	h.Insert(b, true, false)
}

// Segment makes b segment number index of a large send (reference 03 §5): b is a copy of the headers that
// h describes with the segment's payload behind them, off is where that payload lies in the whole. Lengths,
// IPv4's identification, TCP's sequence number and flags and the checksums of L3, and of L4 if l4, are
// made what they have to be. ParseLarge has said that it can be cut, and h is what that found.
func (h *Headers) Segment(b []byte, index int, off uint32, last, l4 bool) {
	be := binary.BigEndian
	h.SetLength(b)
	if ip := b[h.L3Off:]; h.L3 == IPv4 {
		be.PutUint16(ip[4:], be.Uint16(ip[4:])+uint16(index))
	}
	t := b[h.L4Off:]
	if h.L4 == UDP {
		be.PutUint16(t[4:], uint16(len(t)))
	} else {
		be.PutUint32(t[4:], be.Uint32(t[4:])+off)
		if index > 0 {
			t[13] &^= tcpCWR
		}
		if !last {
			t[13] &^= tcpFIN | tcpPSH
		}
	}
	h.whole, h.End = true, len(b)
	h.Insert(b, true, l4)
}

// Unfinish makes b, which h are the headers of, a large send that is yet to be cut: the lengths are those of
// the whole, the IP header's checksum is right, and the transport checksum field holds the pseudo header's
// sum.
func (h *Headers) Unfinish(b []byte) {
	h.SetLength(b)
	h.whole, h.End = true, len(b)
	h.Insert(b, true, false)
	n := len(b) - h.L4Off
	at := h.L4Off + 16
	if h.L4 == UDP {
		at = h.L4Off + 6
		binary.BigEndian.PutUint16(b[h.L4Off+4:], uint16(n))
	}
	binary.BigEndian.PutUint16(b[at:], bits.ReverseBytes16(fold(h.pseudo(b, n))))
}

// HeaderLen is the length of all headers of b, which h are the headers of: a TCP segment or UDP datagram.
func (h *Headers) HeaderLen(b []byte) int {
	if h.L4 == UDP {
		return h.L4Off + udpLen
	}
	return h.PayloadOff(b)
}
