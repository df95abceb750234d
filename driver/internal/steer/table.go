package steer

import (
	"context"
	"errors"
	"fmt"

	"cxkit/driver/internal/cmdif"
	"cxkit/driver/internal/object"
	"cxkit/prm"
)

// ErrFull: the table's group has no entry left.
var ErrFull = errors.New("steering table full")

// table is one flow table and its groups. Lower indices match first, so groups are made from the most to
// the least special.
type table struct {
	book   *object.Book
	object object.Object
	size   uint32
	used   uint32 // entries given to groups
	made   []object.Object
}

// group is a range of entries that match the same fields.
type group struct {
	table  *table
	object object.Object
	start  uint32
	next   uint32   // first index never used
	end    uint32   // behind the last
	free   []uint32 // used and free again
}

// empty tells that no entry is in use.
func (g *group) empty() bool { return int(g.next-g.start) == len(g.free) }

func newTable(ctx context.Context, book *object.Book, level uint8, logSize uint8) (*table, error) {
	return newTableBefore(ctx, book, level, logSize, 0)
}

// newTableBefore makes a table; what it has no entry for goes on to another one, or to the default if next is
// 0.
func newTableBefore(ctx context.Context, book *object.Book, level, logSize uint8, next uint32) (*table, error) {
	c := prm.FlowTableContext{Level: level, LogSize: logSize}
	if next != 0 {
		c.TableMissAction, c.TableMissID = prm.TableMissForward, next
	}
	o, err := book.Create(ctx, &prm.CreateFlowTableIn{TableType: prm.FlowTableNICRX, FlowTableContext: c}, &prm.CreateFlowTableOut{})
	if err != nil {
		return nil, fmt.Errorf("create flow table of level %d, log_size %d: %w", level, logSize, err)
	}
	return &table{book: book, object: o, size: 1 << logSize}, nil
}

// group makes a group of the next n entries, which match the fields of mask in outer headers; a nil mask
// matches everything.
func (t *table) group(ctx context.Context, n uint32, mask *prm.MatchLayer24) (*group, error) {
	var enable prm.MatchCriteria
	var param prm.MatchParam
	if mask != nil {
		enable, param.Outer = prm.MatchOuterHeaders, *mask
	}
	g, err := t.groupAt(ctx, t.used, n, enable, &param)
	if err != nil {
		return nil, err
	}
	t.made = append(t.made, g.object)
	t.used += n
	return g, nil
}

// groupAt makes a group of n entries from an index on.
func (t *table) groupAt(ctx context.Context, start, n uint32, enable prm.MatchCriteria, mask *prm.MatchParam) (*group, error) {
	o, err := t.book.Create(ctx, &prm.CreateFlowGroupIn{
		TableType: prm.FlowTableNICRX, TableID: t.object.Number,
		StartFlowIndex: start, EndFlowIndex: start + n - 1, MatchCriteriaEnable: enable, MatchCriteria: *mask,
	}, &prm.CreateFlowGroupOut{})
	if err != nil {
		return nil, fmt.Errorf("create flow group of %d entries in table %#x: %w", n, t.object.Number, err)
	}
	return &group{table: t, object: o, start: start, next: start, end: start + n}, nil
}

// destroy ends groups and table; no entry is left in it.
func (t *table) destroy(ctx context.Context) error {
	var errs []error
	for len(t.made) > 0 {
		o := t.made[len(t.made)-1]
		t.made = t.made[:len(t.made)-1]
		errs = append(errs, t.book.Destroy(ctx, o))
	}
	return errors.Join(append(errs, t.book.Destroy(ctx, t.object))...)
}

// entry is a rule in force.
type entry struct {
	group  *group
	object object.Object
}

// add writes an entry that sends frames with the fields of value to a destination.
func (g *group) add(ctx context.Context, value *prm.MatchLayer24, to prm.DestFormat) (entry, error) {
	return g.set(ctx, &prm.MatchParam{Outer: *value}, &Action{Flow: prm.FlowActionForward, To: []prm.DestFormat{to}})
}

// Action is what becomes of frames that match an entry.
type Action struct {
	Flow     prm.FlowAction
	Tag      uint32 // 24 bits
	To       []prm.DestFormat
	Counters []uint32
}

// set writes an entry.
func (g *group) set(ctx context.Context, value *prm.MatchParam, a *Action) (entry, error) {
	index, ok := g.take()
	if !ok {
		return entry{}, fmt.Errorf("table %#x: %w", g.table.object.Number, ErrFull)
	}
	in := &prm.SetFlowTableEntryIn{
		TableType: prm.FlowTableNICRX, TableID: g.table.object.Number, FlowIndex: index,
		FlowContext: prm.FlowContext{
			GroupID: g.object.Number, FlowTag: a.Tag, Action: a.Flow, MatchValue: *value,
			DestinationListSize: uint32(len(a.To)), FlowCounterListSize: uint32(len(a.Counters)),
		},
	}
	in.Counters = a.Counters
	for _, to := range a.To {
		in.Destinations = append(in.Destinations, prm.Destination{DestFormat: to})
	}
	o, err := g.table.book.Create(ctx, in, &prm.SetFlowTableEntryOut{})
	if err != nil {
		if !cmdif.Issued(err) {
			g.free = append(g.free, index)
		}
		return entry{}, err
	}
	return entry{g, o}, nil
}

func (g *group) take() (uint32, bool) {
	if n := len(g.free); n > 0 {
		index := g.free[n-1]
		g.free = g.free[:n-1]
		return index, true
	}
	if g.next == g.end {
		return 0, false
	}
	g.next++
	return g.next - 1, true
}

// remove ends the entry.
func (e entry) remove(ctx context.Context) error {
	if err := e.group.table.book.Destroy(ctx, e.object); err != nil {
		return err
	}
	e.group.free = append(e.group.free, e.object.Number)
	return nil
}

func toTable(t *table) prm.DestFormat {
	return prm.DestFormat{DestinationType: prm.DestinationFlowTable, DestinationID: t.object.Number}
}

func toTIR(tirn uint32) prm.DestFormat {
	return prm.DestFormat{DestinationType: prm.DestinationTIR, DestinationID: tirn}
}
