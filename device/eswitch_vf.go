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
}

// enableVF lets a virtual function's firmware start.
func (p *switchPort) enableVF() command.Result {
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

// disableVF ends a virtual function: nothing of it moves any more. Its pages go back to the manager.
func (p *switchPort) disableVF() {
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

// disableVFs ends all of them, as the end of their manager does. forget: the manager has been reset, and
// its pages are its own again.
func (e *eswitch) disableVFs(forget bool) {
	for _, p := range e.vfs() {
		p.disableVF()
		if forget {
			p.function.memory.Clear()
			p.function.pageState = pageState{}
		}
	}
}

// bootedFrom is when a function whose start begins now has booted; never for one that is not enabled.
func (f *function) bootedFrom(now time.Duration) time.Duration {
	if f.isVF() && !f.sw.enabled {
		return never
	}
	return now + f.card.config.BootTime
}
