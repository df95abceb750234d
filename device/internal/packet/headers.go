package packet

import "encoding/binary"

// Lengths of headers in bytes.
const (
	EthernetLen = 14
	TagLen      = 4
	addressLen  = 12 // both MAC addresses, in front of the first tag
	ipv4Len     = 20
	ipv6Len     = 40
	tcpLen      = 20
	udpLen      = 8
)

// Limits of the parser.
const (
	// MaxTags is how many VLAN tags the parser reads. A third one is an unknown Ethertype to it, as it is
	// to flow tables, which have fields for two.
	MaxTags = 2
	// maxExtensions bounds a chain of IPv6 extension headers. What follows a longer chain has no L4 type.
	maxExtensions = 8
)

// Ethertypes.
const (
	TypeIPv4 = 0x0800
	TypeIPv6 = 0x86dd
	TypeCVID = 0x8100 // C-VLAN tag
	TypeSVID = 0x88a8 // S-VLAN tag
)

// IP protocols and IPv6 extension headers.
const (
	protoHopByHop    = 0
	protoICMP        = 1
	protoTCP         = 6
	protoUDP         = 17
	protoRouting     = 43
	protoFragment    = 44
	protoESP         = 50
	protoAH          = 51
	protoICMPv6      = 58
	protoDestOptions = 60
)

// L3 is the network layer as CQE bits l3_hdr_type say it.
type L3 uint8

const (
	NoL3 L3 = iota
	IPv6
	IPv4
)

// L4 is the transport layer as CQE bits l4_hdr_type say it.
type L4 uint8

const (
	NoL4       L4 = iota
	TCP           // without ACK
	UDP           //
	TCPAck        // ACK, no data
	TCPAckData    // ACK and data
)

// Words of the key: 64-bit words of fte_match_param: outer headers, misc_parameters, inner headers, and
// misc_parameters_2 to 5. Words 0 to 7 are about every frame, keySeq and keyAck about TCP; frames with
// anything in others are rare, and those with anything beyond deepWords are deep.
const (
	KeyWords = 64

	keySource  = 0 // smac, ethertype
	keyDest    = 1 // dmac, first tag
	keyIP      = 2 // protocol, dscp, ecn, tag kinds, frag, version, TCP flags and ports
	keyL4      = 3 // ihl, ttl, UDP ports
	keySrcHigh = 4
	keySrcLow  = 5
	keyDstHigh = 6
	keyDstLow  = 7
	keySQN     = 8  // GRE flags, sending SQ
	keyTag2    = 9  // second tag
	keyGREKey  = 10 // GRE key, VXLAN VNI
	keyLabel   = 11 // GENEVE VNI and OAM, IPv6 flow label

	keyInnerLabel = 12 // inner IPv6 flow label, GENEVE options' length and protocol
	keyInnerESP   = 13 // inner IPsec SPI
	keyESP        = 14 // IPsec SPI
	keyInner      = 16 // inner headers: as 0 to 7
	keyMPLS       = 24 // first MPLS label entry, inner one
	keyTunnelMPLS = 25 // first MPLS label entry in GRE, in UDP
	keyMetadata   = 29 // metadata registers C1 and C0

	keySeq      = 32 // TCP sequence numbers, inner and outer
	keyAck      = 33 // TCP acknowledgement numbers, inner and outer
	deepWords   = 34
	keyGPE      = 34 // VXLAN-GPE VNI, next protocol and flags
	keyICMPData = 35 // what follows the first four bytes of ICMP, of ICMPv6
	keyICMP     = 36 // type and code of ICMP and ICMPv6
	keyTEID     = 37 // GTP-U TEID, message type and flags
	keyGTPMore  = 38 // third double word of GTP-U, first of its first extension header
	keyGTP      = 39 // first double word of GTP-U
	keyHeader   = 50 // first two double words of a VXLAN header
)

// Bits of key words.
const (
	KeyCVLAN = 1 << (32 + 15) // word 2: the outer tag is a C-VLAN tag
	KeySVLAN = 1 << (32 + 14) // word 2: the outer tag is an S-VLAN tag
	KeyTags  = 2              // the word of the two
	// KeyInner is the word that the inner headers begin with.
	KeyInner = keyInner

	keyFrag     = 1 << (32 + 13)
	keyTag2C    = 1 << 31
	keyTag2S    = 1 << 29
	keyL4TCP    = 1 << 62
	keyL4UDP    = 2 << 62
	shiftProto  = 32 + 24
	shiftTOS    = 32 + 16
	shiftIPVer  = 32 + 9
	shiftFlags  = 32
	shiftIHL    = 32 + 12
	shiftTTL    = 32
	shiftSPI    = 32
	shiftTag2   = 48
	labelBits   = 1<<20 - 1
	keyGREFlags = 0xb0000000_00000000
	greC        = 1 << 15
	greK        = 1 << 13
	greS        = 1 << 12
	tcpFlagBits = 1<<9 - 1
	tcpACK      = 1 << 4
)

// Headers is what one pass over a frame found.
type Headers struct {
	// Key is the frame as flow tables match it. Fields of layers that the frame lacks are 0.
	Key [KeyWords]uint64
	// Tags is the number of VLAN tags that were read, at most MaxTags; TCI is the outer tag's.
	Tags  uint8
	Outer uint16 // Ethertype of the outer tag: TypeCVID, TypeSVID, or 0 without tags
	TCI   uint16

	L3    L3
	L4    L4
	Proto uint8 // IP protocol: the last next-header value that was read
	// Options: an IPv4 header with options or an IPv6 header with extension headers.
	Options bool
	// Fragment: a piece of an IP datagram, the first one too. It has no L4.
	Fragment bool
	// whole: the lengths inside the headers agree with the frame's, so checksums can be judged. plain: it
	// is whole, IPv4 without options, and TCP, or UDP as long as its datagram.
	whole, plain bool
	// rare: words of the key that few frames have are not 0. deep: so are some beyond deepWords.
	rare, deep bool
	// tunnels is nil when tunnels are not looked into; inner are the headers of what begins at innerAt.
	tunnels *Tunnels
	inner   *Headers
	innerAt int
	// L3Off is where the IP header starts, L4Off where the transport header starts: 0 if there is none.
	// End is where the IP datagram ends; bytes of the frame after it are padding.
	L3Off, L4Off, End int
}

// Parse reads the headers of a frame of at least EthernetLen bytes.
func Parse(b []byte, h *Headers) {
	_ = b[EthernetLen-1]
	source := binary.BigEndian.Uint64(b[6:])
	dest := binary.BigEndian.Uint64(b) &^ 0xffff
	ethertype := uint16(source)
	h.Tags, h.Outer, h.TCI = 0, 0, 0
	h.plain = false
	off, kinds := EthernetLen, uint64(0)
	if h.deep {
		h.clearDeep()
	}
	if h.rare {
		h.begin()
	}
	if ethertype == TypeCVID || ethertype == TypeSVID {
		off, ethertype, kinds = h.parseTags(b, ethertype)
		source = source&^0xffff | uint64(ethertype)
		dest |= uint64(h.TCI)
	}
	h.Key[keySource], h.Key[keyDest], h.Key[keyIP] = source, dest, kinds
	h.Key[keySeq], h.Key[keyAck] = 0, 0

	switch { // as parseIP does, which is not inlined
	case ethertype == TypeIPv4 && h.parseIPv4(b, off):
	case ethertype == TypeIPv6 && h.parseIPv6(b, off):
	default:
		h.noL3(len(b))
		h.parseOther(b, off, ethertype)
	}
}

// begin clears the words of the key that only few frames set.
func (h *Headers) begin() {
	h.rare, h.plain, h.innerAt = false, false, 0
	clear(h.Key[keySQN:keySeq])
	h.Key[keySrcHigh], h.Key[keyDstHigh] = 0, 0
}

// parseIP reads an IP header at off, if the Ethertype says that there is one.
func (h *Headers) parseIP(b []byte, off int, ethertype uint16) {
	switch {
	case ethertype == TypeIPv4 && h.parseIPv4(b, off):
	case ethertype == TypeIPv6 && h.parseIPv6(b, off):
	default:
		h.noL3(len(b))
	}
}

// noL3 clears what a network layer would have set.
func (h *Headers) noL3(end int) {
	h.L3, h.L4, h.Proto, h.Options, h.Fragment, h.whole = NoL3, NoL4, 0, false, false, false
	h.L3Off, h.L4Off, h.End = 0, 0, end
	h.Key[keyIP] &= KeyCVLAN | KeySVLAN
	h.Key[keyL4] = 0
	h.Key[keySrcLow], h.Key[keyDstLow] = 0, 0
}

// parseTags reads up to two tags; outer is the Ethertype at offset 12. It returns where the payload
// starts, its Ethertype, and the key's bits for the kind of the outer tag. A tag that the frame does not
// hold whole is an unknown Ethertype.
func (h *Headers) parseTags(b []byte, outer uint16) (off int, ethertype uint16, kinds uint64) {
	off = EthernetLen
	if len(b) < off+TagLen {
		return off, outer, 0
	}
	h.Tags, h.Outer, h.TCI = 1, outer, binary.BigEndian.Uint16(b[off:])
	kinds = KeyCVLAN
	if outer == TypeSVID {
		kinds = KeySVLAN
	}
	ethertype = binary.BigEndian.Uint16(b[off+2:])
	off += TagLen
	if ethertype != TypeCVID && ethertype != TypeSVID || len(b) < off+TagLen {
		return off, ethertype, kinds
	}
	second := uint64(keyTag2C)
	if ethertype == TypeSVID {
		second = keyTag2S
	}
	h.Tags, h.rare = 2, true
	h.Key[keyTag2] = uint64(binary.BigEndian.Uint16(b[off:]))<<shiftTag2 | second
	return off + TagLen, binary.BigEndian.Uint16(b[off+2:]), kinds
}

// parseIPv4 reads an IPv4 header at off. false: there is none worth the name.
func (h *Headers) parseIPv4(b []byte, off int) bool {
	if len(b) < off+ipv4Len || b[off]>>4 != 4 {
		return false
	}
	ip := b[off:]
	size := int(ip[0]&15) * 4
	if size < ipv4Len || size > len(ip) {
		return false
	}
	total := int(binary.BigEndian.Uint16(ip[2:]))
	h.L3, h.L3Off, h.L4Off, h.L4 = IPv4, off, 0, NoL4
	h.whole = total >= size && total <= len(ip)
	h.End = len(b)
	if h.whole {
		h.End = off + total
	}
	h.Proto = ip[9]
	h.Options = size > ipv4Len
	h.Fragment = binary.BigEndian.Uint16(ip[6:])&0x3fff != 0 // more fragments, or an offset
	h.Key[keyIP] |= uint64(h.Proto)<<shiftProto | uint64(ip[1])<<shiftTOS | 4<<shiftIPVer
	h.Key[keyL4] = uint64(size/4)<<shiftIHL | uint64(ip[8])<<shiftTTL
	h.Key[keySrcLow] = uint64(binary.BigEndian.Uint32(ip[12:]))
	h.Key[keyDstLow] = uint64(binary.BigEndian.Uint32(ip[16:]))
	if h.Fragment {
		h.Key[keyIP] |= keyFrag
		return true
	}
	h.parseL4(b, off+size)
	return true
}

// parseIPv6 reads an IPv6 header at off and its extension headers.
func (h *Headers) parseIPv6(b []byte, off int) bool {
	if len(b) < off+ipv6Len || b[off]>>4 != 6 {
		return false
	}
	ip := b[off:]
	first := binary.BigEndian.Uint32(ip)
	total := ipv6Len + int(binary.BigEndian.Uint16(ip[4:]))
	h.L3, h.L3Off, h.L4Off, h.L4 = IPv6, off, 0, NoL4
	h.whole = total <= len(ip)
	h.End = len(b)
	if h.whole {
		h.End = off + total
	}
	h.Options, h.Fragment = false, false
	at, final := h.extensions(b[:h.End], ip[6], off+ipv6Len)
	h.Key[keyIP] |= uint64(h.Proto)<<shiftProto | uint64(first>>20&0xff)<<shiftTOS | 6<<shiftIPVer
	h.Key[keyL4] = uint64(ip[7]) << shiftTTL
	h.Key[keySrcHigh] = binary.BigEndian.Uint64(ip[8:])
	h.Key[keySrcLow] = binary.BigEndian.Uint64(ip[16:])
	h.Key[keyDstHigh] = binary.BigEndian.Uint64(ip[24:])
	h.Key[keyDstLow] = binary.BigEndian.Uint64(ip[32:])
	h.Key[keyLabel] = uint64(first & labelBits)
	h.rare = true
	if h.Fragment {
		h.Key[keyIP] |= keyFrag
		return true
	}
	if final {
		h.parseL4(b, at)
	}
	return true
}

// extensions walks the chain that starts with header next at off, sets Proto, Options and Fragment, and
// returns where the transport header starts; final tells whether the chain's end was reached. AH is a
// protocol here, because flow rules and hashes of Linux match it as one (reference 03 §9).
func (h *Headers) extensions(b []byte, next uint8, off int) (at int, final bool) {
	for range maxExtensions {
		h.Proto = next
		var size int
		switch next {
		case protoHopByHop, protoRouting, protoDestOptions:
			if len(b) < off+2 {
				return off, false
			}
			size = int(b[off+1])*8 + 8
		case protoFragment:
			size = 8
		default:
			return off, true
		}
		if len(b) < off+size {
			return off, false
		}
		h.Options = true
		if next == protoFragment && binary.BigEndian.Uint16(b[off+2:])&0xfff9 != 0 {
			h.Proto, h.Fragment = b[off], true
			return off, false
		}
		next = b[off]
		off += size
	}
	h.Proto = next
	return off, false
}

// parseL4 reads the transport header at off. A header that the datagram does not hold whole is none.
func (h *Headers) parseL4(b []byte, off int) {
	left := h.End - off
	switch h.Proto {
	case protoTCP:
		if left < tcpLen {
			return
		}
		l4 := b[off : off+tcpLen]
		size := int(l4[12]>>4) * 4
		if size < tcpLen || size > left {
			return
		}
		flags := uint64(binary.BigEndian.Uint16(l4[12:])) & tcpFlagBits
		h.L4Off, h.L4 = off, TCP
		if flags&tcpACK != 0 {
			h.L4 = TCPAck
			if left > size {
				h.L4 = TCPAckData
			}
		}
		h.Key[keyIP] |= flags<<shiftFlags | uint64(binary.BigEndian.Uint32(l4))
		h.Key[keyL4] |= keyL4TCP
		h.Key[keySeq] = uint64(binary.BigEndian.Uint32(l4[4:]))
		h.Key[keyAck] = uint64(binary.BigEndian.Uint32(l4[8:]))
		h.plain = h.whole && h.L3 == IPv4 && !h.Options
	case protoUDP:
		if left < udpLen {
			return
		}
		h.L4Off, h.L4 = off, UDP
		udp := binary.BigEndian.Uint64(b[off:])
		h.Key[keyL4] |= keyL4UDP | udp>>32
		h.plain = h.whole && h.L3 == IPv4 && !h.Options && int(udp>>16&0xffff) == left
		if h.tunnels != nil {
			h.inUDP(b, off, uint16(udp>>32))
		}
	case protoGRE:
		if h.tunnels != nil && h.tunnels.GRE {
			h.gre(b, off)
		}
	case protoIPIP:
		if h.tunnels != nil && h.tunnels.IPinIP {
			h.innerIP(b, off, TypeIPv4)
		}
	case protoIPv6:
		if h.tunnels != nil && h.tunnels.IPinIP {
			h.innerIP(b, off, TypeIPv6)
		}
	case protoICMP, protoICMPv6:
		h.icmp(b, off)
	case protoESP:
		if left >= 8 {
			h.Key[keyESP], h.rare = uint64(binary.BigEndian.Uint32(b[off:]))<<shiftSPI, true
		}
	case protoAH:
		if left >= 12 {
			h.Key[keyESP], h.rare = uint64(binary.BigEndian.Uint32(b[off+4:]))<<shiftSPI, true
		}
	}
}

// Bits of CQE byte l4_l3_hdr_type (reference 03 §2).
const (
	HdrStripped = 1 << 0
	hdrOptions  = 1 << 1
	hdrFragment = 1 << 7
)

// HdrType is CQE byte l4_l3_hdr_type, without the bit for a stripped tag.
func (h *Headers) HdrType() uint8 {
	t := uint8(h.L3)<<2 | uint8(h.L4)<<4
	if h.Options {
		t |= hdrOptions
	}
	if h.Fragment {
		t |= hdrFragment
	}
	return t
}

// PayloadOff is where the payload of a TCP segment starts; End is where it ends. Data are the bytes that were
// parsed.
func (h *Headers) PayloadOff(b []byte) int { return h.L4Off + int(b[h.L4Off+12]>>4)*4 }

// Tunnel is CQE byte pkt_info of a frame in a tunnel.
func (h *Headers) Tunnel() uint8 {
	t := uint8(1)
	if h.L3 == IPv6 {
		t |= 1 << 1
	}
	return t
}

// Multicast reports whether the destination is a group address, Broadcast whether it is the broadcast
// address.
func (h *Headers) Multicast() bool { return h.Key[keyDest]>>56&1 != 0 }

// Broadcast reports whether the destination is the broadcast address.
func (h *Headers) Broadcast() bool { return h.Dest() == 1<<48-1 }

// Dest is the destination MAC address in the low 48 bits.
func (h *Headers) Dest() uint64 { return h.Key[keyDest] >> 16 }

// Ethertype is the innermost one that was read.
func (h *Headers) Ethertype() uint16 { return uint16(h.Key[keySource]) }

// SetSourceSQN sets the key's misc_parameters.source_sqn, which frames from a wire don't have.
func (h *Headers) SetSourceSQN(sqn uint32) { h.SetSource(sqn, 0) }

// SetSource sets the key's source_sqn and source_port: the sending queue, and the vport of the e-switch that
// the frame comes from.
func (h *Headers) SetSource(sqn uint32, vport uint16) {
	h.Key[keySQN] = h.Key[keySQN]&keyGREFlags | uint64(sqn&0xffffff)<<32 | uint64(vport)
}

// SetMetadata sets the key's metadata registers C0 and C1, which the e-switch gives a frame.
func (h *Headers) SetMetadata(c0, c1 uint32) { h.Key[keyMetadata] = uint64(c1)<<32 | uint64(c0) }

// Registers are the metadata registers C1, the high half, and C0; SetRegisters sets them.
func (h *Headers) Registers() uint64     { return h.Key[keyMetadata] }
func (h *Headers) SetRegisters(c uint64) { h.Key[keyMetadata] = c }

// Values of wqe_inline_mode.
const (
	inlineL2 = 1 + iota
	inlineIP
	inlineL4
)

// InlineLen is how many bytes of the frame a queue with the inline mode must have in the WQE itself, 0 in
// mode 0. A layer that the frame lacks need not be there.
func (h *Headers) InlineLen(mode int) int {
	if mode == 0 {
		return 0
	}
	end := EthernetLen
	if mode >= inlineIP && h.L3 != NoL3 {
		end = h.L3Off + ipv6Len
		if h.L3 == IPv4 {
			end = h.L3Off + int(h.Key[keyL4]>>shiftIHL&15)*4
		}
	}
	if mode >= inlineL4 && h.L4 != NoL4 {
		end = h.L4Off + udpLen
		if h.L4 != UDP {
			end = h.L4Off + tcpLen
		}
	}
	return end
}
