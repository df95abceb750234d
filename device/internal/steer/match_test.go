package steer

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"cxkit/device/internal/command"
	"cxkit/device/internal/packet"
)

var testLimits = Limits{Parsers: Parsers{Flexible: true, GTPU: true, Raw: true}, LogSize: 16, Level: 64, Tables: 256, Groups: 4096, Entries: 1 << 17, Destinations: 8}

func ok(t testing.TB, r command.Result) {
	t.Helper()
	if !r.OK() {
		t.Fatalf("%v (%#x): %s", r.Status, r.Syndrome, r.Why)
	}
}

func refused(t testing.TB, r command.Result, syndrome uint32) {
	t.Helper()
	if r.OK() || r.Syndrome != syndrome {
		t.Errorf("got status %v syndrome %#x (%s), want syndrome %#x", r.Status, r.Syndrome, r.Why, syndrome)
	}
}

func table(t testing.TB, d *Domain, level, logSize int) *Table {
	t.Helper()
	tab, r := d.CreateTable(TableConfig{Level: level, LogSize: logSize})
	ok(t, r)
	return tab
}

// criteria makes a mask of the outer headers, and of the parts that a word is set of.
func criteria(words map[int]uint64) (c Criteria) {
	for i, w := range words {
		binary.BigEndian.PutUint64(c.Mask[i*8:], w)
		c.Enable |= criteriaOuter | 1<<(i/8)
	}
	return c
}

func group(t testing.TB, tab *Table, start, end uint32, words map[int]uint64) *Group {
	t.Helper()
	g, r := tab.CreateGroup(GroupConfig{start, end, criteria(words)})
	ok(t, r)
	return g
}

func matchValue(words map[int]uint64) Value {
	c := criteria(words)
	return NewValue(c.Mask[:])
}

// entry makes an entry that drops, or forwards if there are destinations.
func entry(g *Group, index uint32, words map[int]uint64, to ...Dest) EntryConfig {
	c := EntryConfig{Index: index, Group: g.ID(), Value: matchValue(words), Action: ActionDrop, Dests: to}
	if len(to) > 0 {
		c.Action = ActionForward
	}
	return c
}

// naive is a flow table as the PRM describes it: entries in the order of their indices, compared field by
// field under the mask of their group.
type naive struct {
	tables map[uint32]*naiveTable
}

type naiveTable struct {
	miss    uint32
	entries []naiveEntry
}

type naiveEntry struct {
	index     uint32
	enable    uint8
	mask, val [paramBytes]byte
	source    Source
	to        []Dest
	tag       uint32
	drop      bool
}

// matches compares bit by bit, and knows the special meaning of "no C-VLAN tag".
func (e *naiveEntry) matches(h *packet.Headers) bool {
	var raw [paramBytes]byte
	for i, w := range h.Key {
		binary.BigEndian.PutUint64(raw[i*8:], w)
	}
	for i := range raw {
		if e.enable>>(i/64)&1 != 0 && raw[i]&e.mask[i] != e.val[i]&e.mask[i] {
			return false
		}
	}
	if uplink := raw[0x46] == 0xff && raw[0x47] == 0xff; e.source == UplinkSource && !uplink || e.source == LocalSource && uplink {
		return false
	}
	const c, s = 0x80, 0x40
	for part, tags := range map[uint8]int{criteriaOuter: 0x12, criteriaInner: 0x92} {
		if e.enable&part != 0 && e.mask[tags]&c != 0 && e.val[tags]&c == 0 && e.mask[tags]&s == 0 && raw[tags]&s != 0 {
			return false
		}
	}
	return true
}

func (n *naive) classify(id uint32, h *packet.Headers, tag uint32, out *[]string) {
	t := n.tables[id]
	for i := range t.entries {
		e := &t.entries[i]
		if !e.matches(h) {
			continue
		}
		if e.tag != 0 {
			tag = e.tag
		}
		if e.drop {
			*out = append(*out, "drop")
			return
		}
		for _, to := range e.to {
			if to.Table != nil {
				n.classify(to.Table.id, h, tag, out)
			} else {
				*out = append(*out, goal(to.TIR, to.Vport, tag))
			}
		}
		return
	}
	if t.miss != 0 {
		n.classify(t.miss, h, tag, out)
		return
	}
	*out = append(*out, "miss")
}

// goal is where a frame goes, in words.
func goal(tir *TIR, vport *Vport, tag uint32) string {
	if vport != nil {
		return fmt.Sprintf("vport %d tag %d", vport.Number, tag)
	}
	return fmt.Sprintf("tir %d tag %d", tir.Number, tag)
}

// randomHeaders draws a key from few values per field, so that rules hit.
func randomHeaders(rnd *rand.Rand, h *packet.Headers) {
	small := func(shift int) uint64 { return uint64(rnd.IntN(3)) << shift }
	*h = packet.Headers{}
	h.Key[0] = small(16) | small(0)
	h.Key[1] = small(16) | small(0)
	h.Key[2] = small(56) | small(50) | small(48) | small(41) | small(32) | small(16) | small(0)
	switch rnd.IntN(3) {
	case 0:
		h.Key[2] |= packet.KeyCVLAN
	case 1:
		h.Key[2] |= packet.KeySVLAN
	}
	h.Key[3] = small(62) | small(44) | small(32) | small(16) | small(0)
	for i := 4; i < 8; i++ {
		h.Key[i] = small(0)
	}
	h.Key[8] = small(60)
	h.Key[9], h.Key[11], h.Key[14] = small(48)|small(31)&(1<<31)|small(32)|small(0), small(0), small(32)
	h.Key[10], h.Key[12], h.Key[13] = small(32)|small(8), small(32), small(0)
	h.Key[32], h.Key[33] = small(0), small(0)
	if rnd.IntN(2) == 0 {
		h.Key[11] |= small(40) | small(32)&(1<<32)
		h.Key[12] |= small(16) | small(0)
		h.Key[24], h.Key[25] = small(44)|small(0), small(32)|small(12)
		h.Key[34], h.Key[35], h.Key[36] = small(32)|small(24)|small(16), small(32)|small(0), small(56)|small(48)|small(40)|small(32)
		h.Key[37], h.Key[38], h.Key[39], h.Key[50] = small(32)|small(24), small(32)|small(0), small(32), small(32)|small(8)
	}
	if rnd.IntN(2) == 0 { // in a tunnel
		h.Key[32], h.Key[33] = h.Key[32]|small(32), h.Key[33]|small(32)
		h.Key[16], h.Key[17], h.Key[18] = small(0), small(16), small(56)|small(41)|small(16)
		if rnd.IntN(2) == 0 {
			h.Key[18] |= packet.KeySVLAN
		}
		h.Key[19], h.Key[21], h.Key[23] = small(62)|small(0), small(0), small(0)
	}
}

// fieldMasks are what random groups combine.
var fieldMasks = []struct {
	word int
	mask uint64
}{
	{0, 0xffff}, {0, 0x7fff << 16}, {1, 0xffffffffffff << 16}, {1, 0xfff}, {2, 0xff << 56}, {2, 3 << 48}, {2, 0xf << 41},
	{2, packet.KeyCVLAN}, {2, packet.KeySVLAN}, {2, 0xffff << 16}, {2, 0xffff}, {2, 1 << 32}, {3, 0xff << 32}, {3, 0xffff},
	{3, 0xf << 44}, {3, 3 << 62}, {5, 0xffffffff}, {6, ^uint64(0)}, {7, 0xffffffff}, {9, 0xfff << 48}, {9, 1 << 31}, {11, 0xfffff},
	{14, 0xffffffff << 32},
	{8, 3 << 60}, {9, 0xfff << 32}, {9, 0xffff}, {10, 0xffffffff << 32}, {10, 0xffffff << 8}, {12, 0xfffff << 32}, {13, 0xffffffff},
	{16, 0xffff}, {17, 0xffffffffffff << 16}, {18, 0xff << 56}, {18, 0xf << 41}, {18, packet.KeyCVLAN}, {18, 0xffff << 16},
	{19, 3 << 62}, {21, ^uint64(0)}, {23, 0xffffffff},
	{11, 0xffffff << 40}, {11, 1 << 32}, {12, 0x3f << 16}, {12, 0xffff}, {24, 0xfffff << 44}, {24, 0xffffffff}, {25, 0xff << 32},
	{25, 0xfffff << 12}, {32, 0xffffffff}, {32, 0xffffffff << 32}, {33, 0xffffffff}, {34, 0xffffff << 32}, {34, 0xff << 24},
	{35, 0xffffffff << 32}, {35, 0xffffffff}, {36, 0xff << 56}, {36, 0xff << 48}, {36, 0xffff << 32}, {37, 0xffffffff << 32},
	{37, 0xff << 24}, {38, 0xffffffff}, {39, 0xff << 32}, {50, 0xffffffff}, {50, 0xffff << 32},
}

func TestClassifyEqualsANaiveMatcher(t *testing.T) {
	seeds := uint64(30) // 5,000 look-ups each
	if os.Getenv("CXKIT_LONG_TESTS") != "" {
		seeds = 200
	}
	for seed := range seeds {
		rnd := rand.New(rand.NewPCG(seed, 99))
		d := NewDomain(NICRx, testLimits, seed)
		// Entries of every third run name where their frames come from, as those of the e-switch do.
		from := seed%3 == 2
		if from {
			d = NewDomain(FDB, testLimits, seed)
		}
		ref := naive{tables: map[uint32]*naiveTable{}}
		var tables []*Table
		tirs := []*TIR{{Number: 1}, {Number: 2}, {Number: 3}}
		vports := []*Vport{{Number: 1}, {Number: 2}, {Number: 3}}
		for level := range 5 {
			tables = append(tables, table(t, d, level, 6))
			ref.tables[tables[level].id] = &naiveTable{}
		}
		d.SetRoot(tables[0])
		var groups []*Group
		change := func() {
			tab := tables[rnd.IntN(len(tables))]
			r := ref.tables[tab.id]
			switch rnd.IntN(10) {
			case 0:
				start := uint32(rnd.IntN(64))
				words := map[int]uint64{}
				for range rnd.IntN(4) {
					f := fieldMasks[rnd.IntN(len(fieldMasks))]
					words[f.word] |= f.mask
				}
				if g, res := tab.CreateGroup(GroupConfig{start, start + uint32(rnd.IntN(8)), criteria(words)}); res.OK() {
					groups = append(groups, g)
				}
			case 1:
				if len(groups) > 0 {
					i := rnd.IntN(len(groups))
					if groups[i].table.DestroyGroup(groups[i]).OK() {
						groups = slices.Delete(groups, i, i+1)
					}
				}
			case 2:
				miss := tables[rnd.IntN(len(tables))]
				if d.SetMiss(tab, missForward, miss.id).OK() {
					r.miss = miss.id
				}
			case 3:
				if d.SetMiss(tab, missDefault, 0).OK() {
					r.miss = 0
				}
			case 4:
				index := uint32(rnd.IntN(64))
				if tab.DeleteEntry(index).OK() {
					r.entries = slices.DeleteFunc(r.entries, func(e naiveEntry) bool { return e.index == index })
				}
			default:
				if len(groups) == 0 {
					return
				}
				g := groups[rnd.IntN(len(groups))]
				var h packet.Headers
				randomHeaders(rnd, &h)
				words := map[int]uint64{}
				for i, w := range h.Key {
					words[i] = w
				}
				c := EntryConfig{Index: g.start + uint32(rnd.IntN(int(g.end-g.start)+1)), Group: g.id, Value: matchValue(words), Tag: uint32(rnd.IntN(3))}
				for range rnd.IntN(3) {
					switch n := rnd.IntN(6); {
					case n < 3 && from:
						c.Dests = append(c.Dests, Dest{Vport: vports[n]})
					case n < 3:
						c.Dests = append(c.Dests, Dest{TIR: tirs[n]})
					default:
						c.Dests = append(c.Dests, Dest{Table: tables[rnd.IntN(len(tables))]})
					}
				}
				c.Action = ActionForward
				if len(c.Dests) == 0 {
					c.Action = ActionDrop
				}
				if from {
					c.Source = Source(rnd.IntN(int(sources)))
				}
				if rnd.IntN(2) == 0 { // the same value in many entries
					c.Value = Value{}
				}
				if !g.table.SetEntry(c).OK() {
					return
				}
				r := ref.tables[g.table.id]
				e := naiveEntry{index: c.Index, enable: g.criteria.Enable, mask: g.criteria.Mask, val: [paramBytes]byte(c.Value.Bytes()), source: c.Source, to: c.Dests, tag: c.Tag,
					drop: c.Action == ActionDrop}
				at, _ := slices.BinarySearchFunc(r.entries, e.index, func(e naiveEntry, i uint32) int { return int(e.index) - int(i) })
				r.entries = slices.Insert(r.entries, at, e)
			}
		}
		var v Verdict
		for step := range 250 {
			change()
			for range 20 {
				var h packet.Headers
				randomHeaders(rnd, &h)
				if rnd.IntN(2) == 0 {
					h.Key[sourceWord] |= uplinkPort
				}
				var want []string
				ref.classify(tables[0].id, &h, 0, &want)
				missed := slices.Contains(want, "miss")
				want = slices.DeleteFunc(want, func(s string) bool { return s == "miss" || s == "drop" })
				if len(want) > MaxDeliveries {
					want = want[:MaxDeliveries]
				}
				for range 2 { // the second time from the cache
					d.Classify(&h, &v)
					var got []string
					for _, to := range v.To {
						got = append(got, goal(to.TIR, to.Vport, to.Tag))
					}
					if !slices.Equal(got, want) || v.Missed != missed {
						t.Fatalf("seed %d step %d: got %v missed %v, want %v missed %v\nkey %x", seed, step, got, v.Missed, want, missed, h.Key)
					}
				}
			}
		}
	}
}

func TestLookUpsDoNotGrowWithEntries(t *testing.T) {
	d := NewDomain(NICRx, testLimits, 7)
	tab := table(t, d, 0, 16)
	g := group(t, tab, 0, 1<<16-1, map[int]uint64{1: 0xffffffffffff << 16})
	for i := range uint32(1 << 16) {
		ok(t, tab.SetEntry(entry(g, i, map[int]uint64{1: uint64(i) << 20})))
	}
	if longest := g.shape.longestChain(); longest > 12 {
		t.Errorf("a bucket holds %d of %d entries", longest, 1<<16)
	}
}

func TestEqualValuesTheLowestIndexWins(t *testing.T) {
	d := NewDomain(NICRx, testLimits, 7)
	tab := table(t, d, 0, 4)
	g := group(t, tab, 2, 9, map[int]uint64{0: 0xffff})
	a, b, c := &TIR{Number: 1}, &TIR{Number: 2}, &TIR{Number: 3}
	ok(t, tab.SetEntry(entry(g, 5, map[int]uint64{0: 0x800}, Dest{TIR: a})))
	ok(t, tab.SetEntry(entry(g, 9, map[int]uint64{0: 0x800}, Dest{TIR: b})))
	ok(t, tab.SetEntry(entry(g, 3, map[int]uint64{0: 0x800}, Dest{TIR: c})))
	var h packet.Headers
	h.Key[0] = 0x800
	var v Verdict
	for _, want := range []*TIR{c, a, b} {
		d.Classify(&h, &v)
		if len(v.To) != 1 || v.To[0].TIR != want {
			t.Fatalf("got %v, want TIR %d", v.To, want.Number)
		}
		ok(t, tab.DeleteEntry(want.entryIndex(tab)))
	}
	if d.Classify(&h, &v); !v.Missed {
		t.Error("a frame matched a table without entries")
	}
}

// entryIndex finds the entry that leads to t.
func (t *TIR) entryIndex(tab *Table) uint32 {
	for i, e := range tab.entries {
		if e.config.Dests[0].TIR == t {
			return i
		}
	}
	return ^uint32(0)
}

func TestUntaggedMeansNoTagOfEitherKind(t *testing.T) {
	d := NewDomain(NICRx, testLimits, 7)
	tab := table(t, d, 0, 4)
	g := group(t, tab, 0, 1, map[int]uint64{2: packet.KeyCVLAN})
	s := group(t, tab, 2, 3, map[int]uint64{2: packet.KeySVLAN})
	untagged, c, sTag := &TIR{Number: 1}, &TIR{Number: 2}, &TIR{Number: 3}
	ok(t, tab.SetEntry(entry(g, 0, nil, Dest{TIR: untagged})))
	ok(t, tab.SetEntry(entry(g, 1, map[int]uint64{2: packet.KeyCVLAN}, Dest{TIR: c})))
	ok(t, tab.SetEntry(entry(s, 2, map[int]uint64{2: packet.KeySVLAN}, Dest{TIR: sTag})))
	for key, want := range map[uint64]*TIR{0: untagged, packet.KeyCVLAN: c, packet.KeySVLAN: sTag} {
		var h packet.Headers
		h.Key[2] = key
		var v Verdict
		if d.Classify(&h, &v); len(v.To) != 1 || v.To[0].TIR != want {
			t.Errorf("tag bits %#x: %v, want TIR %d", key, v.To, want.Number)
		}
	}
}
