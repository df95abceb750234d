package cmdif

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cxkit/prm"
)

// A caller trusts for lookAfter that an event comes, then it looks at its slot each such time; a completion
// that is there has confirmAfter for its event. The queues of packets do the same (driver, queue.go). Linux
// looks when the command's time is over, so that each interrupt that is lost costs a minute.
const (
	lookAfter    = time.Second
	confirmAfter = 100 * time.Millisecond
)

// Each loss in a row halves both times, at most so often: where all events are lost, commands take some 20 ms.
const mostHalvings = 6

// halved is a time in view of the losses since the last event that came. Runs with mu held.
func (c *Interface) halved(d time.Duration) time.Duration { return d >> min(c.losses, mostHalvings) }

// untilLook is how long a caller who is to be told by an event sleeps before it looks itself. Runs with mu held.
func (c *Interface) untilLook(s *slot) time.Duration {
	if s.seen.IsZero() {
		return c.halved(lookAfter)
	}
	return max(time.Millisecond, time.Until(s.seen.Add(c.halved(confirmAfter))))
}

// trusted tells that the command's event has had its time to come. Runs with mu held.
func (c *Interface) trusted(s *slot) bool {
	return !s.seen.IsZero() || time.Since(s.start) >= c.halved(lookAfter)
}

// overdue looks at the slot of a caller who is to be told by an event, and tells that the event is lost.
func (c *Interface) overdue(s *slot) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return s.event && c.recover != nil && c.due(s)
}

// confirm gives the event of a command that is complete its time to come, before its caller gives up.
func (c *Interface) confirm(s *slot) {
	c.mu.Lock()
	if s.event && c.recover != nil {
		c.due(s)
	}
	left := time.Until(s.seen.Add(c.halved(confirmAfter)))
	c.mu.Unlock()
	if left <= 0 {
		return // it is not complete, or its time is over
	}
	s.timer.Reset(left)
	select {
	case <-s.wake:
	case <-s.timer.C:
	}
	s.timer.Stop()
}

// due tells that the command of a slot has been complete for a while and no event came. Runs with mu held.
func (c *Interface) due(s *slot) bool {
	if s.state != posted || !s.returned() {
		return false
	}
	if s.seen.IsZero() {
		s.seen = time.Now()
		return false
	}
	return time.Since(s.seen) >= c.halved(confirmAfter)
}

// expire looks once more before the command is given up: for an event whose interrupt was lost, then for
// a completion whose event was lost (Linux 1d5558b1f0de; reports.md R08, R14). It returns nil if the
// command is complete after all. Linux polls the queue and waits five more seconds; the ownership bit
// says at once what that wait is for.
func (c *Interface) expire(s *slot, why error) error {
	c.mu.Lock()
	poll := c.recover
	event := s.event
	losses := c.losses
	c.mu.Unlock()
	found := 0
	if event && poll != nil {
		found = poll()
	}
	c.mu.Lock()
	var lost Cause
	// A caller that gives up early may just be ahead of an interrupt: that is no loss.
	late := event && (errors.Is(why, ErrTimeout) || !s.seen.IsZero() && time.Since(s.seen) >= c.halved(confirmAfter))
	switch {
	case s.state == done && found > 0:
		if late {
			c.counts.LostInterrupts++
			lost = InterruptLost
		}
	case s.state == posted && s.returned():
		s.state, s.end = done, time.Now()
		if late {
			c.counts.LostEvents++
			lost = EventLost
		}
	}
	if lost != 0 {
		c.losses = losses + 1 // an event that a poll found did not come by itself
	}
	finished := s.state == done
	down := s.state == flushed
	c.mu.Unlock()
	if late && found > 0 {
		c.log.warn(fmt.Sprintf("Recovered %d EQEs on cmd_eq", found))
	}
	switch {
	case finished:
		if lost != 0 {
			c.log.warn(fmt.Sprintf("cmd[%d]: %s %srecovered after timeout", s.index, s.command.Op.LinuxString(), s.async()),
				"after", time.Since(s.start), "diagnosis", lost.String())
		}
		return nil
	case down:
		return c.abandon(s, Flushed, c.deadReason())
	}
	cause, syndrome := c.diagnose()
	if errors.Is(why, ErrTimeout) {
		c.printTimeout(s, cause, event)
	}
	return c.giveUp(s, &NoAnswerError{Cause: cause, Syndrome: syndrome, Err: why})
}

// async is how Linux marks callback commands in messages.
func (s *slot) async() string {
	if s.item != nil {
		return "Async, "
	}
	return ""
}

// printTimeout logs what mlx5_core does.
func (c *Interface) printTimeout(s *slot, cause Cause, event bool) {
	name := s.command.Op.LinuxString()
	after := time.Since(s.start)
	if s.item != nil {
		c.log.warn(fmt.Sprintf("cmd[%d]: %s Async, timeout. Will cause a leak of a command resource", s.index, name),
			"after", after, "diagnosis", cause.String())
		return
	}
	if event {
		c.log.warn(fmt.Sprintf("cmd[%d]: %s No done completion", s.index, name))
	}
	c.log.warn(name+" timeout. Will cause a leak of a command resource", "slot", s.index, "after", after, "diagnosis", cause.String())
}

// diagnose asks the device's registers why it does not complete a command that it owns; the syndrome is that
// of the health buffer.
func (c *Interface) diagnose() (Cause, prm.HealthSyndrome) {
	w := c.config.Window
	if w.Load32(regRevision) == allOnes {
		return DeviceGone, prm.HealthOK
	}
	// Whether firmware asks for a reset or not: it reports a failure and does not answer.
	synd := prm.HealthBufferSyndrome(w.Load32(prm.InitSegHealthOff + prm.HealthBufferSyndromeOff)).Synd()
	switch s := prm.InitSegCmdQ(w.Load32(regQueueLow)).NICInterface(); {
	case synd != prm.HealthOK, s == prm.NICInterfaceDisabled, s == prm.NICInterfaceSWReset:
		return InterfaceError, synd
	}
	return FirmwareSilent, prm.HealthOK
}

// abandon ends the caller's part of a command without an answer: the slot is stuck until firmware
// completes the command.
func (c *Interface) abandon(s *slot, cause Cause, why error) error {
	return c.giveUp(s, &NoAnswerError{Cause: cause, Err: why})
}

// giveUp is abandon with the rest of the error.
func (c *Interface) giveUp(s *slot, err *NoAnswerError) error {
	err.Command, err.Slot, err.After = s.command, s.index, time.Since(s.start)
	cause, why := err.Cause, err.Err
	if !errors.Is(why, ErrTimeout) && cause != Flushed {
		c.log.warn(err.Error() + "; its slot is out of use until firmware completes it")
	}
	index := s.index
	c.mu.Lock()
	c.counts.NoAnswer++
	c.opcode(err.Op).fail(err)
	c.inFlight--
	s.state = stuck
	s.item = nil
	s.lane.stuck |= 1 << index
	if s.returned() {
		c.reclaim(s) // between the last look and now
	} else if s.lane.stuck == s.lane.slots {
		s.lane.refuse(ErrStuck)
	}
	// A caller that gave up early says nothing about firmware: the workers that a teardown stops are such.
	if !c.ended.IsZero() && !errors.Is(why, context.Canceled) {
		c.fail(err)
	}
	c.unlock()
	c.config.Trace.CommandOut(index, uint16(err.Op), nil, 0, cause.String())
	return err
}

// sweep takes back stuck slots that firmware has completed. Runs with mu held.
func (c *Interface) sweep(l *lane) {
	for i := range c.slots {
		if s := &c.slots[i]; l.stuck>>i&1 != 0 && s.returned() {
			c.reclaim(s)
		}
	}
}

// reclaim ends the quarantine of a slot that firmware has completed late. Runs with mu held, which is
// given back with unlock.
func (c *Interface) reclaim(s *slot) {
	c.counts.LateCompletions++
	c.late |= 1 << s.index
	s.lane.stuck &^= 1 << s.index
	c.pass(s)
}

// unlock gives mu back and logs the late completions that were found meanwhile: a log handler may take
// its time, or look at this interface.
func (c *Interface) unlock() {
	late := c.late
	c.late = 0
	c.mu.Unlock()
	for i := 0; late != 0; i, late = i+1, late>>1 {
		if late&1 != 0 {
			c.log.error(fmt.Sprintf("Command completion arrived after timeout (entry idx = %d).", i))
		}
	}
}
