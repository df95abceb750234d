package capture

import (
	"time"

	"cxkit/device/wire"
)

// gaps keeps the recorded distance between frames.
type gaps struct {
	clock  wire.Clock
	timer  wire.Timer
	speed  float64
	maxGap int64 // ns; 0 is no limit

	begun  bool
	start  time.Time     // when the first frame was given out
	played time.Duration // from there to the last frame
	last   int64         // recorded time of the last frame, in ns
}

func newGaps(o Options, wake func()) *gaps {
	g := &gaps{clock: o.Clock, speed: o.Speed, maxGap: int64(o.MaxGap)}
	if g.clock == nil {
		g.clock = wire.SystemClock{}
	}
	if g.speed == 0 {
		g.speed = 1
	}
	switch {
	case g.maxGap == 0:
		g.maxGap = int64(DefaultMaxGap)
	case g.maxGap < 0:
		g.maxGap = 0
	}
	g.timer = g.clock.NewTimer(wake)
	return g
}

// due reports whether a frame recorded at t (ns) may go now. If not it sets the timer; the caller asks
// again with the same frame.
func (g *gaps) due(t int64) bool {
	now := g.clock.Now()
	if !g.begun {
		g.begun, g.start, g.last = true, now, t
		return true
	}
	at, last := g.next(t)
	// The schedule counts from the start, so that a late frame does not delay the ones behind it.
	if wait := g.start.Add(at).Sub(now); wait > 0 {
		g.timer.Reset(wait)
		return false
	}
	g.played, g.last = at, last
	return true
}

// next returns when a frame recorded at t is to be played, and from when the gap behind it counts.
// Frames are played in file order: one recorded before its predecessor follows at once.
func (g *gaps) next(t int64) (at time.Duration, last int64) {
	gap := t - g.last
	switch {
	case t >= 0 && g.last < 0 && gap < 0: // overflow
		gap = 1<<63 - 1
	case gap < 0 && (g.maxGap == 0 || gap > -g.maxGap):
		return g.played, g.last // slightly out of order
	case gap < 0:
		return g.played, t // the clock was set back
	}
	if g.maxGap != 0 && gap > g.maxGap {
		gap = g.maxGap
	}
	const longest = 1 << 60 // 36 years: sums of a few do not overflow
	step := min(float64(gap)/g.speed, longest)
	return min(g.played+time.Duration(step), 4*longest), t
}
