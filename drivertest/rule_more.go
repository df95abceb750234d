package drivertest

import (
	"encoding/binary"
	"errors"

	"cxkit/driver"
)

// ipOf is a frame of IPv4 or IPv6 whose protocol and payload are given.
func (e *Env) ipOf(v6 bool, protocol byte, payload ...byte) []byte {
	f := Flow{Dst: e.NIC.MAC(), Src: peer(), V6: v6, UDP: true, SrcIP: 1, DstIP: 2}
	b := f.Packet(0, 0x0101)
	b = append(b[:f.l4Offset()], append(payload, make([]byte, 40)...)...)
	if v6 {
		b[14+6] = protocol
		binary.BigEndian.PutUint16(b[14+4:], uint16(len(b)-f.l4Offset()))
		return b
	}
	b[14+9] = protocol
	return fixOuter(b)
}

// datagram is a UDP datagram to a port, with a payload.
func (e *Env) datagram(port uint16, payload ...byte) []byte {
	b := append([]byte{0xc3, 0x50, byte(port >> 8), byte(port), 0, byte(8 + len(payload) + 40), 0, 0}, payload...)
	return e.ipOf(false, protoUDP, b...)
}

// ethernet is a frame with an EtherType and a payload.
func (e *Env) ethernet(payload ...byte) []byte {
	mac := e.NIC.MAC()
	b := append(append(mac[:], macBytes(peer())...), payload...)
	return append(b, make([]byte, 60)...)
}

// ruleCase is a match, a frame that it takes and frames that it does not.
type ruleCase struct {
	m   driver.Match
	yes []byte
	no  [][]byte
}

// rulesTry holds each case against the card, and returns those that the card says it can't match.
func rulesTry(e *Env, cases map[string]ruleCase) (refused []string) {
	e.Helper()
	e.add(driver.Rule{Priority: 15, Action: driver.RuleQueue, Queue: 0})
	for what, c := range cases {
		id, err := e.NIC.AddRule(e.Ctx, driver.Rule{Match: c.m, Action: driver.RuleQueue, Queue: 3})
		var lacks *driver.UnsupportedError
		if errors.As(err, &lacks) {
			refused = append(refused, what)
			continue
		}
		e.Must(err)
		e.arrives(what, c.yes, 3)
		for _, no := range c.no {
			e.arrives(what+", other value", no, 0)
		}
		e.remove(id)
		e.arrives(what+", without the rule", c.yes, 0)
	}
	return refused
}

// everyCard are matches that all kinds of cards know.
func (e *Env) everyCard() map[string]ruleCase {
	exact8, exact16, exact32 := driver.Exactly[uint8], driver.Exactly[uint16], driver.Exactly[uint32]
	flow := func(f Flow) []byte { f.Dst, f.Src = e.NIC.MAC(), peer(); return f.Packet(60, 1) }
	headers := func(h driver.Headers) driver.Match { return driver.Match{Headers: h} }
	two := flow(Flow{VLANs: []uint16{1, 0x6005}})
	label := func(n uint32) []byte {
		b := flow(Flow{V6: true})
		binary.BigEndian.PutUint32(b[14:], 6<<28|n)
		return b
	}
	esp := func(spi byte) []byte { return e.ipOf(false, 50, 0, 0, 1, spi, 0, 0, 0, 1) }
	fragment := esp(0)
	fragment[14+6] = 0x20
	return map[string]ruleCase{
		"second VLAN":     {headers(driver.Headers{SecondVLAN: exact16(5)}), two, [][]byte{flow(Flow{VLANs: []uint16{5}}), flow(Flow{VLANs: []uint16{5, 6}})}},
		"second VLAN 0":   {headers(driver.Headers{SecondVLAN: exact16(0)}), flow(Flow{VLANs: []uint16{1, 0}}), [][]byte{flow(Flow{VLANs: []uint16{5}}), flow(Flow{})}},
		"second priority": {headers(driver.Headers{SecondVLANPriority: exact8(3)}), two, [][]byte{flow(Flow{VLANs: []uint16{1, 5}})}},
		"one tag":         {headers(driver.Headers{Tag: driver.CTagged, SecondTag: driver.Untagged}), flow(Flow{VLANs: []uint16{5}}), [][]byte{two, flow(Flow{})}},
		"flow label":      {headers(driver.Headers{IPVersion: 6, FlowLabel: exact32(0xabcde)}), label(0xabcde), [][]byte{label(0xabcdf), flow(Flow{})}},
		"masked label":    {headers(driver.Headers{IPVersion: 6, FlowLabel: driver.Masked[uint32]{Value: 0x50, Mask: 0xf0}}), label(0xabc5e), [][]byte{label(0xabc6e)}},
		"SPI":             {headers(driver.Headers{Protocol: exact8(50), SPI: exact32(0x107)}), esp(7), [][]byte{esp(8), e.ipOf(false, 51, 0, 0, 1, 7)}},
		"SPI of AH": {headers(driver.Headers{Protocol: exact8(51), SPI: exact32(0x107)}), e.ipOf(true, 51, 59, 4, 0, 0, 0, 0, 1, 7, 0, 0, 0, 1),
			[][]byte{esp(7)}},
		"SPI, whole": {headers(driver.Headers{Protocol: exact8(50), SPI: driver.Masked[uint32]{Mask: 0xff}}), esp(0), [][]byte{fragment}},
	}
}

// flexible are matches of what a flexible parser reads.
func (e *Env) flexible() map[string]ruleCase {
	exact8, exact16, exact32 := driver.Exactly[uint8], driver.Exactly[uint16], driver.Exactly[uint32]
	udp, gre := driver.Headers{Protocol: exact8(17)}, driver.Headers{Protocol: exact8(47)}
	tunnel := func(h driver.Headers, t driver.Tunnelled) driver.Match { return driver.Match{Headers: h, Tunnel: t} }
	icmp4 := func(kind, code byte) []byte { return e.ipOf(false, 1, kind, code, 0, 0, 0, 1, 0, 1) }
	icmp6 := func(kind, code byte) []byte { return e.ipOf(true, 58, kind, code, 0, 0, 0, 1, 0, 1) }
	pieces := icmp4(0, 0)
	pieces[14+6] = 0x20
	inside := func(port uint16) []byte {
		return Flow{Dst: peer(), Src: peer(), SrcIP: 5, DstIP: 6, SrcPort: 7, DstPort: port}.Packet(60, 1)
	}
	mpls := []byte{0x12, 0x34, 0x5f, 64} // label 0x12345, class 7, bottom of stack
	other := []byte{0x12, 0x34, 0x6f, 64}
	geneve := func(vni byte, frame []byte) []byte {
		return e.datagram(6081, append([]byte{1, 0, 0x65, 0x58, 0, 0, vni, 0, 1, 2, 3, 0}, frame...)...)
	}
	gpe := func(vni byte, frame []byte) []byte {
		return e.datagram(4790, append([]byte{0x0c, 0, 0, 3, 0, 0, vni, 0}, frame...)...)
	}
	plain := e.datagram(9, 0, 0, 0, 0, 0, 0, 0, 0)
	port8 := driver.Headers{Protocol: exact8(6), DstPort: exact16(8)}
	return map[string]ruleCase{
		"ICMP type":     {driver.Match{Headers: driver.Headers{IPVersion: 4, Protocol: exact8(1), ICMPType: exact8(8)}}, icmp4(8, 0), [][]byte{icmp4(0, 8), icmp6(8, 0), plain}},
		"ICMP code":     {driver.Match{Headers: driver.Headers{Protocol: exact8(1), ICMPType: exact8(3), ICMPCode: exact8(4)}}, icmp4(3, 4), [][]byte{icmp4(3, 3), icmp4(4, 4)}},
		"ICMP type 0":   {driver.Match{Headers: driver.Headers{Protocol: exact8(1), ICMPType: exact8(0)}}, icmp4(0, 0), [][]byte{pieces, plain}},
		"ICMPv6 type":   {driver.Match{Headers: driver.Headers{Protocol: exact8(58), ICMPType: exact8(135)}}, icmp6(135, 0), [][]byte{icmp6(136, 0), icmp4(135, 0)}},
		"MPLS":          {driver.Match{Headers: driver.Headers{MPLS: exact32(0x12345)}}, e.ethernet(append([]byte{0x88, 0x47}, mpls...)...), [][]byte{e.ethernet(append([]byte{0x88, 0x47}, other...)...), plain}},
		"MPLS 0":        {driver.Match{Headers: driver.Headers{MPLS: exact32(0)}}, e.ethernet(0x88, 0x47, 0, 0, 1, 64), [][]byte{plain, e.ethernet(0x88, 0xb5)}},
		"MPLS in GRE":   {tunnel(gre, driver.Tunnelled{MPLS: exact32(0x12345)}), e.ipOf(false, 47, append([]byte{0, 0, 0x88, 0x47}, mpls...)...), [][]byte{e.ipOf(false, 47, append([]byte{0, 0, 0x88, 0x47}, other...)...)}},
		"MPLS in UDP":   {tunnel(udp, driver.Tunnelled{MPLS: exact32(0x12345)}), e.datagram(6635, mpls...), [][]byte{e.datagram(6635, other...), e.datagram(6636, mpls...)}},
		"GENEVE VNI":    {tunnel(udp, driver.Tunnelled{GENEVEVNI: exact32(7)}), geneve(7, inside(8)), [][]byte{geneve(8, inside(8)), gpe(7, inside(8))}},
		"GENEVE VNI 0":  {tunnel(udp, driver.Tunnelled{GENEVEVNI: exact32(0)}), geneve(0, inside(8)), [][]byte{plain}},
		"in GENEVE":     {driver.Match{Headers: udp, Tunnel: driver.Tunnelled{GENEVEVNI: exact32(7)}, Inner: port8}, geneve(7, inside(8)), [][]byte{geneve(7, inside(9))}},
		"VXLAN-GPE VNI": {tunnel(udp, driver.Tunnelled{GPEVNI: exact32(7)}), gpe(7, inside(8)), [][]byte{gpe(8, inside(8)), geneve(7, inside(8))}},
		"in VXLAN-GPE":  {driver.Match{Headers: udp, Tunnel: driver.Tunnelled{GPEVNI: exact32(7)}, Inner: port8}, gpe(7, inside(8)), [][]byte{gpe(7, inside(9))}},
	}
}

// gtp are matches that the newest cards know.
func (e *Env) gtp() map[string]ruleCase {
	packet := func(teid byte) []byte { return e.datagram(2152, 0x30, 255, 0, 40, 0, 0, 0, teid) }
	m := driver.Match{Headers: driver.Headers{Protocol: driver.Exactly[uint8](17)}, Tunnel: driver.Tunnelled{TEID: driver.Exactly[uint32](7)}}
	return map[string]ruleCase{"TEID": {m, packet(7), [][]byte{packet(8), e.datagram(9, 0x30, 255, 0, 40, 0, 0, 0, 7)}}}
}

// ruleKindTests are what kinds of cards match; a real card may refuse what its firmware does not parse.
func ruleKindTests() []Test {
	four := driver.Config{Queues: 4}
	// Where the bench made the kind of card that was asked for it must have all, or nothing, of a set.
	sure := func(e *Env, model string) bool { return e.Bench.Books != nil && e.NIC.Info().Model == model }
	with := func(model string, all bool, sets ...func(*Env) map[string]ruleCase) func(*Env) {
		return func(e *Env) {
			for _, set := range sets {
				cases := set(e)
				refused := rulesTry(e, cases)
				if sure(e, model) && (all && len(refused) > 0 || !all && len(refused) < len(cases)) {
					e.Errorf("%s refuses %v of %d", model, refused, len(cases))
				}
			}
		}
	}
	return []Test{
		{Name: "RulesMatchMoreFields", Config: four, Run: with("ConnectX-5", true, (*Env).everyCard)},
		{Name: "RulesMatchICMPAndMoreTunnels", Config: four, Run: with("ConnectX-5", true, (*Env).flexible)},
		{Name: "RulesMatchMoreFieldsOnOldCards", Options: Options{Card: "cx4lx"}, Config: four, Run: with("ConnectX-4 Lx", true, (*Env).everyCard)},
		{Name: "RulesOfFlexibleParsersAreRefusedByOldCards", Options: Options{Card: "cx4lx"}, Config: four, Run: with("ConnectX-4 Lx", false, (*Env).flexible, (*Env).gtp)},
		{Name: "RulesMatchMobileTunnelsOnNewCards", Options: Options{Card: "cx7"}, Config: four, Run: with("ConnectX-7", true, (*Env).gtp)},
	}
}
