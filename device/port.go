package device

import (
	"sync/atomic"

	"cxkit/device/wire"
)

// port is a physical port. The engine owns it but for ready.
type port struct {
	number int       // from 1
	wire   wire.Port // nil: nothing is plugged in
	// lossless: what is plugged in keeps a frame that has no receive buffer.
	lossless bool
	// ready is set by whoever puts frames or room into wire; the data path clears it before it polls.
	ready atomic.Bool

	adminUp  bool // PAOS
	unplugs  int  // faults that keep the cable out
	noLink   bool // the cable is in, but there is no link any more
	carrier  bool // what wire says
	counters portCounters
	stopping stopping
	paused   uint16 // one bit a class that the peer has stopped: obeying
	obeying  [wholePort + 1]obeying

	adminMTU, maxMTU int // PMTU: as firmware counts, 22 bytes more than the longest payload
	settings         portSettings
	codes            uint32                       // FEC that it takes and has signalled: fecCodes.signalled
	cleared          map[[2]uint8]clearedCounters // PPCNT, by group and priority
}

func newPort(number int, profile *profile) *port {
	p := &port{number: number}
	p.reset(profile)
	return p
}

// reset forgets what drivers have set. Counters and what is plugged in stay.
func (p *port) reset(profile *profile) {
	p.adminUp = true
	p.adminMTU, p.maxMTU = profile.portMTU, profile.portMTU
	p.settings, p.cleared, p.stopping = portSettings{}, nil, stopping{}
	p.codes = profile.fec.signalled(&p.settings.fec)
}

// signal lets the far end see what the port sends: modes that were set take effect when the port comes up.
func (p *port) signal(profile *profile) {
	p.codes = profile.fec.signalled(&p.settings.fec)
	if w, ok := p.wire.(wire.Corrector); ok {
		w.SignalFEC(p.codes)
	}
	w, ok := p.wire.(wire.Signaler)
	if !ok {
		return
	}
	switch {
	case !p.adminUp:
		w.Signal(0)
	default:
		w.Signal(p.speeds(profile))
	}
}

// speeds are the modes that the port may have a link in.
func (p *port) speeds(profile *profile) uint32 {
	if p.settings.speeds != 0 {
		return p.settings.speeds
	}
	return profile.speed.supported
}

// mode is the one of its link, if it has one.
func (p *port) mode(profile *profile) linkMode {
	return profile.speed.best(p.speeds(profile) & p.partner(profile))
}

// partner is what the far end sends in, as far as that can be told.
func (p *port) partner(profile *profile) uint32 {
	if w, ok := p.wire.(wire.Signaler); ok {
		return w.Far() & profile.speed.supported
	}
	return profile.speed.supported
}

// up reports whether frames pass.
func (p *port) up() bool { return p.adminUp && p.carrier }

// mtu is the MTU in force, as firmware counts it.
func (p *port) mtu() int { return min(p.adminMTU, p.maxMTU) }

// checkLinks notices what has happened to the carriers of all ports.
func (c *Card) checkLinks() {
	for _, p := range c.ports {
		carrier := p.wire != nil && p.wire.Link() && p.unplugs == 0 && !p.noLink && p.fecAgreed(c.profile)
		if carrier != p.carrier {
			p.countBlocks(c.profile, c.now)
			was := p.up()
			p.carrier = carrier
			c.linkMayHaveChanged(p, was)
		}
	}
}

// linkMayHaveChanged tells the functions of a port when its state is not what it was.
func (c *Card) linkMayHaveChanged(p *port, was bool) {
	up := p.up()
	if up == was {
		return
	}
	if !up {
		p.counters.linkDownEvents++
		p.resume(c.now)
	}
	for _, f := range c.functions {
		if f.port != p || f.isWard() && f.upWith(was) == f.upWith(up) {
			continue
		}
		f.enter()
		f.portEvent(up)
		f.linkChanged(up)
	}
}
