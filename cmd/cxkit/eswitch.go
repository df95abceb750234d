//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"sync"
	"time"

	"cxkit/device"
	"cxkit/driver"
	"cxkit/internal/vmtest"
	"cxkit/trace"
	"cxkit/transport/inproc"
)

// vfHost is the driver of the physical function that has a card's virtual functions. Where that manages the
// e-switch, and the mode is switchdev, it bridges them; on a card with a processor of its own the processor's
// driver manages, in a guest.
type vfHost struct {
	c    vfHostConfig
	nic  *driver.NIC // the e-switch's manager; nil on a card with a processor of its own
	undo []func() error
}

// vfHostConfig says which.
type vfHostConfig struct {
	cards   *vmtest.Cards
	card    *device.Card // the one
	vfs     int
	sockets []string // where virtual functions are served while they are enabled; there may be fewer
	mode    driver.Mode
	trace   *trace.Recorder
	log     *slog.Logger
}

// vfHostClose bounds the end of the physical function.
const vfHostClose = 20 * time.Second

// newVFHost enables virtual functions. On a card with a processor of its own that is done, again and again, as
// soon as the processor's driver lets the host start.
func newVFHost(ctx context.Context, c vfHostConfig) (*vfHost, error) {
	h := &vfHost{c: c}
	if c.embedded() {
		if !c.log.Enabled(ctx, slog.LevelInfo) {
			// That the processor's driver goes is an error to the host's alone.
			h.c.log = slog.New(slog.DiscardHandler)
		}
		h.follow()
		return h, nil
	}
	nic, err := h.open(ctx, driver.Config{})
	if err == nil {
		_, err = nic.SetMode(ctx, c.mode) // there is nothing to lose before there are virtual functions
	}
	if err == nil {
		err = nic.EnableVFs(ctx, c.vfs)
	}
	h.nic = nic
	if err == nil && c.mode == driver.Switchdev {
		var b *bridge
		if b, err = newBridge(ctx, nic, c.vfs, c.log); err == nil {
			h.later(b.Close)
		}
	}
	if err == nil {
		err = h.serve()
	}
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// embedded tells that the card's own processor manages the e-switch.
func (c *vfHostConfig) embedded() bool { return c.card.HostPF(0) != 0 }

// open brings the physical function up.
func (h *vfHost) open(ctx context.Context, c driver.Config) (*driver.NIC, error) {
	f, err := inproc.Open(h.c.card.Function(h.c.card.HostPF(0)), inproc.Config{})
	if err != nil {
		return nil, err
	}
	h.later(f.Close)
	c.Logger, c.Trace = h.c.log, h.c.trace
	nic, err := driver.Open(ctx, f, c)
	if err != nil {
		return nil, err
	}
	h.later(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), vfHostClose)
		defer cancel()
		return nic.Close(ctx)
	})
	return nic, nil
}

// serve serves the virtual functions.
func (h *vfHost) serve() error {
	stop, err := h.c.cards.ServeVirtual(0, h.c.sockets)
	if err == nil {
		h.later(stop)
	}
	return err
}

// longBoot is how long a host waits for the card's processor at a time.
const longBoot = time.Hour

// follow is the host of a card whose processor comes and goes, until Close.
func (h *vfHost) follow() {
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			v := &vfHost{c: h.c}
			err := v.live(ctx)
			if err := errors.Join(err, v.Close()); ctx.Err() == nil {
				h.c.log.Info("the host's function ended", "why", err)
			}
		}
	})
	h.later(func() error { stop(); running.Wait(); return nil })
}

// live is the host's function from its start to its end.
func (h *vfHost) live(ctx context.Context) error {
	nic, err := h.open(ctx, driver.Config{BootTimeout: longBoot})
	if err != nil {
		return err
	}
	if err := h.settle(ctx); err != nil {
		return err
	}
	if err := nic.EnableVFs(ctx, h.c.vfs); err != nil {
		return err
	}
	if err := h.serve(); err != nil {
		return err
	}
	select {
	case <-nic.Failed():
		return nic.Err()
	case <-ctx.Done():
		return nil
	}
}

// settleTime is how long nothing was made or destroyed by a driver that is done.
const settleTime = 2 * time.Second

// settle waits until the processor's driver is done with its change of mode. Linux lets the host start in the
// middle of it, and misses the news that there are virtual functions until its end (eswitch.c registers for
// them last), which people who type are too slow to see.
func (h *vfHost) settle(ctx context.Context) error {
	tick := time.NewTicker(settleTime / 10)
	defer tick.Stop()
	var last map[string]int
	for since := time.Now(); time.Since(since) < settleTime; {
		if objects := h.c.card.Books().Functions[0].Objects; !maps.Equal(objects, last) {
			last, since = objects, time.Now()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (h *vfHost) later(f func() error) { h.undo = append(h.undo, f) }

// Close ends everything, latest first.
func (h *vfHost) Close() error {
	var errs []error
	for i := len(h.undo) - 1; i >= 0; i-- {
		errs = append(errs, h.undo[i]())
	}
	h.undo = nil
	return errors.Join(errs...)
}

// tree prints what is joined by the e-switch.
func (c *vfHostConfig) tree(w io.Writer, port, processor string) {
	state := c.card.State(0)
	info := c.card.Function(0).Info()
	pf := c.card.HostPF(0)
	mac := driver.MAC(c.card.State(pf).MAC)
	if c.embedded() {
		fmt.Fprintf(w, "%s %s, whose own processor manages the e-switch: a guest at %s\n", info.Address, state.Model, processor)
		fmt.Fprintf(w, "├─ uplink: %s\n├─ vport 0: %s, this process as the host, MAC %v\n", port, c.card.Function(pf).Info().Address, mac)
	} else {
		fmt.Fprintf(w, "%s %s, e-switch in %v mode\n", info.Address, state.Model, c.mode)
		fmt.Fprintf(w, "├─ uplink: %s\n├─ vport 0: this process, MAC %v\n", port, mac)
	}
	for i := range c.vfs {
		branch, at := "├", "nobody's yet"
		if i == c.vfs-1 {
			branch = "└"
		}
		if i < len(c.sockets) {
			at = "at " + c.sockets[i]
		}
		fmt.Fprintf(w, "%s─ vport %d: %s %s\n", branch, i+1, c.card.Function(c.card.VF(0, i+1)).Info().Address, at)
	}
}
