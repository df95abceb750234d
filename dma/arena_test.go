package dma

import (
	"errors"
	"math"
	"sync"
	"testing"
)

// kinds are the kinds that New makes on this system.
func kinds() []Kind {
	k := []Kind{Heap, Private, Reserved}
	if a, err := New(1, Shared); err == nil {
		a.Close()
		k = append(k, Shared)
	}
	return k
}

func TestArenasAreZeroedWritablePages(t *testing.T) {
	for _, kind := range kinds() {
		for _, size := range []int{1, PageSize - 1, PageSize, 3*PageSize + 5, hugePage - 1, hugePage, 2*hugePage + 1} {
			a, err := New(size, kind)
			if err != nil {
				t.Fatalf("%v of %d bytes: %v", kind, size, err)
			}
			want := (size + PageSize - 1) / PageSize * PageSize
			if a.Size() != want || a.Kind() != kind {
				t.Errorf("%v of %d bytes: got %d bytes of kind %v, want %d", kind, size, a.Size(), a.Kind(), want)
			}
			b := a.Bytes()
			if b == nil {
				if kind != Reserved || a.Backing() != backedByNothing {
					t.Errorf("%v of %d bytes has no memory", kind, size)
				}
				a.Close()
				continue
			}
			if len(b) != want || cap(b) != want {
				t.Errorf("%v of %d bytes: len %d, cap %d, want %d", kind, size, len(b), cap(b), want)
			}
			if addressOf(b)%PageSize != 0 {
				t.Errorf("%v of %d bytes starts at %#x, no page boundary", kind, size, addressOf(b))
			}
			for _, i := range []int{0, len(b) / 2, len(b) - 1} {
				if b[i] != 0 {
					t.Errorf("%v of %d bytes: byte %d is %#x, want 0", kind, size, i, b[i])
				}
				b[i] = 0x5a
			}
			if err := a.Close(); err != nil {
				t.Errorf("close %v of %d bytes: %v", kind, size, err)
			}
		}
	}
}

func TestNewRefusesBadSizesAndKinds(t *testing.T) {
	for _, size := range []int{0, -1, math.MinInt, math.MaxInt, maxSize + 1} {
		for _, kind := range []Kind{Heap, Private, Shared, Reserved} {
			if _, err := New(size, kind); !errors.Is(err, ErrSize) {
				t.Errorf("New(%d, %v): %v, want ErrSize", size, kind, err)
			}
			if _, err := NewExported(size, kind); !errors.Is(err, ErrSize) {
				t.Errorf("NewExported(%d, %v): %v, want ErrSize", size, kind, err)
			}
		}
	}
	if _, err := New(maxHeap+1, Heap); !errors.Is(err, ErrSize) {
		t.Errorf("a heap arena above the limit: %v, want ErrSize", err)
	}
	for _, kind := range []Kind{Auto, Kind(77)} {
		if _, err := New(1, kind); !errors.Is(err, ErrKind) {
			t.Errorf("New of %v: %v, want ErrKind", kind, err)
		}
	}
	for _, kind := range []Kind{Auto, Heap, Private} {
		if _, err := NewExported(1, kind); !errors.Is(err, ErrKind) {
			t.Errorf("NewExported of %v: %v, want ErrKind", kind, err)
		}
	}
}

func TestCloseUnmapsOnceAndEndsTheArena(t *testing.T) {
	for _, kind := range kinds() {
		a, err := New(PageSize, kind)
		if err != nil {
			t.Fatal(err)
		}
		calls := 0
		a.Place(0x1000, func() error {
			calls++
			if kind != Reserved && a.Bytes() == nil {
				t.Errorf("%v: memory freed before the device lost it", kind)
			}
			return nil
		})
		if err := a.Close(); err != nil {
			t.Errorf("%v: %v", kind, err)
		}
		if err := a.Close(); err != nil {
			t.Errorf("%v, second close: %v", kind, err)
		}
		if calls != 1 {
			t.Errorf("%v: unmapped %d times, want once", kind, calls)
		}
		if a.Bytes() != nil {
			t.Errorf("%v: Bytes after Close is not nil", kind)
		}
		if _, ok := a.FD(); ok {
			t.Errorf("%v: FD after Close", kind)
		}
		mustPanic(t, "region of a closed arena", func() { a.Region(0, 1) })
	}
}

func TestConcurrentClosesUnmapOnce(t *testing.T) {
	a, err := New(PageSize, Private)
	if err != nil {
		t.Fatal(err)
	}
	calls := 0 // unguarded: the race detector sees a second call
	a.Place(0x1000, func() error { calls++; return nil })
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { a.Close() })
	}
	wg.Wait()
	if calls != 1 {
		t.Errorf("unmapped %d times, want once", calls)
	}
}

func TestCloseKeepsMemoryThatTheDeviceMayStillWrite(t *testing.T) {
	a, err := New(PageSize, Private)
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("device does not let go")
	a.Place(0x1000, func() error { return broken })
	b := a.Bytes()
	if err := a.Close(); !errors.Is(err, broken) {
		t.Errorf("close: %v, want %v", err, broken)
	}
	b[0] = 1 // faults if the memory was freed
}

func TestRegionsStayInsideTheirArena(t *testing.T) {
	a, err := New(2*PageSize, Heap)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	a.Place(0x10000, nil)
	for _, c := range [][2]int{{-1, 1}, {0, -1}, {0, 2*PageSize + 1}, {2 * PageSize, 1}, {2*PageSize + 1, 0},
		{1, math.MaxInt}, {math.MaxInt, math.MaxInt}, {math.MaxInt, 1}, {math.MinInt, 0}} {
		mustPanic(t, "arena region outside", func() { a.Region(c[0], c[1]) })
	}
	r := a.Region(100, 50)
	if r.Bus != 0x10000+100 || len(r.Bytes) != 50 || cap(r.Bytes) != 50 {
		t.Errorf("region: bus %#x, len %d, cap %d", r.Bus, len(r.Bytes), cap(r.Bytes))
	}
	s := r.Slice(10, 40)
	if s.Bus != 0x10000+110 || len(s.Bytes) != 40 || addressOf(s.Bytes) != addressOf(a.Bytes())+110 {
		t.Errorf("slice: bus %#x, len %d", s.Bus, len(s.Bytes))
	}
	for _, c := range [][2]int{{10, 41}, {-1, 1}, {0, -1}, {51, 0}, {1, math.MaxInt}} {
		mustPanic(t, "slice outside its region", func() { r.Slice(c[0], c[1]) })
	}
	if last := a.Region(2*PageSize, 0); last.Bus != 0x10000+2*PageSize || len(last.Bytes) != 0 {
		t.Errorf("the empty region at the end: bus %#x, len %d", last.Bus, len(last.Bytes))
	}
	bare := Region{Bus: 0x5000} // memory without an address in this process
	if got := bare.Slice(16, 4); got.Bus != 0x5010 || got.Bytes != nil {
		t.Errorf("slice of a bare region: %#x, %v", got.Bus, got.Bytes)
	}
	mustPanic(t, "negative slice of a bare region", func() { bare.Slice(-1, 0) })
}

func TestPlaceWantsAPageBoundary(t *testing.T) {
	a, err := New(1, Heap)
	if err != nil {
		t.Fatal(err)
	}
	mustPanic(t, "placed inside a page", func() { a.Place(0x1004, nil) })
}

func TestCarverAlignsAndNeverOverlaps(t *testing.T) {
	a, err := New(4*PageSize, Heap)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	a.Place(0x200000, nil)
	c := NewCarver(a)
	end := uint64(0x200000)
	for _, want := range []struct{ n, align int }{{3, 1}, {8, 8}, {1, 64}, {64, 64}, {0, 4}, {100, 2}, {PageSize, PageSize}, {5, 1}} {
		r, ok := c.Carve(want.n, want.align)
		if !ok {
			t.Fatalf("carve %+v: used up with %d left", want, c.Left())
		}
		if r.Bus%uint64(want.align) != 0 || len(r.Bytes) != want.n || addressOf(r.Bytes)%uintptr(want.align) != 0 {
			t.Errorf("carve %+v: bus %#x, %d bytes at %#x", want, r.Bus, len(r.Bytes), addressOf(r.Bytes))
		}
		if r.Bus < end {
			t.Errorf("carve %+v: %#x overlaps what ends at %#x", want, r.Bus, end)
		}
		end = r.Bus + uint64(want.n)
	}
	left := c.Left()
	for _, n := range []int{left + 1, math.MaxInt} {
		if _, ok := c.Carve(n, 1); ok {
			t.Errorf("carved %d bytes of %d", n, left)
		}
	}
	if _, ok := c.Carve(left, 1); !ok || c.Left() != 0 {
		t.Errorf("the last %d bytes: %v, %d left", left, ok, c.Left())
	}
	if _, ok := c.Carve(1, PageSize); ok {
		t.Error("carved from a used up arena")
	}
	for _, bad := range []struct{ n, align int }{{-1, 1}, {1, 0}, {1, 3}, {1, -4}, {1, 2 * PageSize}} {
		mustPanic(t, "bad carve", func() { c.Carve(bad.n, bad.align) })
	}
}

func TestKindNames(t *testing.T) {
	for k, want := range map[Kind]string{Auto: "auto", Heap: "heap", Private: "private", Shared: "shared", Reserved: "reserved", 9: "kind(9)"} {
		if got := k.String(); got != want {
			t.Errorf("kind %d: %q, want %q", uint8(k), got, want)
		}
	}
}

func mustPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s: no panic", what)
		}
	}()
	f()
}
