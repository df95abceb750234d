package steer

import (
	"fmt"
	"slices"
	"testing"

	"cxkit/device/internal/packet"
)

func TestTablesAreChecked(t *testing.T) {
	d := NewDomain(NICRx, testLimits, 1)
	low, high := table(t, d, 3, 4), table(t, d, 5, 4)
	for name, c := range map[string]struct {
		config   TableConfig
		syndrome uint32
	}{
		"size":                      {TableConfig{LogSize: 17}, synTableSize},
		"level":                     {TableConfig{Level: 65}, synTableLevel},
		"miss table does not exist": {TableConfig{MissAction: 1, MissID: 99}, synMissTable},
		"miss table is not higher":  {TableConfig{Level: 3, MissAction: 1, MissID: low.id}, synMissLevel},
		"miss action":               {TableConfig{MissAction: 2}, synMissAction},
	} {
		t.Run(name, func(t *testing.T) {
			_, r := d.CreateTable(c.config)
			refused(t, r, c.syndrome)
		})
	}
	refused(t, d.SetMiss(high, missForward, low.id), synMissLevel)
	refused(t, d.SetMiss(low, missForward, low.id), synMissLevel)
	ok(t, d.SetMiss(low, missForward, high.id))
	refused(t, d.DestroyTable(high), synTableUsed)
	ok(t, d.SetMiss(low, missDefault, 0))
	ok(t, d.DestroyTable(high))
	g := group(t, low, 0, 0, nil)
	refused(t, d.DestroyTable(low), synTableUsed)
	ok(t, low.DestroyGroup(g))
	ok(t, d.DestroyTable(low))
	if tables, groups, entries := d.Counts(); tables != 0 || groups != 0 || entries != 0 {
		t.Errorf("left over: %d tables, %d groups, %d entries", tables, groups, entries)
	}
}

func TestTableNumbersRunOut(t *testing.T) {
	limits := testLimits
	limits.Tables, limits.Groups, limits.Entries = 1, 1, 1
	d := NewDomain(NICRx, limits, 1)
	tab := table(t, d, 0, 4)
	_, r := d.CreateTable(TableConfig{})
	refused(t, r, synTables)
	g := group(t, tab, 0, 1, nil)
	_, r = tab.CreateGroup(GroupConfig{Start: 2, End: 3})
	refused(t, r, synGroups)
	ok(t, tab.SetEntry(entry(g, 0, nil)))
	refused(t, tab.SetEntry(entry(g, 1, nil)), synEntries)
}

// What a kind of card reads can be matched there, and no bit more; what it does not read is refused.
func TestParsersSayWhatCanBeMatched(t *testing.T) {
	all := Parsers{Flexible: true, GTPU: true, Raw: true}
	for name, has := range map[string]Parsers{"none": {}, "flexible": {Flexible: true}, "GTP-U": {GTPU: true}, "raw": {Raw: true}, "all": all} {
		limits := testLimits
		limits.Parsers = has
		d := NewDomain(NICRx, limits, 1)
		tab := table(t, d, 0, 10)
		for word := range packet.KeyWords {
			for bit := range 64 {
				w := uint64(1) << bit
				want := (matchable[word]|has.parsed(word))&w != 0
				g, r := tab.CreateGroup(GroupConfig{Start: 0, End: 0, Criteria: criteria(map[int]uint64{word: w})})
				if r.OK() != want || !want && (r.Syndrome != synGroupMask || r.Status != badParam || r.Why == "") {
					t.Fatalf("%s: word %d bit %d: %v %#x (%s), want it matched: %v", name, word, bit, r.Status, r.Syndrome, r.Why, want)
				}
				if r.OK() {
					ok(t, tab.DestroyGroup(g))
				}
			}
		}
	}
}

func TestGroupsAreChecked(t *testing.T) {
	limits := testLimits
	limits.Parsers = Parsers{} // what every card can
	d := NewDomain(NICRx, limits, 1)
	tab := table(t, d, 0, 4)
	g := group(t, tab, 4, 7, map[int]uint64{0: 0xffff})
	for name, c := range map[string]struct {
		config   GroupConfig
		syndrome uint32
	}{
		"backwards":           {GroupConfig{Start: 2, End: 1}, synGroupRange},
		"past the end":        {GroupConfig{Start: 2, End: 16}, synGroupRange},
		"huge":                {GroupConfig{Start: 0, End: ^uint32(0)}, synGroupRange},
		"overlaps the start":  {GroupConfig{Start: 0, End: 4}, synGroupOverlap},
		"overlaps the end":    {GroupConfig{Start: 7, End: 15}, synGroupOverlap},
		"inside":              {GroupConfig{Start: 5, End: 6}, synGroupOverlap},
		"around":              {GroupConfig{Start: 0, End: 15}, synGroupOverlap},
		"misc 2":              {GroupConfig{Criteria: Criteria{Enable: 8}}, synGroupMask},
		"a field it can't do": {GroupConfig{Criteria: criteria(map[int]uint64{13: 1 << 32})}, synGroupMask},
		"GENEVE":              {GroupConfig{Criteria: criteria(map[int]uint64{11: 1 << 32})}, synGroupMask},
		"MPLS":                {GroupConfig{Criteria: criteria(map[int]uint64{24: 1 << 44})}, synGroupMask},
		"TCP sequence":        {GroupConfig{Criteria: criteria(map[int]uint64{32: 1})}, synGroupMask},
		"ICMP":                {GroupConfig{Criteria: criteria(map[int]uint64{36: 1 << 56})}, synGroupMask},
		"GTP-U":               {GroupConfig{Criteria: criteria(map[int]uint64{37: 1 << 32})}, synGroupMask},
		"samples":             {GroupConfig{Criteria: criteria(map[int]uint64{40: 1})}, synGroupMask},
		"raw tunnel header":   {GroupConfig{Criteria: criteria(map[int]uint64{50: 1})}, synGroupMask},
		"past misc 5":         {GroupConfig{Criteria: criteria(map[int]uint64{56: 1})}, synGroupMask},
		"source SQN":          {GroupConfig{Criteria: criteria(map[int]uint64{sourceWord: sourceSQN})}, synGroupMask},
	} {
		t.Run(name, func(t *testing.T) {
			_, r := tab.CreateGroup(c.config)
			refused(t, r, c.syndrome)
		})
	}
	group(t, tab, 0, 3, nil)
	group(t, tab, 8, 15, nil)
	all := slices.Concat(tab.groups.blocks...)
	for i := range all[1:] {
		if all[i].end >= all[i+1].start {
			t.Errorf("groups out of order: %d to %d before %d", all[i].start, all[i].end, all[i+1].start)
		}
	}
	if len(all) != 3 {
		t.Errorf("%d groups, want 3", len(all))
	}
	ok(t, tab.SetEntry(entry(g, 4, nil)))
	refused(t, tab.DestroyGroup(g), synGroupUsed)
	ok(t, tab.DeleteEntry(4))
	ok(t, tab.DestroyGroup(g))
}

func TestEntriesAreChecked(t *testing.T) {
	d, tx := NewDomain(NICRx, testLimits, 1), NewDomain(NICTx, testLimits, 1)
	tab, same, up, other := table(t, d, 1, 4), table(t, d, 1, 4), table(t, d, 2, 4), table(t, tx, 2, 4)
	g := group(t, tab, 4, 7, nil)
	tir, counter := &TIR{Number: 1}, &Counter{}
	ok(t, tab.SetEntry(entry(g, 4, nil, Dest{Table: up})))
	many := make([]Dest, 9)
	for i := range many {
		many[i] = Dest{TIR: tir}
	}
	for name, c := range map[string]struct {
		config   EntryConfig
		syndrome uint32
	}{
		"index past the table":         {EntryConfig{Index: 16, Group: g.id, Action: ActionDrop}, synEntryIndex},
		"index outside the group":      {EntryConfig{Index: 3, Group: g.id, Action: ActionDrop}, synEntryGroup},
		"index taken":                  {EntryConfig{Index: 4, Group: g.id, Action: ActionDrop}, synEntryExists},
		"no such group":                {EntryConfig{Index: 5, Group: 77, Action: ActionDrop}, synGroup},
		"no action":                    {EntryConfig{Index: 5, Group: g.id}, synEntryAction},
		"two actions":                  {EntryConfig{Index: 5, Group: g.id, Action: ActionDrop | ActionForward, Dests: []Dest{{TIR: tir}}}, synEntryAction},
		"unknown action":               {EntryConfig{Index: 5, Group: g.id, Action: ActionDrop | 0x40}, synEntryAction},
		"allow in a receive table":     {EntryConfig{Index: 5, Group: g.id, Action: ActionAllow}, synEntryAction},
		"forward nowhere":              {EntryConfig{Index: 5, Group: g.id, Action: ActionForward}, synDestinations},
		"drop with destination":        {EntryConfig{Index: 5, Group: g.id, Action: ActionDrop, Dests: []Dest{{TIR: tir}}}, synDestinations},
		"too many destinations":        {EntryConfig{Index: 5, Group: g.id, Action: ActionForward, Dests: many}, synDestinations},
		"table of the same level":      {EntryConfig{Index: 5, Group: g.id, Action: ActionForward, Dests: []Dest{{Table: same}}}, synDestLevel},
		"the table itself":             {EntryConfig{Index: 5, Group: g.id, Action: ActionForward, Dests: []Dest{{Table: tab}}}, synDestLevel},
		"table of another type":        {EntryConfig{Index: 5, Group: g.id, Action: ActionForward, Dests: []Dest{{Table: other}}}, synDestKind},
		"count without counter":        {EntryConfig{Index: 5, Group: g.id, Action: ActionDrop | ActionCount}, synCounters},
		"counter without count":        {EntryConfig{Index: 5, Group: g.id, Action: ActionDrop, Counters: []*Counter{counter}}, synCounters},
		"more counters than it can do": {EntryConfig{Index: 5, Group: g.id, Action: ActionDrop | ActionCount, Counters: make([]*Counter, 5)}, synCounters},
	} {
		t.Run(name, func(t *testing.T) { refused(t, tab.SetEntry(c.config), c.syndrome) })
	}
	txGroup := group(t, other, 0, 0, map[int]uint64{sourceWord: sourceSQN})
	refused(t, other.SetEntry(EntryConfig{Group: txGroup.id, Action: ActionForward, Dests: []Dest{{TIR: tir}}}), synDestKind)
	ok(t, other.SetEntry(EntryConfig{Group: txGroup.id, Action: ActionAllow}))
	refused(t, tab.DeleteEntry(5), synEntryMissing)
	if tir.Held() || counter.Held() || up.Holders() != 1 {
		t.Errorf("refused entries hold objects: TIR %d, counter %d, table %d", tir.Holders(), counter.Holders(), up.Holders())
	}
	ok(t, tab.DeleteEntry(4))
	if up.Held() {
		t.Error("a deleted entry holds its destination")
	}
}

func TestModifyEntryChangesWhatIsSelected(t *testing.T) {
	d := NewDomain(NICRx, testLimits, 1)
	tab := table(t, d, 1, 4)
	g := group(t, tab, 0, 7, nil)
	a, b, counter := &TIR{Number: 1}, &TIR{Number: 2}, &Counter{}
	ok(t, tab.SetEntry(entry(g, 0, nil, Dest{TIR: a})))
	var v Verdict
	look := func(want *TIR, tag uint32) {
		t.Helper()
		v.Count(0)
		if d.Classify(new(packet.Headers), &v); len(v.To) != 1 || v.To[0].TIR != want || v.To[0].Tag != tag {
			t.Errorf("%+v, want TIR %d tag %d", v.To, want.Number, tag)
		}
	}
	look(a, 0)
	ok(t, tab.ModifyEntry(ModifyTag, EntryConfig{Tag: 9, Action: ActionDrop}))
	look(a, 9)
	ok(t, tab.ModifyEntry(ModifyDests, EntryConfig{Dests: []Dest{{TIR: b}}}))
	look(b, 9)
	if a.Held() || b.Holders() != 1 {
		t.Errorf("holders: a %d, b %d", a.Holders(), b.Holders())
	}
	ok(t, tab.ModifyEntry(ModifyAction|ModifyCounters, EntryConfig{Action: ActionForward | ActionCount, Counters: []*Counter{counter}}))
	look(b, 9)
	for range 3 {
		d.Classify(new(packet.Headers), &v)
		v.Count(100)
	}
	if counter.Packets != 3 || counter.Octets != 300 {
		t.Errorf("counter %+v", counter)
	}
	refused(t, tab.ModifyEntry(ModifyAction|ModifyDests, EntryConfig{Action: ActionForward | ActionCount}), synDestinations)
	refused(t, tab.ModifyEntry(1<<7, EntryConfig{}), synModify)
	refused(t, tab.ModifyEntry(ModifyTag, EntryConfig{Index: 1}), synEntryMissing)
	look(b, 9)
}

func TestRootFollowsTheDriver(t *testing.T) {
	d := NewDomain(NICRx, testLimits, 1)
	if d.Root() != nil {
		t.Error("a domain without tables has a root")
	}
	high := table(t, d, 9, 0)
	low := table(t, d, 2, 0)
	if d.Root() != low {
		t.Error("a driver that sets no root gets the table with the lowest level")
	}
	ok(t, d.DestroyTable(low))
	if d.Root() != high {
		t.Error("the next table takes over")
	}
	d.SetRoot(nil)
	if table(t, d, 0, 0); d.Root() != nil {
		t.Error("a disconnected domain connects itself")
	}
	d.SetRoot(high)
	ok(t, d.DestroyTable(high))
	if d.Root() != nil {
		t.Error("a destroyed root is still there")
	}
}

func TestReplicationIsBounded(t *testing.T) {
	d := NewDomain(NICRx, testLimits, 1)
	// 60 levels of tables, each forwarding eight times to the next: 8^60 ways.
	tir := &TIR{Number: 1}
	next := Dest{TIR: tir}
	for level := 60; level >= 0; level-- {
		tab := table(t, d, level, 0)
		g := group(t, tab, 0, 0, nil)
		ok(t, tab.SetEntry(entry(g, 0, nil, next, next, next, next, next, next, next, next)))
		next = Dest{Table: tab}
	}
	d.SetRoot(next.Table)
	var v Verdict
	d.Classify(new(packet.Headers), &v)
	if len(v.To) != MaxDeliveries || v.visits > 2*maxVisits {
		t.Errorf("%d deliveries after %d tables", len(v.To), v.visits)
	}
}

func TestCountersOfDeepPathsAreCounted(t *testing.T) {
	d := NewDomain(NICRx, testLimits, 1)
	var counters []*Counter
	next := Dest{TIR: &TIR{Number: 1}}
	for level := 5; level >= 0; level-- {
		tab := table(t, d, level, 0)
		g := group(t, tab, 0, 0, nil)
		c := &Counter{}
		counters = append(counters, c)
		e := entry(g, 0, nil, next)
		e.Action |= ActionCount
		e.Counters = []*Counter{c}
		ok(t, tab.SetEntry(e))
		next = Dest{Table: tab}
	}
	d.SetRoot(next.Table)
	var v Verdict
	for range 4 {
		d.Classify(new(packet.Headers), &v)
		v.Count(60)
	}
	for i, c := range counters {
		if c.Packets != 4 || c.Octets != 240 {
			t.Errorf("counter %d: %d packets, %d octets", i, c.Packets, c.Octets)
		}
	}
}

func TestMasksThatAreGoneDoNotHurt(t *testing.T) {
	d := NewDomain(NICRx, testLimits, 1)
	tab := table(t, d, 0, 8)
	all := map[int]uint64{}
	for i := range 8 {
		all[i] = matchable[i]
	}
	all[9], all[11], all[14] = matchable[9], matchable[11], matchable[14]
	wide := group(t, tab, 0, 0, all) // more words than the cache's key holds
	narrow := group(t, tab, 1, 255, map[int]uint64{0: 0xffff})
	tir := &TIR{Number: 4}
	ok(t, tab.SetEntry(entry(narrow, 7, map[int]uint64{0: 0x800}, Dest{TIR: tir})))
	var v Verdict
	var h packet.Headers
	h.Key[0] = 0x800
	for range 2 {
		if d.Classify(&h, &v); len(v.To) != 1 || v.To[0].TIR != tir {
			t.Errorf("%+v", v.To)
		}
		ok(t, tab.DestroyGroup(wide))
		wide = group(t, tab, 0, 0, all)
	}
}

func TestClassifyDoesNotAllocate(t *testing.T) {
	d := NewDomain(NICRx, testLimits, 1)
	tab := table(t, d, 0, 8)
	g := group(t, tab, 0, 255, map[int]uint64{0: 0xffff})
	ok(t, tab.SetEntry(entry(g, 7, map[int]uint64{0: 0x800}, Dest{TIR: &TIR{}})))
	var v Verdict
	h := new(packet.Headers)
	d.Classify(h, &v)
	if n := testing.AllocsPerRun(1000, func() {
		h.Key[0]++
		d.Classify(h, &v)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzTables makes operations on a domain of bytes: nothing may panic, and look-ups stay bounded.
func FuzzTables(f *testing.F) {
	f.Add([]byte{0, 1, 2, 0, 3, 2, 1, 0, 0, 0, 2, 1, 0, 0, 0, 3, 1, 0, 1})
	f.Fuzz(func(t *testing.T, in []byte) {
		limits := testLimits
		limits.Tables, limits.Groups, limits.Entries = 8, 32, 64
		d := NewDomain(NICRx, limits, 1)
		tirs := [2]*TIR{{Number: 1}, {Number: 2}}
		next := func() int {
			if len(in) == 0 {
				return 0
			}
			v := in[0]
			in = in[1:]
			return int(v)
		}
		var v Verdict
		var h packet.Headers
		for len(in) > 0 {
			op := next()
			tab := d.Table(uint32(next() % 10))
			if op%8 == 0 {
				d.CreateTable(TableConfig{Level: next(), LogSize: next() % 20, MissAction: next() % 3, MissID: uint32(next() % 10)})
				continue
			}
			if tab == nil {
				continue
			}
			switch op % 8 {
			case 1:
				c := GroupConfig{Start: uint32(next()), End: uint32(next()), Criteria: Criteria{Enable: uint8(next() % 4)}}
				for range 3 {
					c.Criteria.Mask[next()%128] = byte(next())
				}
				tab.CreateGroup(c)
			case 2, 3:
				c := EntryConfig{Index: uint32(next()), Group: uint32(next() % 8), Action: uint16(next() % 16), Tag: uint32(next())}
				var raw [paramBytes]byte
				for range 3 {
					raw[next()%128] = byte(next())
				}
				c.Value = NewValue(raw[:])
				for range next() % 4 {
					if to := d.Table(uint32(next() % 10)); to != nil {
						c.Dests = append(c.Dests, Dest{Table: to})
					} else {
						c.Dests = append(c.Dests, Dest{TIR: tirs[next()&1]})
					}
				}
				if op%8 == 2 {
					tab.SetEntry(c)
				} else {
					tab.ModifyEntry(uint8(next()), c)
				}
			case 4:
				tab.DeleteEntry(uint32(next()))
			case 5:
				if g := tab.Group(uint32(next() % 8)); g != nil {
					tab.DestroyGroup(g)
				}
			case 6:
				d.DestroyTable(tab)
			case 7:
				d.SetRoot(tab)
			}
			h.Key[next()%packet.KeyWords] = uint64(next())
			d.Classify(&h, &v)
			if len(v.To) > MaxDeliveries {
				t.Fatalf("%d deliveries", len(v.To))
			}
		}
	})
}

func BenchmarkClassify(b *testing.B) {
	d := NewDomain(NICRx, testLimits, 7)
	tab := table(b, d, 0, 16)
	g := group(b, tab, 0, 1<<16-1, map[int]uint64{1: 0xffffffffffff << 16})
	for i := range uint32(1 << 16) {
		ok(b, tab.SetEntry(entry(g, i, map[int]uint64{1: uint64(i) << 20}, Dest{TIR: &TIR{}})))
	}
	for name, flows := range map[string]uint64{"8 flows": 8, "65536 flows": 1 << 16} {
		b.Run(name, func(b *testing.B) {
			var h packet.Headers
			var v Verdict
			for i := uint64(0); b.Loop(); i++ {
				h.Key[1] = i % flows << 20
				d.Classify(&h, &v)
			}
		})
	}
}

// BenchmarkLookUp looks up frames of as many flows as there are rules, one after the other: with more than the
// cache holds each is looked up in the tables.
func BenchmarkLookUp(b *testing.B) {
	for _, n := range []int{10, 1000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			d, hs := manyRules(b, n)
			var v Verdict
			i := 0
			for b.Loop() {
				d.Classify(&hs[i], &v)
				if len(v.To) != 1 || v.To[0].Tag != uint32(i+1) {
					b.Fatalf("frame %d goes to %v", i, v.To)
				}
				if i++; i == len(hs) {
					i = 0
				}
			}
		})
	}
}

// manyRules makes a table of n rules on addresses and ports, and a frame for each.
func manyRules(b testing.TB, n int) (*Domain, []packet.Headers) {
	limits := testLimits
	limits.LogSize = 18
	d := NewDomain(NICRx, limits, 1)
	tab := table(b, d, 0, 17)
	g := group(b, tab, 0, 1<<17-1, map[int]uint64{2: 0xffffffff, 5: 0xffffffff, 7: 0xffffffff})
	tir := &TIR{Number: 1}
	hs := make([]packet.Headers, n)
	for i := range hs {
		words := map[int]uint64{2: uint64(i*7 + 1), 5: uint64(i), 7: 0x0a000001}
		c := entry(g, uint32(i), words, Dest{TIR: tir})
		c.Tag = uint32(i + 1)
		ok(b, tab.SetEntry(c))
		for w, v := range words {
			hs[i].Key[w] = v
		}
	}
	return d, hs
}
