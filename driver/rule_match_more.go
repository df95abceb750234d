package driver

import (
	"errors"
	"fmt"

	"cxkit/prm"
)

// What is matched beyond Ethernet, IP and ports: fields of misc_parameters, 2 and 3.

const (
	protocolICMP   = 1
	protocolESP    = 50
	protocolAH     = 51
	protocolICMPv6 = 58

	typeMPLS = 0x8847

	// UDP ports of tunnels that cards look into, IANA's.
	portVXLAN  = 4789
	portGTPU   = 2152
	portGPE    = 4790
	portGENEVE = 6081
	portMPLS   = 6635
)

// wide checks a field of fewer than 32 bits and returns mask and value. A mask of all ones is an exact match.
func wide(what string, m Masked[uint32], bits int) (mask, value uint32, err error) {
	most := uint32(1)<<bits - 1
	if m.Mask > most && m.Mask != ^uint32(0) || m.Value&m.Mask > most {
		return 0, 0, fmt.Errorf("%s %#x: %d bits", what, m.Value, bits)
	}
	return m.Mask & most, m.Value & m.Mask, nil
}

// imply matches v exactly, unless something is matched already.
func imply[T uint8 | uint16 | uint32](mask, value *T, v T) {
	if *mask == 0 {
		*mask, *value = ^T(0), v
	}
}

// encodeMore writes what of headers is not in lyr_2_4, and what it implies there: a frame that has no such field
// must not match one that is 0.
func (h *Headers) encodeMore(mask, value *prm.MatchParam, inner bool) error {
	m, v := &mask.Outer, &value.Outer
	if inner {
		m, v = &mask.Inner, &value.Inner
	}
	for _, f := range []func(mask, value *prm.MatchParam, m, v *prm.MatchLayer24, inner bool) error{
		h.encodeSecondTag, h.encodeLabels, h.encodeSPI, h.encodeICMP,
	} {
		if err := f(mask, value, m, v, inner); err != nil {
			return err
		}
	}
	return nil
}

func (h *Headers) encodeSecondTag(mask, value *prm.MatchParam, _, _ *prm.MatchLayer24, inner bool) error {
	vid, id, err := narrow("second VLAN", h.SecondVLAN, 12)
	if err != nil {
		return err
	}
	prioMask, prio, err := narrow("second VLAN's priority", h.SecondVLANPriority, 3)
	if err != nil {
		return err
	}
	kind := h.SecondTag
	if kind == AnyTag && (vid != 0 || prioMask != 0) {
		kind = CTagged
	}
	mm, mv := &mask.Misc, &value.Misc
	c, s := kind == CTagged || kind == Untagged, kind == STagged || kind == Untagged
	switch {
	case kind > STagged:
		return fmt.Errorf("kind %d of the second tag", kind)
	case kind == Untagged && (vid != 0 || prioMask != 0):
		return errors.New("a frame without a second tag has no second VLAN")
	case inner:
		mm.InnerSecondVID, mv.InnerSecondVID, mm.InnerSecondPrio, mv.InnerSecondPrio = vid, id, prioMask, prio
		mm.InnerSecondCVLANTag, mm.InnerSecondSVLANTag = c, s
		mv.InnerSecondCVLANTag, mv.InnerSecondSVLANTag = kind == CTagged, kind == STagged
	default:
		mm.OuterSecondVID, mv.OuterSecondVID, mm.OuterSecondPrio, mv.OuterSecondPrio = vid, id, prioMask, prio
		mm.OuterSecondCVLANTag, mm.OuterSecondSVLANTag = c, s
		mv.OuterSecondCVLANTag, mv.OuterSecondSVLANTag = kind == CTagged, kind == STagged
	}
	return nil
}

// encodeLabels writes the labels of IPv6 and MPLS.
func (h *Headers) encodeLabels(mask, value *prm.MatchParam, m, v *prm.MatchLayer24, inner bool) error {
	flow, label, err := wide("IPv6 flow label", h.FlowLabel, 20)
	if err != nil {
		return err
	}
	if flow != 0 && h.version() != 6 {
		return errors.New("a match of a flow label needs IP version 6")
	}
	mm, mv := &mask.Misc, &value.Misc
	if inner {
		mm.InnerIPv6FlowLabel, mv.InnerIPv6FlowLabel = flow, label
	} else {
		mm.OuterIPv6FlowLabel, mv.OuterIPv6FlowLabel = flow, label
	}
	mplsMask, mpls, err := wide("MPLS label", h.MPLS, 20)
	if err != nil || mplsMask == 0 {
		return err
	}
	imply(&m.Ethertype, &v.Ethertype, typeMPLS)
	if inner {
		mask.Misc2.InnerFirstMPLS.Label, value.Misc2.InnerFirstMPLS.Label = mplsMask, mpls
	} else {
		mask.Misc2.OuterFirstMPLS.Label, value.Misc2.OuterFirstMPLS.Label = mplsMask, mpls
	}
	return nil
}

func (h *Headers) encodeSPI(mask, value *prm.MatchParam, m, v *prm.MatchLayer24, inner bool) error {
	if h.SPI.Mask == 0 {
		return nil
	}
	if h.Protocol != Exactly[uint8](protocolESP) && h.Protocol != Exactly[uint8](protocolAH) {
		return errors.New("a match of an SPI needs protocol ESP or AH")
	}
	m.Frag, v.Frag = true, h.Fragment == Yes
	if inner {
		mask.Misc.InnerESPSPI, value.Misc.InnerESPSPI = h.SPI.fields()
	} else {
		mask.Misc.OuterESPSPI, value.Misc.OuterESPSPI = h.SPI.fields()
	}
	return nil
}

func (h *Headers) encodeICMP(mask, value *prm.MatchParam, m, v *prm.MatchLayer24, inner bool) error {
	if h.ICMPType.Mask == 0 && h.ICMPCode.Mask == 0 {
		return nil
	}
	m.Frag, v.Frag = true, h.Fragment == Yes
	m3, v3 := &mask.Misc3, &value.Misc3
	switch {
	case inner:
		return errors.New("ICMP in a tunnel can't be told apart")
	case h.Protocol == Exactly[uint8](protocolICMP):
		m3.ICMPType, v3.ICMPType = h.ICMPType.fields()
		m3.ICMPCode, v3.ICMPCode = h.ICMPCode.fields()
	case h.Protocol == Exactly[uint8](protocolICMPv6):
		m3.ICMPv6Type, v3.ICMPv6Type = h.ICMPType.fields()
		m3.ICMPv6Code, v3.ICMPv6Code = h.ICMPCode.fields()
	default:
		return errors.New("a match of ICMP type or code needs protocol ICMP or ICMPv6")
	}
	return nil
}

// kinds counts the kinds of tunnels that are matched.
func (t *Tunnelled) kinds() (n int) {
	for _, used := range []bool{
		t.VNI.Mask != 0, t.GREKey.Mask != 0 || t.GREProtocol.Mask != 0, t.GENEVEVNI.Mask != 0, t.GPEVNI.Mask != 0, t.TEID.Mask != 0,
	} {
		if used {
			n++
		}
	}
	return n
}

// encodeMore writes what cards of today match of tunnels beyond VXLAN and GRE, and what they are known by.
func (t *Tunnelled) encodeMore(mask, value *prm.MatchParam, outer *Headers) (err error) {
	var port uint16
	mm, mv, m3, v3 := &mask.Misc, &value.Misc, &mask.Misc3, &value.Misc3
	switch {
	case t.VNI.Mask != 0:
		port = portVXLAN
	case t.GENEVEVNI.Mask != 0:
		port = portGENEVE
		mm.GeneveVNI, mv.GeneveVNI, err = wide("GENEVE VNI", t.GENEVEVNI, 24)
	case t.GPEVNI.Mask != 0:
		port = portGPE
		m3.OuterVXLANGPEVNI, v3.OuterVXLANGPEVNI, err = wide("VXLAN-GPE VNI", t.GPEVNI, 24)
	case t.TEID.Mask != 0:
		port = portGTPU
		m3.GTPUTEID, v3.GTPUTEID = t.TEID.fields()
	}
	if err != nil {
		return err
	}
	label, l, err := wide("MPLS label in a tunnel", t.MPLS, 20)
	if err != nil {
		return err
	}
	m2, v2 := &mask.Misc2, &value.Misc2
	switch {
	case label == 0:
	case outer.Protocol == Exactly[uint8](protocolGRE):
		imply(&mm.GREProtocol, &mv.GREProtocol, typeMPLS)
		m2.OuterFirstMPLSOverGRE.Label, v2.OuterFirstMPLSOverGRE.Label = label, l
	case outer.Protocol == Exactly[uint8](protocolUDP) && t.kinds() == 0:
		port = portMPLS
		m2.OuterFirstMPLSOverUDP.Label, v2.OuterFirstMPLSOverUDP.Label = label, l
	default:
		return errors.New("MPLS in a tunnel needs protocol GRE, or UDP and no other tunnel")
	}
	if port != 0 {
		imply(&mask.Outer.UDPDPort, &value.Outer.UDPDPort, port)
	}
	return nil
}

// lackingMore names the first field of a mask, of those that this file writes, that the card can't match.
func lackingMore(m *prm.MatchParam, can *prm.FlowTableFields, parsers uint32) string {
	const labelBits = 1 << 3 // of label, class, bottom of stack and TTL
	c, c2, c3 := &m.Misc, &m.Misc2, &m.Misc3
	for _, f := range []struct {
		asked, there bool
		what         string
	}{
		{c.OuterSecondVID != 0 || c.OuterSecondCVLANTag || c.OuterSecondSVLANTag, can.OuterSecondVID, "second VLAN"},
		{c.InnerSecondVID != 0 || c.InnerSecondCVLANTag || c.InnerSecondSVLANTag, can.InnerSecondVID, "inner second VLAN"},
		{c.OuterSecondPrio != 0, can.OuterSecondPrio, "second VLAN's priority"},
		{c.InnerSecondPrio != 0, can.InnerSecondPrio, "inner second VLAN's priority"},
		{c.OuterESPSPI != 0 || c.InnerESPSPI != 0, can.OuterESPSPI, "SPI"},
		{c.GeneveVNI != 0, can.OuterGeneveVNI, "GENEVE VNI"},
		{c2.OuterFirstMPLS.Label != 0, can.OuterFirstMPLS&labelBits != 0, "MPLS label"},
		{c2.InnerFirstMPLS.Label != 0, can.InnerFirstMPLS&labelBits != 0, "inner MPLS label"},
		{c2.OuterFirstMPLSOverGRE.Label != 0, can.OuterFirstMPLSOverGRE&labelBits != 0, "MPLS label in GRE"},
		{c2.OuterFirstMPLSOverUDP.Label != 0, can.OuterFirstMPLSOverUDP&labelBits != 0, "MPLS label in UDP"},
		{c3.OuterVXLANGPEVNI != 0, parsers&parserGPE != 0, "VXLAN-GPE VNI"},
		{c3.GTPUTEID != 0, parsers&parserTEID != 0, "GTP-U TEID"},
		{c3.ICMPType != 0 || c3.ICMPCode != 0, parsers&parserICMP != 0, "ICMP type and code"},
		{c3.ICMPv6Type != 0 || c3.ICMPv6Code != 0, parsers&parserICMPv6 != 0, "ICMPv6 type and code"},
	} {
		if f.asked && !f.there {
			return f.what
		}
	}
	return ""
}

// Bits of flex_parser_protocols (Linux mlx5_ifc.h, MLX5_FLEX_PARSER_*).
const (
	parserGPE    = 1 << 7
	parserICMP   = 1 << 8
	parserICMPv6 = 1 << 9
	parserTEID   = 1 << 19
)
