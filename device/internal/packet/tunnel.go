package packet

import "encoding/binary"

// Frames in tunnels: VXLAN, GRE and NVGRE, IP in IP, GENEVE and VXLAN-GPE. What is inside is parsed like a frame
// of its own, one level deep, and the words of its key lie behind those of the outer headers, as
// fte_match_param has them. Of GTP-U and MPLS only their own headers are read.

const (
	protoIPIP  = 4
	protoIPv6  = 41
	protoGRE   = 47
	typeTEB    = 0x6558 // transparent Ethernet bridging: GRE carries frames
	typeMPLS   = 0x8847
	mplsLen    = 4
	vxlanLen   = 8
	greLen     = 4
	greWordLen = 4
)

// Tunnels says which tunnels the parser looks into. Headers that share it see changes at once.
type Tunnels struct {
	// VXLAN are UDP destination ports.
	VXLAN []uint16
	// GRE and IPinIP look into those.
	GRE, IPinIP bool
	// Flexible: the parser knows those on the UDP ports that they have from IANA, too.
	Flexible bool
}

// UDP ports that the flexible parser knows (IANA's, and those that Linux's flower uses: tc_tun_geneve.c,
// tc_tun_mplsoudp.c).
const (
	portGTPU   = 2152
	portGPE    = 4790
	portGENEVE = 6081
	portMPLS   = 6635
)

// inUDP looks into a datagram whose UDP header is at off.
func (h *Headers) inUDP(b []byte, off int, port uint16) {
	if h.tunnels.isVXLAN(port) {
		h.vxlan(b, off)
		return
	}
	if !h.tunnels.Flexible || port != portGENEVE && port != portGPE && port != portGTPU && port != portMPLS {
		return
	}
	b, at := b[:h.End], off+udpLen
	switch port {
	case portGENEVE:
		h.geneve(b, at)
	case portGPE:
		h.gpe(b, at)
	case portGTPU:
		h.gtpu(b, at)
	case portMPLS:
		if len(b) >= at+mplsLen {
			h.rare = true
			h.Key[keyTunnelMPLS] |= uint64(binary.BigEndian.Uint32(b[at:]))
		}
	}
}

// geneve reads a GENEVE header at off (RFC 8926): options' length, OAM, protocol and VNI.
func (h *Headers) geneve(b []byte, off int) {
	const size = 8
	if len(b) < off+size || b[off]>>6 != 0 {
		return
	}
	h.rare = true
	options, protocol := int(b[off]&0x3f), binary.BigEndian.Uint16(b[off+2:])
	h.Key[keyLabel] |= uint64(binary.BigEndian.Uint32(b[off+4:])&^0xff)<<32 | uint64(b[off+1]>>7)<<32
	h.Key[keyInnerLabel] |= uint64(options)<<16 | uint64(protocol)
	h.carried(b, off+size+4*options, protocol)
}

// gpe reads a VXLAN-GPE header at off (draft-ietf-nvo3-vxlan-gpe): flags, next protocol and VNI.
func (h *Headers) gpe(b []byte, off int) {
	if len(b) < off+vxlanLen {
		return
	}
	h.rare, h.deep = true, true
	flags, next := b[off], b[off+3]
	h.Key[keyGPE] = uint64(binary.BigEndian.Uint32(b[off+4:])>>8)<<32 | uint64(next)<<24 | uint64(flags)<<16
	if flags&0xc != 0xc { // the VNI and the next protocol are valid
		return
	}
	types := [...]uint16{1: TypeIPv4, 2: TypeIPv6, 3: typeTEB}
	if next != 0 && int(next) < len(types) {
		h.carried(b, off+vxlanLen, types[next])
	}
}

// gtpu reads a GTP-U header at off (3GPP TS 29.281): its first double word, the TEID, and where it has optional
// fields those and the first extension header.
func (h *Headers) gtpu(b []byte, off int) {
	const short, long = 8, 12
	if len(b) < off+short || b[off]>>5 != 1 {
		return
	}
	h.rare, h.deep = true, true
	first := binary.BigEndian.Uint32(b[off:])
	h.Key[keyTEID] = uint64(binary.BigEndian.Uint32(b[off+4:]))<<32 | uint64(first>>16&0xff)<<24 | uint64(first>>24)<<16
	h.Key[keyGTP] = uint64(first) << 32
	if first>>24&7 == 0 || len(b) < off+long {
		return
	}
	h.Key[keyGTPMore] = uint64(binary.BigEndian.Uint32(b[off+8:])) << 32
	if first>>24&4 != 0 && b[off+11] != 0 && len(b) >= off+long+4 {
		h.Key[keyGTPMore] |= uint64(binary.BigEndian.Uint32(b[off+long:]))
	}
}

// icmp reads an ICMP or ICMPv6 header at off.
func (h *Headers) icmp(b []byte, off int) {
	const size = 8
	if h.End-off < size || (h.Proto == protoICMP) != (h.L3 == IPv4) {
		return
	}
	h.rare, h.deep = true, true
	kind, data := uint64(binary.BigEndian.Uint16(b[off:])), uint64(binary.BigEndian.Uint32(b[off+4:]))
	if h.L3 == IPv4 {
		h.Key[keyICMP], h.Key[keyICMPData] = kind<<48, data<<32
		return
	}
	h.Key[keyICMP], h.Key[keyICMPData] = kind<<32, data
}

// parseOther looks at what follows an Ethernet header and is not IP: MPLS.
func (h *Headers) parseOther(b []byte, off int, ethertype uint16) {
	if ethertype == typeMPLS && len(b) >= off+mplsLen {
		h.rare = true
		h.Key[keyMPLS] |= uint64(binary.BigEndian.Uint32(b[off:])) << 32
	}
}

// clearDeep clears the words that begin leaves, and that few of the rare frames set. It is apart from begin so that
// begin is inlined.
//
//go:noinline
func (h *Headers) clearDeep() {
	h.deep = false
	clear(h.Key[deepWords:])
}

// carried looks into what a tunnel header says it carries.
func (h *Headers) carried(b []byte, at int, protocol uint16) {
	switch protocol {
	case typeTEB:
		if h.End-at >= EthernetLen {
			h.innerFrame(b, at)
		}
	case TypeIPv4, TypeIPv6:
		h.innerIP(b, at, protocol)
	}
}

func (t *Tunnels) isVXLAN(port uint16) bool {
	for _, p := range t.VXLAN {
		if p == port {
			return true
		}
	}
	return false
}

// LookInto makes Parse look into tunnels.
func (h *Headers) LookInto(t *Tunnels) {
	h.tunnels = t
	if h.inner == nil {
		h.inner = new(Headers)
	}
}

// Inner are the headers of what is in the tunnel, and where in the frame it begins: offsets of the inner
// headers count from there. nil for a frame that is not in a tunnel.
func (h *Headers) Inner() (inner *Headers, at int) {
	if h.innerAt == 0 {
		return nil, 0
	}
	return h.inner, h.innerAt
}

// vxlan looks into a VXLAN datagram whose UDP header is at off.
func (h *Headers) vxlan(b []byte, off int) {
	at := off + udpLen
	if h.End-at < vxlanLen+EthernetLen || b[at]&8 == 0 { // flag I: the VNI is valid
		return
	}
	h.rare = true
	h.Key[keyGREKey] |= uint64(binary.BigEndian.Uint32(b[at+4:]) &^ 0xff)
	if h.tunnels.Flexible {
		h.deep = true
		h.Key[keyHeader] = binary.BigEndian.Uint64(b[at:])
	}
	h.innerFrame(b, at+vxlanLen)
}

// gre looks into a GRE packet at off (RFC 2784, 2890).
func (h *Headers) gre(b []byte, off int) {
	if h.End-off < greLen {
		return
	}
	flags, protocol := binary.BigEndian.Uint16(b[off:]), binary.BigEndian.Uint16(b[off+2:])
	h.rare = true
	h.Key[keySQN] |= uint64(flags&(greC|greK|greS)) << 48
	h.Key[keyTag2] |= uint64(protocol)
	if flags&7 != 0 { // version
		return
	}
	at := off + greLen
	if flags&greC != 0 {
		at += greWordLen
	}
	if flags&greK != 0 {
		if h.End-at < greWordLen {
			return
		}
		h.Key[keyGREKey] |= uint64(binary.BigEndian.Uint32(b[at:])) << 32
		at += greWordLen
	}
	if flags&greS != 0 {
		at += greWordLen
	}
	if protocol == typeMPLS && h.tunnels.Flexible && h.End >= at+mplsLen {
		h.Key[keyTunnelMPLS] |= uint64(binary.BigEndian.Uint32(b[at:])) << 32
	}
	h.carried(b, at, protocol)
}

// innerFrame parses a frame in a tunnel.
func (h *Headers) innerFrame(b []byte, at int) {
	Parse(b[at:h.End], h.inner)
	h.takeInner(at)
}

// innerIP parses an IP packet in a tunnel.
func (h *Headers) innerIP(b []byte, at int, ethertype uint16) {
	if at > h.End {
		return
	}
	in := h.inner
	if in.deep {
		in.clearDeep()
	}
	in.begin()
	in.Tags, in.Outer, in.TCI = 0, 0, 0
	in.Key[keySource], in.Key[keyDest], in.Key[keyIP] = uint64(ethertype), 0, 0
	in.Key[keySeq], in.Key[keyAck] = 0, 0
	in.parseIP(b[at:h.End], 0, ethertype)
	if in.L3 != NoL3 {
		h.takeInner(at)
	}
}

// takeInner makes the inner headers a part of the key.
func (h *Headers) takeInner(at int) {
	in := h.inner
	h.innerAt, h.rare = at, true
	copy(h.Key[keyInner:], in.Key[:keySQN])
	h.Key[keySeq], h.Key[keyAck] = in.Key[keySeq]<<32|h.Key[keySeq], in.Key[keyAck]<<32|h.Key[keyAck]
	if in.rare {
		h.Key[keyMPLS] |= in.Key[keyMPLS] >> 32
		second := in.Key[keyTag2]
		h.Key[keyTag2] |= second >> shiftTag2 << 32
		if second&keyTag2C != 0 {
			h.Key[keyTag2] |= keyTag2C >> 1
		}
		if second&keyTag2S != 0 {
			h.Key[keyTag2] |= keyTag2S >> 1
		}
		h.Key[keyInnerLabel] |= in.Key[keyLabel] << 32
		h.Key[keyInnerESP] |= in.Key[keyESP] >> shiftSPI
	}
}

// InsertInner writes checksums into a frame that is about to be sent and its tunnelled frame: those of Insert,
// and the inner ones that cs_flags ask for. The inner ones come first: they are a part of what the outer
// UDP checksum covers, which is left alone unless it is asked for.
func (h *Headers) InsertInner(b []byte, l3, l4, innerL3, innerL4 bool) {
	if in, at := h.Inner(); in != nil && (innerL3 || innerL4) {
		in.Insert(b[at:h.End], innerL3, innerL4)
	}
	h.Insert(b, l3, l4)
}
