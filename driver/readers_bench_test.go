package driver

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cxkit/dma"
	qstats "cxkit/driver/internal/stats"
)

// BenchmarkRxWithReaders receives in bursts of 32 while a thousand readers read statistics, five times a
// second each and one after the other, and in turn while they don't: the ratio is what readers cost the data
// path.
func BenchmarkRxWithReaders(b *testing.B) {
	const readers, slice = 1000, 500 // turns that are timed together
	w := newWriter(b, Config{Arena: dma.Private})
	n := w.nic
	n.source = qstats.NewSource(qstats.SourceConfig{
		Card: qstats.NewCard(qstats.Config{}), Interval: qstats.DefaultInterval, Totals: n.softTotals, Queues: n.softQueues,
	})
	var reading atomic.Bool
	var seen atomic.Uint64
	stop := make(chan struct{})
	var all sync.WaitGroup
	for i := range readers {
		all.Go(func() {
			const period = 200 * time.Millisecond
			tick := time.NewTimer(period * time.Duration(i) / readers)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					tick.Reset(period)
				case <-stop:
					return
				}
				if reading.Load() {
					seen.Add(uint64(len(n.QuickStats().Counters)))
				}
			}
		})
	}
	defer all.Wait()
	defer close(stop)
	pkts := make([]Packet, 32)
	var times [2][]float64
	var ratios []float64
	for b.Loop() {
		for i, on := range []bool{true, false} {
			reading.Store(on)
			var took time.Duration
			for range slice {
				w.receive(turn, 64)
				begin := time.Now()
				for left := turn; left > 0; {
					k := w.rx.Poll(pkts[:min(len(pkts), left)])
					w.rx.Release(pkts[:k])
					left -= k
				}
				took += time.Since(begin)
			}
			times[i] = append(times[i], float64(took.Nanoseconds())/(slice*turn))
		}
		ratios = append(ratios, times[0][len(ratios)]/times[1][len(ratios)])
	}
	b.ReportMetric(median(times[0]), "ns/packet")
	b.ReportMetric(median(times[1]), "quiet-ns/packet")
	b.ReportMetric(median(ratios), "ratio")
	b.ReportMetric(0, "ns/op") // preparation included: says nothing
}
