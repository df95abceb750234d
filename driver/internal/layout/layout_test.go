package layout

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"cxkit/driver/internal/pages"
)

// rig is one queue whose clock stands.
type rig struct {
	pages *pages.Allocator
	*Queue
	now time.Duration
}

func newRig(tb testing.TB, pageSize, count int, c Config) *rig {
	tb.Helper()
	r := &rig{pages: pages.New(pageSize*count, pageSize, 1)}
	if c.Limit == 0 {
		c.Limit = count
	}
	c.Now = func() time.Duration { return r.now }
	r.Queue = NewQueue(NewShared(r.pages, make([]byte, pageSize*count), minUnit, true), c)
	return r
}

// fill posts n fragments.
func (r *rig) fill(tb testing.TB, n int) []uint32 {
	tb.Helper()
	list := make([]uint32, n)
	if got := r.Fill(list); got != n {
		tb.Fatalf("%d fragments, want %d", got, n)
	}
	return list
}

// distinct counts the pages that fragments lie on.
func distinct(s *Shared, list []uint32) int {
	seen := map[int]bool{}
	for _, f := range list {
		seen[s.Page(f)] = true
	}
	return len(seen)
}

// all are the layouts, with the pages that each may use.
func all(f func(k Kind)) {
	for _, k := range []Kind{Halves, PerSlot, Flip, Striding, Headroom} {
		f(k)
	}
}

// Random frames, releases by the owner and by others, switches of the layout, failures: fragments that are
// out never overlap (the checked books panic), the counts agree with a plain list, and in the end every
// page is back.
func TestFragmentsNeverOverlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pageSize := rapid.SampledFrom([]int{pages.Size4K, pages.Size64K}).Draw(t, "page")
		count := rapid.IntRange(40, 200).Draw(t, "pages")
		if pageSize == pages.Size64K {
			count = rapid.IntRange(9, 16).Draw(t, "pages64")
		}
		ring := rapid.IntRange(1, 40).Draw(t, "ring")
		size := rapid.SampledFrom([]int{256, 1536, 2048, 3000}).Draw(t, "size")
		mem := make([]byte, pageSize*count)
		r := &rig{pages: pages.New(len(mem), pageSize, 1)}
		r.Queue = NewQueue(NewShared(r.pages, mem, minUnit, true), Config{
			Kind: Kind(rapid.IntRange(0, 4).Draw(t, "kind")), Ring: ring, Size: size, Limit: count,
			Order: rapid.IntRange(0, 3).Draw(t, "order"), Now: func() time.Duration { return r.now },
		})
		if far := rapid.IntRange(0, 3).Draw(t, "far"); far > 0 {
			r.pages.SetUnfit(func(page int) bool { return page%far == 0 })
		}
		owner := map[int]int{} // units that are out
		var out []uint32
		note := func(f uint32, by int) {
			s := r.shared
			first, n := int(f), len(s.bytes(f))/minUnit
			if s.info[s.block(f)].head {
				first--
			}
			for i := first; i < first+n; i++ {
				if owner[i] += by; owner[i] > 1 {
					t.Fatalf("unit %d is part of two fragments", i)
				}
			}
		}
		some := func(t *rapid.T) []uint32 {
			n := rapid.IntRange(0, len(out)).Draw(t, "n")
			list := append([]uint32(nil), out[:n]...)
			out = append([]uint32(nil), out[n:]...)
			if rapid.Bool().Draw(t, "reversed") {
				for i, j := 0, len(list)-1; i < j; i, j = i+1, j-1 {
					list[i], list[j] = list[j], list[i]
				}
			}
			for _, f := range list {
				note(f, -1)
			}
			return list
		}
		t.Repeat(map[string]func(*rapid.T){
			"fill": func(t *rapid.T) {
				list := make([]uint32, rapid.IntRange(0, ring).Draw(t, "n"))
				for _, f := range list[:r.Fill(list)] {
					note(f, 1)
					r.shared.bytes(f)[0] = 1 // the card writes
					out = append(out, f)
				}
			},
			"release": func(t *rapid.T) { r.Release(some(t)) },
			"give":    func(t *rapid.T) { r.Give(some(t)) },
			"switch":  func(t *rapid.T) { r.Switch(Kind(rapid.IntRange(0, 4).Draw(t, "kind"))) },
			"failure": func(t *rapid.T) {
				r.pages.Inject(pages.Failure{Order: rapid.IntRange(0, 2).Draw(t, "from"), Rate: float64(rapid.IntRange(0, 1).Draw(t, "rate"))})
			},
			"time": func(t *rapid.T) { r.now += time.Duration(rapid.IntRange(0, 600).Draw(t, "ms")) * time.Millisecond },
			"": func(t *rapid.T) {
				r.Collect()
				if int(r.InFlight()) != len(out) {
					t.Fatalf("%d in flight, want %d", r.InFlight(), len(out))
				}
				s := r.Stats()
				if s.Held != count-r.pages.FreePagesLeft() || s.Held > count || s.Violations != 0 || s.Order > r.config.Order {
					t.Fatalf("%+v with %d pages free of %d", s, r.pages.FreePagesLeft(), count)
				}
			},
		})
		r.Give(out)
		if left := r.Retire(); left != 0 || r.pages.FreePagesLeft() != count {
			t.Fatalf("%d pages left, %d of %d free", left, r.pages.FreePagesLeft(), count)
		}
	})
}

// A frame is held for a while; its page is recycled as soon as its turn comes after that, and not before.
func TestQuarantineLooksAtOldestFirst(t *testing.T) {
	r := newRig(t, pages.Size4K, 64, Config{Kind: Halves, Ring: 8, Size: 2048})
	first := r.fill(t, 8)
	r.fill(t, 8) // the other half of the circle: nothing was there yet
	if s := r.Stats(); s.Recycled != 0 || s.Fresh != 8 {
		t.Fatalf("%+v", s)
	}
	r.Release(first[:1]) // half of the oldest page
	again := r.fill(t, 2)
	if s := r.Stats(); s.Recycled != 0 || s.Missed != 1 || r.shared.Page(again[0]) == r.shared.Page(first[0]) {
		t.Fatalf("a page of which a half is in use was recycled: %+v", s)
	}
	r.Release(first[2:4])
	if again = r.fill(t, 2); again[0] != first[2] || again[1] != first[3] || r.Stats().Recycled != 1 {
		t.Fatalf("fragments %v, want %v recycled", again, first[2:4])
	}
}

// 45 segments: 45 pages with one page a slot, 23 with two halves of 4 KiB pages. On pages of 64 KiB with
// fragments of 1536 bytes 42 frames share one: 2 pages for 40 of the 42 places where a packet may begin, 3
// for 2 of them, 2.05 in the mean.
func TestPagesOfAnAggregatedPacket(t *testing.T) {
	const segments = 45
	count := func(kind Kind, pageSize, size, packets int) (total, least, most int) {
		r := newRig(t, pageSize, 800, Config{Kind: kind, Ring: 256, Size: size})
		if pageSize == pages.Size64K {
			r = newRig(t, pageSize, 130, Config{Kind: kind, Ring: 256, Size: size})
		}
		posted := r.fill(t, 256)
		least = segments
		for range packets {
			packet := posted[:segments]
			n := distinct(r.shared, packet)
			total, least, most = total+n, min(least, n), max(most, n)
			r.Release(packet)
			// Two frames of another flow in between: packets begin at all places of a page.
			r.Release(posted[segments : segments+2])
			posted = append(posted[segments+2:], r.fill(t, segments+2)...)
		}
		return total, least, most
	}
	const packets = 42 * 2
	for _, c := range []struct {
		kind                    Kind
		page, size, mean, least int
		most                    int
	}{
		{PerSlot, pages.Size4K, 1536, 45 * 42, 45, 45},
		{Flip, pages.Size4K, 2048, 45 * 42, 45, 45},
		{PerSlot, pages.Size64K, 1536, 45 * 42, 45, 45},
		{Halves, pages.Size4K, 2048, 23 * 42, 23, 23},
		{Halves, pages.Size64K, 1536, 40*2 + 2*3, 2, 3},
	} {
		if c.kind == PerSlot && c.page == pages.Size64K {
			// 256 pages of 64 KiB are more memory than it is worth.
			continue
		}
		total, least, most := count(c.kind, c.page, c.size, packets)
		if total*42 != c.mean*packets || least != c.least || most != c.most {
			t.Errorf("%v on %d KiB: %d pages for %d packets, %d to %d; want %d for 42, %d to %d",
				c.kind, c.page>>10, total, packets, least, most, c.mean, c.least, c.most)
		}
	}
}

// Two halves on small pages need as many pages as slots; on pages of 64 KiB a 21st of them.
func TestPagesHeld(t *testing.T) {
	for _, ring := range []int{256, 1024} {
		small := newRig(t, pages.Size4K, 2*ring, Config{Kind: Halves, Ring: ring, Size: 2048})
		large := newRig(t, pages.Size64K, ring/8, Config{Kind: Halves, Ring: ring, Size: 1536})
		for _, r := range []*rig{small, large} {
			for range 4 {
				r.Release(r.fill(t, ring))
			}
		}
		if got := small.Stats().Pooled; got != ring {
			t.Errorf("ring of %d: %d pages of 4 KiB, want %d", ring, got, ring)
		}
		if got, want := large.Stats().Pooled, (2*ring+41)/42; got != want {
			t.Errorf("ring of %d: %d pages of 64 KiB, want %d", ring, got, want)
		}
	}
}

func TestNeedIsWhatLayoutsHold(t *testing.T) {
	all(func(k Kind) {
		for _, ring := range []int{8, 64} {
			r := newRig(t, pages.Size4K, 400, Config{Kind: k, Ring: ring, Size: 2048, Order: 2})
			for range 6 {
				r.Release(r.fill(t, ring))
			}
			s := r.Stats()
			if need := Need(k, ring, 2048, pages.Size4K, 2); s.Held-s.Idle > need {
				t.Errorf("%v, ring of %d: %d pages, said to need %d", k, ring, s.Held-s.Idle, need)
			}
		}
	})
}

func TestKindsHaveNames(t *testing.T) {
	seen := map[string]bool{}
	all(func(k Kind) { seen[k.String()] = true })
	if len(seen) != 5 || fmt.Sprint(Kind(9)) != "kind(9)" {
		t.Errorf("%v", seen)
	}
}
