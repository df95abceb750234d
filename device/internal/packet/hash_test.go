package packet

import (
	"math/rand/v2"
	"net/netip"
	"testing"
)

// microsoftKey and the vectors are those of "Verifying the RSS Hash Calculation" (Windows driver
// documentation).
const microsoftKey = `6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa`

func TestToeplitzMicrosoftVectors(t *testing.T) {
	var key [KeyLen]byte
	copy(key[:], unhex(t, microsoftKey))
	toeplitz := NewToeplitz(&key)
	for _, c := range []struct {
		dst, src       string
		dport, sport   uint16
		wantIP, wantL4 uint32
	}{
		{"161.142.100.80", "66.9.149.187", 1766, 2794, 0x323e8fc2, 0x51ccc178},
		{"65.69.140.83", "199.92.111.2", 4739, 14230, 0xd718262a, 0xc626b0ea},
		{"12.22.207.184", "24.19.198.95", 38024, 12898, 0xd2d0a5de, 0x5c2b394a},
		{"209.142.163.6", "38.27.205.30", 2217, 48228, 0x82989176, 0xafc7327f},
		{"202.188.127.2", "153.39.163.191", 1303, 44251, 0x5d1809c5, 0x10e828a2},
		{"3ffe:2501:200:3::1", "3ffe:2501:200:1fff::7", 1766, 2794, 0x2cc18cd5, 0x40207d3d},
		{"ff02::1", "3ffe:501:8::260:97ff:fe40:efab", 4739, 14230, 0x0f0c461c, 0xdde51bbf},
		{"fe80::200:f8ff:fe21:67cf", "3ffe:1900:4545:3:200:f8ff:fe21:67cf", 38024, 44251, 0x4b61e985, 0x02d1feef},
	} {
		src, dst := netip.MustParseAddr(c.src), netip.MustParseAddr(c.dst)
		h := parse(frame{proto: 6, v6: src.Is6(), src: src, dst: dst, sport: c.sport, dport: c.dport}.build())
		s := Hash{Fields: HashSrcIP | HashDstIP, Toeplitz: toeplitz}
		kind := uint8(hashedIPv4)
		if src.Is6() {
			kind = hashedIPv6
		}
		if got, k := s.Sum(h); got != c.wantIP || k != kind {
			t.Errorf("%s > %s: %#x type %#x, want %#x type %#x", c.src, c.dst, got, k, c.wantIP, kind)
		}
		s.Fields |= HashSrcPort | HashDstPort
		if got, k := s.Sum(h); got != c.wantL4 || k != kind|hashedTCP {
			t.Errorf("%s > %s with ports: %#x type %#x, want %#x", c.src, c.dst, got, k, c.wantL4)
		}
	}
}

// bitToeplitz is the definition: for every set bit of the input XOR the 32 bits of the key that start
// there.
func bitToeplitz(key []byte, input []byte) (hash uint32) {
	for i := range len(input) * 8 {
		if input[i/8]>>(7-i%8)&1 == 0 {
			continue
		}
		var w uint32
		for j := i; j < i+32; j++ {
			w = w<<1 | uint32(key[j/8]>>(7-j%8))&1
		}
		hash ^= w
	}
	return hash
}

func TestHashEqualsReference(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		return b
	}
	var key [KeyLen]byte
	var prepared *Toeplitz
	for i := range cases(20_000) {
		if i%64 == 0 { // preparing a key takes as long as many hashes
			copy(key[:], random(KeyLen))
			prepared = NewToeplitz(&key)
		}
		f := frame{proto: []uint8{6, 17, 50, 51, 1}[rnd.IntN(5)], v6: rnd.IntN(2) == 0, payload: 16,
			sport: uint16(rnd.Uint32()), dport: uint16(rnd.Uint32())}
		n := 4
		if f.v6 {
			n = 16
		}
		f.src, _ = netip.AddrFromSlice(random(n))
		f.dst, _ = netip.AddrFromSlice(random(n))
		b := f.build()
		h := parse(b)
		s := Hash{Fields: rnd.Uint32() & 31, Symmetric: rnd.IntN(2) == 0, Toeplitz: prepared}
		if rnd.IntN(4) == 0 {
			s.Toeplitz, s.XOR8 = nil, true
		}
		input := referenceInput(&s, &f, b, h)
		var want uint32
		switch {
		case len(input) == 0:
		case s.XOR8:
			for _, v := range input {
				want ^= uint32(v)
			}
			want = ^want & 0xff
		default:
			want = bitToeplitz(key[:], input)
		}
		if got, _ := s.Sum(h); got != want {
			t.Fatalf("%+v of %+v: %#x, want %#x", s, f, got, want)
		}
	}
}

// referenceInput lists the bytes that are hashed in the order of reference 03 §10.
func referenceInput(s *Hash, f *frame, b []byte, h *Headers) (in []byte) {
	pair := func(bits uint32, a, c []byte) {
		a, c = append([]byte{}, a...), append([]byte{}, c...)
		both := bits&(bits-1) | bits&-bits
		if s.Symmetric && s.Fields&both == both {
			for i := range a {
				a[i], c[i] = a[i]|c[i], a[i]^c[i]
			}
		}
		if s.Fields&(bits&-bits) != 0 {
			in = append(in, a...)
		}
		if s.Fields&(bits&(bits-1)) != 0 {
			in = append(in, c...)
		}
	}
	pair(HashSrcIP|HashDstIP, f.src.AsSlice(), f.dst.AsSlice())
	if h.L4 != NoL4 {
		pair(HashSrcPort|HashDstPort, b[h.L4Off:h.L4Off+2], b[h.L4Off+2:h.L4Off+4])
	}
	if s.Fields&HashSPI != 0 {
		l4 := h.L3Off + 20
		if f.v6 {
			l4 += 20
		}
		switch f.proto {
		case 50:
			in = append(in, b[l4:l4+4]...)
		case 51:
			in = append(in, b[l4+4:l4+8]...)
		}
	}
	return in
}

func TestSymmetricHashIsTheSameBothWays(t *testing.T) {
	var key [KeyLen]byte
	copy(key[:], unhex(t, microsoftKey))
	s := Hash{Fields: HashSrcIP | HashDstIP | HashSrcPort | HashDstPort, Symmetric: true, Toeplitz: NewToeplitz(&key)}
	for _, v6 := range []bool{false, true} {
		there := frame{v6: v6, proto: 6, sport: 1000, dport: 80}
		if v6 {
			there.src, there.dst = netip.MustParseAddr("2001:db8::77"), netip.MustParseAddr("fe80::1234")
		} else {
			there.src, there.dst = netip.MustParseAddr("10.9.8.7"), netip.MustParseAddr("192.168.0.200")
		}
		back := there
		back.src, back.dst, back.sport, back.dport = there.dst, there.src, 80, 1000
		a, _ := s.Sum(parse(there.build()))
		b, _ := s.Sum(parse(back.build()))
		if a != b || a == 0 {
			t.Errorf("v6 %v: %#x and %#x", v6, a, b)
		}
	}
}
