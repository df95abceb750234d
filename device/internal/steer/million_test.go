package steer

import (
	"math/rand/v2"
	"os"
	"runtime"
	"testing"

	"cxkit/device/internal/packet"
)

// many is how many rules a test makes: a million where CXKIT_LONG_TESTS is set in the environment.
func many() uint32 {
	if os.Getenv("CXKIT_LONG_TESTS") != "" {
		return 1 << 20
	}
	return 1 << 14
}

// heap is what is in use.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// longestChain is the most values of equal or neighbouring hash that a look-up passes.
func (s *shape) longestChain() (longest int) {
	for _, v := range s.buckets {
		n := 0
		for ; v != nil; v = v.next {
			n++
		}
		longest = max(longest, n)
	}
	return longest
}

// TestAMillionRules: whatever a peer fills tables with, a rule takes bounded memory, is made and deleted by work that
// does not grow with their number, and so is a look-up; and what is gone takes no memory.
func TestAMillionRules(t *testing.T) {
	n := many()
	mac := map[int]uint64{1: 0xffffffffffff << 16}
	for name, c := range map[string]struct {
		mask   map[int]uint64
		value  func(i uint32) uint64 // of word 1
		groups uint32
	}{
		"of values of their own":      {mac, func(i uint32) uint64 { return uint64(i) << 20 }, 1},
		"of one value":                {mac, func(uint32) uint64 { return 5 << 20 }, 1},
		"that match everything":       {nil, func(uint32) uint64 { return 0 }, 1},
		"in a group each":             {mac, func(i uint32) uint64 { return uint64(i) << 20 }, n},
		"of one value in many groups": {mac, func(uint32) uint64 { return 5 << 20 }, n / 8},
	} {
		t.Run(name, func(t *testing.T) {
			limits := testLimits
			limits.LogSize, limits.Groups, limits.Entries = 20, int(n), int(n)
			d := NewDomain(NICRx, limits, 7)
			tab := table(t, d, 0, 20)
			tir := &TIR{Number: 1}
			order := rand.New(rand.NewPCG(1, 2)).Perm(int(n))
			before := heap()
			var gs []*Group
			size := n / c.groups
			for i := range c.groups {
				gs = append(gs, group(t, tab, i*size, (i+1)*size-1, c.mask))
			}
			set := func(i uint32) {
				e := entry(gs[i/size], i, map[int]uint64{1: c.value(i)}, Dest{TIR: tir})
				e.Tag = i + 1
				ok(t, tab.SetEntry(e))
			}
			for _, i := range order[:n/2] { // half of them in order, half not
				if uint32(i) >= n/2 {
					set(uint32(i))
				}
			}
			for i := range n {
				if tab.Entry(i) == nil {
					set(i)
				}
			}
			bound := uint64(500)
			if size < 8 {
				bound += 1200 // a group's masks
			}
			if per := (heap() - before) / uint64(n); per > bound {
				t.Errorf("%d bytes a rule", per)
			}
			_, r := tab.CreateGroup(GroupConfig{Start: 0, End: 0})
			refused(t, r, synGroupOverlap)
			s := gs[0].shape
			look := func(i, want uint32) {
				t.Helper()
				var h packet.Headers
				var v Verdict
				h.Key[1] = c.value(i)
				d.Classify(&h, &v)
				if want == 0 && !v.Missed || want != 0 && (len(v.To) != 1 || v.To[0].Tag != want) || v.looks > 1 {
					t.Fatalf("frame of rule %d: %v after %d look-ups, want tag %d", i, v.To, v.looks, want)
				}
			}
			first := func(i uint32) uint32 { // the lowest rule with the value of i
				if c.value(1) == c.value(2) {
					return 0
				}
				return i
			}
			if l := s.longestChain(); l > 16 {
				t.Errorf("a look-up passes %d values", l)
			}
			for i := range uint32(1000) {
				i = i * 7919 % n
				look(i, first(i)+1)
			}
			for i := range n / 2 { // the lowest ones
				ok(t, tab.DeleteEntry(i))
			}
			if c.value(1) == c.value(2) {
				look(0, n/2+1)
			} else {
				look(3, 0)
				look(n/2+3, n/2+4)
			}
			for _, i := range order {
				if i := uint32(i); i >= n/2 && i != n-1 {
					ok(t, tab.DeleteEntry(i))
				}
			}
			look(n-1, n)
			lastGroup := gs[len(gs)-1]
			for _, g := range gs[:len(gs)-1] {
				ok(t, tab.DestroyGroup(g))
			}
			gs, s = nil, nil
			if n := len(lastGroup.shape.buckets); n > 64 {
				t.Errorf("%d buckets for one rule", n)
			}
			// One rule is left, so that nothing goes with the table; numbers of groups take 20 bytes each,
			// and the cache of decisions is there.
			if left := heap(); left > before+uint64(c.groups)*40+400_000 {
				t.Errorf("%d bytes are left of %d rules", left-before, n)
			}
			ok(t, tab.DeleteEntry(n-1))
			ok(t, tab.DestroyGroup(lastGroup))
			ok(t, d.DestroyTable(tab))
			if tables, groups, entries := d.Counts(); tables+groups+entries != 0 || d.masks != 0 || tir.Held() {
				t.Errorf("left over: %d tables, %d groups, %d masks, %d entries", tables, groups, d.masks, entries)
			}
			runtime.KeepAlive(order)
		})
	}
}

// TestMasksRunOut: a frame is looked up under every mask of a table, so there are only so many.
func TestMasksRunOut(t *testing.T) {
	limits := testLimits
	limits.Groups = 2 * maxMasks
	d := NewDomain(NICRx, limits, 1)
	tir := &TIR{Number: 1}
	tab, next := table(t, d, 0, 14), table(t, d, 1, 14)
	var gs []*Group
	for i := range uint32(maxMasks) {
		g := group(t, tab, i, i, map[int]uint64{1: uint64(i+1) << 16})
		ok(t, tab.SetEntry(entry(g, i, map[int]uint64{1: uint64(i+1) << 16}, Dest{TIR: tir})))
		gs = append(gs, g)
	}
	_, r := tab.CreateGroup(GroupConfig{maxMasks, maxMasks, criteria(map[int]uint64{0: 1})})
	refused(t, r, synGroups)
	if r.Status != limitExceeds {
		t.Errorf("status %v", r.Status)
	}
	_, r = next.CreateGroup(GroupConfig{0, 0, criteria(map[int]uint64{1: 1 << 16})})
	refused(t, r, synGroups)
	again := group(t, tab, maxMasks, maxMasks, map[int]uint64{1: 1 << 16}) // of a mask that there is
	ok(t, tab.DestroyGroup(again))
	var v Verdict
	var h packet.Headers
	d.Classify(&h, &v)
	if !v.Missed || v.looks != maxMasks {
		t.Errorf("missed %v after %d look-ups, want %d", v.Missed, v.looks, maxMasks)
	}
	ok(t, tab.DeleteEntry(9))
	ok(t, tab.DestroyGroup(gs[9]))
	group(t, next, 0, 0, map[int]uint64{0: 1})
}

// TestLookUpsOfReplicatedFramesAreBounded: copies of a frame that go through a large table again and again.
func TestLookUpsOfReplicatedFramesAreBounded(t *testing.T) {
	d := NewDomain(NICRx, testLimits, 1)
	last := table(t, d, 9, 12)
	for i := range uint32(2000) {
		g := group(t, last, i, i, map[int]uint64{1: uint64(i+1) << 16})
		ok(t, last.SetEntry(entry(g, i, map[int]uint64{1: uint64(i+1) << 16})))
	}
	next := Dest{Table: last}
	for level := 8; level >= 6; level-- {
		tab := table(t, d, level, 0)
		ok(t, tab.SetEntry(entry(group(t, tab, 0, 0, nil), 0, nil, next, next, next, next, next, next, next, next)))
		next = Dest{Table: tab}
	}
	d.SetRoot(next.Table)
	var v Verdict
	d.Classify(new(packet.Headers), &v)
	if v.looks > maxLooks+maxVisits { // 512 copies of 2,000 without a bound
		t.Errorf("%d look-ups", v.looks)
	}
}
