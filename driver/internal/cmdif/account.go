package cmdif

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"cxkit/prm"
	"cxkit/stats"
)

// tally is what became of one opcode's commands. Guarded by Interface.mu.
type tally struct{ stats.Command }

// opcode returns the tally of an opcode. Runs with mu held.
func (c *Interface) opcode(op prm.Opcode) *tally {
	t := c.tallies[op]
	if t == nil {
		t = &tally{stats.Command{Opcode: uint16(op), Name: op.String()}}
		c.tallies[op] = t
	}
	return t
}

// fail counts a command that did not succeed.
func (t *tally) fail(err error) {
	t.Failed++
	t.LastErrno = Errno(err)
	var refused *prm.CommandError
	if errors.As(err, &refused) {
		t.FailedStatus++
		t.LastStatus, t.LastSyndrome = uint8(refused.Status), refused.Syndrome
		return
	}
	t.FailedTransport++
	t.LastStatus, t.LastSyndrome = 0, 0
}

// account counts a command that was answered, and logs what mlx5_core would log.
func (c *Interface) account(s *slot, err error) {
	c.mu.Lock()
	t := c.opcode(s.command.Op)
	took := max(0, s.end.Sub(s.start))
	t.Count++
	t.Total += took
	t.Slowest = max(t.Slowest, took)
	t.Latency.Add(took)
	switch err.(type) {
	case nil:
		c.mu.Unlock()
		return
	case *prm.CommandError:
		c.counts.Refused++
	case *DeliveryError:
		c.counts.BadDelivery++
	case *ProtocolError:
		c.counts.BadAnswers++
	}
	t.fail(err)
	c.mu.Unlock()
	c.log.rare(err.Error())
}

// refused makes and counts the error of a command that firmware has never seen. Runs with mu held.
func (c *Interface) refused(cmd Command, after time.Duration, why error) error {
	c.counts.NeverIssued++
	err := &NoAnswerError{Command: cmd, Slot: -1, Cause: NeverIssued, After: after, Err: why}
	c.opcode(cmd.Op).fail(err)
	return err
}

// Stats returns the interface at this time.
func (c *Interface) Stats() stats.Commands {
	s := stats.Commands{Time: time.Now(), Queue: c.work.snapshot(), Mailbox: c.pool.snapshot()}
	c.mu.Lock()
	defer c.unlock()
	c.sweep(&c.general)
	c.sweep(&c.pages)
	for _, t := range c.tallies {
		s.Opcodes = append(s.Opcodes, t.Command)
	}
	slices.SortFunc(s.Opcodes, func(a, b stats.Command) int { return cmp.Compare(a.Opcode, b.Opcode) })
	s.SlotWait = c.slotWait
	s.Issued, s.NeverIssued, s.NoAnswer = c.counts.Issued, c.counts.NeverIssued, c.counts.NoAnswer
	s.LostInterrupts, s.LostEvents = c.counts.LostInterrupts, c.counts.LostEvents
	s.LateCompletions, s.SpuriousEvents = c.counts.LateCompletions, c.counts.SpuriousEvents
	s.Slots, s.InFlight, s.Stuck = len(c.slots), c.inFlight, c.stuckSlots()
	s.Mode = "polling"
	if c.recover != nil {
		s.Mode = "events"
	}
	return s
}

// stuckSlots lists the quarantined slots. Runs with mu held.
func (c *Interface) stuckSlots() (list []int) {
	for i := range c.slots {
		if c.slots[i].state == stuck {
			list = append(list, i)
		}
	}
	return list
}

const (
	// rareBurst messages are logged in each rareInterval, the rest are counted (Linux printk_ratelimited).
	rareBurst    = 10
	rareInterval = 5 * time.Second
)

// logger prints what mlx5_core does.
type logger struct {
	*slog.Logger

	mu      sync.Mutex // guards all below
	since   time.Time
	printed int
	missed  int
}

func (l *logger) warn(msg string, args ...any) {
	l.Log(context.Background(), slog.LevelWarn, msg, args...)
}
func (l *logger) error(msg string, args ...any) {
	l.Log(context.Background(), slog.LevelError, msg, args...)
}

// rare logs an error that a busy caller could repeat thousands of times a second.
func (l *logger) rare(msg string) {
	l.mu.Lock()
	now := time.Now()
	missed := 0
	if now.Sub(l.since) >= rareInterval {
		missed, l.since, l.printed, l.missed = l.missed, now, 0, 0
	}
	print := l.printed < rareBurst
	if print {
		l.printed++
	} else {
		l.missed++
	}
	l.mu.Unlock()
	if missed > 0 {
		l.warn(fmt.Sprintf("%d callbacks suppressed", missed))
	}
	if print {
		l.error(msg)
	}
}
