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
	f.Fuzz(func(t *testing.T, text string) {
		r, err := parseRule(text)
		if err == nil && (r.rule.Priority >= driver.RulePriorities || r.rule.Tag > driver.MaxRuleTag || r.rule.Queue >= driver.MaxQueues) {
			t.Errorf("%q became %+v", text, r)
		}
	})
}
