package gro

import (
	"encoding/binary"
	"math/rand/v2"
)

// stream is a flow that makes segments.
type stream struct {
	l2, addresses []byte
	v6, udp       bool
	ports         [4]byte
	hash, tag     uint32
	seq, ack      uint32
	id            uint16
	fixedID, df   bool
	mss           int
	options       []byte
	stamp         uint32
	window        uint16
	ttl, tos      byte
}

// generator makes frames of a few flows, with all that may happen to them on their way.
type generator struct {
	*rand.Rand
	calm    bool // rare things are rarer still
	streams []*stream
	late    [][]byte // frames that come out of order
	owners  []*stream
}

func newGenerator(seed uint64) *generator {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 7))}
	g.calm = seed%2 == 0
	for range 3 + g.IntN(24) {
		g.streams = append(g.streams, g.stream())
	}
	return g
}

func (g *generator) chance(percent int) bool {
	if g.calm && percent <= 5 {
		return g.IntN(2000) < percent
	}
	return g.IntN(100) < percent
}

func (g *generator) some(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(g.Uint32())
	}
	return b
}

func (g *generator) stream() *stream {
	s := &stream{
		v6: g.chance(40), udp: g.chance(25), df: g.chance(70), fixedID: g.chance(30),
		hash: uint32(g.IntN(6)), seq: g.Uint32(), ack: g.Uint32(), id: uint16(g.Uint32()),
		mss: []int{1, 100, 536, 1448, 1460, 4000}[g.IntN(6)], window: uint16(g.Uint32()), ttl: 64, tos: byte(g.IntN(3)),
	}
	copy(s.ports[:], g.some(4))
	s.l2 = g.some(12)
	for range []int{0, 0, 0, 1, 2}[g.IntN(5)] {
		s.l2 = append(s.l2, 0x81, 0x00, 0, byte(g.IntN(3)))
	}
	if g.chance(20) {
		s.tag = 1<<16 | uint32(g.IntN(2))
	}
	s.l2 = append(s.l2, 0x08, 0x00)
	s.addresses = g.some(8)
	if s.v6 {
		copy(s.l2[len(s.l2)-2:], "\x86\xdd")
		s.addresses = g.some(32)
	}
	if !s.udp && g.chance(60) {
		s.options = []byte{1, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0}
	}
	return s
}

// next is the next frame, from anybody.
func (g *generator) next() Frame {
	if len(g.late) > 0 && g.chance(15) {
		data, s := g.late[0], g.owners[0]
		g.late, g.owners = g.late[1:], g.owners[1:]
		return g.frame(data, s)
	}
	s := g.streams[0]
	if g.chance(35) { // else the same flow again, as bursts are
		at := g.IntN(len(g.streams))
		g.streams[0], g.streams[at] = g.streams[at], g.streams[0]
		s = g.streams[0]
	}
	data := g.segment(s)
	switch {
	case g.chance(3): // late
		g.late, g.owners = append(g.late, data), append(g.owners, s)
		return g.next()
	case g.chance(2): // twice
		g.late, g.owners = append(g.late, append([]byte(nil), data...)), append(g.owners, s)
	}
	return g.frame(data, s)
}

// frame damages a few.
func (g *generator) frame(data []byte, s *stream) Frame {
	f := Frame{Data: data, Hash: s.hash, Tag: s.tag, Verified: g.chance(50)}
	if g.chance(2) {
		data[g.IntN(len(data))] ^= 1 << g.IntN(8)
		f.Verified = false
	}
	if g.chance(2) {
		f.Data = append(data, make([]byte, 1+g.IntN(8))...) // padding
	}
	if g.chance(1) {
		f.Data = f.Data[:g.IntN(len(f.Data)+1)]
		f.Verified = false
	}
	return f
}

// segment makes the stream's next segment.
func (g *generator) segment(s *stream) []byte {
	payload := s.mss
	switch {
	case g.chance(5):
		payload = g.IntN(s.mss + 1)
	case g.chance(2):
		payload = s.mss + 1 + g.IntN(20)
	}
	if g.chance(3) && !s.udp {
		payload = 0
	}
	flags := byte(0x10)
	for _, f := range []struct {
		flag    byte
		percent int
	}{{0x08, 4}, {0x01, 1}, {0x02, 1}, {0x04, 1}, {0x20, 1}, {0x40, 2}, {0x80, 1}} {
		if g.chance(f.percent) {
			flags |= f.flag
		}
	}
	tos, ttl := s.tos, s.ttl
	if g.chance(3) {
		tos ^= 3 // congestion experienced
	}
	if g.chance(1) {
		ttl--
	}
	if g.chance(4) {
		s.ack += uint32(g.IntN(3000))
	}
	if g.chance(2) {
		s.window++
	}
	if g.chance(4) && s.options != nil {
		s.stamp++
		binary.BigEndian.PutUint32(s.options[4:], s.stamp)
	}
	var t []byte
	if s.udp {
		payload = max(payload, 1)
		t = append(t, s.ports[:]...)
		t = binary.BigEndian.AppendUint16(t, uint16(8+payload))
		t = append(t, 0, 0)
	} else {
		t = append(t, s.ports[:]...)
		t = binary.BigEndian.AppendUint32(t, s.seq)
		t = binary.BigEndian.AppendUint32(t, s.ack)
		t = append(t, byte(20+len(s.options))<<2, flags)
		t = binary.BigEndian.AppendUint16(t, s.window)
		t = append(t, 0, 0, 0, 0)
		t = append(t, s.options...)
		s.seq += uint32(payload)
	}
	head := len(t)
	t = append(t, make([]byte, payload)...)
	for i := head; i < len(t); i++ {
		t[i] = byte(i * 7)
	}
	return g.network(s, t, tos, ttl)
}

// network puts IP and Ethernet headers in front of t, and its checksum into it.
func (g *generator) network(s *stream, t []byte, tos, ttl byte) []byte {
	proto, at := byte(6), 16
	if s.udp {
		proto, at = 17, 6
	}
	pseudo := append(append([]byte(nil), s.addresses...), 0, proto, byte(len(t)>>8), byte(len(t)))
	sum := ^naive(append(pseudo, t...))
	if s.udp && sum == 0 {
		sum = 0xffff
	}
	if !s.udp || !g.chance(2) {
		binary.BigEndian.PutUint16(t[at:], sum)
	}
	b := append([]byte(nil), s.l2...)
	if s.v6 {
		b = append(b, 0x60|tos>>4, tos<<4, 0, 0, byte(len(t)>>8), byte(len(t)), proto, ttl)
		b = append(b, s.addresses...)
		return append(b, t...)
	}
	if !s.fixedID || g.chance(1) {
		s.id++
	}
	n := len(t) + 20
	ip := []byte{0x45, tos, byte(n >> 8), byte(n), byte(s.id >> 8), byte(s.id), 0, 0, ttl, proto, 0, 0}
	if s.df {
		ip[6] = 0x40
	}
	switch {
	case g.chance(1):
		ip[6] |= 0x20 // more fragments
	case g.chance(1):
		ip[6] |= 0x80
	}
	ip = append(ip, s.addresses...)
	binary.BigEndian.PutUint16(ip[10:], ^naive(ip))
	return append(append(b, ip...), t...)
}
