package rxpages

import (
	"time"

	"cxkit/driver"
	"cxkit/lab/exp/rxbench"
)

// collector counts what is received. It keeps the latest packets, as a consumer does.
type collector struct {
	bench    *rxbench.Bench
	o        *outcome
	segments int
	perPage  int
	hold     int

	counting bool
	frames   int // since the NIC was opened
	last     int // page of the latest frame
	turns    int // since the NIC was opened
	before   driver.RxPageStats
	held     []driver.Packet
	touched  []uint32 // records that freeing touches, a packet after the other
}

func (c *collector) begin() {
	c.counting = true
	c.before = c.bench.RX.PageStats()
	c.o.poll = 0
}

// take counts packets and passes them on to the consumer.
func (c *collector) take(pkts []driver.Packet) {
	for i := range pkts {
		p := &pkts[i]
		first, seen := c.frames, map[int]bool{}
		for page := range c.bench.NIC.Pages(p) {
			seen[page] = true
			if page != c.last {
				c.turns++
			}
			c.last = page
			c.frames++
		}
		if c.counting {
			c.o.frames += p.Segments()
		}
		if c.counting && p.Segments() == c.segments {
			c.o.packets++
			c.o.pages += len(seen)
			c.o.most = max(c.o.most, len(seen))
			c.o.byPlace += (first+c.segments-1)/c.perPage - first/c.perPage + 1
			for page := range seen {
				c.touched = append(c.touched, uint32(page*2+c.o.packets*131))
			}
		}
		c.held = append(c.held, *p)
	}
	if n := len(c.held) - c.hold*(1+between); n > 0 {
		c.bench.RX.Release(c.held[:n])
		c.held = append(c.held[:0], c.held[n:]...)
	}
}

// records is the table of what freeing a page touches: 64 MiB, more than caches hold.
const records = 1 << 20

// end releases everything and reads the books.
func (c *collector) end(periods int) {
	c.bench.RX.Release(c.held)
	s := c.bench.RX.PageStats()
	c.o.kept, c.o.peak = s.Pooled, s.Peak
	if s.Pooled == 0 { // nothing is used again: what the card has is what there is
		c.o.kept = c.bench.RX.Posted()
	}
	used := s.Recycled - c.before.Recycled + s.Fresh - c.before.Fresh + s.Rescued - c.before.Rescued
	c.o.recycled = 100 * float64(s.Recycled-c.before.Recycled) / float64(max(used, 1))
	// Pages put into the ring, less those that hold frames that did not come yet only.
	c.o.turns = c.turns
	put := int(s.Recycled + s.Fresh + s.Rescued)
	c.o.booked = put - (put*c.perPage-c.frames)/c.perPage
	c.touch()
}

// touch is E7: the time to write one record of 64 bytes for each page of the packets.
func (c *collector) touch() {
	table := make([][64]byte, records)
	for i := range table {
		table[i][0] = 1
	}
	begin := time.Now()
	for _, r := range c.touched {
		table[r*2654435761%records][0]++
	}
	c.o.touch = time.Since(begin)
}
