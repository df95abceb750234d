package stats

import "sync/atomic"

// Counter has one writer at a time and any number of readers. The writer adds once per burst: an atomic
// addition per packet would cost as much as the packet, a plain store could not be read.
type Counter struct {
	local  uint64 // the writer's
	shared atomic.Uint64
}

// Add adds n. Only the writer calls it.
func (c *Counter) Add(n uint64) {
	c.local += n
	c.shared.Store(c.local)
}

// Load returns the count. Anybody may call it.
func (c *Counter) Load() uint64 { return c.shared.Load() }
