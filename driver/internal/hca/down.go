package hca

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cxkit/driver/internal/cmdif"
	"cxkit/driver/internal/object"
)

// Undo is where a user of the HCA registers what it has made, before Down is called: Down takes it back
// first, latest first.
func (h *HCA) Undo() *object.Stack { return &h.undo }

// hastyPatience is how long a teardown waits for a command of firmware that did not answer before, or of a
// user who has asked to stop (Linux lib/tout.c: TEARDOWN, 3 s).
const hastyPatience = 3 * time.Second

// HurryAfter tells, before Down, why a bring-up is taken back: where ctx has ended, or firmware did not
// answer a command, Down does not wait for firmware as long as for one that is well. A device that is known
// to be gone or in error it does not ask anything.
func (h *HCA) HurryAfter(ctx context.Context, err error) {
	var silent *cmdif.NoAnswerError
	if errors.As(err, &silent) && (silent.Cause == cmdif.DeviceGone || silent.Cause == cmdif.InterfaceError) {
		h.Fail(err)
	}
	if silent != nil || ctx.Err() != nil {
		h.patience = hastyPatience
	}
}

// Down takes back what Up did, in reverse, and whatever was registered with Undo. It ends soon when
// firmware is silent: the first command without an answer gives the device up. It returns nil when the
// device gave everything back, else a *LeftoverError, joined with what else went wrong. Calls after the
// first return the same.
func (h *HCA) Down(ctx context.Context) error {
	h.down.Do(func() { h.downErr = h.takeDown(ctx) })
	return h.downErr
}

func (h *HCA) takeDown(ctx context.Context) error {
	defer h.cancel()
	why := h.Err()
	if h.cmd != nil {
		h.cmd.GiveUpOnSilence(h.patience)
	}
	errs := meaningful(h.undo.Unwind(ctx))
	if !h.started {
		return errs
	}
	left := LeftoverError{Why: why}
	if h.cmd != nil {
		// Nobody issues commands any more but callers of their own; they end now.
		errs = errors.Join(errs, h.cmd.Quiesce(context.WithoutCancel(ctx)))
		for _, o := range h.Objects.Out() {
			left.Objects = append(left.Objects, o.String())
		}
		left.Lost = h.Objects.Lost()
		left.Commands = h.cmd.StuckCommands()
		left.Pages = h.Pages.Books().Out
		if h.Events != nil {
			h.Events.Stop()
			left.Rings = h.Events.Leaked()
		}
	}
	dirty := why != nil || len(left.Objects)+len(left.Lost)+len(left.Commands)+left.Pages+left.Rings > 0
	if dirty {
		// What the device has not given back it may still write. A reset ends that.
		rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.timeouts().Reset)
		err := h.config.Function.Reset(rctx)
		cancel()
		if err != nil {
			left.Memory = fmt.Errorf("reset: %w", err)
			if left.Why == nil {
				left.Why = errs
			}
			return &left
		}
	}
	errs = errors.Join(errs, h.release())
	if h.cmd != nil {
		h.Objects.Forget()
	}
	if dirty {
		if left.Why == nil {
			left.Why = errs
			return &left
		}
		return errors.Join(&left, errs)
	}
	return errs
}

// release frees the memory that the device could reach.
func (h *HCA) release() error {
	if h.cmd == nil {
		return nil
	}
	err := errors.Join(h.cmd.Close(), h.Pages.Release())
	if h.Events != nil {
		err = errors.Join(err, h.Events.Release())
	}
	return err
}

// meaningful drops the errors of commands that were not tried because the device had been given up:
// what they would have taken back is named as left over.
func meaningful(err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	var kept []error
	for _, e := range joined.Unwrap() {
		var silent *cmdif.NoAnswerError
		if errors.As(e, &silent) && silent.Cause == cmdif.NeverIssued {
			continue
		}
		kept = append(kept, e)
	}
	return errors.Join(kept...)
}
