package steer

import "cxkit/device/internal/packet"

// Bounds of a look-up. Levels rise along every path, so a path is short; what has to be bounded is how
// far replication multiplies.
const (
	// MaxDeliveries is how many TIRs, or vports, one frame reaches at most.
	MaxDeliveries = 256
	// maxVisits bounds the tables that one frame is looked up in.
	maxVisits = 512
)

// Delivery is one place a frame goes to: a TIR, or a vport.
type Delivery struct {
	TIR   *TIR
	Vport *Vport
	Tag   uint32 // flow tag of the last entry that set one
	Edit  *Edit  // on the way to a vport; nil: none
}

// Verdict is where a frame goes. It is filled by Classify and may be used again.
type Verdict struct {
	// To lists the deliveries in order.
	To []Delivery
	// Missed: the frame, or a copy of it, matched no entry and the default applies, which is to drop in
	// NIC_RX and to send in NIC_TX, to pass in an ACL, and the owner's business in FDB. Allowed: an entry of
	// NIC_TX or an ACL lets it pass, changed by Edit.
	Missed, Allowed bool
	Edit            *Edit // nil: as it is

	// Counters are those of all entries the frame met. Count moves them, if the frame is not tried again.
	Counters []*Counter

	buffer [MaxDeliveries]Delivery
	visits int
}

// Count moves the flow counters for a frame of n bytes.
func (v *Verdict) Count(n int) {
	for _, c := range v.Counters {
		c.Add(n)
	}
}

// Classify looks a frame up.
func (d *Domain) Classify(h *packet.Headers, v *Verdict) {
	c := d.cache.find(h, d.seed)
	if c != nil && c.valid == d.cache.epoch {
		v.Missed, v.Allowed = c.missed, c.allowed
		v.To = v.buffer[:0]
		v.Edit = c.edit
		if c.to.TIR != nil || c.to.Vport != nil {
			v.buffer[0] = c.to
			v.To = v.buffer[:1]
		}
		v.Counters = append(v.Counters[:0], c.counters[:c.counted]...)
		return
	}
	v.To, v.Missed, v.Allowed, v.Edit = v.buffer[:0], false, false, nil
	v.Counters, v.visits = v.Counters[:0], 0
	d.walk(d.root, h, 0, v)
	if c != nil && len(v.To) <= 1 && len(v.Counters) <= cachedCounters {
		d.cache.fill(c, v)
	}
}

// Add counts a frame of n bytes.
func (c *Counter) Add(n int) {
	c.Packets++
	c.Octets += uint64(n)
}

// walk follows t and what its entries and misses lead to. It calls itself only for tables of a higher
// level.
func (d *Domain) walk(t *Table, h *packet.Headers, tag uint32, v *Verdict) {
	for t != nil {
		if v.visits++; v.visits > maxVisits {
			return
		}
		var e *Entry
		for _, g := range t.groups {
			if e = g.find(h); e != nil {
				break
			}
		}
		if e == nil {
			t = t.miss
			continue
		}
		v.Counters = append(v.Counters, e.config.Counters...)
		if e.config.Tag != 0 {
			tag = e.config.Tag
		}
		switch {
		case e.config.Action&ActionDrop != 0:
			return
		case e.config.Action&ActionAllow != 0:
			v.Allowed, v.Edit = true, e.config.change()
			return
		}
		dests := e.config.Dests
		last := len(dests) - 1
		for _, to := range dests[:last] {
			if to.Table == nil {
				v.deliver(to, tag, e.config.change())
			} else {
				d.walk(to.Table, h, tag, v)
			}
		}
		if dests[last].Table == nil {
			v.deliver(dests[last], tag, e.config.change())
			return
		}
		t = dests[last].Table
	}
	v.Missed = true
}

func (v *Verdict) deliver(to Dest, tag uint32, edit *Edit) {
	if len(v.To) < MaxDeliveries {
		v.To = append(v.To, Delivery{TIR: to.TIR, Vport: to.Vport, Tag: tag, Edit: edit})
	}
}
