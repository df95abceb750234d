package packet

// Fields of rx_hash_field_select.selected_fields.
const (
	HashSrcIP = 1 << iota
	HashDstIP
	HashSrcPort
	HashDstPort
	HashSPI
)

// Bits of CQE byte rss_hash_type (reference 03 §2).
const (
	hashedIPv4 = 1 << 2
	hashedIPv6 = 2 << 2
	hashedTCP  = 1 << 6
	hashedUDP  = 2 << 6
	hashedSPI  = 3 << 6
)

// KeyLen is the length of a Toeplitz key in bytes.
const KeyLen = 40

// hashWords bounds a hash's input in 32-bit words: two IPv6 addresses, two ports, an SPI.
const hashWords = 9

// Toeplitz hashes with one key. It holds, for every nibble of the input and every value of it, the XOR
// of the key's windows that the nibble's bits select: 5 KiB that stay in the first-level cache, where a
// table by bytes would not.
type Toeplitz struct {
	table [hashWords][8][16]uint32
}

// NewToeplitz prepares a key.
func NewToeplitz(key *[KeyLen]byte) *Toeplitz {
	t := new(Toeplitz)
	// window i is bits i to i+31 of the key.
	window := func(i int) (w uint32) {
		for j := i; j < i+32; j++ {
			w = w<<1 | uint32(key[j/8]>>(7-j%8))&1
		}
		return w
	}
	for i := range hashWords * 8 {
		row := &t.table[i/8][i%8]
		for bit := range 4 {
			w := window(i*4 + bit)
			for v := range row {
				if v>>(3-bit)&1 != 0 {
					row[v] ^= w
				}
			}
		}
	}
	return t
}

// sum hashes at most hashWords words.
func (t *Toeplitz) sum(in []uint32) (sum uint32) {
	for i, v := range in {
		r := &t.table[i]
		sum ^= r[0][v>>28] ^ r[1][v>>24&15] ^ r[2][v>>20&15] ^ r[3][v>>16&15] ^
			r[4][v>>12&15] ^ r[5][v>>8&15] ^ r[6][v>>4&15] ^ r[7][v&15]
	}
	return sum
}

// Hash is how a TIR hashes frames. The zero Hash yields 0 for every frame.
type Hash struct {
	// Fields are the HashXxx bits that take part, where the frame has them.
	Fields uint32
	// Symmetric makes both directions of a flow hash alike: address and port pairs are replaced by
	// (a OR b, a XOR b) (linux Documentation/networking/scaling.rst, "Symmetric-OR-XOR").
	Symmetric bool
	// Toeplitz is the prepared key of function 2; nil with XOR8 means function 1, inverted XOR.
	Toeplitz *Toeplitz
	XOR8     bool
}

// Sum hashes a frame. kind is CQE byte rss_hash_type: what took part. A frame without any of the fields
// hashes to 0.
func (s *Hash) Sum(h *Headers) (sum uint32, kind uint8) {
	if s.Toeplitz == nil && !s.XOR8 {
		return 0, 0
	}
	if s.Fields == fourTuple && h.L3 == IPv4 && h.L4 != NoL4 && s.Toeplitz != nil {
		return s.sum4(h)
	}
	var in [hashWords]uint32
	n, kind := s.input(h, &in)
	if n == 0 {
		return 0, 0
	}
	if s.Toeplitz == nil {
		return xor8(in[:n]), kind
	}
	return s.Toeplitz.sum(in[:n]), kind
}

// fourTuple is the usual choice of fields.
const fourTuple = HashSrcIP | HashDstIP | HashSrcPort | HashDstPort

// sum4 is Sum for the four-tuple of IPv4 with Toeplitz.
func (s *Hash) sum4(h *Headers) (sum uint32, kind uint8) {
	kind = hashedIPv4 | hashedTCP
	ports := uint32(h.Key[keyIP])
	if h.L4 == UDP {
		kind, ports = hashedIPv4|hashedUDP, uint32(h.Key[keyL4])
	}
	in := [3]uint32{uint32(h.Key[keySrcLow]), uint32(h.Key[keyDstLow]), ports}
	if s.Symmetric {
		a, b, src, dst := in[0], in[1], ports>>16, ports&0xffff
		in = [3]uint32{a | b, a ^ b, (src|dst)<<16 | src ^ dst}
	}
	return s.Toeplitz.sum(in[:]), kind
}

// input lists what is hashed, in words; a half word at the end is padded with zero bits, which change
// neither function.
func (s *Hash) input(h *Headers, in *[hashWords]uint32) (n int, kind uint8) {
	switch h.L3 {
	case NoL3:
		return 0, 0
	case IPv4:
		if n = s.pair(in, 0, uint32(h.Key[keySrcLow]), uint32(h.Key[keyDstLow])); n != 0 {
			kind = hashedIPv4
		}
	case IPv6:
		if n = s.addresses6(h, in); n != 0 {
			kind = hashedIPv6
		}
	}
	if s.Fields&(HashSrcPort|HashDstPort) != 0 && h.L4 != NoL4 {
		ports, l4 := uint32(h.Key[keyIP]), uint8(hashedTCP)
		if h.L4 == UDP {
			ports, l4 = uint32(h.Key[keyL4]), hashedUDP
		}
		kind |= l4
		n = s.ports(in, n, ports>>16, ports&0xffff)
	} else if s.Fields&HashSPI != 0 && (h.Proto == protoESP || h.Proto == protoAH) && !h.Fragment {
		kind |= hashedSPI
		in[n] = uint32(h.Key[keyESP] >> shiftSPI)
		n++
	}
	return n, kind
}

// pair appends an address pair of one word each, as far as it is selected.
func (s *Hash) pair(in *[hashWords]uint32, n int, src, dst uint32) int {
	switch s.Fields & (HashSrcIP | HashDstIP) {
	case HashSrcIP | HashDstIP:
		if s.Symmetric {
			src, dst = src|dst, src^dst
		}
		in[n], in[n+1] = src, dst
		return n + 2
	case HashSrcIP:
		in[n] = src
		return n + 1
	case HashDstIP:
		in[n] = dst
		return n + 1
	}
	return n
}

func (s *Hash) addresses6(h *Headers, in *[hashWords]uint32) int {
	srcHigh, srcLow, dstHigh, dstLow := h.Key[keySrcHigh], h.Key[keySrcLow], h.Key[keyDstHigh], h.Key[keyDstLow]
	switch s.Fields & (HashSrcIP | HashDstIP) {
	case HashSrcIP | HashDstIP:
		if s.Symmetric {
			srcHigh, dstHigh = srcHigh|dstHigh, srcHigh^dstHigh
			srcLow, dstLow = srcLow|dstLow, srcLow^dstLow
		}
		put4(in, 0, srcHigh, srcLow)
		put4(in, 4, dstHigh, dstLow)
		return 8
	case HashSrcIP:
		put4(in, 0, srcHigh, srcLow)
		return 4
	case HashDstIP:
		put4(in, 0, dstHigh, dstLow)
		return 4
	}
	return 0
}

func put4(in *[hashWords]uint32, at int, high, low uint64) {
	in[at], in[at+1], in[at+2], in[at+3] = uint32(high>>32), uint32(high), uint32(low>>32), uint32(low)
}

// ports appends one word with the selected ports; one alone takes the first half.
func (s *Hash) ports(in *[hashWords]uint32, n int, src, dst uint32) int {
	switch s.Fields & (HashSrcPort | HashDstPort) {
	case HashSrcPort | HashDstPort:
		if s.Symmetric {
			src, dst = src|dst, src^dst
		}
		in[n] = src<<16 | dst
	case HashSrcPort:
		in[n] = src << 16
	case HashDstPort:
		in[n] = dst << 16
	}
	return n + 1
}

// xor8 is function 1: all bytes XORed, inverted, 8 bits.
func xor8(in []uint32) uint32 {
	var x uint32
	for _, w := range in {
		x ^= w
	}
	x ^= x >> 16
	x ^= x >> 8
	return ^x & 0xff
}
