package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// protocol is what a frame carries, as far as the table tells it apart.
type protocol uint8

const (
	protoShort protocol = iota // too short for an Ethernet header
	protoARP
	protoTCP4
	protoUDP4
	protoICMP4
	protoOther4
	protoTCP6
	protoUDP6
	protoICMP6
	protoOther6
	protoLLDP
	protoLength // IEEE 802.3 with a length: STP and the like
	protoOther
	protocols
)

func (p protocol) String() string {
	names := [protocols]string{
		"too short", "ARP", "TCP over IPv4", "UDP over IPv4", "ICMP", "other IPv4", "TCP over IPv6",
		"UDP over IPv6", "ICMPv6", "other IPv6", "LLDP", "IEEE 802.3", "other",
	}
	if p < protocols {
		return names[p]
	}
	return "unknown"
}

const (
	etherHeader = 14
	etherIPv4   = 0x0800
	etherARP    = 0x0806
	etherVLAN   = 0x8100
	etherIPv6   = 0x86dd
	etherQinQ   = 0x88a8
	etherLLDP   = 0x88cc
	leastEther  = 0x0600 // below it is a length

	ipICMP     = 1
	ipTCP      = 6
	ipUDP      = 17
	ipICMPv6   = 58
	ipNoNext   = 59
	maxOptions = 8 // IPv6 extension headers looked through
)

// headers are where a frame's parts start; a part that is not there starts at its end.
type headers struct {
	proto protocol
	tags  int // VLAN tags, two at most
	ether uint16
	l3    int
	l4    int
	ip    uint8 // IP protocol number
	first bool  // l4 is there: no fragment but the first
}

// parse looks at a frame's headers. It allocates nothing and reads nothing outside the frame.
func parse(f []byte) headers {
	h := headers{l3: len(f), l4: len(f)}
	if len(f) < etherHeader {
		return h
	}
	at := 12
	h.ether = binary.BigEndian.Uint16(f[at:])
	for h.tags < 2 && (h.ether == etherVLAN || h.ether == etherQinQ) && len(f) >= at+6 {
		at += 4
		h.tags++
		h.ether = binary.BigEndian.Uint16(f[at:])
	}
	h.l3 = at + 2
	switch {
	case h.ether == etherIPv4:
		h.parse4(f)
	case h.ether == etherIPv6:
		h.parse6(f)
	case h.ether == etherARP:
		h.proto = protoARP
	case h.ether == etherLLDP:
		h.proto = protoLLDP
	case h.ether < leastEther:
		h.proto = protoLength
	default:
		h.proto = protoOther
	}
	return h
}

func (h *headers) parse4(f []byte) {
	h.proto, h.first = protoOther4, true
	p := f[h.l3:]
	if len(p) < 20 || p[0]>>4 != 4 || int(p[0]&0xf)*4 < 20 {
		return
	}
	h.ip = p[9]
	h.l4 = min(h.l3+int(p[0]&0xf)*4, len(f))
	h.first = binary.BigEndian.Uint16(p[6:])&0x1fff == 0
	switch h.ip {
	case ipTCP:
		h.proto = protoTCP4
	case ipUDP:
		h.proto = protoUDP4
	case ipICMP:
		h.proto = protoICMP4
	}
}

func (h *headers) parse6(f []byte) {
	h.proto, h.first = protoOther6, true
	p := f[h.l3:]
	if len(p) < 40 || p[0]>>4 != 6 {
		return
	}
	h.ip, h.l4 = p[6], h.l3+40
	for range maxOptions {
		switch h.ip {
		case 0, 43, 60: // hop by hop, routing, destination options: length in units of 8 behind the first
			if len(f) < h.l4+8 {
				h.l4 = len(f)
				return
			}
			h.ip, h.l4 = f[h.l4], h.l4+8+8*int(f[h.l4+1])
		case 44: // fragment
			if len(f) < h.l4+8 {
				h.l4 = len(f)
				return
			}
			h.first = h.first && binary.BigEndian.Uint16(f[h.l4+2:])&0xfff8 == 0
			h.ip, h.l4 = f[h.l4], h.l4+8
		case ipTCP:
			h.proto = protoTCP6
		case ipUDP:
			h.proto = protoUDP6
		case ipICMPv6:
			h.proto = protoICMP6
		}
		if h.proto != protoOther6 || h.ip == ipNoNext || h.l4 >= len(f) {
			break
		}
	}
	h.l4 = min(h.l4, len(f))
}

// describe is one line about a frame.
func describe(f []byte) string {
	h := parse(f)
	if h.proto == protoShort {
		return fmt.Sprintf("%x", f)
	}
	var b strings.Builder
	for i := range h.tags {
		fmt.Fprintf(&b, "VLAN %d ", binary.BigEndian.Uint16(f[etherHeader+4*i:])&0xfff)
	}
	switch h.proto {
	case protoARP:
		b.WriteString("ARP " + describeARP(f[h.l3:]))
	case protoTCP4, protoUDP4, protoICMP4, protoOther4, protoTCP6, protoUDP6, protoICMP6, protoOther6:
		b.WriteString(describeIP(f, h))
	case protoLLDP, protoLength:
		fmt.Fprintf(&b, "%s %s > %s", h.proto, net.HardwareAddr(f[6:12]), net.HardwareAddr(f[:6]))
	default:
		fmt.Fprintf(&b, "%#04x %s > %s", h.ether, net.HardwareAddr(f[6:12]), net.HardwareAddr(f[:6]))
	}
	return b.String()
}

func describeARP(p []byte) string {
	if len(p) < 28 {
		return "cut short"
	}
	from, to := netip.AddrFrom4([4]byte(p[14:18])), netip.AddrFrom4([4]byte(p[24:28]))
	switch binary.BigEndian.Uint16(p[6:]) {
	case 1:
		return fmt.Sprintf("who has %s? tell %s", to, from)
	case 2:
		return fmt.Sprintf("%s is at %s", from, net.HardwareAddr(p[8:14]))
	}
	return fmt.Sprintf("operation %d from %s", binary.BigEndian.Uint16(p[6:]), from)
}

func describeIP(f []byte, h headers) string {
	p := f[h.l3:]
	var from, to netip.Addr
	switch {
	case h.ether == etherIPv4 && len(p) >= 20:
		from, to = netip.AddrFrom4([4]byte(p[12:16])), netip.AddrFrom4([4]byte(p[16:20]))
	case h.ether == etherIPv6 && len(p) >= 40:
		from, to = netip.AddrFrom16([16]byte(p[8:24])), netip.AddrFrom16([16]byte(p[24:40]))
	default:
		return h.proto.String() + ", cut short"
	}
	l4 := f[h.l4:]
	switch {
	case !h.first:
		return fmt.Sprintf("%s, %s > %s, later fragment", h.proto, from, to)
	case (h.ip == ipTCP || h.ip == ipUDP) && len(l4) >= 4:
		text := fmt.Sprintf("%s, %s > %s", h.proto,
			netip.AddrPortFrom(from, binary.BigEndian.Uint16(l4)), netip.AddrPortFrom(to, binary.BigEndian.Uint16(l4[2:])))
		if h.ip == ipTCP && len(l4) >= 14 {
			text += ", " + tcpFlags(l4[13])
		}
		return text
	case (h.ip == ipICMP || h.ip == ipICMPv6) && len(l4) >= 2:
		return fmt.Sprintf("%s, %s > %s, type %d code %d", h.proto, from, to, l4[0], l4[1])
	}
	return fmt.Sprintf("%s, %s > %s, protocol %d", h.proto, from, to, h.ip)
}

func tcpFlags(b byte) string {
	names := [8]string{"FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"}
	var set []string
	for i, name := range names {
		if b>>i&1 != 0 {
			set = append(set, name)
		}
	}
	if set == nil {
		return "no flags"
	}
	return strings.Join(set, " ")
}
