package packet

import "encoding/binary"

// Frames in tunnels: VXLAN, GRE and NVGRE, IP in IP. What is inside is parsed like a frame of its own, one
// level deep, and the words of its key lie behind those of the outer headers, as fte_match_param has them.

const (
	protoIPIP  = 4
	protoIPv6  = 41
	protoGRE   = 47
	typeTEB    = 0x6558 // transparent Ethernet bridging: GRE carries frames
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
	switch protocol {
	case typeTEB:
		if h.End-at >= EthernetLen {
			h.innerFrame(b, at)
		}
	case TypeIPv4, TypeIPv6:
		h.innerIP(b, at, protocol)
	}
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
	in.begin()
	in.Tags, in.Outer, in.TCI = 0, 0, 0
	in.Key[keySource], in.Key[keyDest], in.Key[keyIP] = uint64(ethertype), 0, 0
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
	if in.rare {
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
