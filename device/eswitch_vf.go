package device

import (
	"time"

	"cxkit/device/internal/command"
	"cxkit/prm"
)

// The life of a virtual function. Two things have to come together: the physical function's driver enables
// it (ENABLE_HCA), and makes the host see it (VF Enable in the SR-IOV capability). A function that is there
// and not enabled shows firmware that initializes and gets no further. Its pages are the manager's to give;
// they stay with firmware through resets of the function, until it is disabled.
//
// On a card with a processor of its own the host's physical function lives like that, too: it is always there,
// and the card's processor enables it (Linux ecpf.c).

// setVFs makes the host see the first n virtual functions and no more. No step runs.
func (e *eswitch) setVFs(n int) {
	for i, p := range e.vfs() {
		f := p.function
		if there := i < n; there != f.there {
			f.there = there
			f.config.Reset()
			f.reset()
			f.composeReads()
		}
	}
	if n != e.seen && e.ecpf != nil {
		e.news.fire = e.functionsChanged
		e.manager.card.timers.arm(&e.news, e.manager.card.now)
	}
	e.seen = n
}

// functionsChanged tells the card's own processor that the host has another number of virtual functions.
func (e *eswitch) functionsChanged() {
	e.manager.enter()
	e.manager.events.Post(prm.EventESWFunctionsChanged, 0, func([]byte) {})
}

// enable lets a ward's firmware start.
func (p *switchPort) enable() command.Result {
	if p.enabled {
		return fault(prm.StatusBadSystemState, synAlreadyEnabled)
	}
	f := p.function
	p.enabled = true
	f.regs.reset(f)
	f.print.Info("function enabled")
	f.askPages(f.ownPages())
	return command.Result{}
}

// disable ends a ward: nothing of it moves any more, nor of virtual functions that it has. Its pages go back
// to the manager.
func (p *switchPort) disable() {
	if !p.enabled {
		return
	}
	f := p.function
	p.enabled = false
	f.resetState()
	f.regs.reset(f)
	f.regs.cmdqLow.Store(nicInterfaceDisabled << 8)
	f.print.Info("function disabled")
	a := f.ownPages()
	a.hoard, a.asked, a.offering = 0, 0, true
}

// disableWards ends all of them, as the end of their manager does. forget: the manager has been reset, and
// its pages are its own again.
func (e *eswitch) disableWards(forget bool) {
	for _, p := range e.wards() {
		p.disable()
		if forget {
			p.function.memory.Clear()
			p.function.pageState = pageState{}
		}
	}
}

// endVirtuals ends the virtual functions of f, whose driver has gone or been reset.
func (f *function) endVirtuals() {
	for _, p := range f.virtuals() {
		p.disable()
	}
}

// bootedFrom is when a function whose start begins now has booted; never for one that is not enabled.
func (f *function) bootedFrom(now time.Duration) time.Duration {
	if f.isWard() && !f.sw.enabled {
		return never
	}
	return now + f.card.config.BootTime
}
