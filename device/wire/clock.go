package wire

import "time"

// Clock is the time that paced ports keep. Tests and stepped runs inject their own.
type Clock interface {
	Now() time.Time
	// NewTimer makes a stopped timer that calls f when it fires, on any goroutine.
	NewTimer(f func()) Timer
}

// Timer fires once after each Reset.
type Timer interface {
	// Reset lets the timer fire d from now, instead of when it would have.
	Reset(d time.Duration)
	Stop()
}

// SystemClock is the real clock, or the fake one inside a testing/synctest bubble.
type SystemClock struct{}

// Now is time.Now.
func (SystemClock) Now() time.Time { return time.Now() }

// NewTimer makes a timer of package time.
func (SystemClock) NewTimer(f func()) Timer {
	t := time.AfterFunc(time.Hour, f)
	t.Stop()
	return systemTimer{t}
}

type systemTimer struct{ t *time.Timer }

func (s systemTimer) Reset(d time.Duration) { s.t.Reset(d) }
func (s systemTimer) Stop()                 { s.t.Stop() }
