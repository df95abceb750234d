package rxpool

import "cxkit/driver/internal/layout"

// Cache is a queue's stack of free buffers. The queue's owner uses it, nobody else.
type Cache struct {
	pool *Pool
	home int // the queue of pages whose owner has the cache
	n    int
	free [3 * Bulk]uint32 // a batch to give, a batch to keep, and Space
}

// NewCache makes an empty cache. home is the number of the queue of pages that belongs to its owner, -1 if
// none does.
func NewCache(p *Pool, home int) *Cache { return &Cache{pool: p, home: home} }

// Len is how many buffers the cache holds.
func (c *Cache) Len() int { return c.n }

// Fill makes sure that at least want buffers (at most Bulk) are in the cache, if the depot has them, and
// returns how many are.
func (c *Cache) Fill(want int) int {
	if c.n >= want {
		return c.n
	}
	c.n += c.pool.withdraw(c.free[c.n : c.n+max(want-c.n, c.pool.batch)])
	return c.n
}

// Space returns room for Bulk free buffers on top of the cache. Keep says how many were put there.
func (c *Cache) Space() []uint32 {
	if surplus := c.n - c.pool.batch; surplus > c.pool.batch {
		// The oldest go: the newest are the ones in the processor's caches.
		c.pool.Deposit(c.free[:surplus])
		copy(c.free[:], c.free[surplus:c.n])
		c.n = c.pool.batch
	}
	return c.free[c.n : c.n+Bulk]
}

// Keep takes over the first k buffers that were put into Space. The application has none of them. Fragments
// among them go to their queues.
func (c *Cache) Keep(k int) {
	if c.pool.fragments != nil {
		k = c.pool.route(c.free[c.n:c.n+k], c.home)
	}
	if c.pool.Check {
		for _, i := range c.free[c.n : c.n+k] {
			layout.Poison(c.pool.Buffer(i))
		}
	}
	c.n += k
}

// Put adds one free buffer.
func (c *Cache) Put(i uint32) {
	c.Space()[0] = i
	c.Keep(1)
}

// Take takes n free buffers, which the cache must have. The slice is valid until the next call.
func (c *Cache) Take(n int) []uint32 {
	c.n -= n
	list := c.free[c.n : c.n+n]
	if c.pool.Check {
		for _, i := range list {
			c.pool.Verify(i)
		}
	}
	return list
}

// Empty gives everything to the depot.
func (c *Cache) Empty() {
	c.pool.Deposit(c.free[:c.n])
	c.n = 0
}
