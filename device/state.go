package device

import (
	"fmt"
	"time"

	"cxkit/device/internal/queue"
	"cxkit/device/internal/steer"
	"cxkit/prm"
	"cxkit/stats"
)

// State is what an operator sees of a function and its port.
type State struct {
	// Model and Firmware are the card's.
	Model, Firmware string
	// MAC is the function's permanent address, MTU what its driver has set, as Linux counts it.
	MAC [6]byte
	MTU int
	// LinkUp: the port passes frames. SpeedMbps is its rate then.
	LinkUp    bool
	SpeedMbps int
}

// State returns what function i, from 0, is and has been set to. It waits for the engine's step to end.
func (c *Card) State(i int) State {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, p := c.functions[i], c.profile
	s := State{
		Model:    p.name,
		Firmware: fmt.Sprintf("%d.%d.%04d", p.fwMajor, p.fwMinor, p.fwSubminor),
		MAC:      f.vport.permanent,
		MTU:      int(f.vport.context.MTU) - linuxOverhead,
		LinkUp:   f.port.up(),
	}
	if s.LinkUp {
		set := f.port.settings.speeds
		if set == 0 {
			set = p.speed.supported
		}
		s.SpeedMbps = 100 * int(p.speed.best(set).rate)
	}
	return s
}

// linuxOverhead is what vport and port MTU count beside Linux's MTU: Ethernet header, a tag and FCS.
const linuxOverhead = 14 + mtuOverhead

// Stats returns the counters that the card keeps of function i, from 0, and its port, under ethtool's
// names. It waits for the engine's step to end.
func (c *Card) Stats(i int) stats.Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.functions[i]
	v, p := &f.counters, &f.port.counters
	s := stats.Snapshot{Time: time.Now()}
	for _, n := range []struct {
		name string
		t    *traffic
	}{
		{"rx_vport_unicast", &v.rx.unicast}, {"tx_vport_unicast", &v.tx.unicast},
		{"rx_vport_multicast", &v.rx.multicast}, {"tx_vport_multicast", &v.tx.multicast},
		{"rx_vport_broadcast", &v.rx.broadcast}, {"tx_vport_broadcast", &v.tx.broadcast},
		{"vport_loopback", &v.loopback},
	} {
		s.Add(n.name+"_packets", n.t.packets)
		s.Add(n.name+"_bytes", n.t.octets)
	}
	s.Add("rx_steer_missed_packets", v.steeringDiscard)
	s.Add("tx_packets_phy", p.tx.frames)
	s.Add("rx_packets_phy", p.rx.frames)
	s.Add("tx_bytes_phy", p.tx.octets)
	s.Add("rx_bytes_phy", p.rx.octets)
	s.Add("tx_multicast_phy", p.tx.multicast)
	s.Add("tx_broadcast_phy", p.tx.broadcast)
	s.Add("rx_multicast_phy", p.rx.multicast)
	s.Add("rx_broadcast_phy", p.rx.broadcast)
	s.Add("rx_discards_phy", p.rx.discards)
	s.Add("tx_discards_phy", p.tx.discards)
	s.Add("tx_errors_phy", p.tx.errors)
	s.Add("rx_undersize_pkts_phy", p.undersize)
	s.Add("rx_oversize_pkts_phy", p.oversize)
	s.Add("link_down_events_phy", uint64(p.linkDownEvents))
	return s
}

// Receives reports whether frames can reach a receive queue of function i: one that is ready, of a TIR that a rule
// leads to.
func (c *Card) Receives(i int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	ready := func(q *queue.RQ) bool { return q.State() == prm.QueueStateRDY }
	return c.functions[i].rx.Reaches(func(t *steer.TIR) bool { return t.Any(ready) })
}
