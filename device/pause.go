package device

import "time"

// stopping is a pause that the port has asked its peer for: a frame waits for a receive buffer or for the
// bus, and the wire keeps what follows (wire.Port, Lossless). That the wire keeps it is all that the peer
// sees: the pause frames are counted, not sent, and are not among the frames transmitted.
type stopping struct {
	asked    bool
	priority int // whose counters have it; a pause of the whole port is with the first
	since    time.Duration
}

// stop asks the peer to stop, if PFCC lets the port do so for a frame of the priority (reference 01c).
func (p *port) stop(now time.Duration, priority int) {
	set := &p.settings.pause
	switch {
	case p.stopping.asked:
		return
	case set.PFCTX>>(priority&7)&1 != 0:
	case set.PPTX:
		priority = 0
	default:
		return
	}
	p.stopping = stopping{asked: true, priority: priority & 7, since: now}
	p.sendPause()
}

// resume lets the peer go on: a pause frame of no time says so where there is a link.
func (p *port) resume(now time.Duration) {
	if !p.stopping.asked {
		return
	}
	p.countStopped(now)
	if p.up() {
		p.sendPause()
	}
	p.stopping.asked = false
}

func (p *port) sendPause() {
	p.counters.pauseTx++
	p.counters.tx.prioPause[p.stopping.priority]++
}

// countStopped counts the time of a pause up to now.
func (p *port) countStopped(now time.Duration) {
	if s := &p.stopping; s.asked && now > s.since {
		p.counters.stopped[s.priority] += now - s.since
		s.since = now
	}
}
