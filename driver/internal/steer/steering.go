package steer

import (
	"context"
	"errors"
	"fmt"

	"cxkit/driver/internal/cmdif"
	"cxkit/driver/internal/object"
	"cxkit/prm"
)

// Config is what a Steering works with.
type Config struct {
	Exec    cmdif.Executor
	Objects *object.Book
	TIRs    TIRs
	// LogMaxSize is the largest table the card allows.
	LogMaxSize uint8
}

// Levels of the tables: a table may send to higher levels only. Level 0 is for a table in front of all, those
// of Flows come next.
const (
	flowLevel = 1
	vlanLevel = flowLevel + Priorities + iota - 1
	l2Level
	ttcLevel
	innerLevel
)

// Sizes of the tables as powers of two. Every VLAN has an entry; addresses have what mlx5e's hash tables
// make of common hosts; 7 kinds of traffic and 6 of tunnels.
const (
	vlanLog = 13
	l2Log   = 12
	ttcLog  = 4
)

// Steering is the tables of one NIC and the entries in force.
type Steering struct {
	config Config
	rooted bool

	vlan, l2                         *table
	vids, ctag, stag                 *group
	addresses, multicast, anyAddress *group

	ttc     *Kinds
	entries map[rule]entry
}

// New makes the tables with no rule: no frame arrives yet. On error nothing is left behind that firmware
// gives back.
func New(ctx context.Context, config Config) (*Steering, error) {
	s := &Steering{config: config, entries: make(map[rule]entry)}
	if err := s.build(ctx); err != nil {
		return nil, errors.Join(err, s.Close(context.WithoutCancel(ctx)))
	}
	return s, nil
}

func (s *Steering) build(ctx context.Context) (err error) {
	for _, step := range []func(context.Context) error{s.buildTTC, s.buildL2, s.buildVLAN, s.setRoot} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *Steering) newTable(ctx context.Context, level, logSize uint8) (*table, error) {
	return newTable(ctx, s.config.Objects, level, min(logSize, max(s.config.LogMaxSize, 2)))
}

// Kinds is the table of kinds of traffic as a destination: past the filters.
func (s *Steering) Kinds() prm.DestFormat { return s.ttc.To() }

// First is the table that frames are looked up in first, unless Flows come before it.
func (s *Steering) First() uint32 { return s.vlan.object.Number }

func (s *Steering) buildTTC(ctx context.Context) (err error) {
	s.ttc, err = NewKinds(ctx, s.config.Objects, s.config.LogMaxSize, &s.config.TIRs)
	return err
}

// buildL2 makes the table of destination addresses.
func (s *Steering) buildL2(ctx context.Context) (err error) {
	if s.l2, err = s.newTable(ctx, l2Level, l2Log); err != nil {
		return err
	}
	all := MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	if s.addresses, err = s.l2.group(ctx, s.l2.size-2, &prm.MatchLayer24{DMAC: all}); err != nil {
		return err
	}
	if s.multicast, err = s.l2.group(ctx, 1, &prm.MatchLayer24{DMAC: MAC{1}}); err != nil {
		return err
	}
	s.anyAddress, err = s.l2.group(ctx, 1, nil)
	return err
}

// buildVLAN makes the table of tags.
func (s *Steering) buildVLAN(ctx context.Context) (err error) {
	if s.vlan, err = s.newTable(ctx, vlanLevel, vlanLog); err != nil {
		return err
	}
	if s.vids, err = s.vlan.group(ctx, min(4096, s.vlan.size-3), &prm.MatchLayer24{CVLANTag: true, FirstVID: 0xfff}); err != nil {
		return err
	}
	if s.ctag, err = s.vlan.group(ctx, 2, &prm.MatchLayer24{CVLANTag: true}); err != nil {
		return err
	}
	s.stag, err = s.vlan.group(ctx, 1, &prm.MatchLayer24{SVLANTag: true})
	return err
}

func (s *Steering) setRoot(ctx context.Context) error {
	in := &prm.SetFlowTableRootIn{TableType: prm.FlowTableNICRX, TableID: s.vlan.object.Number}
	if err := s.config.Exec.Exec(ctx, in, &prm.SetFlowTableRootOut{}); err != nil {
		return fmt.Errorf("set root flow table %#x: %w", s.vlan.object.Number, err)
	}
	s.rooted = true
	return nil
}

// Grow adds the entries that rules need and that are not in force. On error some may have been added.
func (s *Steering) Grow(ctx context.Context, rules *Rules) error {
	for _, r := range sorted(rules.set()) {
		if _, in := s.entries[r]; in {
			continue
		}
		e, err := s.add(ctx, r)
		if err != nil {
			return fmt.Errorf("steer %v: %w", r, err)
		}
		s.entries[r] = e
	}
	return nil
}

// Shrink removes the entries in force that rules do not need.
func (s *Steering) Shrink(ctx context.Context, rules *Rules) error {
	want := rules.set()
	surplus := make(map[rule]bool)
	for r := range s.entries {
		if !want[r] {
			surplus[r] = true
		}
	}
	var errs []error
	for _, r := range sorted(surplus) {
		if err := s.entries[r].remove(ctx); err != nil {
			errs = append(errs, fmt.Errorf("stop steering %v: %w", r, err))
			continue
		}
		delete(s.entries, r)
	}
	return errors.Join(errs...)
}

func (s *Steering) add(ctx context.Context, r rule) (entry, error) {
	toL2, toTTC := toTable(s.l2), s.ttc.To()
	switch r.kind {
	case l2Address:
		return s.addresses.add(ctx, &prm.MatchLayer24{DMAC: r.mac}, toTTC)
	case l2Multicast:
		return s.multicast.add(ctx, &prm.MatchLayer24{DMAC: MAC{1}}, toTTC)
	case l2Any:
		return s.anyAddress.add(ctx, &prm.MatchLayer24{}, toTTC)
	case untagged:
		return s.ctag.add(ctx, &prm.MatchLayer24{}, toL2)
	case vlanID:
		return s.vids.add(ctx, &prm.MatchLayer24{CVLANTag: true, FirstVID: r.vid}, toL2)
	case anyCTag:
		return s.ctag.add(ctx, &prm.MatchLayer24{CVLANTag: true}, toL2)
	default:
		return s.stag.add(ctx, &prm.MatchLayer24{SVLANTag: true}, toL2)
	}
}

func (r rule) String() string {
	switch r.kind {
	case l2Address:
		return fmt.Sprintf("address %x", r.mac)
	case l2Multicast:
		return "all multicast"
	case l2Any:
		return "all addresses"
	case untagged:
		return "untagged frames"
	case vlanID:
		return fmt.Sprintf("VLAN %d", r.vid)
	case anyCTag:
		return "all C-VLANs"
	}
	return "all S-VLANs"
}

// Close takes everything down, entries first. No frame arrives afterwards.
func (s *Steering) Close(ctx context.Context) error {
	errs := []error{s.Shrink(ctx, &Rules{VLANFilter: true})} // leaves the entry for untagged frames
	if e, in := s.entries[rule{kind: untagged}]; in {
		errs = append(errs, e.remove(ctx))
		delete(s.entries, rule{kind: untagged})
	}
	if s.rooted {
		in := &prm.SetFlowTableRootIn{OpMod: rootDisconnect, TableType: prm.FlowTableNICRX, TableID: s.vlan.object.Number}
		errs = append(errs, s.config.Exec.Exec(ctx, in, &prm.SetFlowTableRootOut{}))
		s.rooted = false
	}
	for _, t := range []**table{&s.vlan, &s.l2} {
		if *t != nil {
			errs = append(errs, (*t).destroy(ctx))
			*t = nil
		}
	}
	if s.ttc != nil {
		errs = append(errs, s.ttc.Close(ctx))
		s.ttc = nil
	}
	return errors.Join(errs...)
}

// rootDisconnect is the op_mod of SET_FLOW_TABLE_ROOT that leaves the domain without a root.
const rootDisconnect = 1
