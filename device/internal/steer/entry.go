package steer

import (
	"cxkit/device/internal/command"
	"cxkit/device/internal/object"
	"cxkit/device/internal/packet"
)

// Actions of a flow context.
const (
	ActionAllow   = 0x1
	ActionDrop    = 0x2
	ActionForward = 0x4
	ActionCount   = 0x8

	ActionModify = 0x40

	ActionPopVLAN   = 0x80
	ActionPushVLAN  = 0x100
	ActionPopVLAN2  = 0x400
	ActionPushVLAN2 = 0x800

	actionVLAN = ActionPopVLAN | ActionPushVLAN | ActionPopVLAN2 | ActionPushVLAN2
)

// Edit is what to do with a frame's VLAN tags on its way out of a table: first take Pops tags away, then put
// Tags[:Pushes] in front, each in front of those before.
type Edit struct {
	Pops, Pushes uint8
	Tags         [2]uint32 // Ethertype and TCI
}

// change is what the entry does to tags; nil for nothing. It is valid until the entry changes.
func (c *EntryConfig) change() *Edit {
	if c.edit.Pops|c.edit.Pushes == 0 {
		return nil
	}
	return &c.edit
}

// Counter is a flow counter. Entries that count in it hold it.
type Counter struct {
	object.Refs
	Number          uint32
	Packets, Octets uint64
}

// Dest is where an entry forwards to: one of the three is set.
type Dest struct {
	Table *Table
	TIR   *TIR
	Vport *Vport
}

// Vport is a port of the e-switch. What it is to its owner is the owner's business.
type Vport struct{ Number uint16 }

// EntryConfig is what SET_FLOW_TABLE_ENTRY asks for.
type EntryConfig struct {
	Index, Group uint32
	Value        Value
	Action       uint16
	Tag          uint32
	Dests        []Dest
	Counters     []*Counter
	// VLANs are what the actions push: Ethertype and TCI.
	VLANs [2]uint32
	// Header is what the actions do to metadata registers; nil: nothing.
	Header *Header
	// Source is where the entry's frames come from.
	Source Source

	edit Edit // what the actions say of VLAN tags
}

// Source is flow_source: an entry with one takes no frames from elsewhere.
type Source uint8

const (
	AnySource Source = iota
	UplinkSource
	LocalSource // a vport that is not the uplink
	sources
)

// takes reports whether frames with such headers come from where the entry's do.
func (e *Entry) takes(h *packet.Headers) bool {
	s := e.config.Source
	return s == AnySource || (s == UplinkSource) == (h.Key[sourceWord]&sourcePort == uplinkPort)
}

// uplinkPort is the uplink's vport number.
const uplinkPort = 0xffff

// Entry is a flow table entry.
type Entry struct {
	index  uint32
	group  *Group
	config EntryConfig
	value  *value
	at     int32 // in the value's heap
}

// Config is what the entry was made with, for queries.
func (e *Entry) Config() *EntryConfig { return &e.config }

// Entry returns the entry at an index, nil if there is none.
func (t *Table) Entry(index uint32) *Entry { return t.entries[index] }

// SetEntry makes the entry c.Index, which must be free.
func (t *Table) SetEntry(c EntryConfig) command.Result {
	d := t.domain
	if c.Index >= 1<<t.logSize {
		return fail(badIndex, synEntryIndex, "flow_index %d of a table of %d", c.Index, 1<<t.logSize)
	}
	if t.entries[c.Index] != nil {
		return fail(badState, synEntryExists, "flow_index %d is taken", c.Index)
	}
	g := t.Group(c.Group)
	if g == nil {
		return fail(badResource, synGroup, "group_id %#x: no such group in table %#x", c.Group, t.id)
	}
	if c.Index < g.start || c.Index > g.end {
		return fail(badParam, synEntryGroup, "flow_index %d is not in group %#x with %d to %d", c.Index, g.id, g.start, g.end)
	}
	if r := t.checkActions(&c); !r.OK() {
		return r
	}
	if d.entries >= d.limits.Entries {
		return fail(limitExceeds, synEntries, "%d flow entries are all there are", d.limits.Entries)
	}
	e := &Entry{index: c.Index, group: g, config: c}
	e.hold()
	t.entries[c.Index] = e
	t.most = max(t.most, len(t.entries))
	g.shape.insert(e, g.key(&c.Value), d.seed)
	g.count++
	d.entries++
	if c.Source != AnySource {
		d.cache.widen(&[packet.KeyWords]uint64{sourceWord: sourcePort})
	}
	d.cache.flush()
	return command.Result{}
}

// Fields of modify_enable_mask.
const (
	ModifyAction = 1 << iota
	ModifyTag
	ModifyDests
	ModifyCounters
)

// ModifyEntry changes the parts of an existing entry that fields select.
func (t *Table) ModifyEntry(fields uint8, c EntryConfig) command.Result {
	e := t.entries[c.Index]
	if e == nil {
		return fail(badResource, synEntryMissing, "flow_index %d of table %#x: no entry", c.Index, t.id)
	}
	if fields&^(ModifyAction|ModifyTag|ModifyDests|ModifyCounters) != 0 {
		return fail(badParam, synModify, "modify_enable_mask %#x", fields)
	}
	n := e.config
	if fields&ModifyAction != 0 {
		n.Action, n.Header = c.Action, c.Header
	}
	if fields&ModifyTag != 0 {
		n.Tag = c.Tag
	}
	if fields&ModifyDests != 0 {
		n.Dests = c.Dests
	}
	if fields&ModifyCounters != 0 {
		n.Counters = c.Counters
	}
	if r := t.checkActions(&n); !r.OK() {
		return r
	}
	old := e.config
	e.config = n
	e.hold()
	old.drop()
	t.domain.cache.flush()
	return command.Result{}
}

// DeleteEntry removes an entry.
func (t *Table) DeleteEntry(index uint32) command.Result {
	e := t.entries[index]
	if e == nil {
		return fail(badResource, synEntryMissing, "flow_index %d of table %#x: no entry", index, t.id)
	}
	t.forget(index)
	e.group.shape.remove(e)
	e.group.count--
	e.config.drop()
	t.domain.entries--
	t.domain.cache.flush()
	return command.Result{}
}

// forget takes an index out of the map. A map keeps the room it once had, so one that has become much smaller is
// made anew.
func (t *Table) forget(index uint32) {
	delete(t.entries, index)
	if t.most > 1024 && len(t.entries) < t.most/4 {
		smaller := make(map[uint32]*Entry, len(t.entries))
		for i, e := range t.entries {
			smaller[i] = e
		}
		t.entries, t.most = smaller, len(smaller)
	}
}

// checkActions checks what an entry of t is to do.
func (t *Table) checkActions(c *EntryConfig) command.Result {
	d := t.domain
	final := c.Action & (ActionAllow | ActionDrop | ActionForward)
	known := uint16(ActionAllow | ActionDrop | ActionForward | ActionCount)
	if d.typ >= EgressACL {
		known |= actionVLAN
	}
	if d.typ.modifies() {
		known |= ActionModify
	}
	if c.Action&^known != 0 || final == 0 || final&(final-1) != 0 {
		return fail(badParam, synEntryAction, "action %#x: one of allow, drop and forward, with or without count", c.Action)
	}
	if final == ActionAllow && !d.typ.acl() {
		return fail(badParam, synEntryAction, "action allow in a table of type %d", d.typ)
	}
	if r := c.checkVLANs(); !r.OK() {
		return r
	}
	if (c.Action&ActionModify != 0) != (c.Header != nil) || c.Header != nil && (c.Header.Type != d.typ || final == ActionDrop) {
		return fail(badParam, synEntryHeader, "action %#x with a modify header of other tables, or of frames that are dropped, or none", c.Action)
	}
	if c.Source >= sources || c.Source != AnySource && d.typ != FDB {
		return fail(badParam, synEntrySource, "flow_source %d in a table of type %d", c.Source, d.typ)
	}
	if final == ActionForward && len(c.Dests) == 0 {
		return fail(badParam, synDestinations, "action forward without a destination")
	}
	if final != ActionForward && len(c.Dests) != 0 {
		return fail(badParam, synDestinations, "%d destinations without action forward", len(c.Dests))
	}
	if len(c.Dests) > d.limits.Destinations {
		return fail(limitExceeds, synDestinations, "%d destinations: at most %d", len(c.Dests), d.limits.Destinations)
	}
	if (c.Action&ActionCount != 0) != (len(c.Counters) != 0) || len(c.Counters) > maxCounters {
		return fail(badParam, synCounters, "action %#x with %d counters", c.Action, len(c.Counters))
	}
	for _, to := range c.Dests {
		switch {
		case to.Table != nil:
			if to.Table.domain != d {
				return fail(badParam, synDestKind, "table %#x is of another type", to.Table.id)
			}
			if to.Table.level <= t.level {
				return fail(badParam, synDestLevel, "table %#x has level %d, not above %d", to.Table.id, to.Table.level, t.level)
			}
			if c.change() != nil {
				return fail(badParam, synEntryVLAN, "tables can't be the destination of frames whose tags change")
			}
		case to.Vport != nil:
			if d.typ != FDB {
				return fail(badParam, synDestKind, "a vport is a destination of FDB tables")
			}
		case to.TIR == nil || d.typ != NICRx:
			return fail(badParam, synDestKind, "a TIR is a destination of receive tables")
		}
	}
	return command.Result{}
}

// Ethertypes of tags.
const (
	typeCVID = 0x8100
	typeSVID = 0x88a8
)

// checkVLANs makes the edit that the actions ask for: a second tag is popped or pushed only after a first.
func (c *EntryConfig) checkVLANs() command.Result {
	c.edit = Edit{}
	a := c.Action
	if a&actionVLAN == 0 {
		return command.Result{}
	}
	if a&ActionDrop != 0 || a&(ActionPopVLAN|ActionPopVLAN2) == ActionPopVLAN2 || a&(ActionPushVLAN|ActionPushVLAN2) == ActionPushVLAN2 {
		return fail(badParam, synEntryVLAN, "action %#x: tags of dropped frames, or a second tag without a first", a)
	}
	for _, bit := range [...]uint16{ActionPopVLAN, ActionPopVLAN2} {
		if a&bit != 0 {
			c.edit.Pops++
		}
	}
	for i, bit := range [...]uint16{ActionPushVLAN, ActionPushVLAN2} {
		if a&bit == 0 {
			continue
		}
		if t := c.VLANs[i] >> 16; t != typeCVID && t != typeSVID {
			return fail(badParam, synEntryVLAN, "push_vlan.ethtype %#x: no VLAN tag", t)
		}
		c.edit.Tags[i] = c.VLANs[i]
		c.edit.Pushes++
	}
	return command.Result{}
}

// maxCounters bounds the counters of an entry.
const maxCounters = 4

func (e *Entry) hold() {
	for _, to := range e.config.Dests {
		switch {
		case to.Table != nil:
			to.Table.Hold()
		case to.TIR != nil:
			to.TIR.Hold()
		}
	}
	for _, c := range e.config.Counters {
		c.Hold()
	}
	if e.config.Header != nil {
		e.config.Header.Hold()
	}
}

func (c *EntryConfig) drop() {
	for _, to := range c.Dests {
		switch {
		case to.Table != nil:
			to.Table.Drop()
		case to.TIR != nil:
			to.TIR.Drop()
		}
	}
	for _, n := range c.Counters {
		n.Drop()
	}
	if c.Header != nil {
		c.Header.Drop()
	}
}
