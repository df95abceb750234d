package packet

import (
	"encoding/binary"
	"math/bits"
)

// Sum is the ones'-complement sum of 16-bit big-endian words (RFC 1071), not inverted. An odd last byte
// counts as the high half of a word.
func Sum(b []byte) uint16 { return bits.ReverseBytes16(fold(partial(b))) }

// partial adds b up as little-endian words, with the carries of 64 bits added in: the sum does not depend
// on byte order (RFC 1071 §2), so words are added as the host loads them fastest, and swapped once at the
// end.
func partial(b []byte) uint64 {
	n := len(b)
	if n < 8 {
		return few(b)
	}
	// What is left of the last word, if any: the high bytes of the last eight.
	last := binary.LittleEndian.Uint64(b[n-8:]) >> (64 - 8*(n&7))
	var s, c uint64
	for len(b) >= 32 {
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(b), 0)
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(b[8:]), c)
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(b[16:]), c)
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(b[24:32]), c)
		s += c // a sum that carried is not all ones
		b = b[32:]
	}
	if len(b) >= 16 {
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(b), 0)
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(b[8:16]), c)
		s += c
		b = b[16:]
	}
	if len(b) >= 8 {
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(b), 0)
		s += c
	}
	s, c = bits.Add64(s, last, 0)
	return s + c
}

// few is partial for less than eight bytes.
func few(b []byte) (s uint64) {
	for i, v := range b {
		s |= uint64(v) << (8 * i)
	}
	return s
}

// join adds two partial sums.
func join(a, b uint64) uint64 {
	s, c := bits.Add64(a, b, 0)
	return s + c
}

// fold adds the four 16-bit words of s: added to itself turned by half its width, the upper half is the
// sum of the halves with the end-around carry.
func fold(s uint64) uint16 {
	t := uint32((s + bits.RotateLeft64(s, 32)) >> 32)
	return uint16((t + bits.RotateLeft32(t, 16)) >> 16)
}

// add is the ones'-complement sum of two sums.
func add(a, b uint16) uint16 {
	s := uint32(a) + uint32(b)
	return uint16(s + s>>16)
}

// AddSum adds to a sum that of bytes which start at an odd or even offset of the whole.
func AddSum(a, b uint16, off int) uint16 { return addAt(a, b, off) }

// addAt adds the sum of bytes that start at an odd or even offset of the whole.
func addAt(a, b uint16, off int) uint16 {
	if off&1 != 0 {
		b = bits.ReverseBytes16(b)
	}
	return add(a, b)
}

// Bits of CQE byte hds_ip_ext.
const (
	L2OK = 1 << 0
	L3OK = 1 << 1
	L4OK = 1 << 2
)

// Check sums a received frame from byte from (after the Ethernet header, or after a tag that is stripped
// in memory) to its end, padding included: CQE field checksum with cqe_checksum_full. ok holds the
// checks that the frame passed: L3OK for a sound IPv4 header checksum and any sound IPv6 header, L4OK
// for a sound TCP or UDP checksum (a UDP datagram over IPv4 without one passes). b and h are those of
// Parse. Every byte is read once.
func (h *Headers) Check(b []byte, from int) (sum uint16, ok uint8) {
	if h.plain && from == h.L3Off {
		return h.checkPlain(b)
	}
	if h.L3 == NoL3 || !h.whole {
		return Sum(b[from:]), L2OK
	}
	ok = L2OK
	var l3end int
	var all uint64
	if h.L3 == IPv4 {
		l3end = h.L3Off + int(h.Key[keyL4]>>shiftIHL&15)*4
		all = partial(b[h.L3Off:l3end])
		if fold(all) == 0xffff {
			ok |= L3OK
		}
	} else {
		l3end = h.L3Off + ipv6Len
		all = partial(b[h.L3Off:l3end])
		ok |= L3OK
	}
	if from < h.L3Off {
		all = join(all, partial(b[from:h.L3Off]))
	}
	end := l3end
	if h.L4Off != 0 {
		if l3end < h.L4Off {
			all = join(all, partial(b[l3end:h.L4Off]))
		}
		if end = h.l4End(b); end != h.L4Off {
			segment := partial(b[h.L4Off:end])
			if h.l4Sound(b, segment, end-h.L4Off) {
				ok |= L4OK
			}
			all = join(all, segment)
		}
	}
	sum = bits.ReverseBytes16(fold(all))
	if end < len(b) {
		sum = addAt(sum, Sum(b[end:]), end-from)
	}
	return sum, ok
}

// checkPlain is Check for the common frame: IPv4 without options, and TCP, or UDP as long as its datagram.
// The header is summed in three words, which hold the pseudo header's addresses, too.
func (h *Headers) checkPlain(b []byte) (sum uint16, ok uint8) {
	ip := b[h.L3Off : h.L3Off+ipv4Len]
	w0, w1 := binary.LittleEndian.Uint64(ip), binary.LittleEndian.Uint64(ip[8:])
	w2 := uint64(binary.LittleEndian.Uint32(ip[16:]))
	segment := partial(b[h.L4Off:h.End])
	ok = L2OK
	header := join(join(w0, w1), w2)
	if fold(header) == 0xffff {
		ok |= L3OK
	}
	pseudo := w1>>32 + w2 + uint64(h.Proto)<<8 + uint64(bits.ReverseBytes16(uint16(h.End-h.L4Off)))
	if fold(join(segment, pseudo)) == 0xffff || h.L4 == UDP && binary.LittleEndian.Uint16(b[h.L4Off+6:]) == 0 {
		ok |= L4OK
	}
	sum = bits.ReverseBytes16(fold(join(header, segment)))
	if h.End < len(b) {
		sum = addAt(sum, Sum(b[h.End:]), h.End-h.L3Off)
	}
	return sum, ok
}

// l4End is where the bytes end that the transport checksum covers. A UDP datagram may be shorter than
// its IP datagram; one that claims to be longer, or too short for its header, yields the header's start:
// it is not sound.
func (h *Headers) l4End(b []byte) int {
	if h.L4 != UDP {
		return h.End
	}
	size := int(binary.BigEndian.Uint16(b[h.L4Off+4:]))
	if size < udpLen || size > h.End-h.L4Off {
		return h.L4Off
	}
	return h.L4Off + size
}

// l4Sound judges the partial sum of a TCP segment or UDP datagram of n bytes.
func (h *Headers) l4Sound(b []byte, segment uint64, n int) bool {
	if h.L4 == UDP && binary.LittleEndian.Uint16(b[h.L4Off+6:]) == 0 {
		return h.L3 == IPv4 // RFC 768: not used; RFC 8200 §8.1: not allowed
	}
	return fold(join(segment, h.pseudo(b, n))) == 0xffff
}

// pseudo is the partial sum of the pseudo header for n bytes of transport header and payload.
func (h *Headers) pseudo(b []byte, n int) uint64 {
	// n is at most 65,535; its two bytes and the protocol lie in words of their own.
	s := uint64(bits.ReverseBytes16(uint16(n))) + uint64(h.Proto)<<8
	if h.L3 == IPv4 {
		return join(s, binary.LittleEndian.Uint64(b[h.L3Off+12:]))
	}
	return join(s, partial(b[h.L3Off+8:h.L3Off+ipv6Len]))
}

// Insert writes checksums into a frame that is about to be sent: the IPv4 header's if l3, TCP's or UDP's
// if l4. What the fields held is ignored: Linux leaves the pseudo header's sum there (reference 03 §5).
// A frame without the layer, or a fragment, is left alone. b and h are those of Parse.
func (h *Headers) Insert(b []byte, l3, l4 bool) {
	if h.L3 == NoL3 {
		return
	}
	if l3 && h.L3 == IPv4 {
		ip := b[h.L3Off : h.L3Off+int(b[h.L3Off]&15)*4]
		binary.BigEndian.PutUint16(ip[10:], 0)
		binary.BigEndian.PutUint16(ip[10:], ^Sum(ip))
	}
	if !l4 || h.L4Off == 0 || !h.whole {
		return
	}
	at := h.L4Off + 16
	if h.L4 == UDP {
		at = h.L4Off + 6
	}
	end := h.l4End(b)
	if end == h.L4Off {
		return
	}
	binary.BigEndian.PutUint16(b[at:], 0)
	sum := ^bits.ReverseBytes16(fold(join(partial(b[h.L4Off:end]), h.pseudo(b, end-h.L4Off))))
	if sum == 0 && h.L4 == UDP {
		sum = 0xffff // RFC 768: 0 says "no checksum"
	}
	binary.BigEndian.PutUint16(b[at:], sum)
}
