package steer

import "cxkit/device/internal/packet"

// Bounds of a look-up. Levels rise along every path, so a path is short; what has to be bounded is how
// far replication multiplies.
const (
	// MaxDeliveries is how many TIRs, or vports, one frame reaches at most.
	MaxDeliveries = 256
	// maxVisits bounds the tables that one frame is looked up in.
	maxVisits = 512
	// maxLooks bounds the masks that it is looked up under, in all of them.
	maxLooks = 4 * maxMasks
)

// Delivery is one place a frame goes to: a TIR, or a vport.
type Delivery struct {
	TIR   *TIR
	Vport *Vport
	Tag   uint32 // flow tag of the last entry that set one
	Edit  *Edit  // on the way to a vport; nil: none
	// Registers is what became of the metadata registers on the way to a vport.
	Registers Registers
}

// Verdict is where a frame goes. It is filled by Classify and may be used again.
type Verdict struct {
	// To lists the deliveries in order.
	To []Delivery
	// Missed: the frame, or a copy of it, matched no entry and the default applies, which is to drop in
	// NIC_RX and to send in NIC_TX, to pass in an ACL, and the owner's business in FDB. Allowed: an entry of
	// NIC_TX or an ACL lets it pass, changed by Edit and Registers.
	Missed, Allowed bool
	Edit            *Edit // nil: as it is
	Registers       Registers

	// Counters are those of all entries the frame met. Count moves them, if the frame is not tried again.
	Counters []*Counter

	buffer [MaxDeliveries]Delivery
	visits int
	looks  int
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
		v.Edit, v.Registers = c.edit, c.registers
		if c.to.TIR != nil || c.to.Vport != nil {
			v.buffer[0] = c.to
			v.To = v.buffer[:1]
		}
		v.Counters = append(v.Counters[:0], c.counters[:c.counted]...)
		return
	}
	v.To, v.Missed, v.Allowed, v.Edit, v.Registers = v.buffer[:0], false, false, nil, Registers{}
	v.Counters, v.visits, v.looks = v.Counters[:0], 0, 0
	registers := h.Registers()
	d.walk(d.root, h, path{}, v)
	h.SetRegisters(registers)
	if c != nil && len(v.To) <= 1 && len(v.Counters) <= cachedCounters {
		d.cache.fill(c, v)
	}
}

// Add counts a frame of n bytes.
func (c *Counter) Add(n int) {
	c.Packets++
	c.Octets += uint64(n)
}

// path is what a frame has got on its way through tables.
type path struct {
	tag       uint32
	registers Registers
}

// walk follows t and what its entries and misses lead to. It calls itself only for tables of a higher
// level. It leaves the frame's registers as they are at the path's end.
func (d *Domain) walk(t *Table, h *packet.Headers, p path, v *Verdict) {
	for t != nil {
		if v.visits++; v.visits > maxVisits {
			return
		}
		var e *Entry // the one with the lowest index
		for _, s := range t.shapes {
			if e != nil && e.index < s.low {
				break
			}
			if v.looks++; v.looks > maxLooks {
				return
			}
			if hit := s.find(h, d.seed); hit != nil && (e == nil || hit.index < e.index) {
				e = hit
			}
		}
		if e == nil {
			t = t.miss
			continue
		}
		v.Counters = append(v.Counters, e.config.Counters...)
		if e.config.Tag != 0 {
			p.tag = e.config.Tag
		}
		if e.config.Header != nil {
			p.registers = p.registers.then(e.config.Header.Set)
			h.SetRegisters(e.config.Header.Set.Of(h.Registers()))
		}
		switch {
		case e.config.Action&ActionDrop != 0:
			return
		case e.config.Action&ActionAllow != 0:
			v.Allowed, v.Edit, v.Registers = true, e.config.change(), p.registers
			return
		}
		dests := e.config.Dests
		last := len(dests) - 1
		for _, to := range dests[:last] {
			if to.Table == nil {
				v.deliver(to, p, e.config.change())
				continue
			}
			registers := h.Registers()
			d.walk(to.Table, h, p, v)
			h.SetRegisters(registers)
		}
		if dests[last].Table == nil {
			v.deliver(dests[last], p, e.config.change())
			return
		}
		t = dests[last].Table
	}
	v.Missed, v.Registers = true, p.registers
}

func (v *Verdict) deliver(to Dest, p path, edit *Edit) {
	if len(v.To) < MaxDeliveries {
		v.To = append(v.To, Delivery{TIR: to.TIR, Vport: to.Vport, Tag: p.tag, Edit: edit, Registers: p.registers})
	}
}
