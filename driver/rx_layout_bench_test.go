package driver

import (
	"slices"
	"testing"
	"time"

	"cxkit/dma"
)

// BenchmarkRxLayout receives and releases with every layout in turn; of-per-slot is the median of paired
// turns against a page for each slot.
func BenchmarkRxLayout(b *testing.B) {
	layouts := []RxLayout{RxPagePerSlot, RxHalves, RxPageFlip, RxBlocks, RxStack}
	const burst = 32
	pkts := make([]Packet, burst)
	var writers []*writer
	for _, l := range layouts {
		writers = append(writers, newWriter(b, Config{Arena: dma.Private, RxPages: RxPages{RxLayout: l}}))
	}
	times, ratios := make([][]float64, len(layouts)), make([][]float64, len(layouts))
	for b.Loop() {
		for i, w := range writers {
			w.receive(turn, 64)
			begin := time.Now()
			for left := turn; left > 0; {
				k := w.rx.Poll(pkts[:min(burst, left)])
				w.rx.Release(pkts[:k])
				left -= k
			}
			ns := float64(time.Since(begin).Nanoseconds()) / turn
			times[i] = append(times[i], ns)
			ratios[i] = append(ratios[i], ns/times[0][len(times[0])-1])
		}
	}
	for i, l := range layouts {
		unit := []string{RxPagePerSlot: "slot", RxHalves: "halves", RxPageFlip: "flip", RxBlocks: "blocks", RxStack: "stack"}[l]
		slices.Sort(times[i])
		slices.Sort(ratios[i])
		b.ReportMetric(times[i][len(times[i])/2], unit+"-ns/packet")
		b.ReportMetric(ratios[i][len(ratios[i])/2], unit+"-of-per-slot")
	}
	b.ReportMetric(0, "ns/op")
}
