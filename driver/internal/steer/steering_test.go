package steer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"cxkit/driver/internal/cmdif"
	"cxkit/driver/internal/object"
	"cxkit/prm"
)

// card is a steering engine reduced to its commands: it numbers what is created, checks what firmware
// would check, and notes entries as they come and go.
type card struct {
	t      *testing.T
	tables map[uint32]*cardTable
	root   uint32
	log    []string
	refuse prm.Opcode // answers this command with an error
	next   uint32
}

type cardTable struct {
	size    uint32
	level   uint8
	groups  map[uint32][2]uint32
	entries map[uint32]prm.SetFlowTableEntryIn
}

func (c *card) Exec(_ context.Context, in cmdif.In, out cmdif.Out) error {
	if in.Opcode() == c.refuse {
		return &prm.CommandError{Op: in.Opcode(), Status: prm.StatusNoResources}
	}
	bad := func(why string) error {
		c.t.Errorf("%v: %s", in.Opcode(), why)
		return &prm.CommandError{Op: in.Opcode(), Status: prm.StatusBadParameter}
	}
	c.next++
	switch in := in.(type) {
	case *prm.CreateFlowTableIn:
		out.(*prm.CreateFlowTableOut).TableID = c.next
		c.tables[c.next] = &cardTable{
			size: 1 << in.FlowTableContext.LogSize, level: in.FlowTableContext.Level,
			groups: make(map[uint32][2]uint32), entries: make(map[uint32]prm.SetFlowTableEntryIn),
		}
	case *prm.CreateFlowGroupIn:
		t := c.tables[in.TableID]
		for _, g := range t.groups {
			if in.StartFlowIndex <= g[1] && in.EndFlowIndex >= g[0] {
				return bad("groups overlap")
			}
		}
		if in.EndFlowIndex < in.StartFlowIndex || in.EndFlowIndex >= t.size {
			return bad("group outside its table")
		}
		out.(*prm.CreateFlowGroupOut).GroupID = c.next
		t.groups[c.next] = [2]uint32{in.StartFlowIndex, in.EndFlowIndex}
	case *prm.SetFlowTableEntryIn:
		t := c.tables[in.TableID]
		g, known := t.groups[in.FlowContext.GroupID]
		if _, used := t.entries[in.FlowIndex]; used || !known || in.FlowIndex < g[0] || in.FlowIndex > g[1] {
			return bad(fmt.Sprintf("entry %d", in.FlowIndex))
		}
		if to := in.Destinations[0]; to.DestinationType == prm.DestinationFlowTable && c.tables[to.DestinationID].level <= t.level {
			return bad("forward to a lower level")
		}
		t.entries[in.FlowIndex] = *in
		c.log = append(c.log, "+"+describe(t.level, in))
	case *prm.DeleteFlowTableEntryIn:
		t := c.tables[in.TableID]
		e, known := t.entries[in.FlowIndex]
		if !known {
			return bad("no such entry")
		}
		delete(t.entries, in.FlowIndex)
		c.log = append(c.log, "-"+describe(t.level, &e))
	case *prm.SetFlowTableRootIn:
		if c.root = in.TableID; in.OpMod == 1 {
			c.root = 0
		}
	case *prm.DestroyFlowGroupIn:
		t, g := c.tables[in.TableID], c.tables[in.TableID].groups[in.GroupID]
		for i := range t.entries {
			if i >= g[0] && i <= g[1] {
				return bad("group has entries")
			}
		}
		delete(t.groups, in.GroupID)
	case *prm.DestroyFlowTableIn:
		if t := c.tables[in.TableID]; len(t.groups) > 0 || c.root == in.TableID {
			return bad("table in use")
		}
		delete(c.tables, in.TableID)
	default:
		return bad("unexpected")
	}
	return nil
}

// describe names an entry by table and match.
func describe(level uint8, in *prm.SetFlowTableEntryIn) string {
	m := in.FlowContext.MatchValue.Outer
	switch level {
	case vlanLevel:
		return fmt.Sprintf("vlan c%v s%v %d", m.CVLANTag, m.SVLANTag, m.FirstVID)
	case l2Level:
		return fmt.Sprintf("mac %x", m.DMAC)
	}
	return fmt.Sprintf("type %#x %d", m.Ethertype, m.IPProtocol)
}

func newSteering(t *testing.T) (*Steering, *card, *object.Book) {
	t.Helper()
	c := &card{t: t, tables: make(map[uint32]*cardTable)}
	book := object.NewBook(c)
	s, err := New(t.Context(), Config{
		Exec: book, Objects: book, LogMaxSize: 20,
		TIRs: TIRs{TCPv4: 1, UDPv4: 2, TCPv6: 3, UDPv6: 4, IPv4: 5, IPv6: 6, Other: 7},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.log = nil
	return s, c, book
}

// change goes from what is in force to rules, and returns what the card saw.
func change(t *testing.T, s *Steering, c *card, rules *Rules) []string {
	t.Helper()
	c.log = nil
	if err := errors.Join(s.Grow(t.Context(), rules), s.Shrink(t.Context(), rules)); err != nil {
		t.Fatal(err)
	}
	return c.log
}

func TestChangesAddBeforeTheyRemoveAndTouchNothingElse(t *testing.T) {
	s, c, book := newSteering(t)
	a, b := MAC{2, 0, 0, 0, 0, 1}, MAC{2, 0, 0, 0, 0, 2}
	for _, step := range []struct {
		name  string
		rules Rules
		want  []string
	}{
		{"first", Rules{Addresses: []MAC{a, Broadcast()}}, []string{
			"+mac 020000000001", "+mac ffffffffffff", "+vlan cfalse sfalse 0", "+vlan ctrue sfalse 0", "+vlan cfalse strue 0",
		}},
		{"same again", Rules{Addresses: []MAC{a, Broadcast()}}, nil},
		{"another address", Rules{Addresses: []MAC{b, Broadcast()}}, []string{"+mac 020000000002", "-mac 020000000001"}},
		{"promiscuous", Rules{Promiscuous: true, Addresses: []MAC{b, Broadcast()}}, []string{"+mac 000000000000"}},
		{"VLAN filter under promiscuous", Rules{Promiscuous: true, VLANFilter: true, VLANs: []uint16{5}, Addresses: []MAC{b, Broadcast()}},
			[]string{"+vlan ctrue sfalse 5"}},
		{"VLAN filter", Rules{VLANFilter: true, VLANs: []uint16{5}, Addresses: []MAC{b, Broadcast()}},
			[]string{"-mac 000000000000", "-vlan ctrue sfalse 0", "-vlan cfalse strue 0"}},
		{"all multicast", Rules{AllMulticast: true, VLANFilter: true, VLANs: []uint16{5}, Addresses: []MAC{b, Broadcast()}},
			[]string{"+mac 010000000000"}},
	} {
		if got := change(t, s, c, &step.rules); !slices.Equal(got, step.want) {
			t.Errorf("%s: got %q, want %q", step.name, got, step.want)
		}
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if len(c.tables) != 0 || c.root != 0 || len(book.Out()) != 0 {
		t.Errorf("after close: %d tables, root %d, objects %v", len(c.tables), c.root, book.Out())
	}
}

func TestSpecialEntriesComeBeforeGeneralOnes(t *testing.T) {
	s, c, _ := newSteering(t)
	change(t, s, c, &Rules{Promiscuous: true, AllMulticast: true, VLANFilter: true, VLANs: []uint16{9}, Addresses: []MAC{{2}, Broadcast()}})
	index := func(level uint8, name string) uint32 {
		for _, table := range c.tables {
			for i, e := range table.entries {
				if table.level == level && strings.Contains(describe(level, &e), name) {
					return i
				}
			}
		}
		t.Fatalf("no entry %q", name)
		return 0
	}
	for _, order := range []struct {
		level uint8
		names []string
	}{
		{l2Level, []string{"mac 02", "mac 01", "mac 000000000000"}},
		{vlanLevel, []string{"vlan ctrue sfalse 9", "vlan cfalse strue"}},
		{ttcLevel, []string{"type 0x800 6", "type 0x800 0", "type 0x0 0"}},
	} {
		for i := 1; i < len(order.names); i++ {
			if index(order.level, order.names[i-1]) >= index(order.level, order.names[i]) {
				t.Errorf("%q does not come before %q", order.names[i-1], order.names[i])
			}
		}
	}
}

func TestRefusedEntriesCanBeTakenBackAndFreedOnesUsedAgain(t *testing.T) {
	s, c, _ := newSteering(t)
	before := &Rules{Addresses: []MAC{{2}, Broadcast()}}
	change(t, s, c, before)
	c.refuse = prm.OpSetFlowTableEntry
	after := &Rules{Addresses: []MAC{{2}, {4}, Broadcast()}}
	if err := s.Grow(t.Context(), after); !errors.Is(err, prm.StatusNoResources) {
		t.Fatalf("error %v", err)
	}
	c.refuse = 0
	if err := s.Shrink(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	for range 3 * 4096 { // more changes than the table has entries
		change(t, s, c, after)
		change(t, s, c, before)
	}
}

func TestFullTableIsAnError(t *testing.T) {
	s, c, _ := newSteering(t)
	var rules Rules
	for i := range 5000 {
		rules.Addresses = append(rules.Addresses, MAC{2, 0, 0, 0, byte(i >> 8), byte(i)})
	}
	if err := s.Grow(t.Context(), &rules); !errors.Is(err, ErrFull) {
		t.Fatalf("5000 addresses: %v", err)
	}
	none := &Rules{}
	if err := errors.Join(s.Shrink(t.Context(), none), s.Close(t.Context())); err != nil {
		t.Error(err)
	}
	if len(c.tables) != 0 {
		t.Errorf("%d tables left", len(c.tables))
	}
}

func TestFailedStartLeavesNothing(t *testing.T) {
	for _, op := range []prm.Opcode{prm.OpCreateFlowTable, prm.OpCreateFlowGroup, prm.OpSetFlowTableEntry, prm.OpSetFlowTableRoot} {
		c := &card{t: t, tables: make(map[uint32]*cardTable), refuse: op}
		book := object.NewBook(c)
		if _, err := New(t.Context(), Config{Exec: book, Objects: book, LogMaxSize: 20}); !errors.Is(err, prm.StatusNoResources) {
			t.Errorf("%v refused: %v", op, err)
		}
		if len(c.tables) != 0 || len(book.Out()) != 0 {
			t.Errorf("%v refused: %d tables and %v left", op, len(c.tables), book.Out())
		}
	}
}
