package cmdif

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cxkit/prm"
)

// Command names a command: its opcode, and the op_mod that selects a variant of it.
type Command struct {
	Op    prm.Opcode
	OpMod uint16
}

// String is the command as mlx5_core's messages name it.
func (c Command) String() string {
	return fmt.Sprintf("%s op_mod(0x%x)", c.Op.LinuxString(), c.OpMod)
}

// DeliveryError: the device could not read the command or could not answer; it did not execute it.
type DeliveryError struct {
	Command
	Delivery prm.DeliveryStatus
}

func (e *DeliveryError) Error() string {
	return fmt.Sprintf("%v was not delivered: %v(%#x)", e.Command, e.Delivery, uint8(e.Delivery))
}

// ProtocolError: the device's answer breaks the rules of the interface; nothing in it was used.
type ProtocolError struct {
	Command
	What string
	Err  error // ErrSignature, or nil
}

func (e *ProtocolError) Error() string { return fmt.Sprintf("%v: bad answer: %s", e.Command, e.What) }

func (e *ProtocolError) Unwrap() error { return e.Err }

// Cause says what the driver found when a command was not completed in time. With a NoAnswerError it is
// why there is no answer; InterruptLost and EventLost are causes of delay only: those commands succeed.
type Cause uint8

const (
	// NeverIssued: the command got no slot, or its slot was never posted; firmware has not seen it.
	NeverIssued Cause = iota + 1
	// FirmwareSilent: firmware owns the command and did not complete it in time. It may still do so.
	FirmwareSilent
	// DeviceGone: the device's registers read as ones.
	DeviceGone
	// Flushed: the driver gave up the device while the command ran.
	Flushed
	// InterfaceError: the device itself says that it is in error: nic_interface is not "full driver", or
	// the health buffer has a syndrome.
	InterfaceError
	// InterruptLost: firmware had completed the command and its event was in the queue.
	InterruptLost
	// EventLost: firmware had completed the command and there was no event.
	EventLost
)

func (c Cause) String() string {
	switch c {
	case NeverIssued:
		return "never issued"
	case FirmwareSilent:
		return "firmware silent"
	case DeviceGone:
		return "device gone"
	case Flushed:
		return "flushed"
	case InterfaceError:
		return "interface in error"
	case InterruptLost:
		return "interrupt lost"
	case EventLost:
		return "EQE lost"
	}
	return fmt.Sprintf("cause(%d)", uint8(c))
}

// NoAnswerError: the command ended without an answer. Unless Cause is NeverIssued firmware may still
// execute it: its slot and mailboxes stay out of use.
type NoAnswerError struct {
	Command
	Slot  int // -1 when it had none
	Cause Cause
	After time.Duration
	// Syndrome is what the health buffer said then, HealthOK if nothing.
	Syndrome prm.HealthSyndrome
	Err      error // why waiting ended: the context's error, ErrTimeout, ErrStuck, ErrBusy, ErrDown with the reason
}

func (e *NoAnswerError) Error() string {
	where := ""
	if e.Slot >= 0 {
		where = fmt.Sprintf("cmd[%d]: ", e.Slot)
	}
	return fmt.Sprintf("%s%v no answer after %v: %v: %v", where, e.Command, e.After.Round(time.Microsecond), e.Cause, e.Err)
}

func (e *NoAnswerError) Unwrap() error { return e.Err }

var (
	// ErrTimeout: the command's deadline has passed.
	ErrTimeout = errors.New("command timed out")
	// ErrStuck: every command slot is held by a command that firmware never completed.
	ErrStuck = errors.New("every command slot is stuck")
	// ErrBusy: a callback command would have had to wait for others of its kind.
	ErrBusy = errors.New("too many commands of this kind under way")
	// ErrDown: the command interface has been given up; the error says why, too.
	ErrDown = errors.New("command interface is down")
	// ErrNotAllowed: the interface takes only one opcode at the moment, and it is another.
	ErrNotAllowed = errors.New("command not allowed now")
	// ErrNoCallback: page commands can't be callback commands.
	ErrNoCallback = errors.New("MANAGE_PAGES has no callback form")
	// ErrSignature: an answer's signature is wrong.
	ErrSignature = errors.New("signature error")
	// ErrClosed: the command interface was closed.
	ErrClosed = errors.New("command interface closed")
	// ErrNoMailbox: the mailbox pool has reached its limit or could not grow.
	ErrNoMailbox = errors.New("no mailboxes")
)

// downError is ErrDown and the reason.
type downError struct{ why error }

func (e *downError) Error() string   { return e.why.Error() }
func (e *downError) Unwrap() []error { return []error{ErrDown, e.why} }

// Issued reports whether a command that failed with err may have reached firmware and may have taken, or
// may yet take, effect.
func Issued(err error) bool {
	var n *NoAnswerError
	var p *ProtocolError
	switch {
	case errors.As(err, &n):
		return n.Cause != NeverIssued
	case errors.As(err, &p):
		return true
	}
	return false
}

// Errno names the error number that Linux makes of a command's error, as "ETIMEDOUT"; "OK" for nil. A
// status has the number that cmd_status_to_err gives it, not the EREMOTEIO that stands for all of them.
func Errno(err error) string {
	var refused *prm.CommandError
	var delivery *DeliveryError
	var protocol *ProtocolError
	var silent *NoAnswerError
	switch {
	case err == nil:
		return "OK"
	case errors.As(err, &refused):
		return refused.Status.Errno()
	case errors.As(err, &delivery):
		return "EIO"
	case errors.As(err, &protocol):
		if errors.Is(err, ErrSignature) {
			return "EHWPOISON"
		}
		return "EIO"
	case errors.Is(err, ErrNoMailbox):
		return "ENOMEM"
	case errors.Is(err, ErrNoCallback):
		return "EINVAL"
	case errors.Is(err, ErrBusy):
		return "EBUSY"
	case errors.Is(err, ErrStuck):
		return "EAGAIN"
	case errors.Is(err, ErrDown), errors.Is(err, ErrNotAllowed):
		return "ENXIO"
	case errors.As(err, &silent):
		switch {
		case silent.Cause == NeverIssued:
			return "ECANCELED"
		case errors.Is(err, context.Canceled):
			return "EINTR"
		}
		return "ETIMEDOUT"
	}
	return "EIO"
}
