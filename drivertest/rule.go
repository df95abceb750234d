package drivertest

import (
	"errors"
	"net/netip"

	"cxkit/driver"
)

// Rules.
func ruleTests() []Test {
	four := driver.Config{Queues: 4}
	return []Test{
		{Name: "RulesMatchEveryField", Config: four, Run: rulesMatch},
		{Name: "RulesMatchWhatIsInTunnels", Config: four, Run: rulesInTunnels},
		{Name: "RulesApplyByPriority", Config: four, Run: rulesByPriority},
		{Name: "RulesDropPassCountAndTag", Config: four, Run: rulesAct},
		{Name: "RulesChangeUnderTraffic", Config: driver.Config{Queues: 2}, Run: rulesUnderTraffic},
		{Name: "RulesThatCannotBeAreRefused", Config: driver.Config{Queues: 2}, Run: rulesRefused},
		{Name: "ThousandsOfRules", Config: four, Run: manyRules},
		{Name: "RulesEndWithTheNIC", Config: four, Run: func(e *Env) {
			g, err := e.NIC.NewQueueGroup(e.Ctx, driver.GroupConfig{Queues: []int{1, 2}})
			e.Must(err)
			for p := range 4 {
				e.add(driver.Rule{Priority: p, Action: driver.RuleQueue, Queue: p, Count: true})
				e.add(driver.Rule{Priority: 5 + p, Action: driver.RuleGroup, Group: g})
			}
		}},
	}
}

// add puts a rule in force.
func (e *Env) add(r driver.Rule) driver.RuleID {
	e.Helper()
	id, err := e.NIC.AddRule(e.Ctx, r)
	e.Must(err)
	return id
}

// remove ends a rule.
func (e *Env) remove(id driver.RuleID) {
	e.Helper()
	e.Must(e.NIC.RemoveRule(e.Ctx, id))
}

// arrives checks which queue a frame comes to.
func (e *Env) arrives(what string, frame []byte, queue int) {
	e.Helper()
	e.Send(frame)
	if q := e.whichQueue(frame); q != queue {
		e.Errorf("%s: on queue %d, want %d", what, q, queue)
	}
}

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// rulesMatch leads one flow by each field to queue 3 and sees that another, which differs in that field, goes
// elsewhere: to queue 0, where a rule of low priority leads everything.
func rulesMatch(e *Env) {
	e.add(driver.Rule{Priority: 15, Action: driver.RuleQueue, Queue: 0})
	base := Flow{Dst: e.NIC.MAC(), Src: peer(), SrcIP: 1, DstIP: 2, SrcPort: 1000, DstPort: 2000}
	with := func(f func(*Flow)) Flow { c := base; f(&c); return c }
	exact8, exact16 := driver.Exactly[uint8], driver.Exactly[uint16]
	tcp, udp := exact8(6), exact8(17)
	v6 := with(func(f *Flow) { f.V6 = true })
	u := with(func(f *Flow) { f.UDP = true })
	tagged := with(func(f *Flow) { f.VLANs = []uint16{0x6005} })
	change := func(f Flow, at int, v byte) []byte { b := f.Packet(80, 1); b[at] = v; return b }
	for what, c := range map[string]struct {
		h         driver.Headers
		yes, no   []byte
		second    []byte // another that matches
		otherwise []byte // another that does not
	}{
		"destination":    {h: driver.Headers{DstMAC: driver.ExactlyMAC(e.NIC.MAC())}, yes: base.Packet(80, 1), no: Flow{Dst: Broadcast(), Src: peer()}.Packet(80, 1)},
		"source":         {h: driver.Headers{SrcMAC: driver.ExactlyMAC(peer())}, yes: base.Packet(80, 1), no: with(func(f *Flow) { f.Src[5]++ }).Packet(80, 1)},
		"masked MAC":     {h: driver.Headers{SrcMAC: driver.MaskedMAC{Address: driver.MAC{2}, Mask: driver.MAC{0xff}}}, yes: base.Packet(80, 1), no: with(func(f *Flow) { f.Src[0] = 6 }).Packet(80, 1), second: with(func(f *Flow) { f.Src[5]++ }).Packet(80, 1)},
		"EtherType":      {h: driver.Headers{EtherType: exact16(0x88b5)}, yes: Frame(e.NIC.MAC(), 80, 1), no: base.Packet(80, 1)},
		"VLAN":           {h: driver.Headers{VLAN: exact16(5)}, yes: tagged.Packet(80, 1), no: with(func(f *Flow) { f.VLANs = []uint16{6} }).Packet(80, 1), otherwise: base.Packet(80, 1)},
		"VLAN 0":         {h: driver.Headers{VLAN: exact16(0)}, yes: with(func(f *Flow) { f.VLANs = []uint16{0} }).Packet(80, 1), no: base.Packet(80, 1)},
		"priority":       {h: driver.Headers{VLANPriority: exact8(3)}, yes: tagged.Packet(80, 1), no: with(func(f *Flow) { f.VLANs = []uint16{5} }).Packet(80, 1)},
		"untagged":       {h: driver.Headers{Tag: driver.Untagged}, yes: base.Packet(80, 1), no: tagged.Packet(80, 1)},
		"tagged":         {h: driver.Headers{Tag: driver.CTagged}, yes: tagged.Packet(80, 1), no: base.Packet(80, 1)},
		"service tag":    {h: driver.Headers{Tag: driver.STagged}, yes: with(func(f *Flow) { f.VLANs = []uint16{1, 2} }).Packet(80, 1), no: tagged.Packet(80, 1)},
		"IPv4":           {h: driver.Headers{IPVersion: 4}, yes: base.Packet(80, 1), no: v6.Packet(80, 1), otherwise: Frame(e.NIC.MAC(), 80, 1)},
		"IPv6":           {h: driver.Headers{IPVersion: 6}, yes: v6.Packet(80, 1), no: base.Packet(80, 1)},
		"source IP":      {h: driver.Headers{SrcIP: prefix("192.0.2.1/32")}, yes: base.Packet(80, 1), no: with(func(f *Flow) { f.SrcIP = 3 }).Packet(80, 1)},
		"dest IP":        {h: driver.Headers{DstIP: prefix("198.51.100.2/32")}, yes: base.Packet(80, 1), no: with(func(f *Flow) { f.DstIP = 3 }).Packet(80, 1)},
		"prefix":         {h: driver.Headers{DstIP: prefix("198.51.100.0/30")}, yes: base.Packet(80, 1), no: with(func(f *Flow) { f.DstIP = 4 }).Packet(80, 1), second: with(func(f *Flow) { f.DstIP = 3 }).Packet(80, 1)},
		"source IPv6":    {h: driver.Headers{SrcIP: prefix("fd00::101/128")}, yes: v6.Packet(80, 1), no: with(func(f *Flow) { f.V6, f.SrcIP = true, 9 }).Packet(80, 1), otherwise: base.Packet(80, 1)},
		"dest IPv6 /112": {h: driver.Headers{DstIP: prefix("fd00::/112")}, yes: v6.Packet(80, 1), no: base.Packet(80, 1)},
		"protocol":       {h: driver.Headers{Protocol: udp}, yes: u.Packet(80, 1), no: base.Packet(80, 1)},
		"TCP source":     {h: driver.Headers{Protocol: tcp, SrcPort: exact16(1000)}, yes: base.Packet(80, 1), no: with(func(f *Flow) { f.SrcPort = 9 }).Packet(80, 1), otherwise: u.Packet(80, 1)},
		"TCP dest":       {h: driver.Headers{Protocol: tcp, DstPort: exact16(2000)}, yes: base.Packet(80, 1), no: with(func(f *Flow) { f.DstPort = 9 }).Packet(80, 1), second: with(func(f *Flow) { f.V6 = true }).Packet(80, 1)},
		"UDP source":     {h: driver.Headers{Protocol: udp, SrcPort: exact16(1000)}, yes: u.Packet(80, 1), no: with(func(f *Flow) { f.UDP, f.SrcPort = true, 9 }).Packet(80, 1), otherwise: base.Packet(80, 1)},
		"UDP dest":       {h: driver.Headers{Protocol: udp, DstPort: exact16(2000)}, yes: u.Packet(80, 1), no: with(func(f *Flow) { f.UDP, f.DstPort = true, 9 }).Packet(80, 1)},
		"masked port":    {h: driver.Headers{Protocol: tcp, DstPort: driver.Masked[uint16]{Value: 2000, Mask: 0xfff0}}, yes: base.Packet(80, 1), no: with(func(f *Flow) { f.DstPort = 2016 }).Packet(80, 1), second: with(func(f *Flow) { f.DstPort = 2015 }).Packet(80, 1)},
		"TCP flags":      {h: driver.Headers{Protocol: tcp, TCPFlags: driver.Masked[uint16]{Value: 2, Mask: 2}}, yes: change(base, 14+20+13, 0x02), no: base.Packet(80, 1)},
		"DSCP":           {h: driver.Headers{IPVersion: 4, DSCP: exact8(46)}, yes: change(base, 15, 46<<2|1), no: change(base, 15, 10<<2|1)},
		"ECN":            {h: driver.Headers{IPVersion: 4, ECN: exact8(3)}, yes: change(base, 15, 46<<2|3), no: change(base, 15, 46<<2|1)},
		"TTL":            {h: driver.Headers{IPVersion: 4, TTL: exact8(1)}, yes: change(base, 14+8, 1), no: change(base, 14+8, 2)},
		"fragments":      {h: driver.Headers{Fragment: driver.Yes}, yes: change(base, 14+6, 0x20), no: base.Packet(80, 1)},
		"no fragments":   {h: driver.Headers{IPVersion: 4, Fragment: driver.No}, yes: base.Packet(80, 1), no: change(base, 14+6, 0x20)},
	} {
		// DSCP's and ECN's exact masks are wider than the fields.
		id := e.add(driver.Rule{Match: driver.Match{Headers: c.h}, Action: driver.RuleQueue, Queue: 3})
		e.arrives(what, c.yes, 3)
		e.arrives(what+", other value", c.no, 0)
		if c.second != nil {
			e.arrives(what+", second value", c.second, 3)
		}
		if c.otherwise != nil {
			e.arrives(what+", other kind", c.otherwise, 0)
		}
		e.remove(id)
		e.arrives(what+", without the rule", c.yes, 0)
	}
}

func rulesInTunnels(e *Env) {
	e.add(driver.Rule{Priority: 15, Action: driver.RuleQueue, Queue: 0})
	inside := Flow{Dst: peer(), Src: peer(), SrcIP: 5, DstIP: 6, SrcPort: 7, DstPort: 8}
	wrapped := func(t tunnel, f Flow) []byte {
		b := t.wrap(f.Packet(60, 1))
		copy(b, macBytes(e.NIC.MAC()))
		return b
	}
	other := inside
	other.DstPort = 9
	vxlan, gre := tunnels()[0], tunnels()[1]
	vni, none, key := vxlan, vxlan, gre
	none.header = []byte{8, 0, 0, 0, 0, 0, 0, 0}
	vni.header = []byte{8, 0, 0, 0, 0, 0x12, 0x35, 0}
	key.header = []byte{0x20, 0, 0x65, 0x58, 0, 0, 0, 78}
	exact8, exact16, exact32 := driver.Exactly[uint8], driver.Exactly[uint16], driver.Exactly[uint32]
	for what, c := range map[string]struct {
		m       driver.Match
		yes, no []byte
	}{
		"VNI": {driver.Match{Headers: driver.Headers{Protocol: exact8(17)}, Tunnel: driver.Tunnelled{VNI: exact32(0x1234)}},
			wrapped(vxlan, inside), wrapped(vni, inside)},
		"VNI 0": {driver.Match{Headers: driver.Headers{Protocol: exact8(17)}, Tunnel: driver.Tunnelled{VNI: exact32(0)}},
			wrapped(none, inside), Flow{Dst: e.NIC.MAC(), Src: peer(), UDP: true, SrcPort: 5, DstPort: 6}.Packet(60, 1)},
		"GRE key": {driver.Match{Headers: driver.Headers{Protocol: exact8(47)}, Tunnel: driver.Tunnelled{GREKey: exact32(77)}},
			wrapped(gre, inside), wrapped(key, inside)},
		"inner TCP port": {driver.Match{Inner: driver.Headers{Protocol: exact8(6), DstPort: exact16(8)}},
			wrapped(vxlan, inside), wrapped(vxlan, other)},
		"inner address": {driver.Match{Inner: driver.Headers{SrcIP: prefix("192.0.2.5/32")}},
			wrapped(gre, inside), Flow{Dst: e.NIC.MAC(), Src: peer(), SrcIP: 5}.Packet(60, 1)},
	} {
		id := e.add(driver.Rule{Match: c.m, Action: driver.RuleQueue, Queue: 2})
		e.arrives(what, c.yes, 2)
		e.arrives(what+", other", c.no, 0)
		e.remove(id)
	}
}

func rulesByPriority(e *Env) {
	f := Flow{Dst: e.NIC.MAC(), Src: peer(), SrcPort: 1, DstPort: 2}.Packet(60, 1)
	var ids []driver.RuleID
	order := []int{7, 2, 12, 0, 15} // as they are added
	for _, p := range order {
		ids = append(ids, e.add(driver.Rule{Priority: p, Action: driver.RuleQueue, Queue: p % 4}))
	}
	for _, p := range []int{0, 2, 7, 12, 15} {
		e.arrives("first priority left", f, p%4)
		for i := range order {
			if order[i] == p {
				e.remove(ids[i])
			}
		}
	}
	if rules, err := e.NIC.Rules(e.Ctx); err != nil || len(rules) != 0 {
		e.Errorf("rules left: %v, %v", rules, err)
	}
}

func rulesAct(e *Env) {
	udp := driver.Headers{Protocol: driver.Exactly[uint8](17)}
	ours := Flow{Dst: e.NIC.MAC(), Src: peer(), UDP: true, SrcPort: 4, DstPort: 5}.Packet(60, 1)
	tcp := Flow{Dst: e.NIC.MAC(), Src: peer()}.Packet(60, 2)
	drop := e.add(driver.Rule{Priority: 3, Match: driver.Match{Headers: udp}, Action: driver.RuleDrop, Count: true})
	to := e.add(driver.Rule{Priority: 5, Action: driver.RuleQueue, Queue: 1, Tag: 0xabcdef, Count: true})
	e.Send(ours, ours, tcp)
	e.ReceiveEach(1, 1, func(p *driver.Packet) {
		if p.FlowTag != 0xabcdef || len(p.Data) != len(tcp) {
			e.Errorf("tag %#x, %d bytes", p.FlowTag, len(p.Data))
		}
	})
	counted := func(id driver.RuleID, frames, bytes uint64) {
		e.Helper()
		n, b, err := e.NIC.RuleCounter(e.Ctx, id)
		if err != nil || n != frames || b != bytes {
			e.Errorf("rule %d counted %d frames of %d bytes, %v; want %d of %d", id, n, b, err, frames, bytes)
		}
	}
	counted(drop, 2, uint64(2*len(ours)))
	counted(to, 1, uint64(len(tcp)))

	// What passes meets no rule of lower priority.
	pass := e.add(driver.Rule{Priority: 1, Match: driver.Match{Headers: udp}, Count: true})
	g, err := e.NIC.NewQueueGroup(e.Ctx, driver.GroupConfig{Queues: []int{3}})
	e.Must(err)
	e.Must(e.NIC.DefaultGroup().SetQueues(e.Ctx, []int{2}))
	e.arrives("passed", ours, 2)
	counted(pass, 1, uint64(len(ours)))
	e.remove(pass)
	e.remove(drop)
	e.remove(to)
	in := e.add(driver.Rule{Match: driver.Match{Headers: udp}, Action: driver.RuleGroup, Group: g, Tag: 7})
	e.Send(ours)
	e.ReceiveEach(3, 1, func(p *driver.Packet) {
		if p.FlowTag != 7 || p.RSSHash == 0 {
			e.Errorf("tag %#x, hash %#x", p.FlowTag, p.RSSHash)
		}
	})
	if err := g.Close(e.Ctx); !errors.Is(err, driver.ErrGroupInUse) {
		e.Errorf("close of a group in use: %v", err)
	}
	e.remove(in)
	all := e.add(driver.Rule{Action: driver.RuleGroup, Group: g, Tag: 8}) // any kind of frame
	for _, f := range [][]byte{ours, tcp, Frame(e.NIC.MAC(), 60, 1)} {
		e.Send(f)
		e.ReceiveEach(3, 1, func(p *driver.Packet) {
			if p.FlowTag != 8 {
				e.Errorf("tag %#x", p.FlowTag)
			}
		})
	}
	e.remove(all)
	e.Must(g.Close(e.Ctx))
	if err := e.NIC.RemoveRule(e.Ctx, all); !errors.Is(err, driver.ErrAbsent) {
		e.Errorf("second removal: %v", err)
	}
}

// rulesUnderTraffic moves a flow between two queues while its frames come: each arrives once, and in order on
// its queue.
func rulesUnderTraffic(e *Env) {
	const total = 4000
	frames := Frames(e.NIC.MAC(), total, 64)
	stop := make(chan struct{})
	e.Background(func(e *Env) {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			id := e.add(driver.Rule{Priority: i % 3, Action: driver.RuleQueue, Queue: 1, Count: i%2 == 0})
			e.remove(id)
		}
	})
	e.Background(func(e *Env) { e.Send(frames...) })
	e.receiveAll(total, func(q int, p *driver.Packet) {})
	close(stop)
}

// receiveAll serves all queues until n frames have come.
func (e *Env) receiveAll(n int, f func(q int, p *driver.Packet)) {
	e.Helper()
	var pkts [32]driver.Packet
	e.Until("all frames", func() bool {
		for moved := true; moved && n > 0; {
			moved = false
			for q := range e.NIC.Queues() {
				rx := e.NIC.RxQueue(q)
				k := rx.Poll(pkts[:])
				for i := range pkts[:k] {
					f(q, &pkts[i])
				}
				rx.Release(pkts[:k])
				n -= k
				moved = moved || k > 0
			}
		}
		return n <= 0
	})
}

func rulesRefused(e *Env) {
	exact16, udp := driver.Exactly[uint16], driver.Headers{Protocol: driver.Exactly[uint8](17)}
	for what, r := range map[string]driver.Rule{
		"priority":              {Priority: driver.RulePriorities},
		"negative priority":     {Priority: -1},
		"queue":                 {Action: driver.RuleQueue, Queue: 2},
		"queue for drop":        {Action: driver.RuleDrop, Queue: 1},
		"tag":                   {Action: driver.RuleQueue, Tag: driver.MaxRuleTag + 1},
		"tag for drop":          {Action: driver.RuleDrop, Tag: 1},
		"action":                {Action: 9},
		"port without protocol": {Match: driver.Match{Headers: driver.Headers{DstPort: exact16(80)}}},
		"VLAN too large":        {Match: driver.Match{Headers: driver.Headers{VLAN: exact16(4096)}}},
		"two IP versions":       {Match: driver.Match{Headers: driver.Headers{SrcIP: prefix("1.2.3.4/32"), DstIP: prefix("fd00::/8")}}},
		"VNI without UDP":       {Match: driver.Match{Tunnel: driver.Tunnelled{VNI: driver.Exactly[uint32](1)}}},
		"two kinds of tunnel":   {Match: driver.Match{Headers: udp, Tunnel: driver.Tunnelled{VNI: driver.Exactly[uint32](1), TEID: driver.Exactly[uint32](1)}}},
		"GENEVE without UDP":    {Match: driver.Match{Tunnel: driver.Tunnelled{GENEVEVNI: driver.Exactly[uint32](1)}}},
		"VNI of 25 bits":        {Match: driver.Match{Headers: udp, Tunnel: driver.Tunnelled{GENEVEVNI: driver.Exactly[uint32](1 << 24)}}},
		"MPLS in VXLAN":         {Match: driver.Match{Headers: udp, Tunnel: driver.Tunnelled{VNI: driver.Exactly[uint32](1), MPLS: driver.Exactly[uint32](1)}}},
		"ICMP type of TCP":      {Match: driver.Match{Headers: driver.Headers{Protocol: driver.Exactly[uint8](6), ICMPType: driver.Exactly[uint8](8)}}},
		"ICMP in a tunnel":      {Match: driver.Match{Inner: driver.Headers{Protocol: driver.Exactly[uint8](1), ICMPType: driver.Exactly[uint8](8)}}},
		"flow label of IPv4":    {Match: driver.Match{Headers: driver.Headers{IPVersion: 4, FlowLabel: driver.Exactly[uint32](1)}}},
		"flow label too large":  {Match: driver.Match{Headers: driver.Headers{IPVersion: 6, FlowLabel: driver.Exactly[uint32](1 << 20)}}},
		"SPI of UDP":            {Match: driver.Match{Headers: driver.Headers{Protocol: driver.Exactly[uint8](17), SPI: driver.Exactly[uint32](1)}}},
		"second VLAN too large": {Match: driver.Match{Headers: driver.Headers{SecondVLAN: exact16(4096)}}},
		"second VLAN untagged":  {Match: driver.Match{Headers: driver.Headers{SecondTag: driver.Untagged, SecondVLAN: exact16(1)}}},
		"untagged VLAN":         {Match: driver.Match{Headers: driver.Headers{Tag: driver.Untagged, VLAN: exact16(1)}}},
	} {
		if _, err := e.NIC.AddRule(e.Ctx, r); err == nil {
			e.Errorf("%s: accepted", what)
		}
	}
	_, err := e.NIC.AddRule(e.Ctx, driver.Rule{Match: driver.Match{Inner: driver.Headers{TTL: driver.Exactly[uint8](1)}}})
	var lacks *driver.UnsupportedError
	if !errors.As(err, &lacks) {
		e.Errorf("inner TTL: %v", err)
	}
	if _, err := e.NIC.NewQueueGroup(e.Ctx, driver.GroupConfig{}); err == nil {
		e.Error("a group without queues was made")
	}
	if _, err := e.NIC.NewQueueGroup(e.Ctx, driver.GroupConfig{Queues: []int{5}}); err == nil {
		e.Error("a group of a queue that is not there was made")
	}
	if err := e.NIC.DefaultGroup().Close(e.Ctx); err == nil {
		e.Error("the default group was closed")
	}
}

// manyRules fills tables with rules of several shapes, removes half and sees that the rest applies.
func manyRules(e *Env) {
	const rules = 600
	ids := make([]driver.RuleID, rules)
	match := func(i int) driver.Match {
		h := driver.Headers{Protocol: driver.Exactly[uint8](17), DstPort: driver.Exactly(uint16(i))}
		if i%3 == 0 {
			h.SrcIP = prefix("192.0.2.1/32")
		}
		return driver.Match{Headers: h}
	}
	for i := range rules {
		ids[i] = e.add(driver.Rule{Priority: 2, Match: match(i), Action: driver.RuleQueue, Queue: 1 + i%3})
	}
	for i := 0; i < rules; i += 2 {
		e.remove(ids[i])
	}
	e.Must(e.NIC.DefaultGroup().SetQueues(e.Ctx, []int{0}))
	for i := range rules {
		want := 0
		if i%2 == 1 {
			want = 1 + i%3
		}
		if i%13 < 2 {
			e.arrives("rule", Flow{Dst: e.NIC.MAC(), Src: peer(), UDP: true, SrcIP: 1, DstPort: uint16(i)}.Packet(60, 1), want)
		}
	}
}
