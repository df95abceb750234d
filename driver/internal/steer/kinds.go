package steer

import (
	"context"
	"errors"
	"fmt"

	"cxkit/driver/internal/object"
	"cxkit/prm"
)

// TIRs are where the kinds of traffic go, TIR numbers.
type TIRs struct {
	TCPv4, UDPv4, TCPv6, UDPv6 uint32
	IPv4, IPv6                 uint32 // other protocols, fragments
	Other                      uint32 // not IP
	// Inner are those of frames in GRE and IP tunnels, by what is inside; nil does not look there. VXLAN
	// goes by its outer ports, which its senders choose by what is inside.
	Inner *TIRs
}

// kind is one of the TIRs and what goes there.
type trafficKind struct {
	ethertype uint16
	version   uint8
	protocol  uint8
	tirn      uint32
}

const (
	ipv4, ipv6 = 0x0800, 0x86dd
	tcp, udp   = 6, 17

	protocolIPv4, protocolIPv6, protocolGRE = 4, 41, 47
)

func (t *TIRs) kinds() []trafficKind {
	return []trafficKind{
		{ipv4, 4, tcp, t.TCPv4}, {ipv4, 4, udp, t.UDPv4}, {ipv6, 6, tcp, t.TCPv6}, {ipv6, 6, udp, t.UDPv6},
		{ipv4, 4, 0, t.IPv4}, {ipv6, 6, 0, t.IPv6}, {0, 0, 0, t.Other},
	}
}

// Direct is the TIR of frames of which IP version (4 or 6) and protocol are known, 0 if that takes a look at
// more.
func (t *TIRs) Direct(version, protocol uint8) uint32 {
	if version == 0 || protocol == 0 || t.Inner != nil && (protocol == protocolIPv4 || protocol == protocolIPv6 || protocol == protocolGRE) {
		return 0
	}
	for _, k := range t.kinds() {
		if k.version == version && (k.protocol == protocol || k.protocol == 0) {
			return k.tirn
		}
	}
	return 0
}

// Kinds is the table that tells the kinds of traffic apart (mlx5e: traffic type classifier), with all its
// entries, and the one behind it for what is in tunnels.
type Kinds struct {
	book    *object.Book
	outer   *table
	inner   *table
	entries []entry
}

// NewKinds makes the tables. On error nothing is left behind that firmware gives back.
func NewKinds(ctx context.Context, book *object.Book, logMax uint8, tirs *TIRs) (*Kinds, error) {
	k := &Kinds{book: book}
	if err := k.build(ctx, logMax, tirs); err != nil {
		return nil, errors.Join(err, k.Close(context.WithoutCancel(ctx)))
	}
	return k, nil
}

func (k *Kinds) build(ctx context.Context, logMax uint8, tirs *TIRs) (err error) {
	size := min(ttcLog, max(logMax, 2))
	if tirs.Inner != nil {
		if k.inner, err = newTable(ctx, k.book, innerLevel, size); err != nil {
			return err
		}
		if err = k.fillInner(ctx, tirs.Inner); err != nil {
			return err
		}
	}
	if k.outer, err = newTable(ctx, k.book, ttcLevel, size); err != nil {
		return err
	}
	return k.fillOuter(ctx, tirs)
}

// fillOuter makes the entries by Ethernet type and protocol.
func (k *Kinds) fillOuter(ctx context.Context, tirs *TIRs) error {
	const ethertype, protocol = 0xffff, 0xff
	protocols := uint32(4)
	if k.inner != nil {
		protocols += 6
	}
	byProtocol, err := k.outer.group(ctx, protocols, &prm.MatchLayer24{Ethertype: ethertype, IPProtocol: protocol})
	if err != nil {
		return err
	}
	byEthertype, err := k.outer.group(ctx, 2, &prm.MatchLayer24{Ethertype: ethertype})
	if err != nil {
		return err
	}
	rest, err := k.outer.group(ctx, 1, nil)
	if err != nil {
		return err
	}
	for _, kind := range tirs.kinds() {
		g := rest
		switch {
		case kind.protocol != 0:
			g = byProtocol
		case kind.ethertype != 0:
			g = byEthertype
		}
		value := &prm.MatchLayer24{Ethertype: kind.ethertype, IPProtocol: kind.protocol}
		if err := k.add(ctx, g, &prm.MatchParam{Outer: *value}, toTIR(kind.tirn)); err != nil {
			return err
		}
	}
	if k.inner == nil {
		return nil
	}
	for _, et := range []uint16{ipv4, ipv6} {
		for _, p := range []uint8{protocolIPv4, protocolIPv6, protocolGRE} {
			value := &prm.MatchParam{Outer: prm.MatchLayer24{Ethertype: et, IPProtocol: p}}
			if err := k.add(ctx, byProtocol, value, toTable(k.inner)); err != nil {
				return err
			}
		}
	}
	return nil
}

// fillInner makes the entries by inner IP version and protocol (Linux fs_ttc.c,
// mlx5_create_inner_ttc_table_groups).
func (k *Kinds) fillInner(ctx context.Context, tirs *TIRs) error {
	t := k.inner
	var groups []*group
	for _, g := range []struct {
		n    uint32
		mask prm.MatchLayer24
	}{{4, prm.MatchLayer24{IPVersion: 0xf, IPProtocol: 0xff}}, {2, prm.MatchLayer24{IPVersion: 0xf}}, {1, prm.MatchLayer24{}}} {
		enable := prm.MatchInnerHeaders
		if g.mask == (prm.MatchLayer24{}) {
			enable = 0
		}
		made, err := t.groupAt(ctx, t.used, g.n, enable, &prm.MatchParam{Inner: g.mask})
		if err != nil {
			return err
		}
		t.made = append(t.made, made.object)
		t.used += g.n
		groups = append(groups, made)
	}
	for _, kind := range tirs.kinds() {
		g := groups[2]
		switch {
		case kind.protocol != 0:
			g = groups[0]
		case kind.version != 0:
			g = groups[1]
		}
		value := &prm.MatchParam{Inner: prm.MatchLayer24{IPVersion: kind.version, IPProtocol: kind.protocol}}
		if err := k.add(ctx, g, value, toTIR(kind.tirn)); err != nil {
			return err
		}
	}
	return nil
}

func (k *Kinds) add(ctx context.Context, g *group, value *prm.MatchParam, to prm.DestFormat) error {
	e, err := g.set(ctx, value, &Action{Flow: prm.FlowActionForward, To: []prm.DestFormat{to}})
	if err != nil {
		return fmt.Errorf("steer to %v %#x: %w", to.DestinationType, to.DestinationID, err)
	}
	k.entries = append(k.entries, e)
	return nil
}

// To is the table as a destination.
func (k *Kinds) To() prm.DestFormat { return toTable(k.outer) }

// Close takes the tables down; nothing leads to them any more.
func (k *Kinds) Close(ctx context.Context) error {
	var errs []error
	for len(k.entries) > 0 {
		last := len(k.entries) - 1
		errs = append(errs, k.entries[last].remove(ctx))
		k.entries = k.entries[:last]
	}
	for _, t := range []**table{&k.outer, &k.inner} {
		if *t != nil {
			errs = append(errs, (*t).destroy(ctx))
			*t = nil
		}
	}
	return errors.Join(errs...)
}
