package packet

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

var allTunnels = &Tunnels{VXLAN: []uint16{4789, 8472}, GRE: true, IPinIP: true}

// wrap puts what is inside into a tunnel: an outer frame with sound lengths and header checksum.
func wrap(v6 bool, proto byte, inside []byte) []byte {
	be := binary.BigEndian
	b := append(append([]byte{}, testDMAC...), testSMAC...)
	if v6 {
		b = append(b, 0x86, 0xdd, 0x60, 0, 0, 0)
		b = be.AppendUint16(b, uint16(len(inside)))
		b = append(b, proto, 64)
		b = append(b, bytes.Repeat([]byte{0xfd}, 32)...)
		return append(b, inside...)
	}
	ip := make([]byte, 20)
	ip[0], ip[8], ip[9] = 0x45, 64, proto
	be.PutUint16(ip[2:], uint16(20+len(inside)))
	copy(ip[12:], []byte{192, 0, 2, 1, 192, 0, 2, 2})
	be.PutUint16(ip[10:], ^naiveSum(ip))
	return append(append(append(b, 8, 0), ip...), inside...)
}

func vxlanOf(port uint16, vni uint32, inside []byte) []byte {
	b := binary.BigEndian.AppendUint16([]byte{0x12, 0x34}, port)
	b = binary.BigEndian.AppendUint16(b, uint16(16+len(inside)))
	b = append(b, 0, 0, 8, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, vni<<8)
	return append(b, inside...)
}

func greOf(flags, protocol uint16, inside []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, flags)
	b = binary.BigEndian.AppendUint16(b, protocol)
	if flags&greC != 0 {
		b = append(b, 0, 0, 0, 0)
	}
	if flags&greK != 0 {
		b = append(b, 1, 2, 3, 4)
	}
	if flags&greS != 0 {
		b = append(b, 0, 0, 0, 9)
	}
	return append(b, inside...)
}

func TestTunnelsAreLookedInto(t *testing.T) {
	in4 := frame{tags: []uint32{0x8100_2064}, proto: 6, flags: 0x10, sport: 7, dport: 8, payload: 20}
	in6 := frame{v6: true, proto: 17, sport: 9, dport: 10, payload: 20}
	ip4, ip6 := frame{proto: 6, sport: 7, dport: 8}.build()[14:], in6.build()[14:]
	for name, c := range map[string]struct {
		b     []byte
		inner []byte // nil: no tunnel
		ip    bool   // inner has no Ethernet header
		words map[int]uint64
	}{
		"VXLAN":               {wrap(false, 17, vxlanOf(4789, 0x123456, in4.build())), in4.build(), false, map[int]uint64{10: 0x12345600}},
		"VXLAN over IPv6":     {wrap(true, 17, vxlanOf(8472, 5, in6.build())), in6.build(), false, map[int]uint64{10: 0x500}},
		"other port":          {wrap(false, 17, vxlanOf(4790, 5, in4.build())), nil, false, nil},
		"GRE with a frame":    {wrap(false, 47, greOf(greK, typeTEB, in4.build())), in4.build(), false, map[int]uint64{8: greK << 48, 10: 0x01020304 << 32}},
		"GRE with all fields": {wrap(false, 47, greOf(greC|greK|greS, typeTEB, in6.build())), in6.build(), false, map[int]uint64{8: (greC | greK | greS) << 48}},
		"GRE with IPv4":       {wrap(true, 47, greOf(0, TypeIPv4, ip4)), ip4, true, nil},
		"GRE of version 1":    {wrap(false, 47, greOf(1, TypeIPv4, ip4)), nil, false, nil},
		"GRE with something":  {wrap(false, 47, greOf(0, 0x88b5, ip4)), nil, false, map[int]uint64{9: 0x88b5}},
		"IP in IP":            {wrap(false, 4, ip4), ip4, true, nil},
		"IPv6 in IP":          {wrap(false, 41, ip6), ip6, true, nil},
		"IPv6 in IPv6":        {wrap(true, 41, ip6), ip6, true, nil},
		"not what it says":    {wrap(false, 4, ip6), nil, false, nil},
	} {
		h := new(Headers)
		h.LookInto(allTunnels)
		Parse(wrap(false, 17, vxlanOf(4789, 1, in6.build())), h) // leaves something
		Parse(c.b, h)
		in, at := h.Inner()
		if (in != nil) != (c.inner != nil) {
			t.Errorf("%s: tunnel %v", name, in != nil)
			continue
		}
		for w, v := range c.words {
			if h.Key[w]&v != v || w == 10 && h.Key[w] != v && h.Key[w]&^(0x01020304<<32) != 0 {
				t.Errorf("%s: word %d is %#x, want %#x", name, w, h.Key[w], v)
			}
		}
		want := new(Headers)
		if c.inner == nil {
			if h.Key[16] != 0 || h.Key[18] != 0 || h.Key[23] != 0 {
				t.Errorf("%s: inner key %#x", name, h.Key[16:24])
			}
			continue
		}
		if !bytes.Equal(c.b[at:], c.inner) {
			t.Errorf("%s: begins at %d", name, at)
		}
		if c.ip { // as if a frame had carried it
			typ := []byte{8, 0}
			if c.inner[0]>>4 == 6 {
				typ = []byte{0x86, 0xdd}
			}
			Parse(append(append(make([]byte, 12), typ...), c.inner...), want)
		} else {
			Parse(c.inner, want)
		}
		if !bytes.Equal(words(h.Key[16:24]), words(want.Key[:8])) || in.HdrType() != want.HdrType() {
			t.Errorf("%s: inner key %#x, want %#x", name, h.Key[16:24], want.Key[:8])
		}
		if _, ok := in.Check(c.b[at:], in.L3Off); ok != L2OK|L3OK|L4OK {
			t.Errorf("%s: inner checks %#x", name, ok)
		}
	}
}

func words(w []uint64) (b []byte) {
	for _, v := range w {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return b
}

// TestTunnelsNeverReadOutsideTheFrame cuts and spoils frames in tunnels.
func TestTunnelsNeverReadOutsideTheFrame(t *testing.T) {
	inside := frame{v6: true, proto: 6, options: 1, payload: 9}.build()
	h := new(Headers)
	h.LookInto(allTunnels)
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, whole := range [][]byte{
		wrap(false, 17, vxlanOf(4789, 1, inside)), wrap(true, 47, greOf(greC|greK|greS, typeTEB, inside)),
		wrap(false, 41, inside[14:]), wrap(true, 47, greOf(greK, TypeIPv6, inside[14:])),
	} {
		for n := EthernetLen; n <= len(whole); n++ {
			b := append(make([]byte, 0, n), whole[:n]...)[:n:n]
			for range 4 {
				Parse(b, h)
				h.Check(b, EthernetLen)
				h.InsertInner(b, true, true, true, true)
				if h.ParseLarge(b, n, true) {
					h.SegmentInner(b, 1, 2, false, true)
				}
				b[12+rnd.IntN(n-12)] = byte(rnd.Uint32())
			}
		}
	}
}

// TestSegmentsInTunnels cuts large sends in tunnels and compares the inner frames with software segmentation.
func TestSegmentsInTunnels(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	h := new(Headers)
	h.LookInto(allTunnels)
	for i := range 2000 {
		s := randomSend(rnd)
		want, innerHeader := s.segments()
		v6, kind := rnd.IntN(2) == 0, rnd.IntN(3)
		outer := func(inner []byte) []byte {
			switch kind {
			case 0:
				return wrap(v6, 17, vxlanOf(4789, 9, inner))
			case 1:
				return wrap(v6, 47, greOf(greK, typeTEB, inner))
			}
			proto := byte(4)
			if s.v6 {
				proto = 41
			}
			return wrap(v6, proto, inner[14+4*len(s.tags):])
		}
		for n, w := range want {
			full := outer(w)
			if !v6 { // the outer identification counts, too
				binary.BigEndian.PutUint16(full[18:], uint16(n))
				binary.BigEndian.PutUint16(full[24:], 0)
				binary.BigEndian.PutUint16(full[24:], ^naiveSum(full[14:34]))
			}
			first := outer(want[0])
			header := len(first) - len(want[0]) + innerHeader
			got := append(append([]byte{}, first[:header]...), full[header:]...)
			if n == 0 && !h.ParseLarge(got, header, true) {
				t.Fatalf("case %d kind %d v6 %v: can't be cut: %x header %d at %d L4 %d", i, kind, v6, got, header, h.innerAt, h.L4Off)
			}
			in, at := h.Inner()
			if !s.udp { // the flags of all
				got[at+in.L4Off+13] = s.flags
			}
			h.SegmentInner(got, n, uint32(n*s.mss), n == len(want)-1, true)
			if !bytes.Equal(got, full) {
				t.Fatalf("case %d segment %d:\n got %x\nwant %x", i, n, got, full)
			}
		}
	}
}
