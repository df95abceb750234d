package layout

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"cxkit/driver/internal/pages"
)

func newPlain(tb testing.TB, k Kind, ring int) *Queue {
	tb.Helper()
	count := 4*ring + 16
	p := pages.New(count*pages.Size4K, pages.Size4K, 1)
	return NewQueue(NewShared(p, make([]byte, count*pages.Size4K), 2048, false), Config{
		Kind: k, Ring: ring, Size: 2048, Order: DefaultOrder, Limit: count, Now: func() time.Duration { return 0 },
	})
}

// frames posts and releases n bursts of 32 behind a ring that is full.
func frames(q *Queue, ring [][32]uint32, n int) {
	at := 0
	for range n {
		q.Release(ring[at][:])
		q.Fill(ring[at][:])
		if at++; at == len(ring) {
			at = 0
		}
	}
}

func fullRing(q *Queue, slots int) [][32]uint32 {
	ring := make([][32]uint32, slots/32)
	for i := range ring {
		q.Fill(ring[i][:])
	}
	return ring
}

func TestFillAndReleaseDoNotAllocate(t *testing.T) {
	all(func(k Kind) {
		q := newPlain(t, k, 256)
		ring := fullRing(q, 256)
		if n := testing.AllocsPerRun(100, func() { frames(q, ring, 16) }); n != 0 {
			t.Errorf("%v: %v allocations", k, n)
		}
	})
}

// The default layout costs no more a frame than a page for each slot: the median of paired turns.
func BenchmarkFillRelease(b *testing.B) {
	const slots, bursts = 1024, 320
	for _, k := range []Kind{Halves, Flip, Striding} {
		b.Run(fmt.Sprintf("%v", k), func(b *testing.B) {
			q, base := newPlain(b, k, slots), newPlain(b, PerSlot, slots)
			ring, baseRing := fullRing(q, slots), fullRing(base, slots)
			var times, ratios []float64
			for b.Loop() {
				t0 := time.Now()
				frames(q, ring, bursts)
				t1 := time.Now()
				frames(base, baseRing, bursts)
				t2 := time.Now()
				times = append(times, float64(t1.Sub(t0).Nanoseconds())/(32*bursts))
				ratios = append(ratios, float64(t1.Sub(t0))/float64(t2.Sub(t1)))
			}
			slices.Sort(times)
			slices.Sort(ratios)
			b.ReportMetric(times[len(times)/2], "ns/frame")
			b.ReportMetric(ratios[len(ratios)/2], "of-per-slot")
			b.ReportMetric(0, "ns/op")
		})
	}
}
