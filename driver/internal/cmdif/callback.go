package cmdif

import (
	"context"
	"errors"
	"time"

	"cxkit/prm"
)

// Start runs a command whose end is reported to notify, and does not wait: not for firmware, not for a
// slot. On an error notify is never called; else it is called exactly once, with what Exec would have
// returned, and out is the interface's until then. in and out must not be touched before.
//
// The command goes through the ordered queue, first in, first out. It may wait Timeout for a slot, then
// Timeout for firmware. Where commands of its kind are limited and the limit is reached, Start returns
// ErrBusy: the caller goes on when an earlier command has ended. MANAGE_PAGES has no callback form.
//
// notify runs on a goroutine of the interface, one call at a time. It may call Start, and must neither
// block nor call Exec: it would keep other callbacks back. Event handlers may call Start.
func (c *Interface) Start(in In, out Out, notify func(error)) error {
	return c.start(in, out, user{}, notify)
}

func (c *Interface) start(in In, out Out, u user, notify func(error)) error {
	op := in.Opcode()
	if c.laneOf(op) == &c.pages {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.refused(Command{Op: op}, 0, ErrNoCallback)
	}
	c.mu.Lock()
	emulate, err := c.check(op)
	if emulate && c.closing {
		err = c.refused(Command{Op: op}, 0, c.dead)
	}
	if err != nil {
		c.mu.Unlock()
		return err
	}
	c.callbacks++
	c.mu.Unlock()
	l := c.limitOf(op, u)
	if emulate {
		l = nil
	}
	if l != nil {
		if err := c.enter(context.Background(), l, true); err != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.callbacks--
			return c.refused(Command{Op: op}, 0, err)
		}
	}
	t := c.item()
	t.ctx, t.in, t.out, t.user, t.begin, t.notify, t.limit = context.Background(), in, out, u, time.Now(), notify, l
	c.work.add(t)
	return nil
}

// handleCallback issues a callback command; its end comes later, or now if there was an error.
func (c *Interface) handleCallback(t *item) {
	op := t.in.Opcode()
	c.mu.Lock()
	emulate, err := c.check(op)
	c.mu.Unlock()
	if emulate || err != nil {
		c.conclude(t, c.settle(op, t.out, err, emulate))
		return
	}
	if _, err := c.issue(t.ctx, t.in, t.out, t.user, t.begin, t); err != nil {
		c.conclude(t, c.settle(op, t.out, err, false))
	}
}

// conclude ends a callback command: what it held is free before its owner hears of it.
func (c *Interface) conclude(t *item, err error) {
	notify := t.notify
	c.exit(t.limit)
	c.recycle(t)
	notify(err)
	c.mu.Lock()
	c.callbacks--
	c.mu.Unlock()
}

// attend starts the goroutine that waits for callback commands if it does not run. Runs with mu held.
func (c *Interface) attend() {
	if c.attended {
		c.ring()
		return
	}
	c.attended = true
	c.group.Go(c.finishCallbacks)
}

// ring makes finishCallbacks look again.
func (c *Interface) ring() {
	select {
	case c.bell <- struct{}{}:
	default:
	}
}

// finishCallbacks ends callback commands as firmware completes them, as their time is over, or as the
// device is given up. It runs while there are any.
func (c *Interface) finishCallbacks() {
	timer := stoppedTimer()
	defer timer.Stop()
	for {
		c.mu.Lock()
		s, wait := c.nextCallback()
		if s == nil && wait == 0 {
			c.attended = false
			c.mu.Unlock()
			return
		}
		now := free
		if s != nil {
			now = s.state
		}
		c.mu.Unlock()
		if s == nil {
			timer.Reset(wait)
			select {
			case <-c.bell:
			case <-timer.C:
			}
			timer.Stop()
			continue
		}
		t := s.item
		var err error
		switch now {
		case flushed:
			err = c.abandon(s, Flushed, c.deadReason())
		case posted:
			err = c.expire(s, ErrTimeout)
		}
		if err == nil {
			err = c.answer(s, t.out)
			c.release(s)
		}
		c.conclude(t, err)
	}
}

// nextCallback returns a callback command's slot that needs something done, or how long to wait before
// the next may; both are 0 if there is none. Runs with mu held.
func (c *Interface) nextCallback() (*slot, time.Duration) {
	var wait time.Duration
	for i := range c.slots {
		s := &c.slots[i]
		if s.item == nil {
			continue
		}
		polling := !s.event || c.recover == nil
		if s.state == posted && polling && s.returned() {
			s.state, s.end = done, time.Now()
		}
		left := time.Until(s.start.Add(c.timeout()))
		switch {
		case s.state == done || s.state == flushed || s.state == posted && (left <= 0 || !polling && c.trusted(s) && c.due(s)):
			return s, 0
		case s.state != posted:
			continue
		case polling:
			left = min(left, pollPause(time.Since(s.start)))
		default:
			left = min(left, c.untilLook(s))
		}
		if wait == 0 || left < wait {
			wait = left
		}
	}
	return nil, wait
}

// settle turns what became of a command that never had a slot into its result.
func (c *Interface) settle(op prm.Opcode, out Out, err error, emulate bool) error {
	if !emulate && errors.Is(err, ErrDown) && !Issued(err) && emulated(op) {
		emulate = true // the device went down while the command waited
	}
	if !emulate {
		return err
	}
	zero(out)
	c.mu.Lock()
	c.opcode(op).Emulated++
	c.mu.Unlock()
	return nil
}
