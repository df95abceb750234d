//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"cxkit/device"
	"cxkit/driver"
	"cxkit/internal/rig"
	"cxkit/trace"
	"cxkit/transport/vfiouser/server"
)

// vfHost is a card whose physical function this process drives: its virtual functions are served, and in
// switchdev mode this process bridges them.
type vfHost struct {
	rig    *rig.Rig
	nic    *driver.NIC
	bridge *bridge // nil in legacy mode
	plugs  *plugs
	undo   []func() error
}

// vfHostConfig says which.
type vfHostConfig struct {
	sockets      []string // of virtual functions 1, 2, ...
	port         string
	profile      string
	seed         uint64
	mode         driver.Mode
	mapDoorbells bool
	trace        *trace.Recorder
	log          *slog.Logger
}

// newVFHost makes the card, brings its physical function up, and serves the virtual ones.
func newVFHost(ctx context.Context, c vfHostConfig) (*vfHost, error) {
	h := &vfHost{}
	if err := h.start(ctx, c); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// vfHostClose bounds the end of the physical function.
const vfHostClose = 20 * time.Second

func (h *vfHost) start(ctx context.Context, c vfHostConfig) (err error) {
	if h.plugs, err = newPlugs([]string{c.port}, 1); err != nil {
		return err
	}
	h.later(h.plugs.Close)
	h.rig, err = rig.New(rig.Config{Plug: h.plugs.wires()[0], Device: device.Config{
		Profile: c.profile, Seed: c.seed, VFs: len(c.sockets), Lenient: true, MapDoorbells: c.mapDoorbells, Trace: c.trace, Logger: c.log,
	}})
	if err != nil {
		return err
	}
	h.later(h.rig.Close)
	f, err := h.rig.Function(0)
	if err != nil {
		return err
	}
	h.later(f.Close)
	if h.nic, err = driver.Open(ctx, f, driver.Config{Logger: c.log, Trace: c.trace}); err != nil {
		return err
	}
	h.later(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), vfHostClose)
		defer cancel()
		return h.nic.Close(ctx)
	})
	if err := h.nic.SetMode(ctx, c.mode); err != nil {
		return err
	}
	if err := h.nic.EnableVFs(ctx, len(c.sockets)); err != nil {
		return err
	}
	if c.mode == driver.Switchdev {
		if h.bridge, err = newBridge(ctx, h.nic, len(c.sockets), c.log); err != nil {
			return err
		}
		h.later(h.bridge.Close)
	}
	return h.serve(c)
}

// serve serves the virtual functions, a socket each.
func (h *vfHost) serve(c vfHostConfig) error {
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	h.later(func() error { stop(); running.Wait(); return nil })
	for i, path := range c.sockets {
		s, err := server.Listen(path, h.rig.Card.Function(h.rig.Card.VF(0, i+1)), server.Config{Logger: c.log})
		if err != nil {
			return err
		}
		running.Go(func() {
			if err := s.Serve(ctx); err != nil && ctx.Err() == nil {
				c.log.Error("virtual function ended", "number", i+1, "why", err)
			}
		})
		h.later(s.Close)
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
func (h *vfHost) tree(w io.Writer, c vfHostConfig) {
	info := h.nic.Info()
	fmt.Fprintf(w, "%s %s, e-switch in %v mode\n", info.Address, info.Model, c.mode)
	fmt.Fprintf(w, "├─ uplink: %s\n├─ vport 0: this process, MAC %v\n", c.port, h.nic.MAC())
	for i, path := range c.sockets {
		branch := "├"
		if i == len(c.sockets)-1 {
			branch = "└"
		}
		fmt.Fprintf(w, "%s─ vport %d: %s at %s\n", branch, i+1, h.rig.Card.Function(h.rig.Card.VF(0, i+1)).Info().Address, path)
	}
}
