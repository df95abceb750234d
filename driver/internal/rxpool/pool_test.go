package rxpool

import (
	"slices"
	"testing"
	"time"

	"cxkit/dma"
	"pgregory.net/rapid"
)

func newPool(tb testing.TB, count, caches int, check bool) *Pool {
	tb.Helper()
	const size = 64
	a, err := dma.New(count*size, dma.Heap)
	if err != nil {
		tb.Fatal(err)
	}
	return New(Config{Memory: a.Region(0, count*size), Size: size, Count: count, Caches: caches, Check: check})
}

// place is where the model of TestEveryBufferIsInOnePlace has a buffer.
type place uint8

const (
	free place = iota
	inRing
	isOut
)

// TestEveryBufferIsInOnePlace makes random moves through two caches and compares the pool with a plain
// model: where each buffer is.
func TestEveryBufferIsInOnePlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.IntRange(1, 1500).Draw(t, "count")
		a, err := dma.New(count*64, dma.Heap)
		if err != nil {
			t.Fatal(err)
		}
		p := New(Config{Memory: a.Region(0, count*64), Size: 64, Count: count, Caches: 2, Check: true})
		caches := []*Cache{NewCache(p, -1), NewCache(p, -1)}
		where := make([]place, count)
		violations := uint64(0)

		pick := func(from place, most int) (list []uint32) {
			for i, at := range where {
				if at == from && len(list) < most {
					list = append(list, uint32(i))
				}
			}
			return list
		}
		cache := func(t *rapid.T) *Cache { return caches[rapid.IntRange(0, 1).Draw(t, "cache")] }
		number := func(t *rapid.T, most int) int { return rapid.IntRange(0, most).Draw(t, "n") }
		keep := func(c *Cache, list []uint32) {
			copy(c.Space(), list)
			c.Keep(len(list))
			for _, i := range list {
				where[i] = free
			}
		}
		take := func(t *rapid.T, to place) []uint32 {
			c := cache(t)
			want := 1 + number(t, Bulk-1)
			list := c.Take(min(want, c.Fill(want)))
			for _, i := range list {
				if where[i] != free {
					t.Fatalf("buffer %d was given out while in place %d", i, where[i])
				}
				where[i] = to
			}
			return list
		}
		t.Repeat(map[string]func(*rapid.T){
			"post": func(t *rapid.T) { take(t, inRing) },
			"get":  func(t *rapid.T) { p.Hold(take(t, isOut), TakenFrom(1)) },
			"complete": func(t *rapid.T) {
				for _, i := range pick(inRing, number(t, 300)) {
					p.Holders[i], where[i] = DeliveredBy(3), isOut
					p.Buffer(i)[0] = 1 // the card wrote a frame
				}
			},
			"send": func(t *rapid.T) {
				for _, i := range pick(isOut, number(t, 300)) {
					p.Holders[i], where[i] = NIC, inRing
				}
			},
			"sent": func(t *rapid.T) { keep(cache(t), pick(inRing, number(t, Bulk))) },
			"release": func(t *rapid.T) {
				list := pick(isOut, number(t, Bulk))
				for _, i := range list {
					if !p.Release(i) {
						t.Fatalf("release of buffer %d refused", i)
					}
				}
				keep(cache(t), list)
			},
			"release from anywhere": func(t *rapid.T) {
				list := pick(isOut, number(t, 100))
				for _, i := range list {
					p.Release(i)
					where[i] = free
				}
				p.Return(list)
			},
			"release what is not out": func(t *rapid.T) {
				i := uint32(number(t, count+5))
				if int(i) < count && where[i] == isOut {
					t.Skip("is out")
				}
				func() {
					defer func() { _ = recover() }() // a checking pool panics
					if p.Release(i) {
						t.Fatalf("release of buffer %d allowed", i)
					}
				}()
				violations++
			},
			"empty": func(t *rapid.T) { cache(t).Empty() },
			"": func(t *rapid.T) {
				out := len(pick(isOut, count))
				if got := count - p.Census()[NIC]; got != out {
					t.Fatalf("%d buffers out, want %d", got, out)
				}
				if got, want := len(p.depot)+caches[0].n+caches[1].n, len(pick(free, count)); got != want {
					t.Fatalf("%d free buffers in depot and caches, want %d", got, want)
				}
				if p.Violations() != violations {
					t.Fatalf("%d violations, want %d", p.Violations(), violations)
				}
			},
		})
	})
}

func TestHoldersSayWhoGaveTheBufferOut(t *testing.T) {
	for _, tt := range []struct {
		h       Holder
		out     bool
		number  int
		tx      bool
		message string
	}{
		{DeliveredBy(255), true, 255, false, "with the application from rx queue 255"},
		{TakenFrom(255), true, 255, true, "with the application from tx queue 255"},
		{NIC, false, 0, false, "with the NIC"},
	} {
		number, tx := tt.h.Queue()
		if tt.h.Out() != tt.out || number != tt.number || tx != tt.tx || tt.h.String() != tt.message {
			t.Errorf("%v: out %v queue %d transmit %v", tt.h, tt.h.Out(), number, tx)
		}
	}
}

func TestSmallPoolsAreNotHoardedByCaches(t *testing.T) {
	p := newPool(t, 64, 4, false)
	hoarder, other := NewCache(p, -1), NewCache(p, -1)
	hoarder.Fill(1)
	if n := other.Fill(Bulk); n < 56 {
		t.Errorf("a cache that wanted one buffer left %d of 64", n)
	}
}

// waker counts.
type waker int

func (w *waker) Raise() { *w++ }

func TestWantIsToldOnceWhenBuffersComeBack(t *testing.T) {
	p := newPool(t, 4, 1, false)
	c := NewCache(p, -1)
	var w waker
	if p.Want(&w) {
		t.Error("Want waits although the depot is full")
	}
	list := append([]uint32(nil), c.Take(c.Fill(4))...)
	for range 2 { // asked twice, told once
		if !p.Want(&w) || !p.Wanted() {
			t.Error("Want does not wait at an empty depot")
		}
	}
	p.Deposit(list[:1])
	p.Deposit(list[1:])
	if w != 1 || p.Wanted() {
		t.Errorf("told %d times", w)
	}
}

// Buffers are got and put 32 at once: the ones just put, and the oldest of 8,192 that are out. testdata/mbuf.c does the
// same with DPDK's.
func BenchmarkGetPut(b *testing.B) {
	const live, burst = 8192, 32
	for name, out := range map[string]int{"same": 0, "oldest": live} {
		b.Run(name, func(b *testing.B) {
			p := newPool(b, 16384, 2, false)
			c := NewCache(p, -1)
			get := func(dst []uint32) {
				list := c.Take(min(burst, c.Fill(burst)))
				p.Hold(list, TakenFrom(0))
				copy(dst, list)
			}
			held := make([]uint32, max(out, burst))
			for at := 0; at < out; at += burst {
				get(held[at:])
			}
			at := 0
			turn := func() {
				part := held[at:][:burst]
				if out == 0 {
					get(part)
				}
				space := c.Space()
				for i, buffer := range part {
					p.Holders[buffer] = NIC
					space[i] = buffer
				}
				c.Keep(burst)
				if out > 0 {
					get(part)
					if at += burst; at == out {
						at = 0
					}
				}
			}
			b.ReportAllocs()
			var times []float64
			for b.Loop() {
				const turns = 256
				begin := time.Now()
				for range turns {
					turn()
				}
				times = append(times, float64(time.Since(begin).Nanoseconds())/turns/burst)
			}
			slices.Sort(times)
			b.ReportMetric(times[len(times)/2], "ns/buffer")
			b.ReportMetric(0, "ns/op")
		})
	}
}
