package fault

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Latency is a distribution of durations. The zero value is none at all.
//
//	fixed     {Min: d}
//	uniform   {Min: a, Max: b}
//	normal    {Mean: m, Deviation: s}, cut off at Min and, if it is not 0, Max
//	long tail {Median: m, P99: p}: log-normal, so that half of the durations are below m and one in a
//	          hundred above p; cut off like normal
type Latency struct {
	Min, Max        time.Duration
	Mean, Deviation time.Duration
	Median, P99     time.Duration
}

// Check finds what is wrong with a distribution.
func (l Latency) Check() error {
	switch {
	case l.Min < 0 || l.Max < 0 || l.Mean < 0 || l.Deviation < 0 || l.Median < 0 || l.P99 < 0:
		return fmt.Errorf("negative duration in %+v", l)
	case l.Max != 0 && l.Max < l.Min:
		return fmt.Errorf("%v to %v is no range", l.Min, l.Max)
	case l.Mean != 0 && l.Median != 0:
		return fmt.Errorf("mean %v makes it normal, median %v long-tailed: give one", l.Mean, l.Median)
	case l.Deviation != 0 && l.Mean == 0:
		return fmt.Errorf("deviation %v without mean", l.Deviation)
	case (l.Median != 0) != (l.P99 != 0):
		return fmt.Errorf("median %v, 99th percentile %v: a long tail needs both", l.Median, l.P99)
	case l.P99 < l.Median:
		return fmt.Errorf("99th percentile %v below median %v", l.P99, l.Median)
	}
	return nil
}

// z99 is the 99th percentile of the standard normal distribution.
const z99 = 2.3263478740408408

// Draw takes a duration from the distribution.
func (l Latency) Draw(r *rand.Rand) time.Duration {
	var d float64
	switch {
	case l.Median != 0:
		sigma := math.Log(float64(l.P99)/float64(l.Median)) / z99
		d = float64(l.Median) * math.Exp(sigma*r.NormFloat64())
	case l.Mean != 0:
		d = float64(l.Mean) + float64(l.Deviation)*r.NormFloat64()
	case l.Max > l.Min:
		return l.Min + time.Duration(r.Int64N(int64(l.Max-l.Min)+1))
	default:
		return l.Min
	}
	if most := float64(l.most()); d > most {
		d = most
	}
	return max(l.Min, time.Duration(d))
}

// longest bounds what a tail gives: no firmware takes longer.
const longest = 1000 * time.Hour

func (l Latency) most() time.Duration {
	if l.Max != 0 {
		return l.Max
	}
	return longest
}
