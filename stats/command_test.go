package stats_test

import (
	"strings"
	"testing"
	"time"

	"cxkit/stats"
)

func TestHistogramBinsArePowersOfTwo(t *testing.T) {
	var h stats.Histogram
	for _, d := range []time.Duration{-1, 0, 1, 2, 3, 4, 1023, 1024, 1 << 62} {
		h.Add(d)
	}
	want := map[int]uint64{0: 3, 1: 2, 2: 1, 9: 1, 10: 1, 43: 1}
	for i, n := range h.Bins {
		if n != want[i] {
			t.Errorf("bin %d has %d, want %d", i, n, want[i])
		}
	}
	if n := h.Count(); n != 9 {
		t.Errorf("counted %d", n)
	}
	later := h
	later.Add(5)
	if d := later.Since(h); d.Count() != 1 || d.Bins[2] != 1 {
		t.Errorf("difference: %v", d)
	}
}

func TestQuantileIsTheEndOfItsBin(t *testing.T) {
	var h stats.Histogram
	if q := h.Quantile(0.5); q != 0 {
		t.Errorf("of nothing: %v", q)
	}
	for range 99 {
		h.Add(100) // 64..128
	}
	h.Add(5000) // 4096..8192
	for q, want := range map[float64]time.Duration{0.01: 128, 0.5: 128, 0.99: 128, 0.999: 8192, 1: 8192} {
		if got := h.Quantile(q); got != want {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
}

func TestHistogramPrintsAsBpftraceDoes(t *testing.T) {
	var h stats.Histogram
	for range 4 {
		h.Add(600)
	}
	h.Add(1500)
	h.Add(1500)
	var b strings.Builder
	if _, err := h.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	want := "" +
		"[512, 1K)               4 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|\n" +
		"[1K, 2K)                2 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}
