package steer

import (
	"cxkit/device/internal/command"
	"cxkit/device/internal/object"
	"cxkit/device/internal/packet"
)

// Type is a flow table type that this package serves.
type Type uint8

const (
	NICRx      Type = 0
	NICTx      Type = 1
	EgressACL  Type = 2 // what a vport of the e-switch gets
	IngressACL Type = 3 // what a vport of the e-switch sends
	FDB        Type = 4 // the e-switch itself: what it forwards where
)

// acl reports whether tables of the type let a frame pass or drop it: there is nowhere to send it to.
func (t Type) acl() bool { return t == NICTx || t == EgressACL || t == IngressACL }

// modifies reports whether entries of the type may change metadata registers.
func (t Type) modifies() bool { return t == IngressACL || t == FDB }

// Limits are what a domain may hold; the capabilities say the same.
type Limits struct {
	LogSize      int // log2 of a table's entries
	Level        int // the highest level
	Tables       int
	Groups       int // in all tables
	Entries      int // in all tables
	Destinations int // of an entry
	Parsers      Parsers
	// Sources: the vport that a frame comes from, and what the e-switch says of it, can be matched, as is
	// always so in its own tables.
	Sources bool
}

// Domain is the flow tables of one type.
type Domain struct {
	typ     Type
	limits  Limits
	seed    uint64
	tables  object.Table[*Table]
	groups  int
	masks   int // different ones of each table
	entries int

	root    *Table
	rootSet bool // the driver chose root, or none

	cache cache
}

// NewDomain makes a domain without tables. seed keeps a peer from choosing keys that meet in a bucket.
func NewDomain(typ Type, limits Limits, seed uint64) *Domain {
	d := &Domain{typ: typ, limits: limits, seed: seed | 1, cache: cache{epoch: 1}}
	d.tables = object.New[*Table](1, limits.Tables)
	return d
}

// Table is a flow table.
type Table struct {
	object.Refs // entries and tables that lead to it

	id      uint32
	domain  *Domain
	level   int
	logSize uint8
	miss    *Table // nil: the domain's default
	groups  ranges
	numbers object.Table[*Group]
	shapes  []*shape // by their lowest index
	byMask  map[[packet.KeyWords]uint64]*shape
	entries map[uint32]*Entry
	most    int // entries there were since the map was made
}

// TableConfig is what CREATE_FLOW_TABLE asks for.
type TableConfig struct {
	Level, LogSize int
	// MissAction is table_miss_action, MissID the table it names.
	MissAction int
	MissID     uint32
}

// Values of table_miss_action.
const (
	missDefault = 0
	missForward = 1
)

// ID is the table's number.
func (t *Table) ID() uint32 { return t.id }

// Domain is the domain that the table belongs to.
func (t *Table) Domain() *Domain { return t.domain }

// Config is the table's present configuration.
func (t *Table) Config() TableConfig {
	c := TableConfig{Level: t.level, LogSize: int(t.logSize)}
	if t.miss != nil {
		c.MissAction, c.MissID = missForward, t.miss.id
	}
	return c
}

// Table returns a table by number, nil if there is none.
func (d *Domain) Table(id uint32) *Table {
	t, _ := d.tables.Get(id)
	return t
}

// Counts are how many tables, groups and entries there are.
func (d *Domain) Counts() (tables, groups, entries int) { return d.tables.Len(), d.groups, d.entries }

// CreateTable makes a table.
func (d *Domain) CreateTable(c TableConfig) (*Table, command.Result) {
	if c.LogSize < 0 || c.LogSize > d.limits.LogSize {
		return nil, fail(badParam, synTableSize, "log_size %d: at most %d", c.LogSize, d.limits.LogSize)
	}
	if c.Level < 0 || c.Level > d.limits.Level {
		return nil, fail(badParam, synTableLevel, "level %d: at most %d", c.Level, d.limits.Level)
	}
	t := &Table{domain: d, level: c.Level, logSize: uint8(c.LogSize), entries: map[uint32]*Entry{}}
	t.numbers = object.New[*Group](1, 1<<c.LogSize)
	miss, r := d.missTable(t, c)
	if !r.OK() {
		return nil, r
	}
	id, ok := d.tables.Add(t)
	if !ok {
		return nil, fail(limitExceeds, synTables, "%d flow tables are all there are", d.limits.Tables)
	}
	t.id = id
	t.setMiss(miss)
	d.autoRoot()
	d.cache.flush()
	return t, command.Result{}
}

// missTable finds the table that c's miss action names for t.
func (d *Domain) missTable(t *Table, c TableConfig) (*Table, command.Result) {
	switch c.MissAction {
	case missDefault:
		return nil, command.Result{}
	case missForward:
	default:
		return nil, fail(badParam, synMissAction, "table_miss_action %d is not supported", c.MissAction)
	}
	miss := d.Table(c.MissID)
	if miss == nil {
		return nil, fail(badResource, synMissTable, "table_miss_id %#x: no such table", c.MissID)
	}
	if miss.level <= t.level {
		return nil, fail(badParam, synMissLevel, "miss table %#x has level %d, not above %d", miss.id, miss.level, t.level)
	}
	return miss, command.Result{}
}

func (t *Table) setMiss(miss *Table) {
	if miss != nil {
		miss.Hold()
	}
	if t.miss != nil {
		t.miss.Drop()
	}
	t.miss = miss
}

// SetMiss changes a table's miss action.
func (d *Domain) SetMiss(t *Table, action int, id uint32) command.Result {
	miss, r := d.missTable(t, TableConfig{MissAction: action, MissID: id})
	if !r.OK() {
		return r
	}
	t.setMiss(miss)
	d.cache.flush()
	return command.Result{}
}

// DestroyTable removes a table that nothing leads to and that has no groups. It may be the root: Linux
// destroys the last one so (update_root_ft_destroy), and the domain's default takes over.
func (d *Domain) DestroyTable(t *Table) command.Result {
	if t.groups.n != 0 {
		return fail(badState, synTableUsed, "table %#x has %d groups", t.id, t.groups.n)
	}
	if t.Held() {
		return fail(badState, synTableUsed, "%d entries or tables lead to table %#x", t.Holders(), t.id)
	}
	t.setMiss(nil)
	d.tables.Remove(t.id)
	if d.root == t {
		d.root = nil
	}
	d.autoRoot()
	d.cache.flush()
	return command.Result{}
}

// SetRoot makes t the first table of look-ups; nil disconnects, and the default applies to every frame.
func (d *Domain) SetRoot(t *Table) {
	d.root, d.rootSet = t, true
	d.cache.flush()
}

// Root is the first table of look-ups, nil if there is none.
func (d *Domain) Root() *Table { return d.root }

// autoRoot follows the rule for drivers that never set a root: the table with the lowest level, and of
// those the oldest number (reference 03 §9).
func (d *Domain) autoRoot() {
	if d.rootSet {
		return
	}
	d.root = nil
	d.tables.Each(func(_ uint32, t *Table) bool {
		if d.root == nil || t.level < d.root.level {
			d.root = t
		}
		return true
	})
}

// Group is a range of a table's indices whose entries share a mask.
type Group struct {
	id         uint32
	table      *Table
	start, end uint32 // inclusive
	criteria   Criteria
	mask       [packet.KeyWords]uint64 // as compared
	words      []uint8                 // those with a mask
	shape      *shape
	count      int // entries
}

// GroupConfig is what CREATE_FLOW_GROUP asks for.
type GroupConfig struct {
	Start, End uint32
	Criteria   Criteria
}

// ID is the group's number within its table.
func (g *Group) ID() uint32 { return g.id }

// Config is what the group was created with.
func (g *Group) Config() GroupConfig { return GroupConfig{g.start, g.end, g.criteria} }

// Group returns a group by number, nil if there is none.
func (t *Table) Group(id uint32) *Group {
	g, _ := t.numbers.Get(id)
	return g
}

// CreateGroup makes a group.
func (t *Table) CreateGroup(c GroupConfig) (*Group, command.Result) {
	d := t.domain
	if c.Start > c.End || c.End >= 1<<t.logSize {
		return nil, fail(badParam, synGroupRange, "indices %d to %d of a table of %d", c.Start, c.End, 1<<t.logSize)
	}
	if g := t.groups.meets(c.Start, c.End); g != nil {
		return nil, fail(badParam, synGroupOverlap, "indices %d to %d overlap group %#x with %d to %d",
			c.Start, c.End, g.id, g.start, g.end)
	}
	g := &Group{table: t, start: c.Start, end: c.End, criteria: c.Criteria}
	if r := g.compile(d); !r.OK() {
		return nil, r
	}
	if d.groups >= d.limits.Groups {
		return nil, fail(limitExceeds, synGroups, "%d flow groups are all there are", d.limits.Groups)
	}
	id, ok := t.numbers.Add(g)
	if !ok {
		return nil, fail(limitExceeds, synGroups, "table %#x has a group for every index", t.id)
	}
	if !t.join(g) {
		t.numbers.Remove(id)
		return nil, fail(limitExceeds, synGroups, "%d different masks are all there are", maxMasks)
	}
	g.id = id
	t.groups.add(g)
	d.groups++
	d.cache.widen(&g.mask)
	return g, command.Result{}
}

// DestroyGroup removes a group without entries.
func (t *Table) DestroyGroup(g *Group) command.Result {
	if g.count != 0 {
		return fail(badState, synGroupUsed, "group %#x has %d entries", g.id, g.count)
	}
	t.groups.remove(g)
	t.leave(g)
	t.numbers.Remove(g.id)
	t.domain.groups--
	if t.domain.groups == 0 {
		t.domain.cache.narrow()
	}
	return command.Result{}
}
