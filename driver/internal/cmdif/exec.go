package cmdif

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"cxkit/dma"
	"cxkit/prm"
	"cxkit/trace"
)

// Command queue entry, 01-commands §1.
const (
	entrySize    = 64
	entryInLen   = 0x04
	entryInBox   = 0x08
	entryIn      = 0x10
	entryOut     = 0x20
	entryOutBox  = 0x30
	entryOutLen  = 0x38
	entryControl = 0x3C // token, signature, 0, delivery status and ownership

	typePCI   = 0x07
	ownDevice = 1
)

const (
	// pollSpins is how often a poller yields before it sleeps, eventSpins how often one who waits for an
	// event does: firmware that needs no time is done meanwhile, and to be woken on another processor
	// takes longer than the command.
	pollSpins  = 64
	eventSpins = 32
	// pollShort and pollLong bound a poller's sleep: an eighth of the time the command has taken so far.
	pollShort = 20 * time.Microsecond
	pollLong  = 50 * time.Millisecond
	// keepScratch is how large a slot's copy buffer may stay after a command.
	keepScratch = 64 << 10
)

func pollPause(taken time.Duration) time.Duration {
	return max(pollShort, min(pollLong, taken/8))
}

// Exec runs a command and waits for its end. On nil out holds the output; else out is as it was and the
// error is a *prm.CommandError (executed and refused; errors.Is compares its status), *DeliveryError,
// *ProtocolError or *NoAnswerError, or says that there were no mailboxes. When ctx ends, or
// Config.Timeout, while firmware owns the command, the slot stays out of use until firmware completes it.
//
// When the device is down, commands that end objects, or the use of the device, return nil: see Run.
//
// Event handlers must not call Exec.
func (c *Interface) Exec(ctx context.Context, in In, out Out) error {
	_, err := c.run(ctx, in, out, user{})
	return err
}

// Run is Exec that says who answered a command that succeeded.
func (c *Interface) Run(ctx context.Context, in In, out Out) (Outcome, error) {
	return c.run(ctx, in, out, user{})
}

// caller runs commands for a user context.
type caller struct {
	c    *Interface
	user user
}

func (x *caller) Exec(ctx context.Context, in In, out Out) error {
	_, err := x.c.run(ctx, in, out, x.user)
	return err
}

// Start is Interface.Start for the user context.
func (x *caller) Start(in In, out Out, notify func(error)) error {
	return x.c.start(in, out, x.user, notify)
}

func (c *Interface) run(ctx context.Context, in In, out Out, u user) (Outcome, error) {
	op := in.Opcode()
	emulate, err := c.gate(op)
	if !emulate && err == nil {
		err = c.execute(ctx, in, out, u)
		c.leave()
		emulate = err != nil && errors.Is(err, ErrDown) && !Issued(err) && emulated(op)
	}
	if emulate {
		return Emulated, c.settle(op, out, nil, true)
	}
	return Answered, err
}

// execute runs a command that the gate let in.
func (c *Interface) execute(ctx context.Context, in In, out Out, u user) error {
	begin := time.Now()
	op := in.Opcode()
	l := c.laneOf(op)
	if lim := c.limitOf(op, u); lim != nil && l == &c.general {
		if err := c.enter(ctx, lim, false); err != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.refused(Command{Op: op}, time.Since(begin), err)
		}
		defer c.exit(lim)
	}
	var s *slot
	var err error
	if c.config.Submit == SubmitQueue && l == &c.general {
		s, err = c.enqueue(ctx, in, out, u, begin)
	} else {
		s, err = c.issue(ctx, in, out, u, begin, nil)
	}
	if err != nil {
		return err
	}
	if cpu := c.config.PageCPU; cpu != nil && l == &c.pages {
		cpu.Unlock()
		err = c.wait(ctx, s)
		cpu.Lock()
	} else {
		err = c.wait(ctx, s)
	}
	if err != nil {
		return err
	}
	err = c.answer(s, out)
	c.release(s)
	return err
}

// laneOf is the slots that an opcode's commands use.
func (c *Interface) laneOf(op prm.Opcode) *lane {
	if op == prm.OpManagePages {
		return &c.pages
	}
	return &c.general
}

// issue takes a slot and hands the command to firmware. On an error the slot is free again.
func (c *Interface) issue(ctx context.Context, in In, out Out, u user, begin time.Time, t *item) (*slot, error) {
	s, err := c.acquire(ctx, c.laneOf(in.Opcode()), in.Opcode(), begin)
	if err != nil {
		return nil, err
	}
	if err := c.build(s, in, out, u); err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.inFlight--
		c.opcode(s.command.Op).fail(err)
		c.pass(s)
		return nil, err
	}
	return s, c.post(ctx, s, t)
}

// acquire takes a slot of the lane, waiting in line for at most Timeout. The line for the page slot has no
// time-out of its own, as in Linux: it moves when the command in front ends, or is refused when it gets
// stuck.
func (c *Interface) acquire(ctx context.Context, l *lane, op prm.Opcode, begin time.Time) (*slot, error) {
	c.mu.Lock()
	defer c.unlock()
	if l.stuck != 0 {
		c.sweep(l)
	}
	i := -1
	var err error
	switch {
	case c.dead != nil:
		err = c.dead
	case l.waiting == 0 && l.free != 0:
		i = l.take()
	case l.stuck == l.slots:
		err = ErrStuck
	default:
		t := c.ticket()
		l.join(t)
		patience := c.timeout()
		if l == &c.pages {
			patience = 0
		}
		c.mu.Unlock()
		var served bool
		served, err = c.await(ctx, &l.line, t, patience) // takes mu
		if served {
			i = t.slot
			if err == nil {
				err = t.err
			} else if i >= 0 { // given up, and served at the same moment
				c.slots[i].state = filling
				c.pass(&c.slots[i])
			}
		}
		c.tear(t)
	}
	if err != nil {
		return nil, c.refused(Command{Op: op}, time.Since(begin), err)
	}
	s := &c.slots[i]
	s.state = filling
	s.start = time.Now()
	c.inFlight++
	c.slotWait.Add(s.start.Sub(begin))
	return s, nil
}

// build encodes the input and makes both mailbox chains.
func (c *Interface) build(s *slot, in In, out Out, u user) error {
	s.inLen, s.outLen = in.Len(), out.Len()
	s.scratch = slices.Grow(s.scratch[:0], max(s.inLen, s.outLen, inline))
	msg := s.scratch[:s.inLen]
	in.Put(msg)
	s.command = Command{Op: in.Opcode()}
	if s.inLen >= 8 {
		s.command.OpMod = binary.BigEndian.Uint16(msg[6:])
		if u.uid != 0 {
			binary.BigEndian.PutUint16(msg[2:], u.uid)
		}
	}
	var err error
	if s.in, err = c.pool.get(s.in[:0], blocksFor(s.inLen)); err == nil {
		s.out, err = c.pool.get(s.out[:0], blocksFor(s.outLen))
	}
	if err != nil {
		return fmt.Errorf("%v: %w", s.command, err)
	}
	return nil
}

// post hands the command to firmware. On an error the slot is released.
func (c *Interface) post(ctx context.Context, s *slot, t *item) error {
	c.mu.Lock()
	s.token = c.tokens.take()
	c.mu.Unlock()
	s.signed = c.signatures.Load()

	msg := s.scratch[:s.inLen]
	if len(s.in)+len(s.out) > 0 {
		boxes := c.pool.view()
		boxes.link(s.in, s.token)
		boxes.link(s.out, s.token)
		boxes.scatter(s.in, msg[min(inline, len(msg)):])
		boxes.scatter(s.out, nil)
		if s.signed {
			boxes.sign(s.in)
			boxes.sign(s.out)
		}
	}
	c.entry(s, msg)
	// The signature makes the entry's bytes XOR to 0xFF. Linux sends it always; real parts check it only
	// while the checksum capability is on.
	sign := ^(xor8(s.entry[:entryControl]) ^ s.token ^ ownDevice)
	control := uint32(s.token)<<24 | uint32(sign)<<16 | ownDevice
	select {
	case <-s.wake: // from an earlier command
	default:
	}

	c.mu.Lock()
	err := c.dead
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		defer c.mu.Unlock()
		c.inFlight--
		err = c.refused(s.command, time.Since(s.start), err)
		c.pass(s)
		return err
	}
	c.counts.Issued++
	s.event = c.recover != nil
	s.seen = time.Time{}
	s.start = time.Now()
	s.item = t
	// Partner: the device loads the control word, then reads the rest of the entry and the mailboxes.
	dma.StoreBE32(s.entry, entryControl, control)
	s.state = posted
	// With the flag set and the lock free, the command may end at any moment: a callback command's slot is
	// not ours any more.
	index, op := s.index, s.command.Op
	if t == nil || !c.config.Trace.On() {
		c.mu.Unlock()
		if t == nil {
			c.config.Trace.CommandIn(index, uint16(op), msg, "")
		}
	} else {
		c.config.Trace.CommandIn(index, uint16(op), msg, "")
		c.mu.Unlock()
	}
	c.config.Trace.Doorbell(trace.BellCommand, 0, 1<<index)
	c.config.Window.Store32(regDoorbell, 1<<index)
	if t != nil {
		c.mu.Lock()
		c.attend()
		c.mu.Unlock()
	}
	return nil
}

// entry writes the entry but for its control word.
func (c *Interface) entry(s *slot, msg []byte) {
	e := s.entry
	clear(e[:entryControl])
	e[0] = typePCI
	binary.BigEndian.PutUint32(e[entryInLen:], uint32(s.inLen))
	copy(e[entryIn:entryIn+inline], msg)
	binary.BigEndian.PutUint32(e[entryOutLen:], uint32(s.outLen))
	if len(s.in)+len(s.out) > 0 {
		boxes := c.pool.view()
		binary.BigEndian.PutUint64(e[entryInBox:], boxes.bus0(s.in))
		binary.BigEndian.PutUint64(e[entryOutBox:], boxes.bus0(s.out))
	}
}

// returned tells whether firmware has given the entry back.
func (s *slot) returned() bool { return dma.LoadBE32(s.entry, entryControl)&ownDevice == 0 }

// wait returns nil when firmware has completed the command; on an error the slot is no longer the
// caller's.
func (c *Interface) wait(ctx context.Context, s *slot) error {
	for spins := 0; ; spins++ {
		c.mu.Lock()
		polling := !s.event || c.recover == nil
		if polling && s.state == posted && s.returned() {
			s.state, s.end = done, time.Now()
		}
		now := s.state
		deadline, look := s.start.Add(c.timeout()), c.untilLook(s)
		c.mu.Unlock()
		switch now {
		case done:
			return nil
		case flushed:
			return c.abandon(s, Flushed, c.deadReason())
		}
		if spins < eventSpins || polling && spins < pollSpins {
			runtime.Gosched()
			continue
		}
		left := time.Until(deadline)
		if left <= 0 {
			return c.expire(s, ErrTimeout)
		}
		if polling {
			left = min(left, pollPause(time.Since(s.start)))
		} else {
			left = min(left, look)
		}
		s.timer.Reset(left)
		select {
		case <-s.wake:
		case <-s.timer.C:
			if c.overdue(s) {
				return c.expire(s, ErrTimeout)
			}
		case <-ctx.Done():
			s.timer.Stop()
			if !polling {
				c.confirm(s)
			}
			return c.expire(s, ctx.Err())
		}
		s.timer.Stop()
	}
}

func (c *Interface) deadReason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}

// release gives the slot of a command that ended with an answer to the next in line.
func (c *Interface) release(s *slot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight--
	c.pass(s)
}

// pass frees what the slot holds and hands it to the next in line. Runs with mu held; firmware does not
// own the slot.
func (c *Interface) pass(s *slot) {
	c.pool.put(s.in)
	c.pool.put(s.out)
	s.in, s.out = s.in[:0], s.out[:0]
	if s.token != 0 {
		c.tokens.put(s.token)
		s.token = 0
	}
	if cap(s.scratch) > keepScratch {
		s.scratch = nil
	}
	s.item = nil
	s.state = filling
	if s.lane.serve(s.index, nil) {
		return
	}
	s.state = free
	s.lane.free |= 1 << s.index
}

// answer copies the output, checks it and decodes it.
func (c *Interface) answer(s *slot, out Out) error {
	control := dma.LoadBE32(s.entry, entryControl)
	var entry [entrySize]byte
	copy(entry[:], s.entry)
	copy(s.header[:], entry[entryOut:])
	length := binary.BigEndian.Uint32(entry[entryOutLen:])
	delivery := prm.DeliveryStatus(control >> 1 & 0x7F)
	msg := s.scratch[:max(s.outLen, inline)]
	copy(msg, s.header[:])
	msg = msg[:s.outLen]

	var err error
	switch {
	case uint8(control>>24) != s.token:
		err = &ProtocolError{Command: s.command, What: fmt.Sprintf("entry has token %#x, not %#x", control>>24, s.token)}
	case s.signed && xor8(entry[:]) != 0xFF:
		err = &ProtocolError{Command: s.command, What: "entry: signature error", Err: ErrSignature}
	case delivery != 0:
		err = &DeliveryError{s.command, delivery}
	case length > uint32(s.outLen):
		err = &ProtocolError{Command: s.command, What: fmt.Sprintf("output of %d bytes, %d were asked for", length, s.outLen)}
	default:
		if e := c.gather(s, msg); e != nil {
			p := &ProtocolError{Command: s.command, What: e.Error()}
			if errors.Is(e, ErrSignature) {
				p.Err = ErrSignature
			}
			err = p
		} else if status := prm.Status(s.header[0]); status != 0 {
			err = &prm.CommandError{Op: s.command.Op, OpMod: s.command.OpMod, Status: status, Syndrome: binary.BigEndian.Uint32(s.header[4:])}
		}
	}
	c.account(s, err)
	if c.config.Trace.On() {
		why := ""
		if err != nil {
			why = err.Error()
		}
		c.config.Trace.CommandOut(s.index, uint16(s.command.Op), msg, uint8(delivery), why)
	}
	if err == nil {
		out.Get(msg)
	}
	return err
}

// gather reads what of the output is in mailboxes.
func (c *Interface) gather(s *slot, msg []byte) error {
	if len(s.out) == 0 {
		return nil
	}
	return c.pool.view().gather(s.out, msg[min(inline, len(msg)):], s.token, s.signed)
}
