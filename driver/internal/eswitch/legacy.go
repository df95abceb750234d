package eswitch

import (
	"context"
	"errors"
	"slices"

	"cxkit/prm"
)

// MAC is an Ethernet address.
type MAC [6]byte

// Group reports whether it is a group address.
func (m MAC) Group() bool { return m[0]&1 != 0 }

// Wants is what a vport wants to receive.
type Wants struct {
	Addresses []MAC // unicast and multicast
	// Multicast: all multicast. Promiscuous: all that comes from the uplink and is nobody else's.
	Multicast, Promiscuous bool
}

// Legacy is the tables of the legacy mode.
type Legacy struct {
	config     Config
	fdb        *table
	addresses  *group
	multicast  *group
	fromUplink *group

	wants   map[uint16]Wants
	entries map[MAC]*forward
	all     *forward // any multicast
	promisc *forward
}

// forward is an entry and where it leads.
type forward struct {
	entry
	to []uint16 // sorted
}

// NewLegacy makes the tables with no address. They are no root yet.
func NewLegacy(ctx context.Context, config Config) (*Legacy, error) {
	l := &Legacy{config: config, wants: map[uint16]Wants{}, entries: map[MAC]*forward{}}
	if err := l.build(ctx); err != nil {
		return nil, errors.Join(err, l.fdb.destroy(context.WithoutCancel(ctx)))
	}
	return l, nil
}

// legacyEntries holds the lists of many vports; the card allows more than a driver fills.
const legacyEntries = 1 << 16

func (l *Legacy) build(ctx context.Context) (err error) {
	if l.fdb, err = newTable(ctx, &l.config, place{kind: prm.FlowTableFDB}, legacyEntries, nil); err != nil {
		return err
	}
	full := prm.MatchParam{Outer: prm.MatchLayer24{DMAC: MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}}
	if l.addresses, err = l.fdb.group(ctx, l.fdb.size-2, prm.MatchOuterHeaders, &full); err != nil {
		return err
	}
	bit := prm.MatchParam{Outer: prm.MatchLayer24{DMAC: MAC{1}}}
	if l.multicast, err = l.fdb.group(ctx, 1, prm.MatchOuterHeaders, &bit); err != nil {
		return err
	}
	port := prm.MatchParam{Misc: prm.MatchMisc{SourcePort: 0xffff}}
	l.fromUplink, err = l.fdb.group(ctx, 1, prm.MatchMiscParameters, &port)
	return err
}

// Root makes the tables the e-switch's.
func (l *Legacy) Root(ctx context.Context) error { return l.fdb.root(ctx) }

// Set changes what a vport wants.
func (l *Legacy) Set(ctx context.Context, vport uint16, w Wants) error {
	before := l.wants[vport]
	l.wants[vport] = w
	touched := slices.Concat(before.Addresses, w.Addresses)
	if before.Multicast != w.Multicast || before.Promiscuous != w.Promiscuous {
		// Who wants all multicast has a place in every entry for a group address.
		for mac := range l.entries {
			if mac.Group() {
				touched = append(touched, mac)
			}
		}
	}
	slices.SortFunc(touched, func(a, b MAC) int { return slices.Compare(a[:], b[:]) })
	var errs []error
	for _, mac := range slices.Compact(touched) {
		value := prm.MatchParam{Outer: prm.MatchLayer24{DMAC: mac}}
		f, err := l.change(ctx, l.entries[mac], l.addresses, &value, l.destinations(mac))
		if errs = append(errs, err); f == nil {
			delete(l.entries, mac)
		} else {
			l.entries[mac] = f
		}
	}
	var all, promisc []uint16
	for v, w := range l.wants {
		if w.Multicast || w.Promiscuous {
			all = append(all, v)
		}
		if w.Promiscuous {
			promisc = append(promisc, v)
		}
	}
	if len(all) > 0 {
		all = append(all, Uplink)
	}
	var err error
	l.all, err = l.change(ctx, l.all, l.multicast, &prm.MatchParam{Outer: prm.MatchLayer24{DMAC: MAC{1}}}, all)
	errs = append(errs, err)
	l.promisc, err = l.change(ctx, l.promisc, l.fromUplink, &prm.MatchParam{Misc: prm.MatchMisc{SourcePort: Uplink}}, promisc)
	return errors.Join(append(errs, err)...)
}

// destinations are the vports that frames for an address go to.
func (l *Legacy) destinations(mac MAC) (to []uint16) {
	wanted := false
	for v, w := range l.wants {
		own := slices.Contains(w.Addresses, mac)
		wanted = wanted || own
		if own || mac.Group() && (w.Multicast || w.Promiscuous) {
			to = append(to, v)
		}
	}
	if !wanted {
		return nil
	}
	if mac.Group() {
		to = append(to, Uplink)
	}
	return to
}

// change makes an entry lead to vports, and to nothing if there are none.
func (l *Legacy) change(ctx context.Context, f *forward, g *group, value *prm.MatchParam, to []uint16) (*forward, error) {
	slices.Sort(to)
	switch {
	case f == nil && len(to) == 0:
		return nil, nil
	case f == nil:
		e, err := g.add(ctx, value, action{}, to...)
		if err != nil {
			return nil, err
		}
		return &forward{e, to}, nil
	case len(to) == 0:
		if err := f.remove(ctx); err != nil {
			return f, err
		}
		return nil, nil
	case slices.Equal(f.to, to):
		return f, nil
	}
	if err := f.redirect(ctx, to...); err != nil {
		return f, err
	}
	f.to = to
	return f, nil
}

// Close takes the tables down, which are no root any more, or the last.
func (l *Legacy) Close(ctx context.Context) error {
	var errs []error
	for mac, f := range l.entries {
		errs = append(errs, f.remove(ctx))
		delete(l.entries, mac)
	}
	for _, f := range []*forward{l.all, l.promisc} {
		if f != nil {
			errs = append(errs, f.remove(ctx))
		}
	}
	return errors.Join(append(errs, l.fdb.destroy(ctx))...)
}
