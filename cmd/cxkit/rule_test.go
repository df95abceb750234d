package main

import (
	"net/netip"
	"strings"
	"testing"

	"cxkit/driver"
)

func TestRulesAreRead(t *testing.T) {
	port := driver.Exactly[uint16]
	for text, want := range map[string]driver.Rule{
		"tcp4 dst-port 80 queue 2": {
			Match:  driver.Match{Headers: driver.Headers{IPVersion: 4, Protocol: driver.Exactly[uint8](6), DstPort: port(80)}},
			Action: driver.RuleQueue, Queue: 2,
		},
		"prio 3 udp6 src-ip fd00::/16 dst-port 0x40/0xfff0 action -1 count": {
			Priority: 3, Action: driver.RuleDrop, Count: true,
			Match: driver.Match{Headers: driver.Headers{
				IPVersion: 6, Protocol: driver.Exactly[uint8](17), SrcIP: netip.MustParsePrefix("fd00::/16"),
				DstPort: driver.Masked[uint16]{Value: 0x40, Mask: 0xfff0},
			}},
		},
		"ether dst 02:00:00:00:00:01 vlan none pass": {
			Match: driver.Match{Headers: driver.Headers{DstMAC: driver.ExactlyMAC(driver.MAC{2, 0, 0, 0, 0, 1}), Tag: driver.Untagged}},
		},
		"icmp6 icmp-type 135 icmp-code 0 flow-label 0x1/0xff drop": {
			Action: driver.RuleDrop,
			Match: driver.Match{Headers: driver.Headers{
				IPVersion: 6, Protocol: driver.Exactly[uint8](58), ICMPType: driver.Exactly[uint8](135), ICMPCode: driver.Exactly[uint8](0),
				FlowLabel: driver.Masked[uint32]{Value: 1, Mask: 0xff},
			}},
		},
		"ether vlan2 5 vlan2-prio 3 mpls 16 drop": {
			Action: driver.RuleDrop,
			Match: driver.Match{Headers: driver.Headers{
				SecondVLAN: port(5), SecondVLANPriority: driver.Exactly[uint8](3), MPLS: driver.Exactly[uint32](16),
			}},
		},
		"esp4 spi 9 vlan2 none drop": {
			Action: driver.RuleDrop,
			Match: driver.Match{Headers: driver.Headers{
				IPVersion: 4, Protocol: driver.Exactly[uint8](50), SPI: driver.Exactly[uint32](9), SecondTag: driver.Untagged,
			}},
		},
		"udp6 geneve-vni 7 queue 1": {
			Action: driver.RuleQueue, Queue: 1,
			Match: driver.Match{
				Headers: driver.Headers{IPVersion: 6, Protocol: driver.Exactly[uint8](17)},
				Tunnel:  driver.Tunnelled{GENEVEVNI: driver.Exactly[uint32](7)},
			},
		},
		"gre4 tunnel-mpls 7 drop": {
			Action: driver.RuleDrop,
			Match: driver.Match{
				Headers: driver.Headers{IPVersion: 4, Protocol: driver.Exactly[uint8](47)},
				Tunnel:  driver.Tunnelled{MPLS: driver.Exactly[uint32](7)},
			},
		},
		"udp4 gpe-vni 7 teid 8/0xff drop": { // which the NIC refuses
			Action: driver.RuleDrop,
			Match: driver.Match{
				Headers: driver.Headers{IPVersion: 4, Protocol: driver.Exactly[uint8](17)},
				Tunnel:  driver.Tunnelled{GPEVNI: driver.Exactly[uint32](7), TEID: driver.Masked[uint32]{Value: 8, Mask: 0xff}},
			},
		},
		"udp4 vni 7 inside tcp4 dst-ip 10.0.0.1 group 0,1 tag 9": {
			Action: driver.RuleGroup, Tag: 9,
			Match: driver.Match{
				Headers: driver.Headers{IPVersion: 4, Protocol: driver.Exactly[uint8](17)},
				Tunnel:  driver.Tunnelled{VNI: driver.Exactly[uint32](7)},
				Inner:   driver.Headers{IPVersion: 4, Protocol: driver.Exactly[uint8](6), DstIP: netip.MustParsePrefix("10.0.0.1/32")},
			},
		},
	} {
		r, err := parseRule(text)
		if err != nil {
			t.Error(err)
			continue
		}
		if r.rule != want {
			t.Errorf("%s:\n%+v, want\n%+v", text, r.rule, want)
		}
	}
}

func TestMistakesInRulesAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "type",
		"tcp5 drop":                      "type",
		"tcp4 dst-port 80":               "no action",
		"tcp4 dst-port 70000 drop":       "up to 65535",
		"tcp4 dst-port drop":             "up to 65535",
		"tcp4 colour 3 drop":             "colour: unknown",
		"ip4 src-ip 1.2.3 drop":          "like 10.1.0.0/16",
		"ether dst 1:2 drop":             "like 02:00",
		"prio 16 any drop":               "prio",
		"any queue x":                    "queue",
		"any drop drop":                  "behind the action",
		"any tag 3 drop":                 "tag",
		"any inside any inside any drop": "inside",
		"any queue 256":                  "up to 255",
		"any group 1,,2":                 "group",
		"any fragment maybe drop":        "yes or no",
		"icmp4 icmp-type 256 drop":       "up to 255",
		"udp4 teid 0x100000000 drop":     "up to 4294967295",
		"ip4 vlan2 x drop":               "up to 65535",
		"4 drop":                         "type",
		"any queue 1 tag 0x1000000":      "tag",
	} {
		if _, err := parseRule(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", text, err, want)
		}
	}
}

func FuzzRule(f *testing.F) {
	f.Add("tcp4 dst-port 80/0xff queue 2 tag 4 count")
	f.Add("prio 3 udp6 src-ip fd00::/16 vni 4 inside tcp4 fragment no group 1,2")
	f.Add("ether dst 02:00:00:00:00:01/ff:00:00:00:00:00 vlan 3 action -1")
	f.Add("icmp6 icmp-type 135/0xff flow-label 7 vlan2 none spi 3 mpls 4 drop")
	f.Add("udp4 geneve-vni 7 gpe-vni 8 teid 9 tunnel-mpls 10 pass")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := parseRule(text)
		if err == nil && (r.rule.Priority >= driver.RulePriorities || r.rule.Tag > driver.MaxRuleTag || r.rule.Queue >= driver.MaxQueues) {
			t.Errorf("%q became %+v", text, r)
		}
	})
}
