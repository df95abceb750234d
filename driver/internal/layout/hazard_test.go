package layout

import (
	"fmt"
	"math"
	"testing"
	"time"

	"cxkit/driver/internal/pages"
)

// wakes counts.
type wakes int

func (w *wakes) Raise() { *w++ }

// A consumer that keeps every page: every frame allocates until the limit, and the moment that pages come
// back the ring is filled again, though those at the cursor are still held.
func TestConsumerThatKeepsAllPagesStallsNothing(t *testing.T) {
	all(func(k Kind) {
		t.Run(k.String(), func(t *testing.T) {
			const limit = 32
			r := newRig(t, pages.Size4K, 64, Config{Kind: k, Ring: 8, Size: 2048, Limit: limit})
			var held []uint32
			for {
				list := make([]uint32, 8)
				n := r.Fill(list)
				held = append(held, list[:n]...)
				if n < len(list) {
					break
				}
			}
			s := r.Stats()
			if s.Held != limit || s.Limited == 0 || s.Failed != s.Limited || s.Recycled > 0 && k != Flip {
				t.Fatalf("%+v", s)
			}
			if n := r.Fill(make([]uint32, 8)); n != 0 {
				t.Fatalf("%d fragments beyond the limit", n)
			}
			// Others release the newest, not what is looked at first.
			var w wakes
			if !r.Want(&w) {
				t.Fatal("nothing came back, and yet")
			}
			back := held[len(held)-8:]
			r.Give(back[:4])
			r.Give(back[4:])
			if w != 1 {
				t.Errorf("woken %d times", w)
			}
			if n := r.Fill(make([]uint32, 8)); n < 4 {
				t.Errorf("%d fragments after 8 came back", n)
			}
		})
	})
}

// While nothing can be allocated at all, what is released is used; afterwards the order is back at its
// optimum, a step a period, and never above.
func TestTotalFailureThenRecovery(t *testing.T) {
	r := newRig(t, pages.Size4K, 1024, Config{Kind: Halves, Ring: 16, Size: 2048, Order: 3})
	r.fill(t, 16)
	r.pages.Inject(pages.Failure{Rate: 1})
	for r.Fill(make([]uint32, 16)) == 16 { // pages in hand
	}
	s := r.Stats()
	if s.Order != 0 || s.Failed == 0 || s.Drops != 3 {
		t.Fatalf("%+v: want order 0 at once", s)
	}
	r.pages.Inject(pages.Failure{})
	for want := 0; want < 6; want++ {
		if got := r.Stats().Order; got != min(want, 3) {
			t.Fatalf("order %d after %d periods", got, want)
		}
		if n := r.Fill(make([]uint32, 16)); n != 16 {
			t.Fatalf("%d fragments, though memory is there", n)
		}
		r.now += RecoverPeriod
	}
	if s := r.Stats(); s.Climbs != 3 {
		t.Errorf("%d climbs", s.Climbs)
	}
}

// With blocks of high order unavailable the order sticks where it works, tries again every period, and
// nothing is lost.
func TestOrderFollowsFragmentation(t *testing.T) {
	r := newRig(t, pages.Size4K, 2048, Config{Kind: Halves, Ring: 16, Size: 2048, Order: 3})
	r.pages.Fragment(2, 1) // no block of 4 pages, half of the blocks of 2
	for period := range 8 {
		before := r.Stats().Drops
		for range 4 {
			r.fill(t, 16) // and keep all
		}
		s := r.Stats()
		if s.Order != 1 || s.Failed != 0 {
			t.Fatalf("period %d: %+v", period, s)
		}
		if period > 0 && s.Drops != before+1 {
			t.Errorf("period %d: order fell %d times, want once", period, s.Drops-before)
		}
		r.now += RecoverPeriod
	}
	r.pages.Heal()
	r.now += 3 * RecoverPeriod
	if got := r.Stats().Order; got != 3 {
		t.Errorf("order %d after memory was whole again", got)
	}
}

// Limits are no lack of memory: the order stays.
func TestLimitDoesNotLowerTheOrder(t *testing.T) {
	r := newRig(t, pages.Size4K, 64, Config{Kind: PerSlot, Ring: 8, Size: 2048, Order: 3, Limit: 13})
	if n := r.Fill(make([]uint32, 20)); n != 13 {
		t.Errorf("%d fragments of 13 pages", n)
	}
	if s := r.Stats(); s.Order != 3 || s.Drops != 0 || s.Held != 13 {
		t.Errorf("%+v", s)
	}
}

// A page of which one half is with a consumer is not posted as a whole, and never the half that is out:
// the counts decide, not who was released last.
func TestNoRecyclingWhileAHalfIsOut(t *testing.T) {
	r := newRig(t, pages.Size4K, 64, Config{Kind: Flip, Ring: 1, Size: 2048})
	a := r.fill(t, 1)
	b := r.fill(t, 1) // the other half of the same page
	if r.shared.Page(a[0]) != r.shared.Page(b[0]) {
		t.Fatal("no flip")
	}
	r.Release(b) // the count is 2, as if a were free, too
	c := r.fill(t, 1)
	if c[0] == a[0] {
		t.Fatal("posted a half that the consumer still has")
	}
}

// The layout changes under traffic: pages of the old one come back while the new one is in use.
func TestSwitchWithPagesInFlight(t *testing.T) {
	all(func(from Kind) {
		all(func(to Kind) {
			r := newRig(t, pages.Size4K, 256, Config{Kind: from, Ring: 16, Size: 2048, Order: 1})
			var out []uint32
			out = append(out, r.fill(t, 23)...)
			r.Switch(to)
			out = append(out, r.fill(t, 16)...)
			r.Give(out[:11])
			r.Switch(from)
			out = append(out, r.fill(t, 5)...)
			r.Release(out[11:])
			if left := r.Retire(); left != 0 || r.pages.FreePagesLeft() != 256 {
				t.Errorf("%v to %v and back: %d pages left, %d free", from, to, left, r.pages.FreePagesLeft())
			}
		})
	})
}

// The ring becomes larger and smaller while its fragments, and others, are out: they come back as they do, none
// is posted twice (the checked books panic), and in the end every page is back.
func TestResizeWithPagesInFlight(t *testing.T) {
	all(func(k Kind) {
		t.Run(k.String(), func(t *testing.T) {
			r := newRig(t, pages.Size4K, 1024, Config{Kind: k, Ring: 16, Size: 2048, Order: 1})
			var out []uint32
			for _, ring := range []int{64, 8, 128, 1, 16} {
				out = append(out, r.fill(t, min(ring, 11))...)
				r.Resize(ring)
				out = append(out, r.fill(t, ring)...)
				r.Give(out[:len(out)/3])
				r.Release(out[len(out)/3 : len(out)/2])
				out = append([]uint32(nil), out[len(out)/2:]...)
			}
			r.Collect()
			if got := int(r.InFlight()); got != len(out) {
				t.Errorf("%d in flight, want %d", got, len(out))
			}
			r.Release(out)
			if left := r.Retire(); left != 0 || r.pages.FreePagesLeft() != 1024 {
				t.Errorf("%d pages left, %d free", left, r.pages.FreePagesLeft())
			}
		})
	})
}

// What is in flight is a difference of two counters that wrap (a page pool's release counted -1783494730
// pages in flight when its counters were compared wrongly).
func TestR42InFlightSurvivesWrapping(t *testing.T) {
	r := newRig(t, pages.Size4K, 64, Config{Kind: Halves, Ring: 8, Size: 2048})
	r.given, r.back = math.MaxUint32-3, math.MaxUint32-3
	list := r.fill(t, 8)
	if r.given >= 8 {
		t.Fatal("did not wrap")
	}
	if got := r.InFlight(); got != 8 {
		t.Errorf("%d in flight after the wrap, want 8", got)
	}
	r.Release(list[:5])
	if got := r.Stats().InFlight; got != 3 {
		t.Errorf("%d in flight, want 3", got)
	}
}

// A page that is freed past the books is found: the checked books panic, others count.
func TestR42ForeignReleaseIsDetected(t *testing.T) {
	for name, wrong := range map[string]func(r *rig, list []uint32){
		"twice":        func(r *rig, list []uint32) { r.Release(list[:1]); r.Release(list[:1]) },
		"never posted": func(r *rig, list []uint32) { r.Release([]uint32{list[0] + 4*16}) },
		"no fragment":  func(r *rig, list []uint32) { r.Release([]uint32{1 << 20}) },
		"given twice":  func(r *rig, list []uint32) { r.Give(list[:1]); r.Give(list[:1]) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, pages.Size4K, 64, Config{Kind: PerSlot, Ring: 8, Size: 2048})
			func() {
				defer func() {
					if recover() == nil {
						t.Error("the checked books did not panic")
					}
				}()
				wrong(r, r.fill(t, 1))
			}()
			mem := make([]byte, 64*pages.Size4K)
			p := pages.New(len(mem), pages.Size4K, 1)
			plain := &rig{pages: p, Queue: NewQueue(NewShared(p, mem, minUnit, false), Config{
				Kind: PerSlot, Ring: 8, Size: 2048, Limit: 64, Now: func() time.Duration { return 0 },
			})}
			wrong(plain, plain.fill(t, 1))
			plain.Collect()
			if got := plain.Stats().Violations; got != 1 {
				t.Errorf("%d violations, want 1", got)
			}
		})
	}
}

// Somebody writes to a fragment after its release: the checked books see it when it is posted again.
func TestWriteAfterReleaseIsDetected(t *testing.T) {
	r := newRig(t, pages.Size4K, 8, Config{Kind: PerSlot, Ring: 1, Size: 2048})
	list := r.fill(t, 1)
	r.Release(list)
	r.shared.mem[int(list[0])*minUnit+1999] = 7
	defer func() {
		if recover() == nil {
			t.Error("not detected")
		}
	}()
	r.fill(t, 1)
}

// Striding needs blocks of its order: without any, nothing can be posted, while halves go on.
func TestR47HighOrderOnlyLayoutStopsInFragmentedMemory(t *testing.T) {
	for _, c := range []struct {
		kind  Kind
		works bool
	}{{Striding, false}, {Halves, true}, {Flip, true}, {PerSlot, true}} {
		r := newRig(t, pages.Size4K, 1024, Config{Kind: c.kind, Ring: 64, Size: 2048, Order: 3})
		r.pages.Fragment(3, 1)
		n := r.Fill(make([]uint32, 64))
		if (n == 64) != c.works || (n == 0) == c.works {
			t.Errorf("%v: %d of 64 fragments", c.kind, n)
		}
	}
}

// A page of a far memory node, or out of the host's reserves, takes its frames once and is given back when
// they are released: neither a layout nor the pages in hand use it again. The others are used as ever.
func TestForeignAndEmergencyPagesAreNotRecycled(t *testing.T) {
	const ring, count = 16, 256
	all(func(k Kind) {
		for _, order := range []int{0, 3} {
			if k == Striding && order > 0 {
				continue // uses no block again, whatever it is
			}
			t.Run(fmt.Sprintf("%v/order %d", k, order), func(t *testing.T) {
				r := newRig(t, pages.Size4K, count, Config{Kind: k, Ring: ring, Size: 2048, Order: order})
				unfit, taken, times := map[int]bool{}, map[int]int{}, 0
				r.pages.SetUnfit(func(page int) bool { // every other one, when it is taken from the allocator
					if times++; times%2 == 1 {
						taken[page]++
					}
					unfit[page] = times%2 == 1
					return unfit[page]
				})
				used, uses := map[int]int{}, uint64(0)
				for range 8 * ring {
					list := r.fill(t, 2)
					seen := map[int]bool{}
					for _, f := range list {
						if page := r.shared.Page(f); unfit[page] && !seen[page] {
							seen[page] = true
							uses++
							if used[page]++; used[page] > taken[page] {
								t.Fatalf("page %d is used again, without having been given back", page)
							}
						}
					}
					r.Release(list)
				}
				s := r.Stats()
				if uses == 0 || s.Unfit != uses {
					t.Errorf("%d pages given back after %d uses", s.Unfit, uses)
				}
				if (k == Halves || k == Flip) && s.Recycled == 0 {
					t.Error("the other pages are not recycled")
				}
				// Also from the middle of a page, and while its frames are out.
				out := r.fill(t, 3)
				r.Switch(k)
				out = append(out, r.fill(t, 5)...)
				r.Give(out)
				if left := r.Retire(); left != 0 || r.pages.FreePagesLeft() != count {
					t.Errorf("%d pages left, %d free", left, r.pages.FreePagesLeft())
				}
			})
		}
	})
}

// Pages taken in an emergency are given back even when it is over; those taken then are used for good. And
// with nothing but such pages, as few as the ring needs, receiving goes on.
func TestReceivingOutlivesAnEmergency(t *testing.T) {
	for _, k := range []Kind{Halves, Flip, PerSlot} {
		t.Run(k.String(), func(t *testing.T) {
			const ring = 8
			r := newRig(t, pages.Size4K, ring, Config{Kind: k, Ring: ring, Size: 2048})
			r.pages.SetUnfit(func(int) bool { return true })
			for range 20 {
				r.Release(r.fill(t, ring))
			}
			s := r.Stats()
			if s.Recycled != 0 || s.Unfit == 0 || s.Unfit != s.Fresh || s.Held != 0 || s.Failed != 0 {
				t.Errorf("in the emergency: %+v", s)
			}
			out := r.fill(t, ring)
			r.pages.SetUnfit(nil)
			r.Release(out)
			if s = r.Stats(); s.Held != 0 || r.pages.FreePagesLeft() != ring {
				t.Errorf("after it %d pages are kept", s.Held)
			}
			for range 20 {
				r.Release(r.fill(t, ring))
			}
			if after := r.Stats(); after.Unfit != s.Unfit || k != PerSlot && after.Recycled == 0 {
				t.Errorf("afterwards: %+v", after)
			}
		})
	}
}

// A ring larger than memory fills is filled as far as there is memory, and pages are used again as they come back:
// looking for one costs a few looks, not one at every place of the ring (which cost 15 us a frame on a ring of 16,384).
func TestRingBeyondMemoryIsFilledWithoutLongSearches(t *testing.T) {
	const ring, count = 2048, 128
	for _, k := range []Kind{Halves, Flip} {
		for name, c := range map[string]struct {
			limit int
			fail  bool
		}{"limit": {count, false}, "no memory": {ring, true}} {
			t.Run(k.String()+"/"+name, func(t *testing.T) {
				mem := make([]byte, count*pages.Size4K)
				r := &rig{pages: pages.New(len(mem), pages.Size4K, 1)}
				r.Queue = NewQueue(NewShared(r.pages, mem, 2048, true), Config{
					Kind: k, Ring: ring, Size: 2048, Limit: c.limit, Order: 3, Now: func() time.Duration { return r.now },
				})
				list := make([]uint32, 32)
				var posted []uint32
				for n := 1; n > 0; {
					n = r.Fill(list)
					posted = append(posted, list[:n]...)
				}
				if want := 2 * count; k == Halves && len(posted) != want {
					t.Fatalf("%d fragments posted, want %d", len(posted), want)
				}
				if c.fail {
					r.pages.Inject(pages.Failure{Rate: 1})
				}
				const frames = 100 * 32
				before := r.Stats()
				for done := 0; done < frames; done += 32 {
					r.Release(posted[:32])
					posted = append(posted[:0], posted[32:]...)
					n := r.Fill(list)
					if n != 32 {
						t.Fatalf("%d fragments after 32 came back", n)
					}
					posted = append(posted, list[:n]...)
				}
				s := r.Stats()
				if looks := s.Searched - before.Searched; looks > 20*frames {
					t.Errorf("%d looks for %d frames, %d pages found so", looks, frames, s.Rescued-before.Rescued)
				}
				if c.limit == count && k == Halves && s.Rescued != 0 {
					t.Errorf("%d pages were searched for, though each place of the circle has one", s.Rescued)
				}
			})
		}
	}
}

// With no more pages than its layout needs for the ring, and a consumer that keeps a few frames, a ring never runs
// dry for good: what is free on any page is used, whichever slot's page it is.
func TestRingWithTheLeastMemoryGoesOn(t *testing.T) {
	const ring, keep = 16, 5
	for _, c := range []struct{ page, size int }{
		{pages.Size4K, 256}, {pages.Size4K, 1024}, {pages.Size4K, 2048}, {pages.Size4K, 3000}, {pages.Size4K, 4096 - headroom},
		{pages.Size64K, 1536}, {pages.Size64K, 30000}, {pages.Size64K, 40000},
	} {
		all(func(k Kind) {
			t.Run(fmt.Sprintf("%v/%d of %d", k, c.size, c.page), func(t *testing.T) {
				const order = 1
				limit := Need(k, ring, c.size, c.page, order)
				mem := make([]byte, limit*c.page)
				r := &rig{pages: pages.New(len(mem), c.page, 1)}
				r.Queue = NewQueue(NewShared(r.pages, mem, minUnit, false), Config{
					Kind: k, Ring: ring, Size: c.size, Limit: limit, Order: order, Now: func() time.Duration { return r.now },
				})
				list := make([]uint32, ring)
				posted := append([]uint32(nil), list[:r.Fill(list)]...)
				if len(posted) != ring {
					t.Fatalf("%d posted at first", len(posted))
				}
				var held []uint32
				for frame := range 60 * ring {
					held, posted = append(held, posted[0]), posted[1:]
					if len(held) > keep {
						r.Release(held[:1])
						held = held[1:]
					}
					posted = append(posted, list[:r.Fill(list[:ring-len(posted)])]...)
					if len(posted) == 0 {
						t.Fatalf("nothing is posted after %d frames, with %d kept: %+v", frame+1, len(held), r.Stats())
					}
				}
				r.Release(held)
				if n := len(posted) + r.Fill(list[:ring-len(posted)]); n != ring {
					t.Errorf("%d posted when all is back", n)
				}
			})
		})
	}
}
