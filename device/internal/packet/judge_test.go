package packet

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"cxkit/prm"
)

// judgedFrame makes a frame of random layers: tags, MPLS, IPv4 and IPv6, TCP, UDP, ICMP, ESP, fragments, and tunnels
// that carry frames and packets.
type judgedFrame struct {
	rnd   *rand.Rand
	list  []gopacket.SerializableLayer
	ip    gopacket.NetworkLayer // the last one
	depth int
}

func (f *judgedFrame) random(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(f.rnd.Uint32())
	}
	return b
}

func (f *judgedFrame) add(l gopacket.SerializableLayer) { f.list = append(f.list, l) }

// ethernet adds an Ethernet header, tags, and what they carry.
func (f *judgedFrame) ethernet() {
	eth := &layers.Ethernet{SrcMAC: f.random(6), DstMAC: f.random(6)}
	f.add(eth)
	next := &eth.EthernetType
	for i := range f.rnd.IntN(3) {
		*next = layers.EthernetTypeDot1Q
		if i == 0 && f.rnd.IntN(2) == 0 {
			*next = layers.EthernetTypeQinQ
		}
		tag := &layers.Dot1Q{Priority: uint8(f.rnd.IntN(8)), DropEligible: f.rnd.IntN(2) == 0, VLANIdentifier: uint16(f.rnd.IntN(4096))}
		f.add(tag)
		next = &tag.Type
	}
	switch n := f.rnd.IntN(10); {
	case n == 0:
		*next = layers.EthernetTypeMPLSUnicast
		f.mpls()
	case n == 1:
		*next = 0x88b5
		f.add(gopacket.Payload(f.random(50)))
	case n < 6:
		*next = layers.EthernetTypeIPv4
		f.network(false)
	default:
		*next = layers.EthernetTypeIPv6
		f.network(true)
	}
}

func (f *judgedFrame) mpls() {
	for i := range 2 {
		f.add(&layers.MPLS{Label: f.rnd.Uint32() & 0xfffff, TrafficClass: uint8(f.rnd.IntN(8)), StackBottom: i == 1, TTL: uint8(f.rnd.Uint32())})
	}
	f.network(false)
}

// network adds an IP header and what it carries.
func (f *judgedFrame) network(v6 bool) {
	kinds := []layers.IPProtocol{layers.IPProtocolTCP, layers.IPProtocolUDP, layers.IPProtocolESP, layers.IPProtocolICMPv4, 253}
	if f.depth == 0 {
		kinds = append(kinds, layers.IPProtocolUDP, layers.IPProtocolUDP, layers.IPProtocolGRE, layers.IPProtocolIPv4, layers.IPProtocolIPv6)
	}
	protocol := kinds[f.rnd.IntN(len(kinds))]
	fragment := !v6 && f.rnd.IntN(8) == 0
	if v6 {
		if protocol == layers.IPProtocolICMPv4 {
			protocol = layers.IPProtocolICMPv6
		}
		ip := &layers.IPv6{Version: 6, TrafficClass: uint8(f.rnd.Uint32()), FlowLabel: f.rnd.Uint32() & 0xfffff, HopLimit: uint8(f.rnd.Uint32()),
			NextHeader: protocol, SrcIP: net.IP(f.random(16)), DstIP: net.IP(f.random(16))}
		f.add(ip)
		f.ip = ip
	} else {
		ip := &layers.IPv4{Version: 4, TOS: uint8(f.rnd.Uint32()), TTL: uint8(f.rnd.Uint32()), Protocol: protocol,
			SrcIP: net.IP(f.random(4)), DstIP: net.IP(f.random(4))}
		for range f.rnd.IntN(3) {
			ip.Options = append(ip.Options, layers.IPv4Option{OptionType: 148, OptionLength: 4, OptionData: f.random(2)})
		}
		if fragment {
			ip.Flags, ip.FragOffset = layers.IPv4MoreFragments, uint16(f.rnd.IntN(2)*8)
		}
		f.add(ip)
		f.ip = ip
	}
	f.transport(protocol)
}

func (f *judgedFrame) transport(protocol layers.IPProtocol) {
	switch protocol {
	case layers.IPProtocolTCP:
		c := &layers.TCP{SrcPort: layers.TCPPort(f.rnd.Uint32()), DstPort: layers.TCPPort(f.rnd.Uint32()), Seq: f.rnd.Uint32(), Ack: f.rnd.Uint32(),
			SYN: f.rnd.IntN(2) == 0, ACK: f.rnd.IntN(2) == 0, RST: f.rnd.IntN(2) == 0, NS: f.rnd.IntN(2) == 0, CWR: f.rnd.IntN(2) == 0}
		_ = c.SetNetworkLayerForChecksum(f.ip)
		f.add(c)
		f.add(gopacket.Payload(f.random(f.rnd.IntN(9))))
	case layers.IPProtocolUDP:
		f.udp()
	case layers.IPProtocolICMPv4:
		f.add(&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(uint8(f.rnd.Uint32()), uint8(f.rnd.Uint32())), Id: uint16(f.rnd.Uint32()), Seq: uint16(f.rnd.Uint32())})
	case layers.IPProtocolICMPv6:
		c := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(uint8(1+f.rnd.IntN(4)), uint8(f.rnd.Uint32()))}
		_ = c.SetNetworkLayerForChecksum(f.ip)
		f.add(c)
		f.add(gopacket.Payload(f.random(20)))
	case layers.IPProtocolGRE:
		f.depth++
		g := &layers.GRE{ChecksumPresent: f.rnd.IntN(2) == 0, KeyPresent: f.rnd.IntN(2) == 0, SeqPresent: f.rnd.IntN(2) == 0, Key: f.rnd.Uint32(), Seq: f.rnd.Uint32()}
		f.add(g)
		f.carry(&g.Protocol)
	case layers.IPProtocolIPv4:
		f.depth++
		f.network(false)
	case layers.IPProtocolIPv6:
		f.depth++
		f.network(true)
	default:
		f.add(gopacket.Payload(f.random(40)))
	}
}

// carry adds what a tunnel carries and says what it is.
func (f *judgedFrame) carry(protocol *layers.EthernetType) {
	switch f.rnd.IntN(4) {
	case 0:
		*protocol = layers.EthernetTypeIPv4
		f.network(false)
	case 1:
		*protocol = layers.EthernetTypeIPv6
		f.network(true)
	case 2:
		*protocol = layers.EthernetTypeMPLSUnicast
		f.mpls()
	default:
		*protocol = layers.EthernetTypeTransparentEthernetBridging
		f.ethernet()
	}
}

func (f *judgedFrame) udp() {
	u := &layers.UDP{SrcPort: layers.UDPPort(20_000 + f.rnd.IntN(1000)), DstPort: layers.UDPPort(30_000 + f.rnd.IntN(1000))}
	_ = u.SetNetworkLayerForChecksum(f.ip)
	f.add(u)
	kind := f.rnd.IntN(8)
	if f.depth > 0 {
		kind = 7
	}
	f.depth++
	switch kind {
	case 0:
		u.DstPort = 4789
		f.add(&layers.VXLAN{ValidIDFlag: true, VNI: f.rnd.Uint32() & 0xffffff, GBPExtension: f.rnd.IntN(2) == 0, GBPGroupPolicyID: uint16(f.rnd.Uint32())})
		f.ethernet()
	case 1:
		u.DstPort = 6081
		g := &layers.Geneve{OAMPacket: f.rnd.IntN(2) == 0, VNI: f.rnd.Uint32() & 0xffffff}
		for range f.rnd.IntN(3) {
			g.Options = append(g.Options, &layers.GeneveOption{Class: 0x102, Type: 7, Length: 8, Data: f.random(4)})
		}
		f.add(g)
		f.carry(&g.Protocol)
	case 2: // gopacket does not know VXLAN-GPE: flags I and P, next protocol Ethernet or nothing known
		u.DstPort = 4790
		next := byte(3 + 4*f.rnd.IntN(2))
		f.add(gopacket.Payload(append([]byte{0x0c | byte(f.rnd.IntN(2)), 0, 0, next}, f.random(4)...)))
		if next == 3 {
			f.ethernet()
		}
	case 3:
		u.DstPort = 2152
		f.add(&layers.GTPv1U{Version: 1, ProtocolType: 1, SequenceNumberFlag: f.rnd.IntN(2) == 0, MessageType: uint8(f.rnd.Uint32()), TEID: f.rnd.Uint32(),
			SequenceNumber: uint16(f.rnd.Uint32())})
		f.add(gopacket.Payload(f.random(4)))
	case 4: // nor MPLS in UDP
		u.DstPort = 6635
		f.add(gopacket.Payload(f.random(8)))
	default:
		f.add(gopacket.Payload(f.random(f.rnd.IntN(30))))
	}
}

// judge writes what gopacket finds in a frame as fte_match_param has it.
type judge struct {
	p   prm.MatchParam
	at  *prm.MatchLayer24
	eth int
	ip  int
}

func (j *judge) inner() bool { return j.at == &j.p.Inner }

// judgeFrame fills in layers until one that the card reads nothing behind.
func (j *judge) judgeFrame(b []byte) {
	j.at = &j.p.Outer
	j.walk(gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.Default).Layers())
}

func (j *judge) walk(all []gopacket.Layer) {
	for i, l := range all {
		switch l := l.(type) {
		case *layers.Ethernet:
			if j.eth++; j.eth == 2 {
				j.at, j.ip = &j.p.Inner, 1
			}
			copy(j.at.DMAC[:], l.DstMAC)
			copy(j.at.SMAC[:], l.SrcMAC)
			j.at.Ethertype = uint16(l.EthernetType)
		case *layers.Dot1Q:
			j.tag(l, j.at.Ethertype)
		case *layers.MPLS:
			j.label(all[i-1], l)
			return
		case *layers.IPv4:
			j.packet(4, l.SrcIP, l.DstIP, l.TOS, l.TTL, uint8(l.Protocol))
			j.at.IPv4IHL = l.IHL
			if l.Flags&layers.IPv4MoreFragments != 0 || l.FragOffset != 0 {
				j.at.Frag = true
				return
			}
		case *layers.IPv6:
			j.packet(6, l.SrcIP, l.DstIP, l.TrafficClass, l.HopLimit, uint8(l.NextHeader))
			if j.inner() {
				j.p.Misc.InnerIPv6FlowLabel = l.FlowLabel
			} else {
				j.p.Misc.OuterIPv6FlowLabel = l.FlowLabel
			}
		case *layers.TCP:
			j.tcp(l)
			return
		case *layers.UDP:
			j.at.L4Type, j.at.UDPSPort, j.at.UDPDPort = 2, uint16(l.SrcPort), uint16(l.DstPort)
			if j.inner() {
				return
			}
			switch l.DstPort {
			case 4790:
				j.gpe(l.Payload)
				return
			case 6635:
				j.p.Misc2.OuterFirstMPLSOverUDP = labelOf(binary.BigEndian.Uint32(l.Payload))
				return
			}
		case *layers.ICMPv4:
			if !j.inner() {
				m := &j.p.Misc3
				m.ICMPType, m.ICMPCode, m.ICMPHeaderData = l.TypeCode.Type(), l.TypeCode.Code(), uint32(l.Id)<<16|uint32(l.Seq)
			}
			return
		case *layers.ICMPv6:
			if !j.inner() {
				m := &j.p.Misc3
				m.ICMPv6Type, m.ICMPv6Code, m.ICMPv6HeaderData = l.TypeCode.Type(), l.TypeCode.Code(), binary.BigEndian.Uint32(l.Payload)
			}
			return
		case *layers.IPSecESP:
			if j.inner() {
				j.p.Misc.InnerESPSPI = l.SPI
			} else {
				j.p.Misc.OuterESPSPI = l.SPI
			}
			return
		case *layers.VXLAN:
			j.p.Misc.VXLANVNI = l.VNI
			j.p.Misc5.TunnelHeader0, j.p.Misc5.TunnelHeader1 = binary.BigEndian.Uint32(l.Contents), binary.BigEndian.Uint32(l.Contents[4:])
		case *layers.Geneve:
			m := &j.p.Misc
			m.GeneveVNI, m.GeneveOAM, m.GeneveOptLen, m.GeneveProtocolType = l.VNI, l.OAMPacket, l.OptionsLength/4, uint16(l.Protocol)
			if l.Protocol == layers.EthernetTypeMPLSUnicast {
				return // read by nobody
			}
		case *layers.GRE:
			if j.inner() {
				return
			}
			m := &j.p.Misc
			m.GREProtocol, m.GRECPresent, m.GREKPresent, m.GRESPresent, m.GREKey = uint16(l.Protocol), l.ChecksumPresent, l.KeyPresent, l.SeqPresent, l.Key
		case *layers.GTPv1U:
			m, h := &j.p.Misc3, l.Contents
			m.GTPUTEID, m.GTPUMsgType, m.GTPUMsgFlags, m.GTPUDW0 = l.TEID, l.MessageType, h[0], binary.BigEndian.Uint32(h)
			if l.SequenceNumberFlag {
				m.GTPUDW2 = uint32(l.SequenceNumber)<<16 | uint32(l.NPDU)<<8
			}
			return
		}
	}
}

func (j *judge) tag(l *layers.Dot1Q, kind uint16) {
	j.at.Ethertype = uint16(l.Type)
	m := &j.p.Misc
	if !j.at.CVLANTag && !j.at.SVLANTag {
		j.at.FirstPrio, j.at.FirstCFI, j.at.FirstVID = l.Priority, l.DropEligible, l.VLANIdentifier
		j.at.CVLANTag, j.at.SVLANTag = kind == 0x8100, kind == 0x88a8
	} else if j.inner() {
		m.InnerSecondPrio, m.InnerSecondCFI, m.InnerSecondVID, m.InnerSecondCVLANTag = l.Priority, l.DropEligible, l.VLANIdentifier, true
	} else {
		m.OuterSecondPrio, m.OuterSecondCFI, m.OuterSecondVID, m.OuterSecondCVLANTag = l.Priority, l.DropEligible, l.VLANIdentifier, true
	}
}

func labelOf(w uint32) prm.MPLSLabel {
	return prm.MPLSLabel{Label: w >> 12, Exp: uint8(w >> 9 & 7), SBOS: w>>8&1 != 0, TTL: uint8(w)}
}

func (j *judge) label(before gopacket.Layer, l *layers.MPLS) {
	to, m := &j.p.Misc2.OuterFirstMPLS, &j.p.Misc2
	switch _, gre := before.(*layers.GRE); {
	case gre:
		to = &m.OuterFirstMPLSOverGRE
	case j.inner():
		to = &m.InnerFirstMPLS
	}
	*to = prm.MPLSLabel{Label: l.Label, Exp: l.TrafficClass, SBOS: l.StackBottom, TTL: l.TTL}
}

func (j *judge) packet(version uint8, src, dst net.IP, tos, ttl, protocol uint8) {
	if j.ip++; j.ip == 2 && !j.inner() {
		j.at = &j.p.Inner
		j.at.Ethertype = map[uint8]uint16{4: 0x0800, 6: 0x86dd}[version]
	}
	copy(j.at.SrcIPv6[16-len(src):], src)
	copy(j.at.DstIPv6[16-len(dst):], dst)
	j.at.IPVersion, j.at.IPDSCP, j.at.IPECN, j.at.TTLHoplimit, j.at.IPProtocol = version, tos>>2, tos&3, ttl, protocol
}

func (j *judge) tcp(l *layers.TCP) {
	j.at.L4Type, j.at.TCPSPort, j.at.TCPDPort = 1, uint16(l.SrcPort), uint16(l.DstPort)
	for i, on := range []bool{l.FIN, l.SYN, l.RST, l.PSH, l.ACK, l.URG, l.ECE, l.CWR, l.NS} {
		if on {
			j.at.TCPFlags |= 1 << i
		}
	}
	if j.inner() {
		j.p.Misc3.InnerTCPSeqNum, j.p.Misc3.InnerTCPAckNum = l.Seq, l.Ack
	} else {
		j.p.Misc3.OuterTCPSeqNum, j.p.Misc3.OuterTCPAckNum = l.Seq, l.Ack
	}
}

// gpe reads the header that gopacket does not know, and gives it what is inside.
func (j *judge) gpe(b []byte) {
	m := &j.p.Misc3
	m.OuterVXLANGPEFlags, m.OuterVXLANGPENextProtocol, m.OuterVXLANGPEVNI = b[0], b[3], binary.BigEndian.Uint32(b[4:])>>8
	if b[3] == 3 {
		j.walk(gopacket.NewPacket(b[8:], layers.LayerTypeEthernet, gopacket.Default).Layers())
	}
}

// TestKeyIsWhatGopacketFinds holds the key of random frames against what another parser finds in them, every bit of
// fte_match_param.
func TestKeyIsWhatGopacketFinds(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	h := new(Headers)
	h.LookInto(&Tunnels{VXLAN: []uint16{4789}, GRE: true, IPinIP: true, Flexible: true})
	buf := gopacket.NewSerializeBuffer()
	seen := make([]byte, KeyWords*8) // bits that any frame had
	for i := range cases(20_000) {
		f := judgedFrame{rnd: rnd}
		f.ethernet()
		if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, f.list...); err != nil {
			t.Fatal(err)
		}
		b := buf.Bytes()
		var j judge
		j.judgeFrame(b)
		Parse(b, h) // into what the frame before has left
		want := make([]byte, KeyWords*8)
		j.p.Put(want)
		if got := words(h.Key[:]); !bytes.Equal(got, want) {
			at := 0
			for got[at] == want[at] {
				at++
			}
			t.Fatalf("case %d: byte %#x of the key is %#x, gopacket has %#x\n%v\n%x", i, at, got[at], want[at],
				gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.Default), b)
		}
		for k := range want {
			seen[k] |= want[k]
		}
	}
	for _, k := range []int{0x58, 0x5b, 0x65, 0x66, 0xc0, 0xc4, 0xc8, 0xcc, 0x100, 0x104, 0x108, 0x10c, 0x111, 0x114, 0x115, 0x118, 0x11c,
		0x120, 0x121, 0x122, 0x123, 0x128, 0x12c, 0x12d, 0x130, 0x138, 0x190, 0x194, 0x48, 0x4a, 0x6c, 0x70} {
		if seen[k] == 0 {
			t.Errorf("no frame had anything at %#x", k)
		}
	}
}
