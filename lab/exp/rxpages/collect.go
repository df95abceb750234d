package rxpages

import (
	"encoding/binary"

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
	sent     int              // frames, since the NIC was opened: the place of the next
	places   map[string][]int // of each flow's frames that did not come yet
	pages    []int            // by place
	before   driver.RxPageStats
	posted   int // most that the card had after a Poll
	held     []driver.Packet
	touched  []uint32 // records that freeing touches, a packet after the other
}

func (c *collector) begin() {
	c.counting = true
	c.before = c.bench.RX.PageStats()
	c.o.poll = 0
}

// send notes frames that are about to be received. The ring has a place for each, in their order.
func (c *collector) send(frames [][]byte) {
	for _, f := range frames {
		k := key(f)
		c.places[k] = append(c.places[k], c.sent)
		c.pages = append(c.pages, -1)
		c.sent++
	}
}

// key is what frames of a flow have in common: frames of one are delivered in their order.
func key(f []byte) string {
	ip := f[14:]
	if len(ip) < 24 || binary.BigEndian.Uint16(f[12:]) != 0x0800 || ip[0] != 0x45 || ip[6]&0x3f != 0 || ip[7] != 0 || ip[9] != 6 && ip[9] != 17 {
		return "" // never merged
	}
	return string(ip[9:10]) + string(ip[12:24])
}

// take counts packets and passes them on to the consumer.
func (c *collector) take(pkts []driver.Packet) {
	c.posted = max(c.posted, c.bench.RX.Posted())
	for i := range pkts {
		p := &pkts[i]
		k := key(p.Data)
		places := c.places[k]
		n := min(p.Segments(), len(places)) // never fewer
		c.places[k] = places[n:]
		seen, turns, at := map[int]bool{}, map[int]bool{}, 0
		for page := range c.bench.NIC.Pages(p) {
			seen[page] = true
			if at < n {
				c.pages[places[at]] = page
				turns[places[at]/c.perPage] = true
			}
			at++
		}
		if c.counting {
			c.o.frames += p.Segments()
		}
		if c.counting && p.Segments() == c.segments {
			c.o.packets++
			c.o.pages += len(seen)
			c.o.most = max(c.o.most, len(seen))
			c.o.byPlace += len(turns)
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

// end releases everything and reads the books.
func (c *collector) end() {
	c.bench.RX.Release(c.held)
	s := c.bench.RX.PageStats()
	c.o.kept, c.o.peak = s.Pooled, s.Peak
	if s.Pooled == 0 { // nothing is used again: what the card has at most is what there is
		c.o.kept = c.posted
	}
	used := s.Recycled - c.before.Recycled + s.Fresh - c.before.Fresh + s.Rescued - c.before.Rescued
	c.o.recycled = 100 * float64(s.Recycled-c.before.Recycled) / float64(max(used, 1))
	last := -1
	for _, page := range c.pages {
		if page != last {
			c.o.turns++
		}
		last = page
	}
	// Pages put into the ring, less those that hold frames that did not come yet only.
	put := int(s.Recycled + s.Fresh + s.Rescued)
	c.o.booked = put - (put*c.perPage-c.sent)/c.perPage
	c.o.touched = c.touched
}
