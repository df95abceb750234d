package rxbench

import (
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
	bits, segments := 0, 0
	var took time.Duration
	for b.Loop() {
		list := stream.Segments(450)
		begin := time.Now()
		if _, err := bench.Receive(b.Context(), list, func(pkts []driver.Packet) {
			for i := range pkts {
				segments += pkts[i].Segments()
			}
			bench.RX.Release(pkts)
		}); err != nil {
			b.Fatal(err)
		}
		took += time.Since(begin)
		bits += 8 * Payload * len(list)
	}
	b.ReportMetric(float64(bits)/float64(took.Nanoseconds()), "Gbit/s")
	b.ReportMetric(float64(took.Nanoseconds())/float64(max(segments, 1)), "ns/segment")
	b.ReportMetric(0, "ns/op")
}
