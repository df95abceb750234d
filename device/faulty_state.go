package device

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"cxkit/device/internal/command"
	"cxkit/device/internal/queue"
	"cxkit/prm"

	faults "cxkit/device/fault"
)

// states are the faults of a function that last, and what its wrappers keep. The engine owns them.
type states struct {
	life uint64 // counts resets

	// Firmware hangs until a time. Commands that came, and those whose time was over, wait for its end.
	hung                  bool
	until                 time.Duration
	counter               uint32 // the health counter stands still here
	unstarted, unfinished uint32

	// Slots whose command was asked about already: a command that waits for pages comes by again.
	asked, checked uint32

	ones         int // how many faults hide the registers
	initStuck    int // how many keep the function booting
	shortOfPower bool
	watts        int

	held map[*queue.CQ]*heldCQEs // completions that are late
}

// reset ends what a reset of the function ends: firmware starts over.
func (s *states) reset(f *function) {
	s.life++
	s.hung, s.unstarted, s.unfinished, s.asked, s.checked, s.held = false, 0, 0, 0, 0, nil
	f.compose()
}

// never is a time that does not come.
const never = time.Duration(math.MaxInt64)

// bootedAt is when the function has booted: t, or never while a fault keeps it booting.
func (f *function) bootedAt(t time.Duration) time.Duration {
	if f.states.initStuck > 0 {
		return never
	}
	return t
}

// startStates arms the states that begin by themselves. c.now is right.
func (c *Card) startStates() {
	list, when := c.faults.Starting()
	for i, ft := range list {
		if when[i] <= c.now {
			c.beginStates(ft)
			continue
		}
		t := &timer{fire: func() { c.beginStates(ft) }}
		c.timers.arm(t, when[i])
	}
}

// beginStates begins a state in every function that it concerns.
func (c *Card) beginStates(ft *faults.Fault) {
	c.faults.Begin(ft)
	broken := make(map[any]bool)
	for _, f := range c.functions {
		if (len(ft.Functions) == 0 || slices.Contains(ft.Functions, f.index)) && !broken[f.place(ft.Kind)] {
			broken[f.place(ft.Kind)] = true
			f.noteFault(ft)
			f.beginState(ft)
		}
	}
}

// beginState begins a state, and arms its end.
func (f *function) beginState(ft *faults.Fault) {
	var end func()
	switch ft.Kind {
	case faults.Hang:
		f.hang(ft.For)
	case faults.Health:
		f.failWith(ft.Health)
		f.hang(ft.For)
	case faults.AllOnes:
		f.states.ones++
		end = func() { f.states.ones--; f.composeReads() }
	case faults.InitStuck:
		f.stickInit()
		end = f.unstickInit
	case faults.Removal:
		f.remove()
		end = f.comeBack
	case faults.Unplug:
		end = f.port.unplug(f.card, ft.NoLink)
	case faults.Module:
		f.moduleStatus(ft.ModuleStatus, ft.ModuleError)
	case faults.Power:
		f.states.shortOfPower, f.states.watts = true, ft.Watts
		f.powerEvent()
		end = func() { f.states.shortOfPower = false; f.powerEvent() }
	case faults.Storm:
		f.stormFault(ft.Pages)
	case faults.PortErrors:
		f.port.meet(f.card.profile, ft.What, uint64(ft.Count))
	case faults.PCIeErrors:
		f.card.recoveries.meet(ft.What, uint32(ft.Count))
	}
	f.compose()
	if end != nil && ft.For > 0 {
		f.card.timers.arm(&timer{fire: end}, f.card.now+ft.For)
	}
}

// hang stops firmware for d, or until a reset if d is 0.
func (f *function) hang(d time.Duration) {
	s := &f.states
	if !s.hung {
		s.hung, s.until = true, 0
		s.counter = uint32(f.card.now / healthPeriod)
	}
	if d == 0 {
		s.until = never
		return
	}
	s.until = max(s.until, f.card.now+d)
	f.later(d, f.resume)
}

// resume lets firmware go on where it stood, unless it hangs for longer.
func (f *function) resume() {
	s := &f.states
	if !s.hung || f.card.now < s.until {
		return
	}
	start, finish := s.unstarted, s.unfinished
	s.hung, s.unstarted, s.unfinished = false, 0, 0
	f.compose()
	f.enter()
	for v := finish; v != 0; v &= v - 1 {
		f.path.finishCommand(bits.TrailingZeros32(v))
	}
	for v := start; v != 0 && f.mem != nil && f.executor.live; v &= v - 1 {
		f.path.startCommand(bits.TrailingZeros32(v))
	}
}

// failWith publishes a health buffer.
func (f *function) failWith(b *faults.HealthBuffer) {
	if b == nil {
		b = faults.AssertCX6()
	}
	f.fail(health{
		assertVar: b.AssertVar, assertExit: b.AssertExit, assertCallra: b.AssertCallra,
		time: b.Time, fwVersion: b.FirmwareVersion, hwID: b.HardwareID,
		resetRequest: b.ResetRequest, severity: b.Severity, irisc: b.IRISC, syndrome: b.Syndrome, extSyndrome: b.ExtSyndrome,
	})
}

func (f *function) stickInit() {
	f.states.initStuck++
	f.regs.readyAt.Store(int64(never))
}

func (f *function) unstickInit() {
	if f.states.initStuck--; f.states.initStuck == 0 {
		f.regs.readyAt.Store(int64(f.card.now))
	}
}

// remove takes the function off the bus. Unlike a reset it may come in the middle of a step.
func (f *function) remove() {
	f.removed.Store(true)
	if f.entered {
		f.entered = false
		f.mem.Leave()
		f.card.entered = slices.DeleteFunc(f.card.entered, func(g *function) bool { return g == f })
	}
	f.reset()
}

// comeBack puts it back, as after a power cycle.
func (f *function) comeBack() {
	f.removed.Store(false)
	f.config.Reset()
	f.reset()
}

// unplug takes the cable out of a port; end puts it back.
func (p *port) unplug(c *Card, noLink bool) (end func()) {
	p.unplugs++
	if p.unplugs == 1 && p.wire != nil {
		p.moduleEvent(c, false)
	}
	c.checkLinks()
	return func() {
		p.unplugs--
		p.noLink = p.noLink || noLink
		if p.unplugs == 0 && p.wire != nil {
			p.moduleEvent(c, true)
		}
		c.checkLinks()
	}
}

// stormRetry is how often a storm looks for a driver that serves it.
const stormRetry = 100 * time.Millisecond

// stormFault begins a storm of pages, once there is a driver to ask and no other storm.
func (f *function) stormFault(pages int) {
	if f.phase == command.Initialised && f.events.Subscribed(prm.EventPageRequest) {
		f.enter()
		if err := f.storm(f.ownPages(), pages); err == nil {
			return
		}
	}
	f.card.timers.arm(&timer{fire: func() { f.stormFault(pages) }}, f.card.now+stormRetry)
}

// powerChange is the sub-type of a general event (reference 02 §3).
const powerChange = 5

// powerEvent tells the driver to look at MPEIN.
func (f *function) powerEvent() {
	f.enter()
	f.events.Post(prm.EventGeneral, powerChange, nil)
}
