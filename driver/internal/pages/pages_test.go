package pages

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// naive is the allocator as a map of pages that are taken: it knows what must be possible, not which block
// is chosen.
type naive struct {
	count int
	taken map[int]bool
}

// fits tells whether an aligned block of the order is wholly free.
func (n *naive) fits(order int) bool {
	for page := 0; page+1<<order <= n.count; page += 1 << order {
		if n.free(page, order) {
			return true
		}
	}
	return false
}

func (n *naive) free(page, order int) bool {
	for i := range 1 << order {
		if n.taken[page+i] {
			return false
		}
	}
	return true
}

func (n *naive) blocks(order int) (free int) {
	for page := 0; page+1<<order <= n.count; page += 1 << order {
		if n.free(page, order) {
			free++
		}
	}
	return free
}

type block struct{ page, order int }

// Whatever is allocated, split, freed and pinned: a block is handed out exactly if one is free, it is
// aligned and overlaps nothing, and pages are merged whenever they can be.
func TestAllocatorEqualsNaiveMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]int{Size4K, Size64K}).Draw(t, "size")
		count := rapid.IntRange(1, 300).Draw(t, "pages")
		a := New(count*size+size/2, size, rapid.Uint64().Draw(t, "seed"))
		n := &naive{count: count, taken: map[int]bool{}}
		var held []block
		var failing Failure

		take := func(t *rapid.T, page, order int) {
			if page%(1<<order) != 0 || page+1<<order > count || !n.free(page, order) {
				t.Fatalf("block %d of order %d overlaps another or is not aligned", page, order)
			}
			for i := range 1 << order {
				n.taken[page+i] = true
			}
			held = append(held, block{page, order})
		}
		t.Repeat(map[string]func(*rapid.T){
			"alloc": func(t *rapid.T) {
				order := rapid.IntRange(0, MaxOrder).Draw(t, "order")
				fails := failing.Rate == 1 && order >= failing.Order
				page, ok := a.Alloc(order)
				if want := n.fits(order) && !fails; ok != want {
					t.Fatalf("order %d: allocated %v, want %v", order, ok, want)
				}
				if ok {
					take(t, page, order)
				}
			},
			"free": func(t *rapid.T) {
				if len(held) == 0 {
					t.Skip("nothing to free")
				}
				i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
				b := held[i]
				held = append(held[:i], held[i+1:]...)
				a.Free(b.page, b.order)
				for i := range 1 << b.order {
					delete(n.taken, b.page+i)
				}
			},
			"split": func(t *rapid.T) {
				if len(held) == 0 {
					t.Skip("nothing to split")
				}
				i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
				b := held[i]
				held = append(held[:i], held[i+1:]...)
				a.Split(b.page, b.order)
				for i := range 1 << b.order {
					held = append(held, block{b.page + i, 0})
				}
			},
			"fragment": func(t *rapid.T) {
				order := rapid.IntRange(0, 6).Draw(t, "order")
				had := n.blocks(order)
				if got, left := a.Fragment(order, 0.5); got != had || left != had-(had+1)/2 {
					t.Fatalf("order %d: %d blocks and %d left, want %d", order, got, left, had)
				}
				for _, page := range a.pins {
					n.taken[int(page)] = true
				}
			},
			"heal": func(t *rapid.T) {
				for _, page := range a.pins {
					delete(n.taken, int(page))
				}
				a.Heal()
			},
			"failure": func(t *rapid.T) {
				failing = Failure{Order: rapid.IntRange(0, 3).Draw(t, "from"), Rate: float64(rapid.IntRange(0, 1).Draw(t, "rate"))}
				a.Inject(failing)
			},
			"": func(t *rapid.T) {
				if got, want := a.FreePagesLeft(), count-len(n.taken); got != want {
					t.Fatalf("%d pages free, want %d", got, want)
				}
				for order := range 4 {
					if got, want := a.Available(order), n.blocks(order); got != want {
						t.Fatalf("%d blocks of order %d, want %d", got, order, want)
					}
				}
			},
		})
	})
}

// A block freed twice, with another order, or from its middle is a lost book: the allocator stops there.
func TestWrongFreesPanic(t *testing.T) {
	a := New(16*Size4K, Size4K, 1)
	page, _ := a.Alloc(2)
	single, _ := a.Alloc(0)
	a.Free(single, 0)
	for name, free := range map[string]func(){
		"twice":        func() { a.Free(single, 0) },
		"wrong order":  func() { a.Free(page, 1) },
		"in a block":   func() { a.Free(page+1, 0) },
		"outside":      func() { a.Free(16, 0) },
		"before":       func() { a.Free(-1, 0) },
		"split a part": func() { a.Split(page, 1) },
		"list":         func() { a.FreePages([]uint32{uint32(page)}) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			free()
		})
	}
	a.Free(page, 2)
	if a.Available(4) != 1 {
		t.Error("the pages were not merged")
	}
}

// Fragmentation and failures repeat from their seed.
func TestFailuresRepeatFromSeed(t *testing.T) {
	run := func(seed uint64) (s string) {
		a := New(256*Size4K, Size4K, seed)
		a.Fragment(3, 0.7)
		s = fmt.Sprint(a.pins)
		a.Inject(Failure{Order: 1, Rate: 0.5})
		for range 20 {
			page, ok := a.Alloc(1)
			s += fmt.Sprint(page, ok)
		}
		if st := a.Stats(); st.Injected[1] == 0 || st.Allocs[1] == 0 || st.Allocs[1]+st.Injected[1]+st.Failed[1] != 20 {
			t.Errorf("counters %+v", st)
		}
		return s
	}
	first := run(1)
	if again := run(1); again != first {
		t.Error("two runs from one seed differ")
	}
	if run(2) == first {
		t.Error("two seeds give the same run")
	}
}

// With all blocks of order 3 pinned, single pages are there as before: 7 of 8.
func TestFragmentationLeavesSinglePages(t *testing.T) {
	a := New(512*Size4K, Size4K, 7)
	if had, left := a.Fragment(3, 1); had != 64 || left != 0 || a.Pinned() != 64 {
		t.Fatalf("%d blocks, %d left, %d pinned", had, left, a.Pinned())
	}
	if _, ok := a.Alloc(3); ok {
		t.Error("a block of order 3 is left")
	}
	list := make([]uint32, 512)
	if n := a.AllocPages(list); n != 448 {
		t.Errorf("%d pages, want 448", n)
	}
	a.FreePages(list[:448])
	a.Heal()
	if a.Available(MaxOrder-1) != 1 {
		t.Error("pages were not merged after the pins were gone")
	}
}

func BenchmarkAllocFree(b *testing.B) {
	for _, fragmented := range []bool{false, true} {
		b.Run(fmt.Sprintf("fragmented=%v", fragmented), func(b *testing.B) {
			a := New(16384*Size4K, Size4K, 1)
			if fragmented {
				a.Fragment(3, 1)
			}
			for b.Loop() {
				page, _ := a.Alloc(0)
				a.Free(page, 0)
			}
		})
	}
}
