package steer

import (
	"encoding/binary"

	"cxkit/device/internal/command"
	"cxkit/device/internal/packet"
)

// paramBytes is the size of fte_match_param.
const paramBytes = packet.KeyWords * 8

// Bits of match_criteria_enable.
const (
	criteriaOuter = 1 << iota
	criteriaMisc
	criteriaInner
	criteriaMisc2
	criteriaMisc3
	criteriaMisc4
	criteriaMisc5
)

// Parsers are what a kind of card reads beyond Ethernet, VLAN, IP, TCP, UDP, GRE and VXLAN. What it does not read
// can't be matched.
type Parsers struct {
	// Flexible: GENEVE, VXLAN-GPE, MPLS, ICMP and TCP sequence numbers.
	Flexible bool
	// GTPU, and raw VXLAN headers.
	GTPU, Raw bool
}

// parsed are the words that parsers fill, with the bits that may be matched.
func (p *Parsers) parsed(word int) uint64 {
	if p.Flexible {
		switch word {
		case 11:
			return 0xffffff01_00000000 // 0x58 GENEVE VNI, OAM
		case 12:
			return 0x003fffff // 0x64 GENEVE options' length, protocol
		case 24, 25: // 0xc0 MPLS: outer, inner, in GRE, in UDP
			return ^uint64(0)
		case 32, 33: // 0x100 TCP sequence and acknowledgement numbers
			return ^uint64(0)
		case 34:
			return 0x00ffffff_ffff0000 // 0x110 VXLAN-GPE VNI, next protocol, flags
		case 35:
			return ^uint64(0) // 0x118 ICMP and ICMPv6 header data
		case 36:
			return 0xffffffff_00000000 // 0x120 ICMP and ICMPv6 type and code
		}
	}
	if p.GTPU {
		switch word {
		case 37:
			return 0xffffffff_ffff0000 // 0x128 GTP-U TEID, message type, flags
		case 38:
			return ^uint64(0) // 0x130 third double word, first extension header
		case 39:
			return 0xffffffff_00000000 // 0x138 first double word
		}
	}
	if p.Raw && word == 50 {
		return ^uint64(0) // 0x190 tunnel_header_0 and 1
	}
	return 0
}

// parts are the parts of the criteria that parsers fill.
func (p *Parsers) parts() (parts uint8) {
	for word := range packet.KeyWords {
		if p.parsed(word) != 0 {
			parts |= 1 << (word / 8)
		}
	}
	return parts
}

// Criteria are a group's mask.
type Criteria struct {
	// Enable is match_criteria_enable; Mask is match_criteria as CREATE_FLOW_GROUP has it. Parts of the
	// mask that are not enabled count as zero.
	Enable uint8
	Mask   [paramBytes]byte
}

// matchable are the bits of each word that may be matched, in the order of Headers.Key (offsets of
// fte_match_param, reference 01a).
var matchable = [packet.KeyWords]uint64{
	0: ^uint64(0), // 0x00 smac, ethertype
	1: ^uint64(0), // 0x08 dmac, first tag
	2: ^uint64(0), // 0x10 IP protocol, dscp, ecn, tags, frag, version, TCP flags and ports
	3: 0xc000f0ff_ffffffff,
	4: ^uint64(0), 5: ^uint64(0), 6: ^uint64(0), 7: ^uint64(0), // 0x20, 0x30 addresses
	8:  0xb0000000_00000000, // 0x40 GRE flags
	9:  0xffffffff_f000ffff, // 0x48 second tags, 0x4c their kinds, GRE protocol
	10: 0xffffffff_ffffff00, // 0x50 GRE key, 0x54 VXLAN VNI
	11: 0x000fffff,          // 0x5c outer IPv6 flow label
	12: 0x000fffff_00000000, // 0x60 inner IPv6 flow label
	13: 0x00000000_ffffffff, // 0x6c inner ESP SPI
	14: 0xffffffff_00000000, // 0x70 outer ESP SPI

	16: ^uint64(0), 17: ^uint64(0), 18: ^uint64(0), 19: 0xc000f0ff_ffffffff, // 0x80 inner headers, as 0x00
	20: ^uint64(0), 21: ^uint64(0), 22: ^uint64(0), 23: ^uint64(0),
}

// tagWords are the words with the kinds of the first tag, outer and inner.
var tagWords = [...]uint8{packet.KeyTags, packet.KeyInner + packet.KeyTags}

// What the frame itself does not tell.
const (
	sourceWord = 8
	// sourceSQN is misc_parameters.source_sqn, which tables match that own frames pass.
	sourceSQN = 0x00ffffff_00000000
	// sourcePort is misc_parameters.source_port, which tables match that frames of several vports pass.
	sourcePort = 0x00000000_0000ffff
	// metadataWord holds misc_parameters_2.metadata_reg_c_1 and _0, which the e-switch sets.
	metadataWord = 29
)

// sources reports whether tables can tell where a frame comes from.
func (d *Domain) sources() bool { return d.limits.Sources || d.typ >= EgressACL }

// matchable are the bits of word i that a group of the domain may match.
func (d *Domain) matchable(i int) uint64 {
	allowed := matchable[i] | d.limits.Parsers.parsed(i)
	switch {
	case i == sourceWord && (d.typ == NICTx || d.typ == FDB):
		allowed |= sourceSQN
		fallthrough
	case i == sourceWord:
		if d.sources() {
			allowed |= sourcePort
		}
	case i == metadataWord:
		if d.sources() {
			allowed = ^uint64(0)
		}
	}
	return allowed
}

// compile turns the criteria into masked words.
func (g *Group) compile(d *Domain) command.Result {
	enable := g.criteria.Enable
	known := criteriaOuter | criteriaMisc | criteriaInner | d.limits.Parsers.parts()
	if d.sources() {
		known |= criteriaMisc2
	}
	if enable&^known != 0 {
		return fail(badParam, synGroupMask, "match_criteria_enable %#x: parts %#x can be matched", enable, known)
	}
	for i := range g.mask {
		if enable>>(i/8)&1 == 0 { // eight words a part
			continue
		}
		m := binary.BigEndian.Uint64(g.criteria.Mask[i*8:])
		if allowed := d.matchable(i); m&^allowed != 0 {
			return fail(badParam, synGroupMask, "match_criteria at %#x: bits %#x can't be matched", i*8, m&^allowed)
		}
		g.mask[i] = m
	}
	// "No C-VLAN tag" means no tag at all (reference 03 §9): the outer tag is of one kind, so looking
	// at both bits tells the three cases apart. The values' S-VLAN bit is 0 then, see value.
	for _, w := range tagWords {
		if g.mask[w]&packet.KeyCVLAN != 0 {
			g.mask[w] |= packet.KeySVLAN
		}
	}
	for i, m := range g.mask {
		if m != 0 {
			g.words = append(g.words, uint8(i))
		}
	}
	return command.Result{}
}

// key returns the words of a match value under the group's mask, in the order of g.words.
func (g *Group) key(v *Value) []uint64 {
	key := make([]uint64, len(g.words))
	for i, w := range g.words {
		key[i] = v.word(w) & g.mask[w]
		if (w == tagWords[0] || w == tagWords[1]) && binary.BigEndian.Uint64(g.criteria.Mask[int(w)*8:])&packet.KeySVLAN == 0 {
			key[i] &^= packet.KeySVLAN
		}
	}
	return key
}
