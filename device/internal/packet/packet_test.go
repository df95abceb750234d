package packet

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// naiveSum is RFC 1071 as it is written.
func naiveSum(b []byte) uint16 {
	var s uint32
	for i := 0; i < len(b); i += 2 {
		w := uint32(b[i]) << 8
		if i+1 < len(b) {
			w |= uint32(b[i+1])
		}
		s += w
		s = s&0xffff + s>>16
	}
	return uint16(s)
}

func TestSumEqualsWordByWordSum(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for n := range 400 {
		for _, fill := range []int{-1, 0, 0xff} {
			b := make([]byte, n)
			for i := range b {
				b[i] = byte(fill)
				if fill < 0 {
					b[i] = byte(rnd.Uint32())
				}
			}
			if got, want := Sum(b), naiveSum(b); got != want {
				t.Fatalf("%d bytes of %d: sum %#x, want %#x", n, fill, got, want)
			}
		}
	}
}

// frame builds test frames.
type frame struct {
	tags    []uint32 // Ethertype and TCI
	v6      bool
	proto   uint8
	options int // 4-byte units (IPv4) or destination option headers of 8 bytes (IPv6)
	frag    uint16
	flags   uint8
	src     netip.Addr
	dst     netip.Addr
	sport   uint16
	dport   uint16
	payload int
	pad     int
}

var (
	testDMAC = []byte{0x02, 0x11, 0x22, 0x33, 0x44, 0x55}
	testSMAC = []byte{0x02, 0xaa, 0xbb, 0xcc, 0xdd, 0xee}
)

// build makes the frame with sound checksums, computed by naiveSum.
func (f frame) build() []byte {
	b := append(append([]byte{}, testDMAC...), testSMAC...)
	for _, tag := range f.tags {
		b = binary.BigEndian.AppendUint32(b, tag)
	}
	if f.src == (netip.Addr{}) {
		f.src, f.dst = netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("10.4.5.6")
		if f.v6 {
			f.src, f.dst = netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8:1::2")
		}
	}
	l4 := make([]byte, f.payload, f.payload+20)
	for i := range l4 {
		l4[i] = byte(i*7 + 3)
	}
	ports := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, f.sport), f.dport)
	sumAt := -1
	switch f.proto {
	case protoTCP:
		l4 = append(append(ports, 0, 0, 0, 1, 0, 0, 0, 2, 5<<4, f.flags, 1, 0, 0, 0, 0, 0), l4...)
		sumAt = 16
	case protoUDP:
		ports = binary.BigEndian.AppendUint16(ports, uint16(8+len(l4)))
		l4 = append(append(ports, 0, 0), l4...)
		sumAt = 6
	}
	if sumAt >= 0 {
		pseudo := append(append([]byte{}, f.src.AsSlice()...), f.dst.AsSlice()...)
		pseudo = append(binary.BigEndian.AppendUint32(pseudo, uint32(len(l4))), 0, 0, 0, f.proto)
		sum := ^naiveSum(append(pseudo, l4...))
		if sum == 0 && f.proto == protoUDP {
			sum = 0xffff
		}
		binary.BigEndian.PutUint16(l4[sumAt:], sum)
	}
	if f.v6 {
		b = append(b, TypeIPv6>>8, TypeIPv6&0xff)
		next, ext := f.proto, []byte(nil)
		if f.frag != 0 {
			ext = append([]byte{next, 0, byte(f.frag >> 8), byte(f.frag), 1, 2, 3, 4}, ext...)
			next = protoFragment
		}
		for range f.options {
			ext = append([]byte{next, 0, 1, 4, 0, 0, 0, 0}, ext...)
			next = protoDestOptions
		}
		b = append(b, 0x62, 0x3a, 0xbc, 0xde)
		b = binary.BigEndian.AppendUint16(b, uint16(len(ext)+len(l4)))
		b = append(b, next, 61)
		b = append(append(b, f.src.AsSlice()...), f.dst.AsSlice()...)
		b = append(append(b, ext...), l4...)
	} else {
		b = append(b, TypeIPv4>>8, TypeIPv4&0xff)
		size := 20 + f.options*4
		ip := make([]byte, size)
		ip[0], ip[1] = byte(4<<4|size/4), 0x2e
		binary.BigEndian.PutUint16(ip[2:], uint16(size+len(l4)))
		binary.BigEndian.PutUint16(ip[6:], f.frag)
		ip[8], ip[9] = 63, f.proto
		copy(ip[12:], f.src.AsSlice())
		copy(ip[16:], f.dst.AsSlice())
		for i := 20; i < size; i++ {
			ip[i] = 1
		}
		binary.BigEndian.PutUint16(ip[10:], ^naiveSum(ip))
		b = append(append(b, ip...), l4...)
	}
	for i := range f.pad {
		b = append(b, byte(0x80+i))
	}
	return b
}

func parse(b []byte) *Headers {
	h := new(Headers)
	for i := range h.Key {
		h.Key[i] = ^uint64(0) // what an earlier frame left
	}
	for _, i := range []int{8, 10, 12, 13, 15} {
		h.Key[i] = 0
	}
	h.rare, h.deep, h.plain = true, true, true
	Parse(b, h)
	return h
}

func TestParseFindsLayers(t *testing.T) {
	for name, c := range map[string]struct {
		f       frame
		hdrType uint8
		l4Off   int
	}{
		"IPv4 TCP without ACK":        {frame{proto: 6, flags: 2}, 2<<2 | 1<<4, 34},
		"IPv4 TCP ACK":                {frame{proto: 6, flags: 16}, 2<<2 | 3<<4, 34},
		"IPv4 TCP ACK with data":      {frame{proto: 6, flags: 16, payload: 1}, 2<<2 | 4<<4, 34},
		"IPv4 UDP":                    {frame{proto: 17, payload: 9}, 2<<2 | 2<<4, 34},
		"IPv4 ICMP":                   {frame{proto: 1, payload: 9}, 2 << 2, 0},
		"IPv4 options":                {frame{proto: 17, options: 3}, 2<<2 | 2<<4 | 2, 46},
		"IPv4 first fragment":         {frame{proto: 17, frag: 0x2000, payload: 8}, 2<<2 | 0x80, 0},
		"IPv4 last fragment":          {frame{proto: 17, frag: 7, payload: 8}, 2<<2 | 0x80, 0},
		"IPv4 don't fragment":         {frame{proto: 17, frag: 0x4000}, 2<<2 | 2<<4, 34},
		"IPv6 UDP":                    {frame{v6: true, proto: 17}, 1<<2 | 2<<4, 54},
		"IPv6 TCP after two options":  {frame{v6: true, proto: 6, options: 2}, 1<<2 | 1<<4 | 2, 70},
		"IPv6 fragment":               {frame{v6: true, proto: 17, frag: 1}, 1<<2 | 0x80 | 2, 0},
		"IPv6 8 options, then no L4":  {frame{v6: true, proto: 17, options: 8}, 1<<2 | 2, 0},
		"IPv6 7 options":              {frame{v6: true, proto: 17, options: 7}, 1<<2 | 2<<4 | 2, 110},
		"tagged IPv4 UDP":             {frame{tags: []uint32{0x8100_2064}, proto: 17}, 2<<2 | 2<<4, 38},
		"double tagged IPv6 TCP":      {frame{tags: []uint32{0x88a8_0001, 0x8100_0002}, v6: true, proto: 6}, 1<<2 | 1<<4, 62},
		"three tags are not IP to it": {frame{tags: []uint32{0x88a8_0001, 0x8100_0002, 0x8100_0003}, proto: 6}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := parse(c.f.build())
			if h.HdrType() != c.hdrType || h.L4Off != c.l4Off {
				t.Errorf("hdr type %#x at %d, want %#x at %d (%+v)", h.HdrType(), h.L4Off, c.hdrType, c.l4Off, h)
			}
		})
	}
}

func TestKeyIsMatchParamLayout(t *testing.T) {
	f := frame{tags: []uint32{0x88a8_a123, 0x8100_4456}, proto: 6, flags: 0x12, sport: 0x1234, dport: 0x5678, options: 1}
	h := parse(f.build())
	var raw [KeyWords * 8]byte
	for i, w := range h.Key {
		binary.BigEndian.PutUint64(raw[i*8:], w)
	}
	// Offsets of fte_match_set_lyr_2_4 and, at 0x40, fte_match_set_misc (reference 01a).
	want := unhex(t, `02aabbccddee 0800  021122334455 a123
		06 2e 4812 1234 5678  4000 60 3f 0000 0000
		000000000000000000000000 0a010203  000000000000000000000000 0a040506
		0000000000000000 4456 0000 8000 0000`)
	want[0x11+0x00] = 0x2e // dscp and ecn as the TOS byte lies
	binary.BigEndian.PutUint16(want[0x12:], 1<<14|4<<9|0x12)
	binary.BigEndian.PutUint32(want[0x18:], 1<<30|6<<12|63)
	want = append(want, make([]byte, len(raw)-len(want))...)
	binary.BigEndian.PutUint32(want[0x104:], 1) // misc_parameters_3: sequence and acknowledgement numbers
	binary.BigEndian.PutUint32(want[0x10c:], 2)
	if string(raw[:]) != string(want) {
		t.Errorf("key\n%x\nwant\n%x", raw, want)
	}

	h = parse(frame{v6: true, proto: 17, sport: 0x1234, dport: 0x5678}.build())
	if h.Key[2] != 17<<56|0x23<<48|6<<41 || h.Key[3] != 2<<62|61<<32|0x12345678 || h.Key[11] != 0xabcde {
		t.Errorf("IPv6: key words %#x %#x %#x", h.Key[2], h.Key[3], h.Key[11])
	}
	if h.Key[4] != 0x20010db8_00000000 || h.Key[5] != 1 || h.Key[6] != 0x20010db8_00010000 || h.Key[7] != 2 {
		t.Errorf("IPv6 addresses: %#x", h.Key[4:8])
	}
	h = parse(append(append(append([]byte{}, testDMAC...), testSMAC...), 0x08, 0x06))
	if h.Key[0]&0xffff != 0x806 || h.Key[2] != 0 || h.Key[3] != 0 || h.L3 != NoL3 {
		t.Errorf("ARP: %+v", h)
	}
	esp := frame{proto: 50, payload: 8}.build()
	if h = parse(esp); h.Key[14]>>32 != uint64(binary.BigEndian.Uint32(esp[34:])) {
		t.Errorf("ESP: SPI %#x", h.Key[14])
	}
}

func TestParseNeverReadsOutsideTheFrame(t *testing.T) {
	// A slice that ends with its array: any access behind the frame panics.
	for _, f := range []frame{
		{proto: 6, flags: 16, payload: 30, options: 2}, {v6: true, proto: 17, options: 3, payload: 5},
		{tags: []uint32{0x88a80001, 0x81000002}, proto: 17, payload: 3}, {v6: true, proto: 51, payload: 20},
	} {
		whole := f.build()
		for n := EthernetLen; n <= len(whole); n++ {
			b := append(make([]byte, 0, n), whole[:n]...)[:n:n]
			h := parse(b)
			h.Check(b, EthernetLen)
			h.Insert(b, true, true)
		}
	}
}

func TestCheckJudgesChecksums(t *testing.T) {
	for name, c := range map[string]struct {
		f    frame
		edit func(b []byte) []byte
		ok   uint8
	}{
		"TCP":                      {frame{proto: 6, payload: 100}, nil, L2OK | L3OK | L4OK},
		"TCP, odd payload, padded": {frame{proto: 6, payload: 1, pad: 5}, nil, L2OK | L3OK | L4OK},
		"UDP":                      {frame{proto: 17, payload: 31}, nil, L2OK | L3OK | L4OK},
		"UDP over IPv6":            {frame{v6: true, proto: 17, payload: 31, options: 2}, nil, L2OK | L3OK | L4OK},
		"TCP over IPv6, padded":    {frame{v6: true, proto: 6, payload: 7, pad: 3}, nil, L2OK | L3OK | L4OK},
		"payload broken": {frame{proto: 6, payload: 100}, func(b []byte) []byte { b[90] ^= 4; return b },
			L2OK | L3OK},
		"IPv4 header broken": {frame{proto: 6, payload: 100}, func(b []byte) []byte { b[22] ^= 4; return b },
			L2OK | L4OK},
		"IPv4 UDP without checksum": {frame{proto: 17, payload: 9}, func(b []byte) []byte { b[40], b[41] = 0, 0; return b },
			L2OK | L3OK | L4OK},
		"IPv6 UDP without checksum": {frame{v6: true, proto: 17, payload: 9}, func(b []byte) []byte { b[60], b[61] = 0, 0; return b },
			L2OK | L3OK},
		"UDP length too large": {frame{proto: 17, payload: 9}, func(b []byte) []byte { b[39]++; return b }, L2OK | L3OK},
		"UDP length too small": {frame{proto: 17, payload: 9}, func(b []byte) []byte { b[39] = 7; return b }, L2OK | L3OK},
		"fragment":             {frame{proto: 17, payload: 9, frag: 0x2000}, nil, L2OK | L3OK},
		"ICMP":                 {frame{proto: 1, payload: 9}, nil, L2OK | L3OK},
		"cut short":            {frame{proto: 6, payload: 100}, func(b []byte) []byte { return b[:80] }, L2OK},
		"not IP":               {frame{}, func(b []byte) []byte { b[12] = 0x99; return b }, L2OK},
		"double tagged":        {frame{tags: []uint32{0x88a80001, 0x81000002}, proto: 17, payload: 3}, nil, L2OK | L3OK | L4OK},
	} {
		t.Run(name, func(t *testing.T) {
			b := c.f.build()
			if c.edit != nil {
				b = c.edit(b)
			}
			h := parse(b)
			for from := EthernetLen; from <= EthernetLen+int(h.Tags)*4; from += 4 {
				sum, ok := h.Check(b, from)
				if want := naiveSum(b[from:]); sum != want {
					t.Errorf("sum from %d: %#x, want %#x", from, sum, want)
				}
				if ok != c.ok {
					t.Errorf("ok bits %#x, want %#x", ok, c.ok)
				}
			}
		})
	}
}

func TestCheckJudgesShorterUDPInsideItsDatagram(t *testing.T) {
	b := frame{proto: 17, payload: 9}.build()
	// Four more bytes inside the IP datagram, behind the UDP datagram.
	b = append(b, 0xde, 0xad, 0xbe, 0xef)
	b[17] += 4
	b[24], b[25] = 0, 0
	binary.BigEndian.PutUint16(b[24:], ^naiveSum(b[14:34]))
	sum, ok := parse(b).Check(b, EthernetLen)
	if ok != L2OK|L3OK|L4OK || sum != naiveSum(b[14:]) {
		t.Errorf("ok %#x sum %#x, want %#x", ok, sum, naiveSum(b[14:]))
	}
}

func TestInsertRestoresChecksums(t *testing.T) {
	for _, f := range []frame{
		{proto: 6, payload: 100, flags: 16}, {proto: 17, payload: 1}, {v6: true, proto: 6, payload: 33},
		{v6: true, proto: 17, options: 1, payload: 2}, {proto: 17, options: 5, payload: 21, pad: 2},
		{tags: []uint32{0x81000001}, proto: 17, payload: 7},
	} {
		want := f.build()
		b := append([]byte{}, want...)
		h := parse(b)
		if h.L3 == IPv4 {
			b[h.L3Off+10], b[h.L3Off+11] = 0x55, 0xaa // Linux leaves anything here
		}
		at := h.L4Off + 16
		if h.L4 == UDP {
			at = h.L4Off + 6
		}
		b[at], b[at+1] = 0x12, 0x34
		h.Insert(b, true, true)
		if string(b) != string(want) {
			t.Errorf("%+v:\n%x\nwant\n%x", f, b, want)
		}
	}
}

func TestInsertWritesOnesWhereUDPSumsToZero(t *testing.T) {
	f := frame{proto: 17, payload: 2}
	b := f.build()
	// Choose the payload so that the sum over everything else and it is all ones.
	b[42], b[43], b[40], b[41] = 0, 0, 0, 0
	h := parse(b)
	rest := naiveSum(append(append([]byte{}, b[26:34]...), append([]byte{0, 17, 0, 10}, b[34:]...)...))
	binary.BigEndian.PutUint16(b[42:], ^rest)
	h.Insert(b, false, true)
	if got := binary.BigEndian.Uint16(b[40:]); got != 0xffff {
		t.Errorf("checksum %#x, want 0xffff", got)
	}
	if _, ok := h.Check(b, 14); ok&L4OK == 0 {
		t.Error("the inserted checksum is not sound")
	}
}

func TestInsertLeavesOtherFramesAlone(t *testing.T) {
	for name, b := range map[string][]byte{
		"ARP":      append(append(append([]byte{}, testDMAC...), testSMAC...), 8, 6, 0, 1, 8, 0),
		"fragment": frame{proto: 17, frag: 0x2000, payload: 20}.build(),
		"ICMP":     frame{proto: 1, payload: 20}.build(),
		"IPv4 UDP with an impossible length": func() []byte {
			b := frame{proto: 17, payload: 20}.build()
			b[38] = 0x40
			return b
		}(),
	} {
		got := append([]byte{}, b...)
		parse(got).Insert(got, false, true)
		if string(got) != string(b) {
			t.Errorf("%s was changed", name)
		}
	}
}

func TestMulticastAndBroadcast(t *testing.T) {
	for dmac, want := range map[string][2]bool{
		"021122334455": {false, false}, "01005e000001": {true, false}, "ffffffffffff": {true, true},
		"333300000001": {true, false},
	} {
		b := append(unhex(t, dmac), 2, 0, 0, 0, 0, 1, 0x99, 0x99)
		h := parse(b)
		if h.Multicast() != want[0] || h.Broadcast() != want[1] {
			t.Errorf("%s: multicast %v broadcast %v", dmac, h.Multicast(), h.Broadcast())
		}
	}
}

func TestNothingAllocates(t *testing.T) {
	b := frame{proto: 6, payload: 100}.build()
	var key [KeyLen]byte
	s := Hash{Fields: 15, Toeplitz: NewToeplitz(&key)}
	h := new(Headers)
	if n := testing.AllocsPerRun(100, func() {
		Parse(b, h)
		h.Check(b, EthernetLen)
		h.Insert(b, true, true)
		s.Sum(h)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzParse(f *testing.F) {
	for _, v := range []frame{
		{proto: 6, payload: 10}, {proto: 17, options: 2}, {v6: true, proto: 17, options: 3, payload: 4},
		{v6: true, proto: 51, frag: 1}, {tags: []uint32{0x88a80001, 0x81000002}, proto: 17},
	} {
		f.Add(v.build())
		f.Add(wrap(v.v6, 17, vxlanOf(4789, 1, v.build())))
		f.Add(wrap(false, 47, greOf(greC|greK|greS, typeTEB, v.build())))
		f.Add(wrap(true, 41, v.build()[EthernetLen:]))
	}
	h := new(Headers)
	h.LookInto(allTunnels)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < EthernetLen {
			return
		}
		b = append(make([]byte, 0, len(b)), b...)
		Parse(b, h)
		if h.L3Off < 0 || h.L3Off > len(b) || h.L4Off < 0 || h.L4Off > h.End || h.End > len(b) {
			t.Fatalf("offsets outside %d bytes: %+v", len(b), h)
		}
		from := EthernetLen
		if h.Tags > 0 {
			from += TagLen
		}
		if sum, _ := h.Check(b, from); sum != naiveSum(b[from:]) {
			t.Fatalf("sum %#x, want %#x", sum, naiveSum(b[from:]))
		}
		if in, at := h.Inner(); in != nil && (at > h.End || in.L3Off < 0 || in.L4Off < 0 || at+in.End > h.End) {
			t.Fatalf("inner offsets outside: at %d, %+v of %+v", at, in, h)
		}
		cut := append(make([]byte, 0, len(b)), b...)
		if h.ParseLarge(cut, len(cut), true) {
			h.SegmentInner(cut, 3, 1000, false, true)
		}
		if h.ParseLarge(cut, len(cut), false) {
			h.Segment(cut, 3, 1000, false, true)
		}
		Parse(b, h)
		h.InsertInner(b, false, false, true, true)
		h.Insert(b, true, true)
		Parse(b, h)
		if _, ok := h.Check(b, from); h.L3 == IPv4 && h.whole && ok&L3OK == 0 {
			t.Fatalf("an inserted IPv4 checksum is not sound: %+v", h)
		}
	})
}
