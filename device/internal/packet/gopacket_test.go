package packet

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// generatedFrame is a frame that gopacket has made, with right checksums, and where they are.
type generatedFrame struct {
	b          []byte
	ipv4, l4   int // offsets of the header checksum (0: IPv6) and of the transport's
	l3, length int // the IP datagram
}

// generateFrame makes a TCP or UDP frame over IPv4 or IPv6, with up to two tags.
func generateFrame(t *testing.T, rnd *rand.Rand, buf gopacket.SerializeBuffer) generatedFrame {
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		return b
	}
	tags, v6, udp := rnd.IntN(3), rnd.IntN(2) == 0, rnd.IntN(2) == 0
	types := []layers.EthernetType{layers.EthernetTypeQinQ, layers.EthernetTypeDot1Q}[2-tags:]
	types = append(types, layers.EthernetTypeIPv4)
	protocol := layers.IPProtocolTCP
	if udp {
		protocol = layers.IPProtocolUDP
	}
	var list []gopacket.SerializableLayer
	if v6 {
		types[tags] = layers.EthernetTypeIPv6
	}
	list = append(list, &layers.Ethernet{SrcMAC: random(6), DstMAC: random(6), EthernetType: types[0]})
	for i := range tags {
		list = append(list, &layers.Dot1Q{VLANIdentifier: uint16(rnd.IntN(4096)), Type: types[i+1]})
	}
	g := generatedFrame{l3: EthernetLen + TagLen*tags}
	var network gopacket.NetworkLayer
	l4 := g.l3
	if v6 {
		ip := &layers.IPv6{Version: 6, TrafficClass: uint8(rnd.Uint32()), HopLimit: 64, NextHeader: protocol, SrcIP: net.IP(random(16)), DstIP: net.IP(random(16))}
		network, list, l4 = ip, append(list, ip), l4+40
	} else {
		ip := &layers.IPv4{Version: 4, TOS: uint8(rnd.Uint32()), Id: uint16(rnd.Uint32()), TTL: uint8(rnd.Uint32()), Protocol: protocol, SrcIP: net.IP(random(4)), DstIP: net.IP(random(4))}
		for range rnd.IntN(3) {
			ip.Options = append(ip.Options, layers.IPv4Option{OptionType: 148, OptionLength: 4, OptionData: random(2)})
		}
		network, list, l4 = ip, append(list, ip), l4+20+4*len(ip.Options)
		g.ipv4 = g.l3 + 10
	}
	if udp {
		u := &layers.UDP{SrcPort: layers.UDPPort(rnd.Uint32()), DstPort: layers.UDPPort(rnd.Uint32())}
		_ = u.SetNetworkLayerForChecksum(network)
		list, g.l4 = append(list, u), l4+6
	} else {
		c := &layers.TCP{SrcPort: layers.TCPPort(rnd.Uint32()), DstPort: layers.TCPPort(rnd.Uint32()), Seq: rnd.Uint32(), ACK: true, Window: uint16(rnd.Uint32())}
		_ = c.SetNetworkLayerForChecksum(network)
		list, g.l4 = append(list, c), l4+16
	}
	list = append(list, gopacket.Payload(random(rnd.IntN(200))))
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, list...); err != nil {
		t.Fatal(err)
	}
	g.b = bytes.Clone(buf.Bytes())
	if g.length = int(binary.BigEndian.Uint16(g.b[g.l3+2:])); v6 {
		g.length = 40 + int(binary.BigEndian.Uint16(g.b[g.l3+4:]))
	}
	g.b = append(g.b, make([]byte, rnd.IntN(2)*rnd.IntN(8))...) // padding
	return g
}

// TestChecksumsAgreeWithGopacket: what gopacket makes is right, any change of a bit is found, and what is
// inserted is what gopacket makes.
func TestChecksumsAgreeWithGopacket(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	buf := gopacket.NewSerializeBuffer()
	h := new(Headers)
	for i := range cases(20_000) {
		g := generateFrame(t, rnd, buf)
		Parse(g.b, h)
		sum, ok := h.Check(g.b, EthernetLen)
		if ok != L2OK|L3OK|L4OK || sum != naiveSum(g.b[EthernetLen:]) {
			t.Fatalf("case %d: ok %#x, sum %#x of %x", i, ok, sum, g.b)
		}
		blank := bytes.Clone(g.b)
		binary.BigEndian.PutUint16(blank[g.l4:], uint16(rnd.Uint32()))
		if g.ipv4 != 0 {
			binary.BigEndian.PutUint16(blank[g.ipv4:], uint16(rnd.Uint32()))
		}
		Parse(blank, h)
		h.Insert(blank, true, true)
		// gopacket leaves a UDP checksum of 0 as it is, which over IPv6 nobody may send (RFC 8200).
		if zero := binary.BigEndian.Uint16(g.b[g.l4:]) == 0; !zero && !bytes.Equal(blank, g.b) {
			t.Fatalf("case %d: inserted\n%x, gopacket made\n%x", i, blank, g.b)
		}
		// A bit of the payload, or of the checksum itself, is flipped.
		at := g.l4 + rnd.IntN(g.l3+g.length-g.l4)
		g.b[at] ^= 1 << rnd.IntN(8)
		Parse(g.b, h)
		if _, ok := h.Check(g.b, EthernetLen); ok&L4OK != 0 && binary.BigEndian.Uint16(g.b[g.l4:]) != 0 {
			t.Fatalf("case %d: a bit at %d was flipped and not found: %x", i, at, g.b)
		}
	}
}
