package device

import (
	"encoding/binary"
	"time"
)

// wholePort is the place of a pause of the whole port behind those of the eight priorities. It counts with the
// first priority's.
const wholePort = 8

// obeying is a pause that the peer has asked for. It runs out by itself.
type obeying struct {
	since, until time.Duration // counted so far, and its end
	timer        *timer
}

// obeyPause does what a pause frame says, if PFCC lets the port: body is what follows its operation code, the
// time for the whole port, or an enable vector and a time for each priority (IEEE 802.3 annexes 31B, 31D).
func (d *dataPort) obeyPause(c *Card, byPriority bool, body []byte) {
	set := &d.settings.pause
	if !byPriority {
		if set.PPRX && len(body) >= 2 {
			d.obey(c, wholePort, binary.BigEndian.Uint16(body))
		}
		return
	}
	if len(body) < 2+2*8 {
		return
	}
	for i := range 8 {
		if set.PFCRX&body[1]>>i&1 != 0 {
			d.obey(c, i, binary.BigEndian.Uint16(body[2+2*i:]))
		}
	}
}

// obey stops a class for a number of pause quanta, or lets it go on if there are none.
func (d *dataPort) obey(c *Card, class int, quanta uint16) {
	length := d.quantum(c) * time.Duration(quanta)
	if length == 0 {
		d.goOn(c, class)
		return
	}
	d.countObeyed(c.now)
	o := &d.obeying[class]
	if o.timer == nil {
		o.timer = &timer{fire: func() {
			if c.now >= o.until {
				d.goOn(c, class)
			}
		}}
	}
	d.paused |= 1 << class
	o.since, o.until = c.now, c.now+length
	c.timers.arm(o.timer, o.until)
}

// quantum is 512 bit times of the port's best mode.
func (d *dataPort) quantum(c *Card) time.Duration {
	s := &c.profile.speed
	admin := s.supported
	if d.settings.speeds != 0 {
		admin = d.settings.speeds
	}
	rate := s.best(admin).rate // in 100 Mbit/s
	if rate == 0 {
		return 0
	}
	return max(512*10/time.Duration(rate), 1) // in ns
}

// goOn ends a pause.
func (d *dataPort) goOn(c *Card, class int) {
	if d.paused>>class&1 == 0 {
		return
	}
	d.countObeyed(c.now)
	d.paused &^= 1 << class
	d.counters.transitions[class%wholePort]++
	d.unblock()
}

// countObeyed counts the time of pauses up to now.
func (p *port) countObeyed(now time.Duration) {
	for i := range p.obeying {
		o := &p.obeying[i]
		if t := min(now, o.until); p.paused>>i&1 != 0 && t > o.since {
			p.counters.obeyed[i%wholePort] += t - o.since
			o.since = t
		}
	}
}

// turn brings an SQ whose priority is not paused to the front of those that a function has work in; false if
// there is none.
func (d *dataPort) turn(f *function) bool {
	if d.paused>>wholePort&1 != 0 {
		return false
	}
	pending := &f.sender.pending
	for range pending.len() {
		if d.paused>>pending.first().Priority()&1 == 0 {
			return true
		}
		pending.push(pending.pop())
	}
	return false
}
