package fwpages

import (
	"errors"
	"fmt"
	"math/bits"
	"testing"

	"pgregory.net/rapid"

	"cxkit/dma"
)

// space hands out address space from a base, without memory.
func space(base uint64) func(pages int) (*dma.Arena, error) {
	const wide = 2 << 20
	next := base
	return func(pages int) (*dma.Arena, error) {
		a, err := dma.New(pages*dma.PageSize, dma.Reserved)
		if err != nil {
			return nil, err
		}
		a.Place(next, nil)
		next = (next + uint64(a.Size()) + dma.PageSize + wide - 1) &^ (wide - 1)
		return a, nil
	}
}

// audit recounts everything that the ledger keeps.
func (l *ledger) audit(out map[uint64]bool) error {
	given, free, hosts := 0, 0, 0
	per := 1 << l.shift
	for k, e := range l.order {
		x := &l.extents[e]
		if k > 0 && l.extents[l.order[k-1]].bus >= x.bus {
			return fmt.Errorf("extent %d is out of order", e)
		}
		empty, parts := 0, 0
		for h := range x.pages / per {
			n := 0
			for i := h * per; i < (h+1)*per; i++ {
				set := x.out[i/64]>>(i%64)&1 != 0
				if pa := x.bus + uint64(i)*dma.PageSize; set != out[pa] {
					return fmt.Errorf("page %#x: given %v, the map says %v", pa, set, out[pa])
				}
				if set {
					n++
				}
			}
			usable := x.bus != 0 || h > 0
			if x.empty.has(h) != (n == 0 && usable) || l.shift > 0 && x.parts.has(h) != (n > 0 && n < per) {
				return fmt.Errorf("host page %d of extent %d has %d pages out: empty %v, in part %v", h, e, n, x.empty.has(h), x.parts.has(h))
			}
			given += n
			if usable {
				free += per - n
			}
			switch {
			case n > 0:
				hosts++
				if n < per {
					parts++
				}
			case usable:
				empty++
			}
		}
		if x.empty.n != empty || x.parts.n != parts || l.empty.has(int(e)) != (empty > 0) || l.parts.has(int(e)) != (parts > 0) ||
			l.whole.has(int(e)) != (empty == x.hosts) {
			return fmt.Errorf("extent %d: %d of %d host pages empty, %d in part; it says %d and %d, empty %v, parts %v, whole %v",
				e, empty, x.hosts, parts, x.empty.n, x.parts.n, l.empty.has(int(e)), l.parts.has(int(e)), l.whole.has(int(e)))
		}
	}
	if l.given != len(out) || l.given != given || l.free != free || l.hosts != hosts {
		return fmt.Errorf("%d given, %d free, %d host pages; should be %d, %d, %d; %d in the map", l.given, l.free, l.hosts, given, free, hosts, len(out))
	}
	for pa := range l.doubtful {
		if !out[pa] {
			return fmt.Errorf("page %#x is in doubt and not out", pa)
		}
	}
	return nil
}

// Against a map of addresses: what is given is never given again before it has come back, and only what
// is out comes back.
func TestLedgerAgainstAMap(t *testing.T) {
	for _, host := range []int{4096, 65536} {
		t.Run(fmt.Sprintf("host pages of %d KiB", host>>10), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { againstAMap(t, host) })
		})
	}
}

func againstAMap(t *rapid.T, host int) {
	l := ledger{shift: uint(bits.Len(uint(host/dma.PageSize)) - 1)}
	defer func() {
		if err := closeAll(l.close()); err != nil {
			t.Fatal(err)
		}
	}()
	grow := space(rapid.SampledFrom([]uint64{0, 1 << 32}).Draw(t, "base"))
	out := map[uint64]bool{}
	var order []uint64
	forget := func(pa uint64) {
		delete(out, pa)
		for i, x := range order {
			if x == pa {
				order[i] = order[len(order)-1]
				order = order[:len(order)-1]
				return
			}
		}
	}
	t.Repeat(map[string]func(*rapid.T){
		"give": func(t *rapid.T) {
			n := rapid.IntRange(1, 1500).Draw(t, "n")
			pas, err := l.take(nil, n, grow)
			if err != nil || len(pas) != n {
				t.Fatalf("%d of %d pages: %v", len(pas), n, err)
			}
			for _, pa := range pas {
				if pa < uint64(host) || pa%dma.PageSize != 0 || out[pa] {
					t.Fatalf("page %#x: in host page 0, unaligned, or out already", pa)
				}
				out[pa] = true
				order = append(order, pa)
			}
		},
		"fail": func(t *rapid.T) {
			// Memory runs out in the middle of growing.
			lives := rapid.IntRange(0, 2).Draw(t, "lives")
			had := l.given
			pas, err := l.take(nil, l.free+4*maxExtent/64, func(pages int) (*dma.Arena, error) {
				if lives--; lives < 0 {
					return nil, errNone
				}
				return grow(min(pages, minExtent))
			})
			if !errors.Is(err, errNone) || len(pas) != 0 || l.given != had {
				t.Fatalf("%d pages, %v", len(pas), err)
			}
		},
		"return": func(t *rapid.T) {
			for range rapid.IntRange(1, 700).Draw(t, "n") {
				if len(order) == 0 {
					break
				}
				pa := order[rapid.IntRange(0, len(order)-1).Draw(t, "i")]
				forget(pa)
				if err := l.put(pa); err != nil {
					t.Fatal(err)
				}
				if l.put(pa) == nil {
					t.Fatalf("%#x came back twice", pa)
				}
			}
		},
		"nonsense": func(t *rapid.T) {
			pa := rapid.Uint64().Draw(t, "pa")
			if rapid.Bool().Draw(t, "near") && len(l.order) > 0 {
				x := l.extents[l.order[len(l.order)-1]]
				pa = x.bus + pa%(uint64(x.pages+2)*dma.PageSize)
			}
			if err := l.put(pa); err == nil {
				if !out[pa] {
					t.Fatalf("%#x was taken", pa)
				}
				forget(pa)
			}
		},
		"doubt": func(t *rapid.T) {
			n := min(len(order), rapid.IntRange(0, 100).Draw(t, "n"))
			l.doubt(order[:n])
		},
		"reset": func(t *rapid.T) {
			n := l.reset()
			for _, pa := range append([]uint64(nil), order...) {
				if _, ok := l.doubtful[pa]; !ok {
					forget(pa)
					n--
				}
			}
			if n != 0 {
				t.Fatalf("%d more pages came back than were out", n)
			}
		},
		"trim": func(t *rapid.T) {
			if err := closeAll(l.trim()); err != nil {
				t.Fatal(err)
			}
			if l.whole.n > 1 {
				t.Fatalf("%d whole extents are kept", l.whole.n)
			}
		},
		"": func(t *rapid.T) {
			if err := l.audit(out); err != nil {
				t.Fatal(err)
			}
		},
	})
}

var errNone = errors.New("none")

func TestNoMemoryGivesNothing(t *testing.T) {
	var l ledger
	grow := space(1 << 32)
	if _, err := l.take(nil, 10, grow); err != nil {
		t.Fatal(err)
	}
	pas, err := l.take(nil, 10_000, func(int) (*dma.Arena, error) { return nil, errNone })
	if !errors.Is(err, errNone) || len(pas) != 0 || l.given != 10 {
		t.Errorf("%d pages, %v, %d given", len(pas), err, l.given)
	}
	if err := closeAll(l.close()); err != nil {
		t.Error(err)
	}
}

func TestMemoryThatCannotBeCutInHostPagesIsRefused(t *testing.T) {
	l := ledger{shift: 4}
	pas, err := l.take(nil, 10, func(pages int) (*dma.Arena, error) {
		a, err := dma.New(pages*dma.PageSize, dma.Reserved)
		if err == nil {
			a.Place(1<<32+dma.PageSize, nil)
		}
		return a, err
	})
	if err == nil || len(pas) != 0 || l.given != 0 || len(l.order) != 0 {
		t.Errorf("%d pages, %v", len(pas), err)
	}
}

// A host page of 64 KiB is lent in sixteen parts: those that are lent in part go first, and a host page is
// the host's again when its last part is back.
func TestHostPagesOf64KiBAreLentInParts(t *testing.T) {
	l := ledger{shift: 4}
	defer func() { closeAll(l.close()) }()
	grow := space(1 << 32)
	pas, err := l.take(nil, 40, grow)
	if err != nil || l.hosts != 3 {
		t.Fatalf("40 pages of %d host pages, %v", l.hosts, err)
	}
	if err := l.put(pas[3]); err != nil {
		t.Fatal(err)
	}
	more, err := l.take(nil, 9, grow)
	if err != nil || l.hosts != 3 || more[0] != pas[3] {
		t.Errorf("the parts that were free did not go first: %#x, %d host pages, %v", more, l.hosts, err)
	}
	for _, pa := range pas[:16] {
		if err := l.put(pa); err != nil {
			t.Fatal(err)
		}
	}
	if l.hosts != 2 {
		t.Errorf("%d host pages after all parts of one came back", l.hosts)
	}
}

func TestAddressZeroIsNeverGiven(t *testing.T) { // 6b276190c50a
	for _, shift := range []uint{0, 4} {
		l := ledger{shift: shift}
		pas, err := l.take(nil, minExtent+100, space(0))
		if err != nil {
			t.Fatal(err)
		}
		for _, pa := range pas {
			if pa < dma.PageSize<<shift {
				t.Errorf("page %#x was given", pa)
			}
		}
		if l.put(0) == nil {
			t.Error("page 0 came back")
		}
		closeAll(l.close())
	}
}

func TestMillionsOfPagesNeedFewExtents(t *testing.T) {
	for _, step := range []int{1_300_000, 16, 50_000} {
		var l ledger
		grow := space(1 << 32)
		var pas []uint64
		for len(pas) < 1_300_000 {
			var err error
			if pas, err = l.take(pas, step, grow); err != nil {
				t.Fatal(err)
			}
		}
		if len(l.order) > 80 {
			t.Errorf("asked for in steps of %d: %d extents", step, len(l.order))
		}
		for _, pa := range pas {
			if err := l.put(pa); err != nil {
				t.Fatal(err)
			}
		}
		if l.given != 0 {
			t.Errorf("%d pages are left", l.given)
		}
		closeAll(l.trim())
		if len(l.order) > 1 {
			t.Errorf("%d extents are left when all is back", len(l.order))
		}
		closeAll(l.close())
	}
}
