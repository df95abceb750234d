package wire

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Rate is a speed on the wire. The zero value is no limit. When both fields are set both hold.
type Rate struct {
	// Frames a second.
	Frames float64
	// Bits a second on the medium: a frame counts with its check sequence, preamble and gap (24 bytes
	// more), and as 84 bytes at least. 10e9 is then 14.88 million of the smallest frames a second.
	Bits float64
}

const (
	mediumOverhead = 24 // preamble 8, frame check sequence 4, gap 12
	mediumLeast    = 84 // 60 bytes and the overhead
)

// cost is the time that a frame of n bytes takes at the rate, in ns.
func (r Rate) cost(n int) float64 {
	var ns float64
	if r.Frames > 0 {
		ns = 1e9 / r.Frames
	}
	if r.Bits > 0 {
		ns = max(ns, 8e9*float64(max(n+mediumOverhead, mediumLeast))/r.Bits)
	}
	// A rate that is next to nothing is an hour a frame, which no sum of costs overflows.
	return min(ns, float64(time.Hour))
}

func (r Rate) String() string {
	var parts []string
	if r.Frames > 0 {
		parts = append(parts, scaled(r.Frames)+"pps")
	}
	if r.Bits > 0 {
		parts = append(parts, scaled(r.Bits)+"bps")
	}
	if parts == nil {
		return "unlimited"
	}
	return strings.Join(parts, " and ")
}

func scaled(v float64) string {
	for _, s := range []struct {
		unit  string
		value float64
	}{{"G", 1e9}, {"M", 1e6}, {"k", 1e3}} {
		if v >= s.value {
			return strconv.FormatFloat(v/s.value, 'g', -1, 64) + s.unit
		}
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// ParseRate reads a rate: a number, a factor of k, M or G, and a unit of pps (frames a second, also if
// left out) or bps (bits a second). Examples: 100000, 250kpps, 1.5M, 10Gbps, "40 Gbit/s".
func ParseRate(s string) (Rate, error) {
	bad := func(why string) (Rate, error) {
		return Rate{}, fmt.Errorf("rate %q: %s; give for example 100000, 250kpps or 10Gbps", s, why)
	}
	text := strings.TrimSpace(s)
	digits := strings.IndexFunc(text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' && r != '_' })
	if digits < 0 {
		digits = len(text)
	}
	v, err := strconv.ParseFloat(strings.ReplaceAll(text[:digits], "_", ""), 64)
	if err != nil {
		return bad("no number")
	}
	unit := strings.TrimSpace(text[digits:])
	if unit != "" {
		factor := map[byte]float64{'k': 1e3, 'K': 1e3, 'M': 1e6, 'G': 1e9}[unit[0]]
		if factor != 0 {
			v *= factor
			unit = unit[1:]
		}
	}
	if v <= 0 || math.IsInf(v, 0) || v > 1e15 {
		return bad("not between 0 and 1e15")
	}
	switch strings.ToLower(unit) {
	case "", "pps", "p/s", "packets/s", "fps", "frames/s":
		return Rate{Frames: v}, nil
	case "bps", "bit/s", "bits/s", "b/s":
		return Rate{Bits: v}, nil
	}
	return bad(fmt.Sprintf("unknown unit %q", unit))
}
