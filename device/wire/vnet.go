package wire

import "encoding/binary"

// vnetLen is the length of what the kernel puts before each frame of a TAP interface with IFF_VNET_HDR
// (struct virtio_net_hdr, linux include/uapi/linux/virtio_net.h), in the host's byte order.
const vnetLen = 10

// Values of its fields.
const (
	vnetNeedsCsum = 1 // flags: the checksum at csum_start+csum_offset is unfinished

	vnetTCPv4  = 1 // gso_type
	vnetTCPv6  = 4
	vnetUDPL4  = 5
	vnetECN    = 0x80
	vnetTypes  = 0x7f
	tcpSumAt   = 16
	udpSumAt   = 6
	protocolV4 = 9 // offset of the protocol in an IPv4 header
)

// getVnet reads a record of a TAP: a header and a frame.
func getVnet(b []byte) Frame {
	if len(b) < vnetLen {
		return Frame{}
	}
	f := Frame{Data: b[vnetLen:]}
	f.Unfinished = b[0]&vnetNeedsCsum != 0
	switch b[1] & vnetTypes {
	case vnetTCPv4, vnetTCPv6, vnetUDPL4:
		f.Segment = binary.NativeEndian.Uint16(b[4:])
	}
	return f
}

// putVnet makes the header of a frame. What is to be said of a large frame is found in the frame, which the
// card has made: Ethernet with at most two tags, IP without extension headers of IPv6, TCP or UDP. A frame
// of another kind gets an empty header.
func putVnet(h *[vnetLen]byte, f *Frame) {
	*h = [vnetLen]byte{}
	if f.Meta == (Meta{}) {
		return
	}
	b, off := f.Data, 14
	for range 2 {
		if len(b) >= off+4 && (b[off-2] == 0x81 && b[off-1] == 0 || b[off-2] == 0x88 && b[off-1] == 0xa8) {
			off += 4
		}
	}
	if len(b) < off+40 {
		return
	}
	l4, proto, kind := off+40, b[off+6], byte(vnetTCPv6)
	if b[off]>>4 == 4 {
		l4, proto, kind = off+int(b[off]&15)*4, b[off+protocolV4], vnetTCPv4
	}
	if len(b) < l4+20 {
		return
	}
	header, sumAt := l4+8, udpSumAt
	switch proto {
	case 6:
		header, sumAt = l4+int(b[l4+12]>>4)*4, tcpSumAt
		if b[l4+13]&0x80 != 0 { // CWR
			kind |= vnetECN
		}
	case 17:
		kind = vnetUDPL4
	default:
		return
	}
	if f.Unfinished {
		h[0] = vnetNeedsCsum
		binary.NativeEndian.PutUint16(h[6:], uint16(l4))
		binary.NativeEndian.PutUint16(h[8:], uint16(sumAt))
	}
	if f.Segment > 0 {
		h[1] = kind
		binary.NativeEndian.PutUint16(h[2:], uint16(header))
		binary.NativeEndian.PutUint16(h[4:], f.Segment)
	}
}
