package driver

import (
	"encoding/binary"

	"cxkit/driver/internal/queue"
	"cxkit/prm"
)

// What the driver reads of headers that it must put into a WQE. The frames are the application's: nothing is
// read beyond their end.

// EtherTypes and IP protocols.
const (
	typeIPv4 = 0x0800
	typeIPv6 = 0x86dd
	typeTag  = 0x8100
	typeSTag = 0x88a8
	typeTEB  = 0x6558 // Ethernet in GRE

	protocolIPv4 = 4
	protocolTCP  = 6
	protocolUDP  = 17
	protocolIPv6 = 41
	protocolGRE  = 47
)

// Lengths of headers in bytes.
const (
	ipv4Header  = 20
	ipv6Header  = 40
	tcpHeader   = 20
	udpHeader   = 8
	vxlanHeader = 8
	greHeader   = 4
)

// headerLength is the length of the headers of a frame that is cut into segments: up to and with TCP or UDP,
// of what is in the tunnel if inner. false: there are no such headers.
func headerLength(b []byte, inner bool) (int, bool) {
	at, kind := ethernetEnd(b, 0)
	at, protocol, ok := ipEnd(b, at, kind)
	if !ok {
		return 0, false
	}
	if inner {
		if at, protocol, ok = tunnelEnd(b, at, protocol); !ok {
			return 0, false
		}
	}
	return transportEnd(b, at, protocol)
}

// inlineLength is how much of a frame must be in its WQE.
func inlineLength(b []byte, mode prm.InlineMode) (int, bool) {
	if len(b) < int(queue.InlineL2) {
		return 0, false
	}
	at, kind := ethernetEnd(b, 0)
	end := max(at, int(queue.InlineL2))
	if mode < prm.InlineModeIP {
		return min(end, len(b)), true
	}
	l4, protocol, ok := ipEnd(b, at, kind)
	if !ok {
		return min(end, len(b)), true
	}
	if mode == prm.InlineModeTCPUDP {
		if after, ok := transportEnd(b, l4, protocol); ok {
			l4 = after
		}
	}
	return max(l4, end), true
}

// ethernetEnd is where the Ethernet header at an offset ends, tags included, and the type of what follows, 0
// if it is cut off.
func ethernetEnd(b []byte, at int) (end int, kind uint16) {
	at += ethernetHeader
	for tags := 0; at <= len(b); tags++ {
		kind = binary.BigEndian.Uint16(b[at-2:])
		if kind != typeTag && kind != typeSTag || tags == 2 {
			return at, kind
		}
		at += vlanTag
	}
	return min(at, len(b)), 0
}

// ipEnd is where the IP header at an offset ends, and the protocol behind it.
func ipEnd(b []byte, at int, kind uint16) (end int, protocol uint8, ok bool) {
	switch {
	case kind == typeIPv4 && len(b) >= at+ipv4Header:
		n := int(b[at]&15) * 4
		return at + n, b[at+9], n >= ipv4Header && len(b) >= at+n
	case kind == typeIPv6 && len(b) >= at+ipv6Header:
		end, protocol := at+ipv6Header, b[at+6]
		for range 8 { // extension headers: hop by hop, routing, destination
			if protocol != 0 && protocol != 43 && protocol != 60 {
				return end, protocol, true
			}
			if len(b) < end+8 {
				return 0, 0, false
			}
			protocol, end = b[end], end+8+int(b[end+1])*8
		}
	}
	return 0, 0, false
}

// tunnelEnd is where the IP header in a tunnel ends; at is where the outer one does.
func tunnelEnd(b []byte, at int, outer uint8) (end int, protocol uint8, ok bool) {
	var kind uint16
	switch {
	case outer == protocolUDP:
		at, kind = ethernetEnd(b, at+udpHeader+vxlanHeader)
	case outer == protocolIPv4:
		kind = typeIPv4
	case outer == protocolIPv6:
		kind = typeIPv6
	case outer == protocolGRE && len(b) >= at+greHeader:
		flags := b[at]
		kind = binary.BigEndian.Uint16(b[at+2:])
		at += greHeader
		for _, bit := range [...]byte{0x80, 0x20, 0x10} { // checksum, key, sequence number
			if flags&bit != 0 {
				at += 4
			}
		}
		if kind == typeTEB {
			at, kind = ethernetEnd(b, at)
		}
	}
	return ipEnd(b, at, kind)
}

// transportEnd is where a TCP or UDP header at an offset ends.
func transportEnd(b []byte, at int, protocol uint8) (int, bool) {
	switch {
	case protocol == protocolUDP:
		return at + udpHeader, len(b) >= at+udpHeader
	case protocol == protocolTCP && len(b) >= at+tcpHeader:
		n := int(b[at+12]>>4) * 4
		return at + n, n >= tcpHeader && len(b) >= at+n
	}
	return 0, false
}
