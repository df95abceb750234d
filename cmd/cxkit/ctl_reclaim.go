package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cxkit/internal/control"
)

// ctlReclaim is `cxkit ctl reclaim`.
type ctlReclaim struct {
	Pages int           `arg:"" help:"How many pages of 4 KiB."`
	Wait  time.Duration `default:"60s" help:"How long to wait for the end; 0: only begin (default ${default})."`
}

// Help is what cxkit ctl reclaim --help adds.
func (ctlReclaim) Help() string {
	return `Firmware asks the driver for so many pages, which no object needs, and when it has them it offers all of
them back, at most 50,000 a command, and again for the rest until none is left. A driver that runs out of
memory before ends the first half; firmware gives back what it got.

Exit codes: 0 all pages are back, 1 they are not.`
}

// stormPause is how often ctl reclaim looks.
const stormPause = 20 * time.Millisecond

// Run begins a storm and waits for its end.
func (l ctlReclaim) Run(w *world, ctl *ctlCommand) error {
	if l.Pages < 1 {
		return usagef("reclaim %d: want 1 page or more", l.Pages)
	}
	return attached(w, ctl.Attach, func(ctx context.Context, c *control.Client) error {
		if err := c.Reclaim(ctx, l.Pages); err != nil || l.Wait <= 0 {
			return err
		}
		s, err := l.wait(ctx, c)
		if err != nil {
			return err
		}
		if ctl.JSON {
			return writeJSON(w.out, s)
		}
		if s.Refused {
			fmt.Fprintf(w.out, "the driver had no more than %s of %s pages\n", grouped(uint64(s.Hoarded)), grouped(uint64(s.Pages)))
		}
		fmt.Fprintf(w.out, "given %s pages in %d commands, %v\n", grouped(uint64(s.Hoarded)), s.Gives, s.Filled.Round(time.Microsecond))
		fmt.Fprintf(w.out, "back  %s pages in %d rounds, %v; firmware holds %s\n", grouped(uint64(s.Returned)), s.Takes,
			(s.Took - s.Filled).Round(time.Microsecond), grouped(uint64(s.Held)))
		return nil
	})
}

// wait looks until the storm is over.
func (l ctlReclaim) wait(ctx context.Context, c *control.Client) (s control.Storm, err error) {
	tick := time.NewTicker(stormPause)
	defer tick.Stop()
	limit := time.After(l.Wait)
	for {
		now, err := c.Storm(ctx)
		if errors.Is(err, control.ErrEnded) {
			return s, fmt.Errorf("the card was closed before the storm of %d pages was over: %d given, %d back: %w", l.Pages, s.Hoarded, s.Returned, err)
		}
		if s = now; err != nil || s.Phase == "over" {
			return s, err
		}
		select {
		case <-tick.C:
		case <-limit:
			return s, fmt.Errorf("after %v the storm of %d pages is %s: %d given, %d back", l.Wait, s.Pages, s.Phase, s.Hoarded, s.Returned)
		case <-ctx.Done():
			return s, context.Cause(ctx)
		}
	}
}
