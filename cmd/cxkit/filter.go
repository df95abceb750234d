package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// filter chooses frames: the part of tcpdump's language (pcap-filter(7)) that people type. nil takes all.
type filter []func(f []byte, h headers) bool

// match allocates nothing.
func (f filter) match(frame []byte) bool {
	if len(f) == 0 {
		return true
	}
	h := parse(frame)
	return f[0](frame, h)
}

type predicate = func(f []byte, h headers) bool

// maxFilter bounds the words of a filter, and with them how deep it nests.
const maxFilter = 1000

// parseFilter reads an expression.
func parseFilter(text string) (filter, error) {
	for _, c := range []string{"(", ")", "!"} {
		text = strings.ReplaceAll(text, c, " "+c+" ")
	}
	p := &filterParser{words: strings.Fields(text)}
	if len(p.words) == 0 {
		return nil, nil
	}
	if len(p.words) > maxFilter {
		return nil, fmt.Errorf("filter of %d words: %d is the most", len(p.words), maxFilter)
	}
	e, err := p.or()
	if err == nil && p.peek() != "" {
		err = fmt.Errorf("%q is not expected there", p.peek())
	}
	if err != nil {
		return nil, fmt.Errorf("filter: %w", err)
	}
	return filter{e}, nil
}

type filterParser struct {
	words []string
	last  qualifiers // of the primitive before: "port 80 or 443" repeats them
}

func (p *filterParser) peek() string {
	if len(p.words) == 0 {
		return ""
	}
	return p.words[0]
}

func (p *filterParser) next() string {
	w := p.peek()
	if w != "" {
		p.words = p.words[1:]
	}
	return w
}

func (p *filterParser) accept(words ...string) bool {
	for _, w := range words {
		if p.peek() == w {
			p.next()
			return true
		}
	}
	return false
}

// or and and have the same precedence in pcap-filter and associate to the left.
func (p *filterParser) or() (predicate, error) {
	left, err := p.not()
	for err == nil {
		var right predicate
		l := left
		switch {
		case p.accept("or", "||"):
			right, err = p.not()
			left = func(f []byte, h headers) bool { return l(f, h) || right(f, h) }
		case p.accept("and", "&&"):
			right, err = p.not()
			left = func(f []byte, h headers) bool { return l(f, h) && right(f, h) }
		default:
			return left, nil
		}
	}
	return left, err
}

func (p *filterParser) not() (predicate, error) {
	switch {
	case p.accept("not", "!"):
		e, err := p.not()
		return func(f []byte, h headers) bool { return !e(f, h) }, err
	case p.accept("("):
		e, err := p.or()
		if err == nil && !p.accept(")") {
			err = fmt.Errorf("a ) is missing")
		}
		return e, err
	}
	return p.primitive()
}

// qualifiers are what stands in front of a value.
type qualifiers struct {
	proto string // "", ip, ip6, arp, tcp, udp, ether
	dir   string // "", src, dst
	typ   string // "", host, net, port, portrange
}

// primitive is [proto] [dir] [type] value, or a word of its own.
func (p *filterParser) primitive() (predicate, error) {
	switch {
	case p.accept("less"):
		n, err := p.number(1 << 16)
		return func(f []byte, _ headers) bool { return len(f) <= n }, err
	case p.accept("greater"):
		n, err := p.number(1 << 16)
		return func(f []byte, _ headers) bool { return len(f) >= n }, err
	case p.accept("vlan"):
		return p.vlan()
	case p.accept("broadcast"):
		return isBroadcast, nil
	case p.accept("multicast"):
		return isMulticast, nil
	}
	var q qualifiers
	switch w := p.peek(); w {
	case "":
		return nil, fmt.Errorf("it ends where something to look for is expected")
	case "ip", "ip6", "arp", "tcp", "udp", "icmp", "icmp6", "ether":
		q.proto = p.next()
	}
	if p.accept("src") {
		q.dir = "src"
	} else if p.accept("dst") {
		q.dir = "dst"
	}
	switch w := p.peek(); w {
	case "host", "net", "port", "portrange":
		q.typ = p.next()
	case "proto":
		if q.proto == "ether" && q.dir == "" {
			p.next()
			return p.etherProto()
		}
	}
	if q.proto == "ether" {
		switch {
		case q != qualifiers{proto: "ether"}:
		case p.accept("broadcast"):
			return isBroadcast, nil
		case p.accept("multicast"):
			return isMulticast, nil
		}
		return p.etherHost(q)
	}
	if q.dir == "" && q.typ == "" {
		if q.proto != "" {
			return isProto(q.proto), nil
		}
		if p.last == (qualifiers{}) {
			return nil, fmt.Errorf("%q is not known", p.peek())
		}
		q = p.last
	}
	p.last = q
	test, err := p.value(q)
	if err != nil {
		return nil, err
	}
	if q.proto == "" {
		return test, nil
	}
	proto := isProto(q.proto)
	return func(f []byte, h headers) bool { return proto(f, h) && test(f, h) }, nil
}

func isBroadcast(f []byte, _ headers) bool {
	return len(f) >= 6 && [6]byte(f) == [6]byte{255, 255, 255, 255, 255, 255}
}

func isMulticast(f []byte, _ headers) bool { return len(f) >= 6 && f[0]&1 == 1 }

func (p *filterParser) number(most int) (int, error) {
	w := p.next()
	n, err := strconv.ParseUint(w, 0, 31)
	if err != nil || int(n) > most {
		return 0, fmt.Errorf("%q: want a number of at most %d", w, most)
	}
	return int(n), nil
}

func (p *filterParser) vlan() (predicate, error) {
	id := -1
	if n, err := strconv.ParseUint(p.peek(), 0, 12); err == nil {
		p.next()
		id = int(n)
	}
	return func(f []byte, h headers) bool {
		return h.tags > 0 && (id < 0 || int(binary.BigEndian.Uint16(f[etherHeader:])&0xfff) == id)
	}, nil
}

func (p *filterParser) etherProto() (predicate, error) {
	switch {
	case p.accept("ip", `\ip`):
		return isProto("ip"), nil
	case p.accept("ip6", `\ip6`):
		return isProto("ip6"), nil
	case p.accept("arp", `\arp`):
		return isProto("arp"), nil
	}
	n, err := p.number(0xffff)
	return func(_ []byte, h headers) bool { return h.l3 >= etherHeader && int(h.ether) == n }, err
}

func (p *filterParser) etherHost(q qualifiers) (predicate, error) {
	w := p.next()
	mac, err := net.ParseMAC(w)
	if err != nil || len(mac) != 6 {
		return nil, fmt.Errorf("%q: want a MAC address", w)
	}
	want := [6]byte(mac)
	return func(f []byte, _ headers) bool {
		return len(f) >= 12 && (q.dir != "dst" && [6]byte(f[6:]) == want || q.dir != "src" && [6]byte(f) == want)
	}, nil
}

// isProto tells whether a frame is of a protocol.
func isProto(name string) predicate {
	return func(f []byte, h headers) bool {
		switch name {
		case "ip":
			return h.ether == etherIPv4
		case "ip6":
			return h.ether == etherIPv6
		case "arp":
			return h.proto == protoARP
		case "tcp":
			return h.isIP() && h.ip == ipTCP
		case "udp":
			return h.isIP() && h.ip == ipUDP
		case "icmp":
			return h.proto == protoICMP4
		case "icmp6":
			return h.proto == protoICMP6
		}
		return false
	}
}

func (h headers) isIP() bool { return h.ether == etherIPv4 || h.ether == etherIPv6 }

// value reads what the qualifiers are about.
func (p *filterParser) value(q qualifiers) (predicate, error) {
	w := p.next()
	if w == "" || w == "(" || w == ")" {
		return nil, fmt.Errorf("a value is missing behind %s", strings.TrimSpace(q.dir+" "+q.typ))
	}
	switch q.typ {
	case "port", "portrange":
		return portTest(q, w)
	}
	prefix, err := netip.ParsePrefix(w)
	if a, addrErr := netip.ParseAddr(w); err != nil && addrErr == nil {
		prefix, err = netip.PrefixFrom(a, a.BitLen()), nil
	} else if err == nil && q.typ != "net" {
		err = fmt.Errorf("a network")
	}
	if err != nil {
		return nil, fmt.Errorf("%q: want %s", w, map[bool]string{true: "a network, 10.0.0.0/8", false: "an address"}[q.typ == "net"])
	}
	prefix = prefix.Masked()
	return func(f []byte, h headers) bool {
		src, dst := h.addresses(f)
		return q.dir != "dst" && prefix.Contains(src) || q.dir != "src" && prefix.Contains(dst)
	}, nil
}

// portTest looks at ports of TCP and UDP.
func portTest(q qualifiers, w string) (predicate, error) {
	from, to, ranged := strings.Cut(w, "-")
	lo, err := strconv.ParseUint(from, 10, 16)
	hi := lo
	if err == nil && ranged {
		hi, err = strconv.ParseUint(to, 10, 16)
	}
	if err != nil || hi < lo || ranged != (q.typ == "portrange") {
		return nil, fmt.Errorf("%q: want a %s by number", w, q.typ)
	}
	return func(f []byte, h headers) bool {
		if !h.first || !h.isIP() || h.ip != ipTCP && h.ip != ipUDP || len(f) < h.l4+4 {
			return false
		}
		in := func(off int) bool {
			v := uint64(binary.BigEndian.Uint16(f[off:]))
			return v >= lo && v <= hi
		}
		return q.dir != "dst" && in(h.l4) || q.dir != "src" && in(h.l4+2)
	}, nil
}

// addresses are those of the IP header, or of ARP; invalid where there are none.
func (h headers) addresses(f []byte) (src, dst netip.Addr) {
	p := f[h.l3:]
	switch {
	case h.ether == etherIPv4 && len(p) >= 20:
		return netip.AddrFrom4([4]byte(p[12:])), netip.AddrFrom4([4]byte(p[16:]))
	case h.ether == etherIPv6 && len(p) >= 40:
		return netip.AddrFrom16([16]byte(p[8:])), netip.AddrFrom16([16]byte(p[24:]))
	case h.proto == protoARP && len(p) >= 28:
		return netip.AddrFrom4([4]byte(p[14:])), netip.AddrFrom4([4]byte(p[24:]))
	}
	return src, dst
}
