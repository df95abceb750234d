package eswitch

import (
	"context"
	"errors"
	"fmt"

	"cxkit/driver/internal/cmdif"
	"cxkit/driver/internal/object"
	"cxkit/prm"
)

// Vports with a meaning of their own.
const (
	Manager = 0
	Uplink  = 0xffff
)

// Config is what tables are made with.
type Config struct {
	Exec    cmdif.Executor
	Objects *object.Book
	// LogMaxSize is the largest table the card allows.
	LogMaxSize uint8
}

// ErrFull: a table has no entry left.
var ErrFull = errors.New("table of the e-switch full")

// table is one flow table and its groups, whose entries match in the order of their indices.
type table struct {
	c      *Config
	object object.Object
	other  bool // an ACL of vport
	vport  uint16
	size   uint32
	used   uint32
	groups []*group
}

// group is a range of entries that match the same fields.
type group struct {
	table  *table
	object object.Object
	enable prm.MatchCriteria
	next   uint32
	end    uint32
	free   []uint32
}

// place says what kind of table, and of which vport, if it is an ACL's.
type place struct {
	kind  prm.FlowTableType
	level uint8
	vport uint16
}

func (p place) other() bool {
	return p.kind == prm.FlowTableESWIngressACL || p.kind == prm.FlowTableESWEgressACL
}

// newTable makes a table of at least entries entries. What it misses goes to miss, or is the domain's default's.
func newTable(ctx context.Context, c *Config, p place, entries uint32, miss *table) (*table, error) {
	log := uint8(0)
	for 1<<log < entries && log < c.LogMaxSize {
		log++
	}
	in := &prm.CreateFlowTableIn{TableType: p.kind, OtherVport: p.other(), VportNumber: p.vport,
		FlowTableContext: prm.FlowTableContext{Level: p.level, LogSize: log}}
	if miss != nil {
		in.FlowTableContext.TableMissAction, in.FlowTableContext.TableMissID = prm.TableMissForward, miss.object.Number
	}
	o, err := c.Objects.Create(ctx, in, &prm.CreateFlowTableOut{})
	if err != nil {
		return nil, fmt.Errorf("create table of type %v, level %d, log_size %d: %w", p.kind, p.level, log, err)
	}
	return &table{c: c, object: o, other: p.other(), vport: p.vport, size: 1 << log}, nil
}

// group makes a group of at most n entries that match the fields of mask.
func (t *table) group(ctx context.Context, n uint32, enable prm.MatchCriteria, mask *prm.MatchParam) (*group, error) {
	n = min(n, t.size-t.used)
	if n == 0 {
		return nil, ErrFull
	}
	in := &prm.CreateFlowGroupIn{TableType: t.object.TableType, OtherVport: t.other, VportNumber: t.vport, TableID: t.object.Number,
		StartFlowIndex: t.used, EndFlowIndex: t.used + n - 1, MatchCriteriaEnable: enable, MatchCriteria: *mask}
	o, err := t.c.Objects.Create(ctx, in, &prm.CreateFlowGroupOut{})
	if err != nil {
		return nil, fmt.Errorf("create group of %d entries: %w", n, err)
	}
	g := &group{table: t, object: o, enable: enable, next: t.used, end: t.used + n}
	t.used += n
	t.groups = append(t.groups, g)
	return g, nil
}

// root makes the table the first of its domain.
func (t *table) root(ctx context.Context) error {
	return t.c.Exec.Exec(ctx, &prm.SetFlowTableRootIn{TableType: t.object.TableType, OtherVport: t.other, VportNumber: t.vport,
		TableID: t.object.Number}, &prm.SetFlowTableRootOut{})
}

// unroot leaves a domain without a table to begin with.
func unroot(ctx context.Context, c *Config, p place) error {
	return c.Exec.Exec(ctx, &prm.SetFlowTableRootIn{OpMod: 1, TableType: p.kind, OtherVport: p.other(), VportNumber: p.vport},
		&prm.SetFlowTableRootOut{})
}

// destroy ends the table and its groups; no entry is left in it.
func (t *table) destroy(ctx context.Context) error {
	if t == nil {
		return nil
	}
	var errs []error
	for i := len(t.groups) - 1; i >= 0; i-- {
		errs = append(errs, t.c.Objects.Destroy(ctx, t.groups[i].object))
	}
	t.groups = nil
	return errors.Join(append(errs, t.c.Objects.Destroy(ctx, t.object))...)
}

// room reports whether the group has an entry left.
func (g *group) room() bool { return len(g.free) > 0 || g.next < g.end }

// entry is an entry in force.
type entry struct {
	group  *group
	object object.Object
}

// action is what an entry does beside its destinations.
type action struct {
	do       prm.FlowAction
	push     prm.VLANTag
	counters []uint32
	tir      uint32 // of receive tables; 0: none
}

func (g *group) in(index uint32, value *prm.MatchParam, a action, to []uint16) *prm.SetFlowTableEntryIn {
	t := g.table
	in := &prm.SetFlowTableEntryIn{TableType: t.object.TableType, OtherVport: t.other, VportNumber: t.vport, TableID: t.object.Number, FlowIndex: index}
	in.FlowContext = prm.FlowContext{GroupID: g.object.Number, Action: a.do, PushVLAN: a.push, MatchValue: *value}
	for _, v := range to {
		in.FlowContext.Action |= prm.FlowActionForward
		in.Destinations = append(in.Destinations, prm.Destination{DestFormat: prm.DestFormat{
			DestinationType: prm.DestinationVport, DestinationID: uint32(v)}})
	}
	if a.tir != 0 {
		in.FlowContext.Action |= prm.FlowActionForward
		in.Destinations = append(in.Destinations, prm.Destination{DestFormat: prm.DestFormat{
			DestinationType: prm.DestinationTIR, DestinationID: a.tir}})
	}
	in.FlowContext.DestinationListSize = uint32(len(in.Destinations))
	if len(a.counters) > 0 {
		in.FlowContext.Action |= prm.FlowActionCount
		in.Counters, in.FlowContext.FlowCounterListSize = a.counters, uint32(len(a.counters))
	}
	return in
}

// add writes an entry that forwards to vports, or does what a says.
func (g *group) add(ctx context.Context, value *prm.MatchParam, a action, to ...uint16) (entry, error) {
	var index uint32
	switch n := len(g.free); {
	case n > 0:
		index, g.free = g.free[n-1], g.free[:n-1]
	case g.next < g.end:
		index, g.next = g.next, g.next+1
	default:
		return entry{}, ErrFull
	}
	o, err := g.table.c.Objects.Create(ctx, g.in(index, value, a, to), &prm.SetFlowTableEntryOut{})
	if err != nil {
		if !cmdif.Issued(err) {
			g.free = append(g.free, index)
		}
		return entry{}, err
	}
	return entry{g, o}, nil
}

// redirect gives an entry other destinations, at least one.
func (e entry) redirect(ctx context.Context, to ...uint16) error {
	in := e.group.in(e.object.Number, &prm.MatchParam{}, action{}, to)
	in.OpMod, in.ModifyEnableMask = 1, uint8(prm.ModifyFTEDestinationList)
	return e.group.table.c.Exec.Exec(ctx, in, &prm.SetFlowTableEntryOut{})
}

// remove ends the entry.
func (e entry) remove(ctx context.Context) error {
	if err := e.group.table.c.Objects.Destroy(ctx, e.object); err != nil {
		return err
	}
	e.group.free = append(e.group.free, e.object.Number)
	return nil
}
