package eswitch

import (
	"context"
	"errors"
	"slices"

	"cxkit/prm"
)

// Levels of the switchdev mode's tables.
const (
	rulesLevel = iota
	slowLevel
)

const (
	// maxRules is how many rules there is room for, with the largest tables that the card has.
	maxRules = 1 << 18
	// maxQueues is how many send queues of representors there are at most.
	maxQueues = 1 << 10
	// firstGroup is how many entries the first group of a mask has; each further one has twice as many, so
	// that a look-up meets few groups.
	firstGroup = 1 << 8
)

// Switchdev is the tables of the switchdev mode.
type Switchdev struct {
	config Config
	rules  *table
	slow   *table
	queues *group
	miss   entry
	missed bool
	masks  map[mask]*masked
}

// mask is what the entries of a group match.
type mask struct {
	enable prm.MatchCriteria
	match  prm.MatchParam
}

// masked are the groups of a mask.
type masked struct {
	groups []*group
	size   uint32 // of the next
}

// NewSwitchdev makes the tables with no rule: all goes to the manager. They are no root yet.
func NewSwitchdev(ctx context.Context, config Config) (*Switchdev, error) {
	s := &Switchdev{config: config, masks: map[mask]*masked{}}
	if err := s.build(ctx); err != nil {
		return nil, errors.Join(err, s.Close(context.WithoutCancel(ctx)))
	}
	return s, nil
}

func (s *Switchdev) build(ctx context.Context) (err error) {
	if s.slow, err = newTable(ctx, &s.config, place{kind: prm.FlowTableFDB, level: slowLevel}, maxQueues+1, nil); err != nil {
		return err
	}
	sender := prm.MatchParam{Misc: prm.MatchMisc{SourceSQN: 0xffffff, SourcePort: 0xffff}}
	if s.queues, err = s.slow.group(ctx, min(maxQueues, s.slow.size-1), prm.MatchMiscParameters, &sender); err != nil {
		return err
	}
	rest, err := s.slow.group(ctx, 1, 0, &prm.MatchParam{})
	if err != nil {
		return err
	}
	if s.miss, err = rest.add(ctx, &prm.MatchParam{}, action{}, Manager); err != nil {
		return err
	}
	s.missed = true
	s.rules, err = newTable(ctx, &s.config, place{kind: prm.FlowTableFDB, level: rulesLevel}, maxRules, s.slow)
	return err
}

// Root makes the tables the e-switch's.
func (s *Switchdev) Root(ctx context.Context) error { return s.rules.root(ctx) }

// Queue is what lets a send queue of the manager reach a vport.
type Queue struct{ entry }

// AddQueue sends what a queue of the manager sends to a vport, whatever it is.
func (s *Switchdev) AddQueue(ctx context.Context, sqn uint32, vport uint16) (Queue, error) {
	e, err := s.queues.add(ctx, &prm.MatchParam{Misc: prm.MatchMisc{SourceSQN: sqn, SourcePort: Manager}}, action{}, vport)
	return Queue{e}, err
}

// Remove ends it.
func (q Queue) Remove(ctx context.Context) error { return q.remove(ctx) }

// Rule is a rule to be.
type Rule struct {
	Enable      prm.MatchCriteria
	Mask, Value prm.MatchParam
	To          []uint16 // vports; none: the frame is dropped
	Pop         bool
	Push        *prm.VLANTag
	Counter     uint32 // 0: not counted
}

// Installed is a rule in force.
type Installed struct{ entry }

// Add puts a rule into force.
func (s *Switchdev) Add(ctx context.Context, r *Rule) (Installed, error) {
	g, err := s.room(ctx, mask{r.Enable, r.Mask})
	if err != nil {
		return Installed{}, err
	}
	a := action{}
	if len(r.To) == 0 {
		a.do = prm.FlowActionDrop
	}
	if r.Pop {
		a.do |= prm.FlowActionPopVLAN
	}
	if r.Push != nil {
		a.do |= prm.FlowActionPushVLAN
		a.push = *r.Push
	}
	if r.Counter != 0 {
		a.counters = []uint32{r.Counter}
	}
	e, err := g.add(ctx, &r.Value, a, r.To...)
	return Installed{e}, err
}

// Remove ends the rule.
func (i Installed) Remove(ctx context.Context) error { return i.remove(ctx) }

// room finds or makes a group of the mask with an entry left.
func (s *Switchdev) room(ctx context.Context, m mask) (*group, error) {
	of := s.masks[m]
	if of == nil {
		of = &masked{size: firstGroup}
		s.masks[m] = of
	}
	if i := slices.IndexFunc(of.groups, (*group).room); i >= 0 {
		return of.groups[i], nil
	}
	g, err := s.rules.group(ctx, of.size, m.enable, &m.match)
	if err != nil {
		return nil, err
	}
	of.groups = append(of.groups, g)
	of.size *= 2
	return g, nil
}

// Close takes the tables down, which are no root any more, or the last. Queues and rules have been removed.
func (s *Switchdev) Close(ctx context.Context) error {
	var errs []error
	errs = append(errs, s.rules.destroy(ctx))
	if s.missed {
		errs = append(errs, s.miss.remove(ctx))
	}
	return errors.Join(append(errs, s.slow.destroy(ctx))...)
}

// Disconnect leaves FDB without tables, as before any mode.
func Disconnect(ctx context.Context, c *Config) error {
	return unroot(ctx, c, place{kind: prm.FlowTableFDB})
}

// Sources tells the manager's frames apart by the vport that they come from: a table in front of its own
// receive tables.
type Sources struct {
	config Config
	table  *table
	group  *group
}

// NewSources makes the table in front of root, the number of the manager's first table, which must have a
// level above 0.
func NewSources(ctx context.Context, config Config, root uint32) (*Sources, error) {
	s := &Sources{config: config}
	next := &table{}
	next.object.Number = root
	var err error
	if s.table, err = newTable(ctx, &s.config, place{kind: prm.FlowTableNICRX}, 256, next); err != nil {
		return nil, err
	}
	port := prm.MatchParam{Misc: prm.MatchMisc{SourcePort: 0xffff}}
	if s.group, err = s.table.group(ctx, 256, prm.MatchMiscParameters, &port); err == nil {
		err = s.table.root(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.table.destroy(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// Source is a vport whose frames have a TIR of their own.
type Source struct{ entry }

// Add sends a vport's frames to a TIR.
func (s *Sources) Add(ctx context.Context, vport uint16, tirn uint32) (Source, error) {
	e, err := s.group.add(ctx, &prm.MatchParam{Misc: prm.MatchMisc{SourcePort: vport}}, action{tir: tirn})
	return Source{e}, err
}

// Remove ends it.
func (s Source) Remove(ctx context.Context) error { return s.remove(ctx) }

// Close makes root the first table again and takes this one down. Its entries have been removed.
func (s *Sources) Close(ctx context.Context, root uint32) error {
	err := s.config.Exec.Exec(ctx, &prm.SetFlowTableRootIn{TableType: prm.FlowTableNICRX, TableID: root}, &prm.SetFlowTableRootOut{})
	return errors.Join(err, s.table.destroy(ctx))
}
