package packet

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"testing"
)

// cases is how many generated cases a test compares with its reference: few, and a million where
// CXKIT_LONG_TESTS is set in the environment.
func cases(few int) int {
	switch {
	case os.Getenv("CXKIT_LONG_TESTS") != "":
		return 1_000_000
	case testing.Short() || raceDetector:
		return few / 10
	}
	return few
}

// largeSend is a large send as its sender describes it.
type largeSend struct {
	tags     []uint32
	v6, udp  bool
	ipOpts   int // bytes of IPv4 options or of one IPv6 destination options header: a multiple of 8
	tcpOpts  int
	id       uint16
	seq      uint32
	flags    uint8
	src, dst [16]byte
	ports    uint32
	payload  []byte
	mss      int
}

// segments is software segmentation, written down field by field and without any code of this package. It
// returns the frames and the length of their headers.
func (s *largeSend) segments() (frames [][]byte, header int) {
	be := binary.BigEndian
	for off, n := 0, 0; off < len(s.payload); off, n = off+s.mss, n+1 {
		part := s.payload[off:min(off+s.mss, len(s.payload))]
		last := off+s.mss >= len(s.payload)
		f := append(append([]byte{}, testDMAC...), testSMAC...)
		for _, t := range s.tags {
			f = be.AppendUint32(f, t)
		}
		l4 := s.transport(n, off, last, part)
		src, dst := s.src[:4], s.dst[:4]
		if s.v6 {
			src, dst = s.src[:], s.dst[:]
		}
		proto := byte(6)
		if s.udp {
			proto = 17
		}
		pseudo := append(append([]byte{}, src...), dst...)
		pseudo = append(be.AppendUint32(pseudo, uint32(len(l4))), 0, 0, 0, proto)
		sum := ^naiveSum(append(pseudo, l4...))
		if s.udp {
			if sum == 0 {
				sum = 0xffff
			}
			be.PutUint16(l4[6:], sum)
		} else {
			be.PutUint16(l4[16:], sum)
		}
		f = append(f, s.network(n, proto, src, dst, len(l4))...)
		f = append(f, l4...)
		header = len(f) - len(part)
		frames = append(frames, f)
	}
	return frames, header
}

// transport makes a segment with its checksum field 0.
func (s *largeSend) transport(n, off int, last bool, part []byte) []byte {
	be := binary.BigEndian
	l4 := be.AppendUint32(nil, s.ports)
	if s.udp {
		l4 = be.AppendUint32(l4, uint32(8+len(part))<<16)
		return append(l4, part...)
	}
	flags := s.flags
	if n > 0 {
		flags &= 0x7f // CWR is the first one's
	}
	if !last {
		flags &^= 0x09 // FIN and PSH are the last one's
	}
	l4 = be.AppendUint32(l4, s.seq+uint32(off))
	l4 = be.AppendUint32(l4, 0x01020304)
	l4 = append(l4, byte(5+s.tcpOpts/4)<<4, flags, 0x12, 0x34, 0, 0, 0, 7)
	for range s.tcpOpts {
		l4 = append(l4, 1)
	}
	return append(l4, part...)
}

// network makes the Ethertype and IP header of segment n.
func (s *largeSend) network(n int, proto byte, src, dst []byte, l4 int) []byte {
	be := binary.BigEndian
	if s.v6 {
		b := []byte{0x86, 0xdd, 0x61, 0x23, 0x45, 0x67}
		b = be.AppendUint16(b, uint16(s.ipOpts+l4))
		next, ext := proto, []byte(nil)
		if s.ipOpts > 0 {
			next = 60
			ext = append([]byte{proto, byte(s.ipOpts/8 - 1), 1, byte(s.ipOpts - 4)}, make([]byte, s.ipOpts-4)...)
		}
		b = append(append(append(b, next, 64), src...), dst...)
		return append(b, ext...)
	}
	ip := make([]byte, 20+s.ipOpts)
	for i := 20; i < len(ip); i++ {
		ip[i] = 1
	}
	ip[0], ip[1], ip[6], ip[8], ip[9] = byte(0x45+s.ipOpts/4), 0x2e, 0x40, 63, proto
	be.PutUint16(ip[2:], uint16(len(ip)+l4))
	be.PutUint16(ip[4:], s.id+uint16(n))
	copy(ip[12:], src)
	copy(ip[16:], dst)
	be.PutUint16(ip[10:], ^naiveSum(ip))
	return append([]byte{8, 0}, ip...)
}

func randomSend(rnd *rand.Rand) *largeSend {
	s := &largeSend{
		v6: rnd.IntN(2) == 0, udp: rnd.IntN(3) == 0, ipOpts: 8 * max(0, rnd.IntN(6)-3), tcpOpts: 4 * rnd.IntN(11),
		id: uint16(rnd.Uint32()), seq: rnd.Uint32(), flags: uint8(rnd.Uint32()), ports: rnd.Uint32(),
		payload: make([]byte, 1+rnd.IntN(400)), mss: 1 + rnd.IntN(200),
	}
	for range rnd.IntN(3) {
		s.tags = append(s.tags, []uint32{0x8100_0000, 0x88a8_0000}[rnd.IntN(2)]|rnd.Uint32()&0xffff)
	}
	for i := range 16 {
		s.src[i], s.dst[i] = byte(rnd.Uint32()), byte(rnd.Uint32())
	}
	fill := rnd.Uint64()
	for i := range s.payload {
		fill = fill*6364136223846793005 + 1
		s.payload[i] = byte(fill >> 56)
	}
	if rnd.IntN(8) == 0 {
		clear(s.payload) // sums of 0 and 0xffff
	}
	return s
}

// TestSegmentsEqualSoftwareSegmentation compares each segment of generated large sends with what software
// would have sent. The fields that the card is to fill in hold rubbish before.
func TestSegmentsEqualSoftwareSegmentation(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	h, b := new(Headers), make([]byte, 2048)
	for i := range cases(100_000) {
		s := randomSend(rnd)
		want, header := s.segments()
		for n, w := range want {
			got := b[:len(w)]
			copy(got, want[0][:header])
			s.spoil(got, rnd.Uint32())
			copy(got[header:], w[header:])
			if n == 0 && !h.ParseLarge(got, header, false) {
				t.Fatalf("case %d: %+v: can't be cut", i, s)
			}
			h.Segment(got, n, uint32(n*s.mss), n == len(want)-1, true)
			if !bytes.Equal(got, w) {
				t.Fatalf("case %d segment %d of %+v:\n got %x\nwant %x", i, n, s, got, w)
			}
		}
	}
}

// spoil puts what a driver leaves into the fields that the card fills in: the length of the whole or 0,
// any checksums, and the flags of the first and the last segment.
func (s *largeSend) spoil(b []byte, r uint32) {
	be := binary.BigEndian
	l3 := 14 + 4*len(s.tags)
	whole := uint16(0)
	if r&1 != 0 {
		whole = uint16(min(len(b)+len(s.payload), 0xffff))
	}
	l4 := l3 + 20 + s.ipOpts
	if s.v6 {
		l4 += 20
		be.PutUint16(b[l3+4:], whole)
	} else {
		be.PutUint16(b[l3+2:], whole)
		be.PutUint16(b[l3+10:], uint16(r>>8))
	}
	if s.udp {
		be.PutUint16(b[l4+4:], whole)
		be.PutUint16(b[l4+6:], uint16(r>>16))
		return
	}
	b[l4+13] = s.flags
	be.PutUint16(b[l4+16:], uint16(r>>16))
}

func TestHeadersThatCannotBeCut(t *testing.T) {
	for name, f := range map[string]frame{
		"ICMP":     {proto: 1, payload: 200},
		"fragment": {proto: 6, frag: 0x2000, payload: 200},
		"no L4":    {v6: true, proto: 59, payload: 200},
		"long TCP": {proto: 6, payload: 200}, // the header ends behind what is inline
	} {
		b := f.build()
		if new(Headers).ParseLarge(b, min(len(b), 50), false) {
			t.Errorf("%s: can be cut", name)
		}
	}
}
