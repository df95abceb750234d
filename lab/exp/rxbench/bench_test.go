package rxbench

import (
	"slices"
	"testing"
	"time"

	"cxkit/driver"
)

// BenchmarkEndToEnd is one core doing everything: the far end of the wire, the card, the driver, merging, and
// the release, for segments of 1448 bytes.
func BenchmarkEndToEnd(b *testing.B) {
	bench, err := Open(b.Context(), 1, false, driver.Config{Receiving: driver.Receiving{GRO: true, GROTimeout: time.Hour}})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := bench.Close(); err != nil {
			b.Error(err)
		}
	}()
	stream := NewStream(1)
	var rates []float64
	for b.Loop() {
		list, segments := stream.Segments(450), 0
		begin := time.Now()
		if _, err := bench.Receive(b.Context(), list, func(pkts []driver.Packet) {
			for i := range pkts {
				segments += pkts[i].Segments()
			}
			bench.RX.Release(pkts)
		}); err != nil {
			b.Fatal(err)
		}
		rates = append(rates, 8*Payload*float64(segments)/float64(time.Since(begin).Nanoseconds()))
	}
	slices.Sort(rates) // what else the machine does hits some turns: the median tells
	rate := rates[len(rates)/2]
	b.ReportMetric(rate, "Gbit/s")
	b.ReportMetric(8*Payload/rate, "ns/segment")
	b.ReportMetric(0, "ns/op")
}
