package ftrace

import (
	"math/bits"
	"time"
)

// Histogram counts times in bins of powers of two of a nanosecond, as bpftrace does: bin i holds times from
// 1<<i ns to below 1<<(i+1).
type Histogram struct {
	Bins [64]int       `json:"bins"`
	Sum  time.Duration `json:"sum_ns"`
	Max  time.Duration `json:"max_ns"`
	N    int           `json:"n"`
}

// Add counts a time.
func (h *Histogram) Add(d time.Duration) {
	d = max(d, 0)
	bin := 0
	if d > 0 {
		bin = bits.Len64(uint64(d)) - 1
	}
	h.Bins[bin]++
	h.Sum += d
	h.Max = max(h.Max, d)
	h.N++
}

// Mean is the mean time, 0 of none.
func (h *Histogram) Mean() time.Duration {
	if h.N == 0 {
		return 0
	}
	return h.Sum / time.Duration(h.N)
}

// Quantile is the end of the bin that a share of the times, from 0 to 1, lie in or below, or the longest time if
// that is shorter.
func (h *Histogram) Quantile(share float64) time.Duration {
	seen := 0
	for i, n := range h.Bins {
		if seen += n; n > 0 && float64(seen) >= share*float64(h.N) {
			if i >= 62 {
				return h.Max
			}
			return min(h.Max, time.Duration(1)<<(i+1))
		}
	}
	return 0
}
