package steer

import (
	"context"
	"errors"
	"fmt"

	"cxkit/driver/internal/object"
	"cxkit/prm"
)

// Priorities is how many priorities of flows there are; 0 is looked at first. Each has a table of its own, made
// when it is needed, but for the first, which is always there and is the root: what none of its entries
// matches goes on in the next, and in the end to the tables of a Steering.
const Priorities = 16

// flowsLog is log2 of the entries of a priority.
const flowsLog = 16

// Sizes of groups: the first of a kind, and the largest.
const (
	firstGroup = 64
	largeGroup = 1 << 13
)

// FlowsConfig is what Flows work with.
type FlowsConfig struct {
	Objects *object.Book
	// Rest is the table behind all priorities.
	Rest uint32
	// LogMaxSize is the largest table the card allows.
	LogMaxSize uint8
}

// Flows are the tables of a NIC's rules. They have one user at a time.
type Flows struct {
	config FlowsConfig
	tables [Priorities]*flowTable
}

// flowTable is the rules of one priority.
type flowTable struct {
	*table
	free   []span // indices that no group has, in order
	groups map[shape]*groups
}

// shape is which fields entries match: those of one shape share groups.
type shape struct {
	enable prm.MatchCriteria
	mask   prm.MatchParam
}

// groups are those of one shape.
type groups struct {
	list    []*group
	entries uint32 // that they have room for
}

// Flow is what is to become of some frames.
type Flow struct {
	Priority    int
	Enable      prm.MatchCriteria
	Mask, Value prm.MatchParam
	Action      Action
}

// FlowEntry is a flow in force.
type FlowEntry struct {
	entry    entry
	priority int
	shape    shape
}

// NewFlows makes Flows without a flow and puts their first table in front of the rest.
func NewFlows(ctx context.Context, c FlowsConfig) (*Flows, error) {
	f := &Flows{config: c}
	if _, err := f.table(ctx, 0); err != nil {
		return nil, err
	}
	return f, nil
}

// Head is the number of the first table.
func (f *Flows) Head() uint32 { return f.tables[0].object.Number }

// Rest is the table behind all priorities as a destination.
func (f *Flows) Rest() prm.DestFormat {
	return prm.DestFormat{DestinationType: prm.DestinationFlowTable, DestinationID: f.config.Rest}
}

// To is a TIR as a destination.
func To(tirn uint32) prm.DestFormat { return toTIR(tirn) }

// Add puts a flow in force. It fails with ErrFull when its priority has no entries left.
func (f *Flows) Add(ctx context.Context, flow *Flow) (FlowEntry, error) {
	t, err := f.table(ctx, flow.Priority)
	if err != nil {
		return FlowEntry{}, err
	}
	s := shape{flow.Enable, flow.Mask}
	g, err := t.room(ctx, s)
	if err != nil {
		return FlowEntry{}, err
	}
	e, err := g.set(ctx, &flow.Value, &flow.Action)
	if err != nil {
		return FlowEntry{}, errors.Join(err, t.tidy(context.WithoutCancel(ctx), s, g))
	}
	return FlowEntry{entry: e, priority: flow.Priority, shape: s}, nil
}

// Remove ends a flow.
func (f *Flows) Remove(ctx context.Context, e FlowEntry) error {
	if err := e.entry.remove(ctx); err != nil {
		return err
	}
	return f.tables[e.priority].tidy(ctx, e.shape, e.entry.group)
}

// table returns the table of a priority, made and linked in if it was not there.
func (f *Flows) table(ctx context.Context, priority int) (*flowTable, error) {
	if t := f.tables[priority]; t != nil {
		return t, nil
	}
	logSize := min(flowsLog, f.config.LogMaxSize)
	made, err := newTableBefore(ctx, f.config.Objects, uint8(flowLevel+priority), logSize, f.after(priority))
	if err != nil {
		return nil, err
	}
	if err := f.link(ctx, priority, made.object.Number); err != nil {
		return nil, errors.Join(err, made.destroy(context.WithoutCancel(ctx)))
	}
	t := &flowTable{table: made, free: []span{{0, 1 << logSize}}, groups: make(map[shape]*groups)}
	f.tables[priority] = t
	return t, nil
}

// after is the table behind a priority.
func (f *Flows) after(priority int) uint32 {
	for _, t := range f.tables[priority+1:] {
		if t != nil {
			return t.object.Number
		}
	}
	return f.config.Rest
}

// link leads what comes to a priority to a table: from the one before, or as the root.
func (f *Flows) link(ctx context.Context, priority int, table uint32) error {
	for p := priority - 1; p >= 0; p-- {
		before := f.tables[p]
		if before == nil {
			continue
		}
		in := &prm.ModifyFlowTableIn{
			ModifyFieldSelect: modifyMiss, TableType: prm.FlowTableNICRX, TableID: before.object.Number,
			FlowTableContext: prm.FlowTableContext{TableMissAction: prm.TableMissForward, TableMissID: table},
		}
		if err := f.config.Objects.Exec(ctx, in, &prm.ModifyFlowTableOut{}); err != nil {
			return fmt.Errorf("lead from flow table %#x to %#x: %w", before.object.Number, table, err)
		}
		return nil
	}
	in := &prm.SetFlowTableRootIn{TableType: prm.FlowTableNICRX, TableID: table}
	if err := f.config.Objects.Exec(ctx, in, &prm.SetFlowTableRootOut{}); err != nil {
		return fmt.Errorf("set root flow table %#x: %w", table, err)
	}
	return nil
}

// modifyMiss is the bit of MODIFY_FLOW_TABLE's modify_field_select for the miss table.
const modifyMiss = 1

// Close takes down all flows and their tables. Frames go to the rest at once.
func (f *Flows) Close(ctx context.Context, entries []FlowEntry) error {
	var errs []error
	if f.after(-1) != f.config.Rest {
		in := &prm.SetFlowTableRootIn{TableType: prm.FlowTableNICRX, TableID: f.config.Rest}
		errs = append(errs, f.config.Objects.Exec(ctx, in, &prm.SetFlowTableRootOut{}))
	}
	for _, e := range entries {
		errs = append(errs, f.Remove(ctx, e))
	}
	for p, t := range f.tables { // the first leads to the second
		if t != nil {
			errs = append(errs, t.destroy(ctx))
			f.tables[p] = nil
		}
	}
	return errors.Join(errs...)
}

// room returns a group of a shape with a free entry.
func (t *flowTable) room(ctx context.Context, s shape) (*group, error) {
	gs := t.groups[s]
	if gs == nil {
		gs = new(groups)
	}
	for i := len(gs.list) - 1; i >= 0; i-- {
		if g := gs.list[i]; g.next < g.end || len(g.free) > 0 {
			return g, nil
		}
	}
	n := min(max(gs.entries, firstGroup), largeGroup)
	start, n, ok := t.carve(n)
	if !ok {
		return nil, fmt.Errorf("table %#x: %w", t.object.Number, ErrFull)
	}
	g, err := t.groupAt(ctx, start, n, s.enable, &s.mask)
	if err != nil {
		t.giveBack(span{start, n})
		return nil, err
	}
	gs.list, gs.entries = append(gs.list, g), gs.entries+n
	t.groups[s] = gs
	return g, nil
}

// tidy ends a group without entries, so that others can have its indices.
func (t *flowTable) tidy(ctx context.Context, s shape, g *group) error {
	if !g.empty() {
		return nil
	}
	if err := t.book.Destroy(ctx, g.object); err != nil {
		return err
	}
	gs := t.groups[s]
	for i := range gs.list {
		if gs.list[i] == g {
			gs.list = append(gs.list[:i], gs.list[i+1:]...)
			break
		}
	}
	if gs.entries -= g.end - g.start; len(gs.list) == 0 {
		delete(t.groups, s)
	}
	t.giveBack(span{g.start, g.end - g.start})
	return nil
}

// span is n indices from start on.
type span struct{ start, n uint32 }

// carve takes n indices that follow each other, or as many as there are.
func (t *flowTable) carve(n uint32) (start, got uint32, ok bool) {
	best := -1
	for i := range t.free {
		if t.free[i].n >= n {
			best = i
			break
		}
		if best < 0 || t.free[i].n > t.free[best].n {
			best = i
		}
	}
	if best < 0 {
		return 0, 0, false
	}
	s := &t.free[best]
	start, got = s.start, min(n, s.n)
	s.start, s.n = s.start+got, s.n-got
	if s.n == 0 {
		t.free = append(t.free[:best], t.free[best+1:]...)
	}
	return start, got, true
}

// giveBack frees indices and joins them with their neighbours.
func (t *flowTable) giveBack(s span) {
	at := 0
	for at < len(t.free) && t.free[at].start < s.start {
		at++
	}
	t.free = append(t.free, span{})
	copy(t.free[at+1:], t.free[at:])
	t.free[at] = s
	joined := t.free[:0]
	for _, f := range t.free {
		if n := len(joined); n > 0 && joined[n-1].start+joined[n-1].n == f.start {
			joined[n-1].n += f.n
			continue
		}
		joined = append(joined, f)
	}
	t.free = joined
}
