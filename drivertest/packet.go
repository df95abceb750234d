package drivertest

import (
	"encoding/binary"

	"cxkit/driver"
)

// Flow describes a packet of one flow. The zero value of what is not needed works.
type Flow struct {
	Dst, Src driver.MAC
	VLANs    []uint16 // tag control information, outermost first; more than one makes the first 802.1ad
	V6       bool
	UDP      bool
	SrcIP    byte // last byte of the addresses; the rest is fixed
	DstIP    byte
	SrcPort  uint16
	DstPort  uint16
}

const (
	etherIPv4  = 0x0800
	etherIPv6  = 0x86dd
	etherVLAN  = 0x8100
	etherQinQ  = 0x88a8
	protoTCP   = 6
	protoUDP   = 17
	ipv4Length = 20
	ipv6Length = 40
)

// Packet builds a frame of the flow with n bytes of payload and right checksums.
func (f Flow) Packet(n int, seq uint32) []byte {
	b := append(append([]byte{}, f.Dst[:]...), f.Src[:]...)
	for i, tci := range f.VLANs {
		tpid := uint16(etherVLAN)
		if i == 0 && len(f.VLANs) > 1 {
			tpid = etherQinQ
		}
		b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, tpid), tci)
	}
	l4 := f.transport(n, seq)
	proto := byte(protoTCP)
	if f.UDP {
		proto = protoUDP
	}
	var src, dst []byte
	if f.V6 {
		src = []byte{0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, f.SrcIP}
		dst = []byte{0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, f.DstIP}
		b = binary.BigEndian.AppendUint16(b, etherIPv6)
		b = append(b, 0x60, 0, 0, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(len(l4)))
		b = append(b, proto, 64)
		b = append(append(b, src...), dst...)
	} else {
		src, dst = []byte{192, 0, 2, f.SrcIP}, []byte{198, 51, 100, f.DstIP}
		b = binary.BigEndian.AppendUint16(b, etherIPv4)
		ip := []byte{0x45, 0, 0, 0, byte(seq >> 8), byte(seq), 0x40, 0, 64, proto, 0, 0}
		ip = append(append(ip, src...), dst...)
		binary.BigEndian.PutUint16(ip[2:], uint16(ipv4Length+len(l4)))
		binary.BigEndian.PutUint16(ip[10:], ^sum(ip))
		b = append(b, ip...)
	}
	pseudo := append(append([]byte{}, src...), dst...)
	pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(l4)))
	pseudo = append(pseudo, 0, 0, 0, proto)
	check := ^sum(append(pseudo, l4...))
	if f.UDP && check == 0 {
		check = 0xffff
	}
	binary.BigEndian.PutUint16(l4[f.checksumOffset():], check)
	return append(b, l4...)
}

func (f Flow) checksumOffset() int {
	if f.UDP {
		return 6
	}
	return 16
}

// transport builds the TCP or UDP header and payload with a zero checksum.
func (f Flow) transport(n int, seq uint32) []byte {
	var b []byte
	b = binary.BigEndian.AppendUint16(b, f.SrcPort)
	b = binary.BigEndian.AppendUint16(b, f.DstPort)
	if f.UDP {
		b = binary.BigEndian.AppendUint16(b, uint16(8+n))
		b = append(b, 0, 0)
	} else {
		b = binary.BigEndian.AppendUint32(b, seq)
		b = binary.BigEndian.AppendUint32(b, 1)
		b = append(b, 0x50, 0x18, 0x20, 0, 0, 0, 0, 0)
	}
	for i := range n {
		b = append(b, byte(uint32(i)*7+seq))
	}
	return b
}

// sum is the ones-complement sum of RFC 1071, not inverted.
func sum(b []byte) uint16 {
	var s uint32
	for ; len(b) >= 2; b = b[2:] {
		s += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) == 1 {
		s += uint32(b[0]) << 8
	}
	for s>>16 != 0 {
		s = s&0xffff + s>>16
	}
	return uint16(s)
}

// l4Offset is where the flow's transport header starts in its frames.
func (f Flow) l4Offset() int {
	off := 14 + 4*len(f.VLANs)
	if f.V6 {
		return off + ipv6Length
	}
	return off + ipv4Length
}

// peer is a station that is not the NIC.
func peer() driver.MAC { return driver.MAC{0x02, 0, 0, 0, 0, 0x01} }
