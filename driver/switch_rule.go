package driver

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"cxkit/driver/internal/eswitch"
	"cxkit/driver/internal/object"
	"cxkit/prm"
)

// SwitchMatch says which frames a rule of the e-switch takes: those that agree in every field that is set.
type SwitchMatch struct {
	// From is the vport that they come from; nil: any.
	From *Vport
	// Destination and Source are MAC addresses.
	Destination, Source *MAC
	// EtherType is the innermost one, behind tags; 0: any.
	EtherType uint16
	// VLAN is the outer tag's id; nil: any, tagged or not.
	VLAN *uint16
	// Protocol is the IP protocol, which needs addresses or an EtherType to tell IPv4 from IPv6.
	Protocol uint8
	// SourceIP and DestinationIP are of one version; the zero values are any.
	SourceIP, DestinationIP netip.Addr
	// SourcePort and DestinationPort are those of TCP or UDP, as Protocol says; 0: any.
	SourcePort, DestinationPort uint16
}

// SwitchAction is what becomes of the frames of a rule. Without a destination they are dropped.
type SwitchAction struct {
	// To are the vports that get the frame, each once: several mirror it.
	To []Vport
	// Pop takes the outer VLAN tag away; Push then puts one in front. Neither goes with a drop.
	Pop  bool
	Push *VLANTag
	// Count counts the frames: SwitchRule.Count.
	Count bool
}

// VLANTag is an 802.1Q tag.
type VLANTag struct {
	ID       uint16
	Priority uint8
}

// SwitchRule is a rule in force.
type SwitchRule struct {
	installed eswitch.Installed
	counter   object.Object
	counted   bool
}

// compile makes mask and value of a match.
func (m *SwitchMatch) compile(r *eswitch.Rule) error {
	outer, value := &r.Mask.Outer, &r.Value.Outer
	if m.From != nil {
		r.Enable |= prm.MatchMiscParameters
		r.Mask.Misc.SourcePort, r.Value.Misc.SourcePort = 0xffff, uint16(*m.From)
	}
	all := MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	if m.Destination != nil {
		outer.DMAC, value.DMAC = all, *m.Destination
	}
	if m.Source != nil {
		outer.SMAC, value.SMAC = all, *m.Source
	}
	if m.VLAN != nil {
		if *m.VLAN > maxVID {
			return fmt.Errorf("VLAN %d: ids end at %d", *m.VLAN, maxVID)
		}
		outer.CVLANTag, value.CVLANTag = true, true
		outer.FirstVID, value.FirstVID = 0xfff, *m.VLAN
	}
	if m.EtherType != 0 {
		outer.Ethertype, value.Ethertype = 0xffff, m.EtherType
	}
	if err := m.compileIP(outer, value); err != nil {
		return err
	}
	if *outer != (prm.MatchLayer24{}) {
		r.Enable |= prm.MatchOuterHeaders
	}
	return nil
}

func (m *SwitchMatch) compileIP(outer, value *prm.MatchLayer24) error {
	const ipv4, ipv6 = 0x0800, 0x86dd
	for _, a := range []struct {
		addr        netip.Addr
		mask, value *[16]byte
	}{
		{m.SourceIP, &outer.SrcIPv6, &value.SrcIPv6}, {m.DestinationIP, &outer.DstIPv6, &value.DstIPv6},
	} {
		if !a.addr.IsValid() {
			continue
		}
		version := uint16(ipv6)
		if a.addr.Is4() {
			version = ipv4
		}
		if value.Ethertype != 0 && value.Ethertype != version {
			return errors.New("addresses of one IP version, and its EtherType")
		}
		outer.Ethertype, value.Ethertype = 0xffff, version
		if a.addr.Is4() {
			v4 := a.addr.As4()
			copy(a.mask[12:], []byte{0xff, 0xff, 0xff, 0xff})
			copy(a.value[12:], v4[:])
			continue
		}
		*a.value = a.addr.As16()
		for i := range a.mask {
			a.mask[i] = 0xff
		}
	}
	if m.Protocol != 0 {
		if value.Ethertype != ipv4 && value.Ethertype != ipv6 {
			return errors.New("an IP protocol without an IP version")
		}
		outer.IPProtocol, value.IPProtocol = 0xff, m.Protocol
	}
	if m.SourcePort == 0 && m.DestinationPort == 0 {
		return nil
	}
	maskOf := func(port uint16) uint16 {
		if port == 0 {
			return 0
		}
		return 0xffff
	}
	switch m.Protocol {
	case protocolTCP:
		outer.TCPSPort, value.TCPSPort = maskOf(m.SourcePort), m.SourcePort
		outer.TCPDPort, value.TCPDPort = maskOf(m.DestinationPort), m.DestinationPort
	case protocolUDP:
		outer.UDPSPort, value.UDPSPort = maskOf(m.SourcePort), m.SourcePort
		outer.UDPDPort, value.UDPDPort = maskOf(m.DestinationPort), m.DestinationPort
	default:
		return errors.New("ports without TCP or UDP")
	}
	return nil
}

// AddSwitchRule puts a rule of the e-switch into force, in hardware: its frames reach neither representor nor
// manager (ErrMode: not in switchdev mode). Of rules with the same match fields no two may agree in their
// values; where rules with different fields take the same frame, the one whose fields were used first since
// the mode began decides. Rules end with the mode.
func (n *NIC) AddSwitchRule(ctx context.Context, m SwitchMatch, a SwitchAction) (*SwitchRule, error) {
	s, unlock, err := n.lockManaged(ctx)
	if err != nil {
		return nil, fmt.Errorf("add rule: %w", err)
	}
	defer unlock()
	if s.dev == nil {
		return nil, fmt.Errorf("add rule: %w", ErrMode)
	}
	rule := &eswitch.Rule{Pop: a.Pop}
	if err := m.compile(rule); err != nil {
		return nil, fmt.Errorf("add rule: match: %w", err)
	}
	for _, v := range a.To {
		if v != Uplink && int(v) > len(s.vfs) {
			return nil, fmt.Errorf("add rule: there is no vport %d", v)
		}
		rule.To = append(rule.To, uint16(v))
	}
	if a.Push != nil {
		if a.Push.ID > maxVID || a.Push.Priority > 7 {
			return nil, fmt.Errorf("add rule: VLAN %d with priority %d", a.Push.ID, a.Push.Priority)
		}
		rule.Push = &prm.VLANTag{EthType: 0x8100, VID: a.Push.ID, Prio: a.Push.Priority}
	}
	if len(a.To) == 0 && (a.Pop || a.Push != nil) {
		return nil, errors.New("add rule: tags of frames that are dropped")
	}
	r := &SwitchRule{}
	if a.Count {
		if r.counter, err = n.base.objects.Create(ctx, &prm.AllocFlowCounterIn{}, &prm.AllocFlowCounterOut{}); err != nil {
			return nil, fmt.Errorf("add rule: counter: %w", err)
		}
		r.counted, rule.Counter = true, r.counter.Number
	}
	if r.installed, err = s.dev.tables.Add(ctx, rule); err != nil {
		if r.counted {
			err = errors.Join(err, n.base.objects.Destroy(context.WithoutCancel(ctx), r.counter))
		}
		return nil, fmt.Errorf("add rule: %w", err)
	}
	s.dev.rules[r] = true
	return r, nil
}

// RemoveSwitchRule ends a rule; one that is not in force is ErrAbsent.
func (n *NIC) RemoveSwitchRule(ctx context.Context, r *SwitchRule) error {
	s, unlock, err := n.lockManaged(ctx)
	if err != nil {
		return fmt.Errorf("remove rule: %w", err)
	}
	defer unlock()
	if s.dev == nil || !s.dev.rules[r] {
		return fmt.Errorf("remove rule: %w", ErrAbsent)
	}
	return n.removeRule(ctx, s.dev, r)
}

func (n *NIC) removeRule(ctx context.Context, d *switchdev, r *SwitchRule) error {
	if err := r.installed.Remove(ctx); err != nil {
		return fmt.Errorf("remove rule: %w", err)
	}
	delete(d.rules, r)
	if !r.counted {
		return nil
	}
	return n.base.objects.Destroy(ctx, r.counter)
}

// SwitchRuleCount reads what a rule has counted.
func (n *NIC) SwitchRuleCount(ctx context.Context, r *SwitchRule) (Traffic, error) {
	if !r.counted {
		return Traffic{}, errors.New("the rule does not count")
	}
	out := prm.QueryFlowCounterOut{FlowStatistics: make([]prm.TrafficCounter, 1)}
	if err := n.base.objects.Exec(ctx, &prm.QueryFlowCounterIn{FlowCounterID: r.counter.Number}, &out); err != nil {
		return Traffic{}, fmt.Errorf("read counter: %w", err)
	}
	return Traffic{out.FlowStatistics[0].Packets, out.FlowStatistics[0].Octets}, nil
}
