package driver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cxkit/driver/internal/cmdif"
	"cxkit/prm"
	"cxkit/stats"
)

// Submit is who hands a blocking firmware command to the card.
type Submit = cmdif.Submit

const (
	// SubmitCaller: its caller does, in its own goroutine; the ordered queue is left to commands that
	// nobody waits for.
	SubmitCaller = cmdif.SubmitCaller
	// SubmitQueue: all commands but page commands go through the NIC's ordered queue, first in, first out,
	// as in Linux before "Cut workqueue traffic of firmware commands and stats".
	SubmitQueue = cmdif.SubmitQueue
)

// WorkPool is what the ordered queues of several NICs have in common: a lock. The zero value is ready.
type WorkPool = cmdif.WorkPool

// MailboxPool is how command mailboxes are found.
type MailboxPool = cmdif.PoolKind

const (
	// MailboxPoolConstant costs the same however many mailboxes are out.
	MailboxPoolConstant = cmdif.PoolConstant
	// MailboxPoolLinear searches a list of pages, three mailboxes each, as Linux did before v6.4.
	MailboxPoolLinear = cmdif.PoolLinear
)

// CommandStats returns what the NIC's firmware commands have done: for each opcode how many, what became
// of them and how long they took; the work items that its queue counted; slots and mailboxes.
func (n *NIC) CommandStats() stats.Commands { return n.hca.Commands() }

// Health returns what is known of the card's health: the heartbeat, and two reporters with devlink's
// names, "fw" for what the card survives and "fw_fatal" for what ended the NIC. It asks the card nothing.
func (n *NIC) Health() stats.Health { return n.hca.Health() }

// Exec runs a firmware command and waits for its end: in and out are structures of package prm, as
// &prm.QueryVportCounterIn{} and &prm.QueryVportCounterOut{}. Objects made with it are destroyed by their
// own commands, or named by Close. The errors are described at NoAnswerError. It is for tools and
// experiments; a NIC's own methods cover its use.
func (n *NIC) Exec(ctx context.Context, in CommandIn, out CommandOut) error {
	return n.base.objects.Exec(ctx, in, out)
}

// CommandIn is the input of a command, CommandOut its output.
type (
	CommandIn  = cmdif.In
	CommandOut = cmdif.Out
)

// Errno names the error number that Linux makes of a command's error, "ETIMEDOUT" or "EAGAIN". Status and
// syndrome of a command that firmware refused are in the *prm.CommandError.
func Errno(err error) string { return cmdif.Errno(err) }

// Reset brings a NIC back whose card has failed, or is to be started afresh: it closes the NIC, resets the
// function and opens it again with the same configuration. It returns the new NIC, whose Health remembers
// the old one's errors and whose counters go on from the old one's. Queues and buffers of the old NIC end with it; their owners have stopped using
// them, and go on with the new NIC's queues. The card does not restart by itself: an application decides
// whether it can go on (Failed tells it that it must), and what of its state it sets up again (addresses
// added, VLANs).
//
// ctx bounds it. On an error there is no NIC; the function can still be opened if the error is not a
// *LeftoverError whose Memory is set.
func (n *NIC) Reset(ctx context.Context) (*NIC, error) {
	n.log.Warn("handling bad device here")
	n.hca.RequestReset(ctx)
	var left *LeftoverError
	err := n.Close(ctx)
	switch {
	case errors.As(err, &left) && left.Memory != nil:
		return nil, fmt.Errorf("health recovery failed: %w", err)
	case err != nil:
		n.log.Warn("closed for recovery", "err", err) // a device that failed gives little back
	}
	if err := n.waitPCI(ctx); err != nil {
		n.log.Error("health recovery flow aborted, PCI reads still not working")
		return nil, fmt.Errorf("health recovery aborted: %w", err)
	}
	n.log.Error("starting health recovery flow")
	config := n.Config()
	next, err := Open(ctx, n.base.function, config)
	if err != nil {
		n.log.Error("health recovery failed")
		return nil, fmt.Errorf("health recovery failed: %w", err)
	}
	next.hca.Inherit(n.hca)
	next.inheritStats(n)
	n.log.Info("health recovery succeeded")
	return next, nil
}

// waitPCI waits until the card's registers can be read again: as long as a firmware reset takes (Linux
// lib/tout.c FW_RESET).
func (n *NIC) waitPCI(ctx context.Context) error {
	const limit = 60 * time.Second
	const gone = ^uint32(0)
	for begin := time.Now(); ; {
		w, err := n.base.function.Window(0)
		if err != nil {
			return err
		}
		if w.Load32(prm.InitSegHealthOff+prm.HealthBufferFWVerOff) != gone {
			return nil
		}
		if time.Since(begin) >= limit {
			return fmt.Errorf("after %v: %w", limit, ErrGone)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
