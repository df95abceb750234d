package device

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"cxkit/device/internal/command"
	"cxkit/prm"

	faults "cxkit/device/fault"
)

// hooks are the steps between a function and its driver that faults stand before: each is an interface
// whose honest implementation is the function itself (or its host, or its events), and each wrapper
// overrides what its faults concern. compose chooses. The engine owns all but seen.
type hooks struct {
	path       commandPath
	bells      doorbells
	interrupts interrupter
	seen       atomic.Pointer[reads] // nil: the function itself
}

// face is what the host reads of the function.
func (f *function) face() reads {
	if r := f.seen.Load(); r != nil {
		return *r
	}
	return f
}

// compose puts wrappers where faults may strike or last, and nothing elsewhere.
func (f *function) compose() {
	in, s := &f.card.faults, &f.states
	f.path, f.bells, f.interrupts = f, f, f.host
	f.events.Writer, f.env.Filter = f.events, nil
	if s.hung || in.Any(faults.AtCommand, faults.AtEnd, faults.AtExecution, faults.AtAnswer, faults.AtReport) {
		f.path = faultyCommands{f}
	}
	if in.Any(faults.AtDoorbell) {
		f.bells = lossyBells{f}
	}
	if in.Any(faults.AtInterrupt) && f.host != nil {
		f.interrupts = lossyInterrupts{f.host, f}
	}
	if in.Any(faults.AtEvent) {
		f.events.Writer = lossyEvents{f.events, f}
	}
	if in.Any(faults.AtCompletion) {
		f.env.Filter = lossyCompletions{f}
	}
	f.composeReads()
}

// Inject adds the faults and latencies of a plan, which starts now.
func (c *Card) Inject(p faults.Plan) error {
	if err := p.Check(); err != nil {
		return fmt.Errorf("inject: %w", err)
	}
	var err error
	c.do(func() { err = c.addFaults(p) })
	return err
}

// Faults reports what became of every fault that the card was given.
func (c *Card) Faults() []faults.Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.faults.Reports()
}

// addFaults takes over a checked plan. c.now is right.
func (c *Card) addFaults(p faults.Plan) error {
	for i := range p.Faults {
		for _, n := range p.Faults[i].Functions {
			if n >= len(c.functions) {
				return fmt.Errorf("fault %d is for function %d: the card has %d", i+1, n, len(c.functions))
			}
		}
	}
	if !c.faults.Add(p, c.now) {
		return fmt.Errorf("%d faults more: a card is given %d at most", len(p.Faults), faults.Limit)
	}
	if c.config.Latency == nil {
		c.config.Latency = make(map[uint16]Latency, len(p.Latency))
	}
	for op, l := range p.Latency {
		c.config.Latency[uint16(op)] = l
	}
	if p.Other != nil {
		c.config.OtherLatency = *p.Other
	}
	for _, f := range c.functions {
		f.compose()
	}
	c.startStates()
	return nil
}

// strike asks whether a step of the function goes wrong, and notes it.
func (f *function) strike(at faults.Point, s *faults.Subject) *faults.Fault {
	s.Function = f.index
	hit := f.card.faults.Strike(at, s, f.card.now)
	if hit != nil {
		f.noteFault(hit)
	}
	return hit
}

func (f *function) noteFault(hit *faults.Fault) {
	name := string(hit.Kind)
	if hit.Name != "" {
		name = hit.Name
	}
	if f.log.On() {
		f.log.Note("fault: " + name)
	}
	f.print.Info("fault", "name", name)
}

// later calls fn in the engine after d, unless the function has been reset by then.
func (f *function) later(d time.Duration, fn func()) {
	life := f.states.life
	t := &timer{}
	t.fire = func() {
		if f.states.life == life {
			fn()
		}
	}
	f.card.timers.arm(t, f.card.now+d)
}

// faultyCommands is firmware that treats commands badly.
type faultyCommands struct{ *function }

// subject describes the command in slot i, as its entry says.
func (w faultyCommands) subject(i int) faults.Subject {
	s := faults.Subject{Slot: i}
	var b [2]byte
	if w.mem != nil && w.mem.ReadAt(b[:], w.executor.base+uint64(i)<<logCmdqStride+0x10) == nil {
		s.Opcode = prm.Opcode(binary.BigEndian.Uint16(b[:]))
	}
	return s
}

func (w faultyCommands) startCommand(i int) {
	f, s := w.function, &w.states
	s.asked &^= 1 << i
	s.checked &^= 1 << i
	if s.hung {
		s.unstarted |= 1 << i
		return
	}
	subject := w.subject(i)
	subject.Doorbell = faults.CommandBell
	if hit := f.strike(faults.AtCommand, &subject); hit != nil {
		if hit.Kind == faults.LostDoorbell {
			return
		}
		f.beginState(hit)
		if !f.executor.live || f.mem == nil {
			return
		}
		if s.hung {
			s.unstarted |= 1 << i
			return
		}
	}
	f.startCommand(i)
}

func (w faultyCommands) finishCommand(i int) {
	f, s := w.function, &w.states
	if s.hung {
		s.unfinished |= 1 << i
		f.executor.partly &^= 1 << i
		return
	}
	if f.enter(); s.asked>>i&1 == 0 {
		s.asked |= 1 << i
		subject := w.subject(i)
		if hit := f.strike(faults.AtEnd, &subject); hit != nil {
			switch hit.Kind {
			case faults.Late:
				f.card.timers.arm(&f.executor.slots[i].timer, f.card.now+hit.Delay)
			case faults.BadDelivery:
				w.undelivered(i, hit.Delivery)
			}
			return
		}
	}
	f.finishCommand(i)
}

// undelivered hands a command back as one that could not be read.
func (w faultyCommands) undelivered(i int, d prm.DeliveryStatus) {
	f := w.function
	if d == prm.DeliveryOK {
		d = prm.DeliveryFirmwareInternal
	}
	s := &f.executor.slots[i]
	f.log.CommandOut(i, 0, nil, uint8(d), "fault")
	f.executor.running &^= 1 << i
	if f.mem == nil || s.HandBack(f.mem, command.Last{Delivery: d}, f.executor.isSigned(i)) != nil {
		return
	}
	f.path.commandEvent(i)
}

func (w faultyCommands) check(i int, call *command.Call) (command.Entry, command.Result) {
	s := &w.states
	if s.checked>>i&1 == 0 {
		s.checked |= 1 << i
		subject := faults.Subject{Slot: i, Opcode: call.Op}
		if hit := w.strike(faults.AtExecution, &subject); hit != nil {
			r := command.Result{Status: hit.Status, Syndrome: hit.Syndrome, Why: "fault"}
			if r.OK() {
				r.Status = prm.StatusInternalError
			}
			return command.Entry{}, r
		}
	}
	return w.function.check(i, call)
}

// wrongBits are what is XORed into a byte to make it wrong.
const wrongBits = 0x55

func (w faultyCommands) writeAnswer(i int, d prm.DeliveryStatus, signatures bool) error {
	s := &w.executor.slots[i]
	subject := w.subject(i)
	hit := w.strike(faults.AtAnswer, &subject)
	if hit == nil {
		return w.function.writeAnswer(i, d, signatures)
	}
	last := command.Last{Delivery: d}
	limit := len(s.Out)
	if hit.Kind == faults.HalfOutput {
		limit /= 2
		if hit.Bytes != 0 {
			limit = hit.Bytes
		}
		if signatures && limit < min(command.Inline, len(s.Out)) {
			last.Signature = wrongBits
		}
	}
	if err := s.WriteOutput(w.mem, limit, signatures); err != nil {
		return err
	}
	switch hit.Kind {
	case faults.BadToken:
		if !s.Spoil(w.mem, command.TokenByte, wrongBits) {
			last.Token = wrongBits
		}
	case faults.BadSignature:
		s.Spoil(w.mem, command.SignatureByte, wrongBits)
		last.Signature = wrongBits
	}
	return s.HandBack(w.mem, last, signatures)
}

func (w faultyCommands) commandEvent(i int) {
	f := w.function
	subject := w.subject(i)
	hit := f.strike(faults.AtReport, &subject)
	switch {
	case hit == nil:
		f.commandEvent(i)
	case hit.Kind == faults.WrongSlot:
		to := hit.To
		if to == 0 {
			to = (i + 1) % slots
		}
		f.commandEvent(to)
	default: // a ghost follows
		f.commandEvent(i)
		f.later(hit.Delay, func() {
			f.enter()
			f.commandEvent(i)
		})
	}
}
