package device

import (
	"math/bits"

	"cxkit/device/internal/event"
	"cxkit/pci"
	"cxkit/prm"

	faults "cxkit/device/fault"
)

// interrupter raises MSI-X vectors. The host is the honest one.
type interrupter interface{ Raise(vector int) }

// lossyInterrupts loses interrupts, or has them arrive elsewhere.
type lossyInterrupts struct {
	pci.Host
	f *function
}

func (w lossyInterrupts) Raise(vector int) {
	hit := w.f.strike(faults.AtInterrupt, &faults.Subject{Vector: vector})
	switch {
	case hit == nil:
		w.Host.Raise(vector)
	case hit.Kind == faults.MisdirectedInterrupt && hit.To < w.f.info.Vectors:
		w.Host.Raise(hit.To)
	}
}

// lossyEvents loses event queue entries.
type lossyEvents struct {
	event.Writer
	f *function
}

func (w lossyEvents) WriteEntry(eq *event.EQ, entry *[64]byte) {
	e := (*prm.EQE)(entry)
	s := faults.Subject{Event: e.EventType(), EQ: eq.Number()}
	switch s.Event {
	case prm.EventCommandCompletion:
		s.Slot = bits.TrailingZeros32(e.CommandVector()) % slots
		s.Opcode = faultyCommands{w.f}.subject(s.Slot).Opcode
	case prm.EventCompletion:
		s.Queue = e.CompletionCQN()
	}
	if w.f.strike(faults.AtEvent, &s) == nil {
		w.Writer.WriteEntry(eq, entry)
	}
}

// lossyBells loses doorbells.
type lossyBells struct{ *function }

func (w lossyBells) sqDoorbell(uar, sqn uint32, index uint16) {
	if w.strike(faults.AtDoorbell, &faults.Subject{Doorbell: faults.SQBell, Queue: sqn}) == nil {
		w.function.sqDoorbell(uar, sqn, index)
	}
}

func (w lossyBells) cqArm(uar, cqn, word uint32) {
	if w.strike(faults.AtDoorbell, &faults.Subject{Doorbell: faults.CQBell, Queue: cqn}) == nil {
		w.function.cqArm(uar, cqn, word)
	}
}

func (w lossyBells) eqDoorbell(uar, v uint32, arm bool) {
	if w.strike(faults.AtDoorbell, &faults.Subject{Doorbell: faults.EQBell, EQ: uint8(v >> 24)}) == nil {
		w.function.eqDoorbell(uar, v, arm)
	}
}

// composeReads stacks what lasting faults show instead of the function's registers.
func (f *function) composeReads() {
	s := &f.states
	var r reads = f
	if s.hung {
		r = frozenCounter{r, s.counter}
	}
	if s.ones > 0 {
		r = noRegisters{r}
	}
	gone := f.removed.Load() || !f.there
	if gone {
		r = absent{r}
	}
	f.gone.Store(gone)
	f.unreachable.Store(s.ones > 0 || gone)
	if r == reads(f) {
		f.seen.Store(nil)
		return
	}
	f.seen.Store(&r)
}

// frozenCounter is a health counter that stands still.
type frozenCounter struct {
	reads
	counter uint32
}

func (r frozenCounter) readRegister(off uint64) uint32 {
	v := r.reads.readRegister(off)
	if off == regHealthCounter {
		return v&^0xffffff | r.counter&0xffffff
	}
	return v
}

// noRegisters is a BAR that nobody answers for.
type noRegisters struct{ reads }

func (noRegisters) readRegister(uint64) uint32 { return ^uint32(0) }

// absent is a slot without a card.
type absent struct{ reads }

func (absent) readRegister(uint64) uint32 { return ^uint32(0) }

func (absent) readConfig(_, size int) uint32 { return ^uint32(0) >> (32 - 8*min(size, 4)) }
