package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"cxkit/driver"
)

// ruleHelp is the grammar of --rule.
const ruleHelp = `A rule is words, as ethtool -N has them:

  [prio N] TYPE [FIELD VALUE]... [inside TYPE [FIELD VALUE]...] ACTION [tag N] [count]

  TYPE    any, ether, ip4, ip6, tcp4, tcp6, udp4, udp6, icmp4, icmp6, gre4, gre6, esp4, esp6, ah4, ah6
  FIELD   src, dst         MAC address                 src-ip, dst-ip      address or prefix
          proto            EtherType                   src-port, dst-port  port
          vlan, vlan-prio  tag; vlan none: untagged    l4proto, dscp, ecn, ttl, tcp-flags
          vlan2, vlan2-prio  of a second tag           flow-label          IPv6's
          mpls             first label                 icmp-type, icmp-code
          spi              of esp and ah               fragment            yes or no
          vni, geneve-vni, gpe-vni, teid, gre-key, tunnel-mpls             of a tunnel
  VALUE   decimal or 0x hexadecimal; VALUE/MASK compares the bits of MASK
  ACTION  queue N, group N,N,..., drop, pass; or as ethtool: action N, action -1
  prio    0 to 15, 0 is looked at first; 0 if not given`

// userRule is a rule of the command line.
type userRule struct {
	text  string
	rule  driver.Rule
	group []int // queues of a group of its own
}

// words reads a rule word by word.
type words struct{ left []string }

func (w *words) next() string {
	if len(w.left) == 0 {
		return ""
	}
	word := w.left[0]
	w.left = w.left[1:]
	return word
}

// parseRule reads a rule.
func parseRule(text string) (userRule, error) {
	r := userRule{text: text}
	w := &words{strings.Fields(text)}
	if err := r.parse(w); err != nil {
		return r, fmt.Errorf("rule %q: %w", text, err)
	}
	return r, nil
}

func (r *userRule) parse(w *words) error {
	kind := w.next()
	if kind == "prio" {
		n, err := number(w.next(), driver.RulePriorities-1)
		if err != nil {
			return fmt.Errorf("prio: %w", err)
		}
		r.rule.Priority = int(n)
		kind = w.next()
	}
	if err := headerType(&r.rule.Match.Headers, kind); err != nil {
		return err
	}
	headers, acted := &r.rule.Match.Headers, false
	for len(w.left) > 0 {
		word := w.next()
		var err error
		switch {
		case word == "inside" && headers == &r.rule.Match.Headers && !acted:
			headers = &r.rule.Match.Inner
			err = headerType(headers, w.next())
		case word == "tag" && acted:
			var n uint64
			n, err = number(w.next(), driver.MaxRuleTag)
			r.rule.Tag = uint32(n)
		case word == "count" && acted:
			r.rule.Count = true
		case acted:
			return fmt.Errorf("%q behind the action", word)
		case word == "queue", word == "group", word == "drop", word == "pass", word == "action":
			acted, err = true, r.action(word, w)
		case r.tunnelField(word) != nil:
			err = r.tunnel(word, w.next())
		default:
			err = field(headers, word, w.next())
		}
		if err != nil {
			return fmt.Errorf("%s: %w", word, err)
		}
	}
	if !acted {
		return errors.New("no action: want queue N, group N,..., drop or pass")
	}
	return nil
}

// headerType fills in what a word like tcp4 says.
func headerType(h *driver.Headers, word string) error {
	protocol := map[string]uint8{"tcp": 6, "udp": 17, "icmp": 1, "gre": 47, "esp": 50, "ah": 51}
	switch word {
	case "any", "ether":
		return nil
	case "ip4", "ip6":
		h.IPVersion = word[2] - '0'
		return nil
	}
	if n := len(word) - 1; n > 0 && (word[n] == '4' || word[n] == '6') && protocol[word[:n]] != 0 {
		h.IPVersion, h.Protocol = word[n]-'0', driver.Exactly(protocol[word[:n]])
		if word == "icmp6" {
			h.Protocol = driver.Exactly[uint8](58)
		}
		return nil
	}
	return fmt.Errorf("type %q: want any, ether, or ip, tcp, udp, icmp, gre, esp or ah with 4 or 6 behind it", word)
}

func (r *userRule) action(word string, w *words) error {
	switch word {
	case "drop":
		r.rule.Action = driver.RuleDrop
		return nil
	case "pass":
		r.rule.Action = driver.RulePass
		return nil
	}
	value := w.next()
	if word == "action" && value == "-1" {
		r.rule.Action = driver.RuleDrop
		return nil
	}
	if word == "group" {
		r.rule.Action = driver.RuleGroup
		for q := range strings.SplitSeq(value, ",") {
			n, err := number(q, driver.MaxQueues-1)
			if err != nil {
				return err
			}
			r.group = append(r.group, int(n))
		}
		return nil
	}
	n, err := number(value, driver.MaxQueues-1)
	r.rule.Action, r.rule.Queue = driver.RuleQueue, int(n)
	return err
}

func (r *userRule) tunnel(word, value string) error {
	m, err := masked[uint32](value)
	if err != nil {
		return err
	}
	*r.tunnelField(word) = m
	return nil
}

// tunnelField is the field of a tunnel's header that has this name, nil if there is none.
func (r *userRule) tunnelField(word string) *driver.Masked[uint32] {
	t := &r.rule.Match.Tunnel
	switch word {
	case "vni":
		return &t.VNI
	case "geneve-vni":
		return &t.GENEVEVNI
	case "gpe-vni":
		return &t.GPEVNI
	case "teid":
		return &t.TEID
	case "gre-key":
		return &t.GREKey
	case "tunnel-mpls":
		return &t.MPLS
	}
	return nil
}

// field fills in one field of headers.
func field(h *driver.Headers, word, value string) (err error) {
	switch word {
	case "src":
		h.SrcMAC, err = maskedMAC(value)
	case "dst":
		h.DstMAC, err = maskedMAC(value)
	case "proto":
		h.EtherType, err = masked[uint16](value)
	case "vlan":
		if value == "none" {
			h.Tag = driver.Untagged
			return nil
		}
		h.VLAN, err = masked[uint16](value)
	case "vlan-prio":
		h.VLANPriority, err = masked[uint8](value)
	case "vlan2":
		if value == "none" {
			h.SecondTag = driver.Untagged
			return nil
		}
		h.SecondVLAN, err = masked[uint16](value)
	case "vlan2-prio":
		h.SecondVLANPriority, err = masked[uint8](value)
	case "mpls":
		h.MPLS, err = masked[uint32](value)
	case "flow-label":
		h.FlowLabel, err = masked[uint32](value)
	case "spi":
		h.SPI, err = masked[uint32](value)
	case "icmp-type":
		h.ICMPType, err = masked[uint8](value)
	case "icmp-code":
		h.ICMPCode, err = masked[uint8](value)
	case "src-ip":
		h.SrcIP, err = ipPrefix(value)
	case "dst-ip":
		h.DstIP, err = ipPrefix(value)
	case "src-port":
		h.SrcPort, err = masked[uint16](value)
	case "dst-port":
		h.DstPort, err = masked[uint16](value)
	case "l4proto":
		h.Protocol, err = masked[uint8](value)
	case "dscp":
		h.DSCP, err = masked[uint8](value)
	case "ecn":
		h.ECN, err = masked[uint8](value)
	case "ttl":
		h.TTL, err = masked[uint8](value)
	case "tcp-flags":
		h.TCPFlags, err = masked[uint16](value)
	case "fragment":
		switch value {
		case "yes":
			h.Fragment = driver.Yes
		case "no":
			h.Fragment = driver.No
		default:
			err = fmt.Errorf("%q: want yes or no", value)
		}
	default:
		err = errors.New("unknown word")
	}
	return err
}

// number reads a decimal or hexadecimal number.
func number(s string, most uint64) (uint64, error) {
	n, err := strconv.ParseUint(s, 0, 64)
	if err != nil || n > most {
		return 0, fmt.Errorf("%q: want a number up to %d", s, most)
	}
	return n, nil
}

// masked reads VALUE or VALUE/MASK.
func masked[T uint8 | uint16 | uint32](s string) (m driver.Masked[T], err error) {
	value, mask, has := strings.Cut(s, "/")
	most := uint64(^T(0))
	v, err := number(value, most)
	if err != nil {
		return m, err
	}
	bits := most
	if has {
		if bits, err = number(mask, most); err != nil {
			return m, err
		}
	}
	return driver.Masked[T]{Value: T(v), Mask: T(bits)}, nil
}

func maskedMAC(s string) (m driver.MaskedMAC, err error) {
	value, mask, has := strings.Cut(s, "/")
	if !has {
		mask = "ff:ff:ff:ff:ff:ff"
	}
	for _, p := range []struct {
		text string
		to   *driver.MAC
	}{{value, &m.Address}, {mask, &m.Mask}} {
		mac, err := net.ParseMAC(p.text)
		if err != nil || len(mac) != len(p.to) {
			return m, fmt.Errorf("%q: want an address like 02:00:00:00:00:01", p.text)
		}
		copy(p.to[:], mac)
	}
	return m, nil
}

func ipPrefix(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, fmt.Errorf("%q: want an address or prefix like 10.1.0.0/16", s)
	}
	return p, nil
}
