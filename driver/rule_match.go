package driver

import (
	"errors"
	"fmt"
	"net/netip"

	"cxkit/prm"
)

// Match is which frames a rule is for. The zero value of every part matches anything.
type Match struct {
	// Headers are the outermost headers.
	Headers Headers
	// Tunnel is a tunnel's header behind them, Inner the headers in there. Inner needs a tunnel that the card
	// looks into: VXLAN to UDP port 4789, GRE, or IP in IP; from ConnectX-5 on GENEVE and VXLAN-GPE, too.
	Tunnel Tunnelled
	Inner  Headers
}

// Headers are Ethernet to transport headers of a frame.
type Headers struct {
	DstMAC, SrcMAC MaskedMAC
	// Tag is how the frame is tagged. VLAN (12 bits) and VLANPriority (3 bits) are the outermost tag's.
	Tag          TagKind
	VLAN         Masked[uint16]
	VLANPriority Masked[uint8]
	// SecondTag is how the frame is tagged behind the outermost tag: Untagged has one tag at most.
	// SecondVLAN and SecondVLANPriority are the second tag's.
	SecondTag          TagKind
	SecondVLAN         Masked[uint16]
	SecondVLANPriority Masked[uint8]
	// MPLS is the first label (20 bits) behind the Ethernet header. Nothing behind labels is matched.
	MPLS Masked[uint32]
	// EtherType is that behind all tags.
	EtherType Masked[uint16]

	// IPVersion is 4 or 6; 0 is any. Prefixes and what is below imply it where they can.
	IPVersion    uint8
	SrcIP, DstIP netip.Prefix
	Protocol     Masked[uint8]
	DSCP, ECN    Masked[uint8] // 6 and 2 bits
	TTL          Masked[uint8] // or hop limit
	Fragment     Tri
	// FlowLabel is IPv6's, 20 bits: it wants an IPVersion of 6, or such addresses.
	FlowLabel Masked[uint32]
	// SPI is IPsec's: it wants an exact Protocol of 50 or 51.
	SPI Masked[uint32]
	// ICMPType and ICMPCode want an exact Protocol of 1 (ICMP) or 58 (ICMPv6), and no tunnel around it.
	ICMPType, ICMPCode Masked[uint8]

	// SrcPort and DstPort are TCP's or UDP's: they want an exact Protocol of 6 or 17.
	SrcPort, DstPort Masked[uint16]
	TCPFlags         Masked[uint16] // 9 bits: FIN is bit 0
}

// Tunnelled is what of a tunnel is matched: one kind. It wants an exact Protocol of 47 for GRE and of 17 for the
// others, which are known by their UDP ports: those are matched unless DstPort says something else.
type Tunnelled struct {
	VNI         Masked[uint32] // VXLAN's, 24 bits; UDP port 4789
	GREProtocol Masked[uint16]
	GREKey      Masked[uint32]
	GENEVEVNI   Masked[uint32] // 24 bits; UDP port 6081
	GPEVNI      Masked[uint32] // VXLAN-GPE's, 24 bits; UDP port 4790
	TEID        Masked[uint32] // GTP-U's; UDP port 2152
	MPLS        Masked[uint32] // the first label (20 bits) in GRE or in UDP (port 6635)
}

// Masked is a value of which the bits in Mask matter; without any the field matters not.
type Masked[T uint8 | uint16 | uint32] struct{ Value, Mask T }

// Exactly matches one value.
func Exactly[T uint8 | uint16 | uint32](v T) Masked[T] { return Masked[T]{v, ^T(0)} }

// MaskedMAC is an address of which the bits in Mask matter.
type MaskedMAC struct{ Address, Mask MAC }

// ExactlyMAC matches one address.
func ExactlyMAC(m MAC) MaskedMAC {
	return MaskedMAC{m, MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}
}

// TagKind is a kind of VLAN tag.
type TagKind uint8

const (
	// AnyTag takes frames with and without tags, but for what VLAN and VLANPriority say.
	AnyTag TagKind = iota
	// Untagged, CTagged and STagged take frames without tag, with an 802.1Q and with an 802.1ad tag.
	Untagged
	CTagged
	STagged
)

// Tri is a question that may be left open.
type Tri uint8

const (
	Either Tri = iota
	No
	Yes
)

// version is the IP version of the frames, 0 if they are of both or none.
func (h *Headers) version() uint8 {
	for _, p := range []netip.Prefix{h.SrcIP, h.DstIP} {
		if p.IsValid() {
			if p.Addr().Is4() {
				return 4
			}
			return 6
		}
	}
	switch {
	case h.IPVersion != 0:
		return h.IPVersion
	case h.EtherType == Exactly[uint16](typeIPv4):
		return 4
	case h.EtherType == Exactly[uint16](typeIPv6):
		return 6
	}
	return 0
}

// protocol is the exact protocol of the frames, 0 if there is none. Frames behind extension headers or
// fragments may be of it, too, so that a direct way is there for TCP and UDP alone.
func (h *Headers) protocol() uint8 {
	if h.Protocol.Mask == 0xff && (h.Protocol.Value == protocolTCP || h.Protocol.Value == protocolUDP) {
		return h.Protocol.Value
	}
	return 0
}

// encode writes the match as groups and entries have it.
func (m *Match) encode(mask, value *prm.MatchParam) (enable prm.MatchCriteria, err error) {
	if err := m.Headers.encode(&mask.Outer, &value.Outer); err != nil {
		return 0, err
	}
	if err := m.Inner.encode(&mask.Inner, &value.Inner); err != nil {
		return 0, fmt.Errorf("inner headers: %w", err)
	}
	t := &m.Tunnel
	if err := t.check(&m.Headers); err != nil {
		return 0, err
	}
	if err := m.Headers.encodeMore(mask, value, false); err != nil {
		return 0, err
	}
	if err := m.Inner.encodeMore(mask, value, true); err != nil {
		return 0, fmt.Errorf("inner headers: %w", err)
	}
	mask.Misc.VXLANVNI, value.Misc.VXLANVNI = t.VNI.Mask&0xffffff, t.VNI.Value&t.VNI.Mask&0xffffff
	mask.Misc.GREProtocol, value.Misc.GREProtocol = t.GREProtocol.fields()
	mask.Misc.GREKey, value.Misc.GREKey = t.GREKey.fields()
	if t.GREKey.Mask != 0 {
		mask.Misc.GREKPresent, value.Misc.GREKPresent = true, true
	}
	if err := t.encodeMore(mask, value, &m.Headers); err != nil {
		return 0, err
	}
	for _, part := range []struct {
		used bool
		bit  prm.MatchCriteria
	}{
		{mask.Outer != prm.MatchLayer24{}, prm.MatchOuterHeaders}, {mask.Misc != prm.MatchMisc{}, prm.MatchMiscParameters},
		{mask.Inner != prm.MatchLayer24{}, prm.MatchInnerHeaders},
		{mask.Misc2 != prm.MatchMisc2{}, prm.MatchMiscParameters2}, {mask.Misc3 != prm.MatchMisc3{}, prm.MatchMiscParameters3},
	} {
		if part.used {
			enable |= part.bit
		}
	}
	return enable, nil
}

// check tells whether the outer headers lead to such a tunnel.
func (t *Tunnelled) check(outer *Headers) error {
	gre := t.GREKey.Mask != 0 || t.GREProtocol.Mask != 0
	switch {
	case t.kinds() > 1:
		return errors.New("a tunnel is of one kind: VXLAN, GRE, GENEVE, VXLAN-GPE or GTP-U")
	case (t.GENEVEVNI.Mask != 0 || t.GPEVNI.Mask != 0 || t.TEID.Mask != 0) && outer.Protocol != Exactly[uint8](protocolUDP):
		return errors.New("a match of a tunnel in UDP needs protocol UDP")
	case t.VNI.Mask > 0xffffff && t.VNI.Mask != ^uint32(0) || t.VNI.Value&t.VNI.Mask > 0xffffff:
		return fmt.Errorf("VNI %#x: 24 bits", t.VNI.Value)
	case t.VNI.Mask != 0 && outer.Protocol != Exactly[uint8](protocolUDP):
		return errors.New("a match of a VNI needs protocol UDP")
	case gre && outer.Protocol != Exactly[uint8](protocolGRE):
		return errors.New("a match of a GRE header needs protocol GRE")
	}
	return nil
}

// fields are mask and value as the card has them.
func (m Masked[T]) fields() (mask, value T) { return m.Mask, m.Value & m.Mask }

// narrow checks a field of fewer bits than its type and returns mask and value.
func narrow[T uint8 | uint16](what string, m Masked[T], bits int) (mask, value T, err error) {
	most := T(1)<<bits - 1
	if m.Value&m.Mask > most {
		return 0, 0, fmt.Errorf("%s %#x: %d bits", what, m.Value&m.Mask, bits)
	}
	return m.Mask & most, m.Value & m.Mask, nil
}

// encode writes headers into a mask and a value.
func (h *Headers) encode(mask, value *prm.MatchLayer24) (err error) {
	mask.DMAC, mask.SMAC = h.DstMAC.Mask, h.SrcMAC.Mask
	for i := range mask.DMAC {
		value.DMAC[i] = h.DstMAC.Address[i] & h.DstMAC.Mask[i]
		value.SMAC[i] = h.SrcMAC.Address[i] & h.SrcMAC.Mask[i]
	}
	if err := h.encodeTag(mask, value); err != nil {
		return err
	}
	mask.Ethertype, value.Ethertype = h.EtherType.fields()
	if err := h.encodeIP(mask, value); err != nil {
		return err
	}
	return h.encodePorts(mask, value)
}

func (h *Headers) encodeTag(mask, value *prm.MatchLayer24) (err error) {
	if mask.FirstVID, value.FirstVID, err = narrow("VLAN", h.VLAN, 12); err != nil {
		return err
	}
	if mask.FirstPrio, value.FirstPrio, err = narrow("VLAN priority", h.VLANPriority, 3); err != nil {
		return err
	}
	kind := h.Tag
	if kind == AnyTag && (h.VLAN.Mask != 0 || h.VLANPriority.Mask != 0) {
		kind = CTagged // a VLAN is one of 802.1Q, unless it says otherwise
	}
	switch kind {
	case AnyTag:
	case Untagged:
		if h.VLAN.Mask != 0 || h.VLANPriority.Mask != 0 {
			return errors.New("an untagged frame has no VLAN")
		}
		mask.CVLANTag = true // with value 0: of neither kind
	case CTagged:
		mask.CVLANTag, value.CVLANTag = true, true
	case STagged:
		mask.SVLANTag, value.SVLANTag = true, true
	default:
		return fmt.Errorf("tag kind %d", kind)
	}
	return nil
}

func (h *Headers) encodeIP(mask, value *prm.MatchLayer24) (err error) {
	if h.IPVersion != 0 && h.IPVersion != 4 && h.IPVersion != 6 {
		return fmt.Errorf("IP version %d", h.IPVersion)
	}
	version := h.version()
	if h.IPVersion != 0 && version != h.IPVersion {
		return fmt.Errorf("IP version %d with addresses of version %d", h.IPVersion, version)
	}
	for _, p := range []struct {
		prefix      netip.Prefix
		mask, value *[16]byte
	}{{h.SrcIP, &mask.SrcIPv6, &value.SrcIPv6}, {h.DstIP, &mask.DstIPv6, &value.DstIPv6}} {
		if !p.prefix.IsValid() {
			continue
		}
		if a := p.prefix.Addr(); a.Is4() != (version == 4) || a.Is4In6() {
			return fmt.Errorf("addresses %v and %v are of two kinds", h.SrcIP, h.DstIP)
		}
		prefixFields(p.prefix, p.mask, p.value)
	}
	if version != 0 {
		mask.IPVersion, value.IPVersion = 0xf, version
	}
	mask.IPProtocol, value.IPProtocol = h.Protocol.fields()
	if mask.IPDSCP, value.IPDSCP, err = narrow("DSCP", h.DSCP, 6); err != nil {
		return err
	}
	if mask.IPECN, value.IPECN, err = narrow("ECN", h.ECN, 2); err != nil {
		return err
	}
	mask.TTLHoplimit, value.TTLHoplimit = h.TTL.fields()
	switch h.Fragment {
	case Either:
	case No, Yes:
		mask.Frag, value.Frag = true, h.Fragment == Yes
	default:
		return fmt.Errorf("fragment %d", h.Fragment)
	}
	return nil
}

// prefixFields writes a prefix; IPv4 addresses are the last four bytes.
func prefixFields(p netip.Prefix, mask, value *[16]byte) {
	address := p.Masked().Addr().AsSlice()
	at := 16 - len(address)
	copy(value[at:], address)
	for i := range p.Bits() {
		mask[at+i/8] |= 0x80 >> (i % 8)
	}
}

func (h *Headers) encodePorts(mask, value *prm.MatchLayer24) (err error) {
	tcp, udp := h.Protocol == Exactly[uint8](protocolTCP), h.Protocol == Exactly[uint8](protocolUDP)
	switch {
	case (h.SrcPort.Mask != 0 || h.DstPort.Mask != 0) && !tcp && !udp:
		return errors.New("ports need protocol TCP or UDP")
	case h.TCPFlags.Mask != 0 && !tcp:
		return errors.New("TCP flags need protocol TCP")
	}
	if mask.TCPFlags, value.TCPFlags, err = narrow("TCP flags", h.TCPFlags, 9); err != nil {
		return err
	}
	if udp {
		mask.UDPSPort, value.UDPSPort = h.SrcPort.fields()
		mask.UDPDPort, value.UDPDPort = h.DstPort.fields()
		return nil
	}
	mask.TCPSPort, value.TCPSPort = h.SrcPort.fields()
	mask.TCPDPort, value.TCPDPort = h.DstPort.fields()
	return nil
}

// lacking names the first field of a mask that the card cannot match, "" if there is none.
func lacking(m *prm.MatchParam, can *prm.FlowTableFields) string {
	o, i := &m.Outer, &m.Inner
	none16, noneMAC := [16]byte{}, [6]byte{}
	for _, f := range []struct {
		asked, there bool
		what         string
	}{
		{o.DMAC != noneMAC, can.OuterDMAC, "destination address"}, {i.DMAC != noneMAC, can.InnerDMAC, "inner destination address"},
		{o.SMAC != noneMAC, can.OuterSMAC, "source address"}, {i.SMAC != noneMAC, can.InnerSMAC, "inner source address"},
		{o.FirstVID != 0 || o.CVLANTag || o.SVLANTag, can.OuterFirstVID, "VLAN"}, {i.FirstVID != 0 || i.CVLANTag || i.SVLANTag, can.InnerFirstVID, "inner VLAN"},
		{o.FirstPrio != 0, can.OuterFirstPrio, "VLAN priority"}, {i.FirstPrio != 0, can.InnerFirstPrio, "inner VLAN priority"},
		{o.Ethertype != 0, can.OuterEtherType, "EtherType"}, {i.Ethertype != 0, can.InnerEtherType, "inner EtherType"},
		{o.IPVersion != 0, can.OuterIPVersion, "IP version"}, {i.IPVersion != 0, can.InnerIPVersion, "inner IP version"},
		{o.SrcIPv6 != none16, can.OuterSIP, "source IP address"}, {i.SrcIPv6 != none16, can.InnerSIP, "inner source IP address"},
		{o.DstIPv6 != none16, can.OuterDIP, "destination IP address"}, {i.DstIPv6 != none16, can.InnerDIP, "inner destination IP address"},
		{o.IPProtocol != 0, can.OuterIPProtocol, "IP protocol"}, {i.IPProtocol != 0, can.InnerIPProtocol, "inner IP protocol"},
		{o.IPDSCP != 0, can.OuterIPDSCP, "DSCP"}, {i.IPDSCP != 0, can.InnerIPDSCP, "inner DSCP"},
		{o.IPECN != 0, can.OuterIPECN, "ECN"}, {i.IPECN != 0, can.InnerIPECN, "inner ECN"},
		{o.TTLHoplimit != 0, can.OuterIPv4TTL, "TTL"}, {i.TTLHoplimit != 0, false, "inner TTL"},
		{o.Frag, can.OuterFrag, "fragments"}, {i.Frag, can.InnerFrag, "inner fragments"},
		{o.TCPSPort != 0, can.OuterTCPSPort, "TCP source port"}, {i.TCPSPort != 0, can.InnerTCPSPort, "inner TCP source port"},
		{o.TCPDPort != 0, can.OuterTCPDPort, "TCP destination port"}, {i.TCPDPort != 0, can.InnerTCPDPort, "inner TCP destination port"},
		{o.UDPSPort != 0, can.OuterUDPSPort, "UDP source port"}, {i.UDPSPort != 0, can.InnerUDPSPort, "inner UDP source port"},
		{o.UDPDPort != 0, can.OuterUDPDPort, "UDP destination port"}, {i.UDPDPort != 0, can.InnerUDPDPort, "inner UDP destination port"},
		{o.TCPFlags != 0, can.OuterTCPFlags, "TCP flags"}, {i.TCPFlags != 0, can.InnerTCPFlags, "inner TCP flags"},
		{m.Misc.VXLANVNI != 0, can.OuterVXLANVNI, "VXLAN VNI"}, {m.Misc.GREKey != 0, can.OuterGREKey, "GRE key"},
		{m.Misc.GREProtocol != 0, can.OuterGREProtocol, "GRE protocol"},
	} {
		if f.asked && !f.there {
			return f.what
		}
	}
	return ""
}
