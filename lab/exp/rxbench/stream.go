package rxbench

import "encoding/binary"

// Payload is what a full segment carries, with time stamps in its TCP header.
const Payload = 1448

// Stream is one direction of a TCP connection in full segments.
type Stream struct {
	port uint16
	seq  uint32
	id   uint16
}

// NewStream is a stream between ports that no other number has.
func NewStream(number int) *Stream { return &Stream{port: uint16(1024 + number)} }

const header = 14 + 20 + 32

// Segments are the next n segments. Checksums are right.
func (s *Stream) Segments(n int) [][]byte {
	list := make([][]byte, n)
	for i := range list {
		list[i] = s.segment()
	}
	return list
}

func (s *Stream) segment() []byte {
	b := make([]byte, header+Payload)
	copy(b, "\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x02\x08\x00")
	ip, tcp := b[14:34], b[34:]
	copy(ip, "\x45\x00\x00\x00\x00\x00\x40\x00\x40\x06\x00\x00\xc0\x00\x02\x01\xc6\x33\x64\x01")
	binary.BigEndian.PutUint16(ip[2:], uint16(len(b)-14))
	binary.BigEndian.PutUint16(ip[4:], s.id)
	binary.BigEndian.PutUint16(ip[10:], ^sum(0, ip))
	binary.BigEndian.PutUint16(tcp, s.port)
	binary.BigEndian.PutUint16(tcp[2:], 80)
	binary.BigEndian.PutUint32(tcp[4:], s.seq)
	copy(tcp[8:], "\x00\x00\x00\x01\x80\x10\x01\x00\x00\x00\x00\x00\x01\x01\x08\x0a\x00\x00\x00\x01\x00\x00\x00\x02")
	pseudo := uint32(sum(0, ip[12:20])) + 6 + uint32(len(tcp))
	binary.BigEndian.PutUint16(tcp[16:], ^sum(pseudo, tcp))
	s.seq += Payload
	s.id++
	return b
}

// Single is a frame that belongs to no stream.
func Single() []byte {
	b := make([]byte, 60)
	copy(b, "\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x02\x88\xb5")
	return b
}

// sum is the ones-complement sum of RFC 1071, not inverted.
func sum(s uint32, b []byte) uint16 {
	for ; len(b) >= 2; b = b[2:] {
		s += uint32(b[0])<<8 | uint32(b[1])
	}
	for s>>16 != 0 {
		s = s&0xffff + s>>16
	}
	return uint16(s)
}
