package device

import "time"

// realTime is the clock of CQEs in real-time format: UTC as seconds and nanoseconds.
func (f *function) realTime() uint64 { return f.card.utc(f.card.now) }

// utc is a time since the card was made as UTC: seconds in the upper half, nanoseconds in the lower.
func (c *Card) utc(t time.Duration) uint64 {
	at := c.epoch.Add(t)
	return uint64(at.Unix())<<32 | uint64(at.Nanosecond())
}
