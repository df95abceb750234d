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

// BenchmarkLargeReceive takes the same segments in four ways, turn by turn: each alone, with striding queues and on
// pages, merged by the driver, and merged by the card. Ratios are to striding queues without merging; what Poll
// took of the time is reported apart.
func BenchmarkLargeReceive(b *testing.B) {
	type way struct {
		name        string
		config      driver.Config
		bench       *Bench
		stream      *Stream
		times, poll []float64
	}
	ways := []*way{
		{name: "striding", config: driver.Config{Offloads: driver.Offloads{Striding: true}}},
		{name: "plain"},
		{name: "GRO", config: driver.Config{Receiving: driver.Receiving{GRO: true}}},
		{name: "LRO", config: driver.Config{Offloads: driver.Offloads{Striding: true, LargeReceive: true}}},
	}
	for _, w := range ways {
		var err error
		if w.bench, err = Open(b.Context(), 1, false, w.config); err != nil {
			b.Fatal(err)
		}
		defer func() {
			if err := w.bench.Close(); err != nil {
				b.Error(err)
			}
		}()
		w.stream = NewStream(1)
	}
	for b.Loop() {
		for _, w := range ways {
			list, segments := w.stream.Segments(450), 0
			begin := time.Now()
			took, err := w.bench.Receive(b.Context(), list, func(pkts []driver.Packet) {
				for i := range pkts {
					segments += pkts[i].Segments()
				}
				w.bench.RX.Release(pkts)
			})
			all := time.Since(begin)
			if err != nil || segments != len(list) {
				b.Fatalf("%s: %d segments of %d, %v", w.name, segments, len(list), err)
			}
			w.times = append(w.times, float64(all.Nanoseconds())/float64(segments))
			w.poll = append(w.poll, float64(took.Nanoseconds())/float64(segments))
		}
	}
	ratio := func(times, to []float64) float64 {
		var list []float64
		for i := range times {
			list = append(list, times[i]/to[i])
		}
		return middle(list)
	}
	for _, w := range ways {
		b.ReportMetric(ratio(w.times, ways[0].times), w.name+"-ratio")
		b.ReportMetric(ratio(w.poll, ways[0].poll), w.name+"-poll-ratio")
	}
	for _, w := range ways {
		b.ReportMetric(middle(w.times), w.name+"-ns/segment")
		b.ReportMetric(middle(w.poll), w.name+"-poll-ns/segment")
	}
	b.ReportMetric(0, "ns/op")
}

// middle is the median. It sorts.
func middle(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}
