//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"cxkit/device"
	"cxkit/driver"
	"cxkit/internal/control"
	"cxkit/internal/vmtest"
	"cxkit/metrics"
	"cxkit/stats"
	"cxkit/trace"
)

// served are cards for guests: cxkit serve and cxkit vm have the same.
type served struct {
	cards   *vmtest.Cards
	host    *vfHost // nil: no virtual functions
	plugs   *plugs
	rec     *trace.Recorder
	started time.Time
	undo    []func() error
}

// servedConfig says which.
type servedConfig struct {
	sockets []string
	ports   []string // kinds of ports
	device  string   // sim:PROFILE
	seed    uint64
	trace   string // file, "" for none
	// mapDoorbells lets guests ring by memory.
	mapDoorbells bool
	faults       faultFlags
	metrics      metricsFlags
	log          *slog.Logger
	// vfs virtual functions of the one card are enabled, in mode, and served at virtual if that is not nil.
	vfs     int
	mode    driver.Mode
	virtual []string
}

// newServed makes cards and serves them, with a control socket each.
func newServed(w *world, c servedConfig) (*served, error) {
	s := &served{started: time.Now()}
	if err := s.start(w, c); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *served) start(w *world, c servedConfig) (err error) {
	broken, err := c.faults.load(c.seed)
	if err != nil {
		return err
	}
	if s.plugs, err = newPlugs(c.ports, len(c.sockets)); err != nil {
		return err
	}
	s.undo = append(s.undo, s.plugs.Close)
	if err := s.openTrace(c.trace); err != nil {
		return err
	}
	profile, _ := strings.CutPrefix(c.device, "sim:")
	s.cards, err = vmtest.ServeCards(vmtest.CardsConfig{
		Sockets: c.sockets, Ports: s.plugs.wires(), Trace: s.rec, Logger: c.log,
		// Kernels of all ages drive the card: a bit that is reserved to us may have a meaning to them.
		Device: device.Config{Profile: profile, Seed: c.seed, Lenient: true, Faults: broken, MapDoorbells: c.mapDoorbells, VFs: c.vfs},
	})
	if err != nil {
		return err
	}
	s.undo = append(s.undo, s.cards.Close)
	if c.vfs > 0 {
		if s.host, err = newVFHost(w.ctx, vfHostConfig{
			cards: s.cards, card: s.cards.Card(0), vfs: c.vfs, sockets: c.virtual, mode: c.mode, trace: s.rec, log: c.log,
		}); err != nil {
			return err
		}
		s.undo = append(s.undo, s.host.Close)
	}
	s.undo = append(s.undo, s.releasePlayers())
	if c.faults.Fault != "" {
		s.undo = append(s.undo, func() error { return s.reportFaults(w, len(c.sockets)) })
	}
	if err := s.serveMetrics(w, c); err != nil {
		return err
	}
	for i := range c.sockets {
		var card control.Card = servedCard{s, w, c, i}
		if s.host != nil && s.host.nic != nil {
			card = switchingCard{servedCard{s, w, c, i}}
		}
		server, err := control.Serve(card, c.log)
		if err != nil {
			c.log.Warn("no control socket: cxkit ctl can't attach", "card", i, "why", err)
			break
		}
		s.undo = append(s.undo, server.Close)
	}
	return nil
}

// serveMetrics answers Prometheus' scrapes, if the user wants it. They read the cards' own counters.
func (s *served) serveMetrics(w *world, c servedConfig) error {
	var targets []metrics.Target
	for i := range c.sockets {
		card := s.cards.Card(i)
		state := card.State(0)
		targets = append(targets, metrics.Target{
			// Cards of one process have the same address, each in its guest.
			Device: fmt.Sprintf("%s/%d", card.Function(0).Info().Address, i), Port: "1", Model: state.Model, Firmware: state.Firmware,
			Counters: func() stats.Snapshot { return card.Stats(0) },
			Health:   func() stats.Health { return card.Health(0) },
			Pages:    servedCard{s, w, c, i}.pages,
		})
	}
	say := func(line string) { fmt.Fprintln(w.err, line) }
	later := func(_ string, f func() error) { s.undo = append(s.undo, f) }
	return c.metrics.serve(say, later, targets...)
}

// A capture begins when rules lead to a receive queue that is ready, and nothing was made or destroyed for readyTime:
// its driver is up. Before that nobody would receive it.
const (
	readyPoll = 20 * time.Millisecond
	readyTime = 300 * time.Millisecond
)

// releasePlayers lets captures begin when there is a driver to receive them. stop ends the waiting.
func (s *served) releasePlayers() (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	var waiting sync.WaitGroup
	for i, kind := range s.plugs.names {
		if !strings.HasPrefix(kind, "pcap:") {
			continue
		}
		waiting.Go(func() {
			if s.untilReady(ctx, i) {
				s.plugs.ports[i].release()
			}
		})
	}
	return func() error {
		cancel()
		waiting.Wait()
		return nil
	}
}

// untilReady waits until card i has a driver that receives.
func (s *served) untilReady(ctx context.Context, i int) bool {
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	var last map[string]int
	since := time.Now()
	for {
		select {
		case now := <-tick.C:
			card := s.cards.Card(i)
			objects := card.Books().Functions[0].Objects
			if !maps.Equal(objects, last) || !card.Receives(0) {
				last, since = objects, now
			} else if now.Sub(since) >= readyTime {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
}

// openTrace starts the flight recorder.
func (s *served) openTrace(path string) error {
	config := trace.Config{}
	if path != "" {
		f, err := os.Create(path)
		if err != nil {
			return fmt.Errorf("trace: %w", err)
		}
		out := bufio.NewWriter(f)
		config.Writer = out
		s.undo = append(s.undo, func() error { return errors.Join(s.rec.Err(), out.Flush(), f.Close()) })
	}
	s.rec = trace.New(config)
	return nil
}

// Close drops guests that are left and ends the cards.
func (s *served) Close() error {
	var errs []error
	for i := len(s.undo) - 1; i >= 0; i-- {
		errs = append(errs, s.undo[i]())
	}
	s.undo = nil
	return errors.Join(errs...)
}

// servedCard is what the control socket reaches of a card for guests. The guest's driver can't be asked:
// the card's own counters and books are shown.
type servedCard struct {
	s *served
	w *world
	c servedConfig
	i int
}

// switchingCard is a served card whose e-switch this process manages.
type switchingCard struct{ servedCard }

// VportStats reads the counters of a port of the e-switch.
func (v switchingCard) VportStats(ctx context.Context, vport uint16) (stats.Snapshot, error) {
	return vportStats(ctx, v.s.host.nic, vport)
}

// Info says what runs.
func (v servedCard) Info(context.Context) (control.Info, error) {
	card := v.s.cards.Card(v.i)
	state := card.State(0)
	return control.Info{
		Command: "cxkit " + strings.Join(v.w.args, " "), PID: os.Getpid(), Started: v.s.started,
		Device: v.c.device, Seed: v.c.seed,
		Address: card.Function(0).Info().Address, Model: state.Model, Firmware: state.Firmware,
		MAC: net.HardwareAddr(state.MAC[:]).String(), MTU: state.MTU,
		LinkUp: state.LinkUp, SpeedMbps: state.SpeedMbps, Port: v.s.plugs.names[v.i],
	}, nil
}

// Stats reads the card's counters.
func (v servedCard) Stats(context.Context) (stats.Snapshot, error) {
	return v.s.cards.Card(v.i).Stats(0), nil
}

// Overview is what the card knows.
func (v servedCard) Overview(ctx context.Context) (control.Overview, error) {
	info, err := v.Info(ctx)
	health := v.s.cards.Card(v.i).Health(0)
	return control.Overview{Info: info, Stats: v.s.cards.Card(v.i).Stats(0), Health: &health, Pages: v.pages()}, err
}

// pages are those that the card has of its host.
func (v servedCard) pages() []stats.FunctionPages {
	return []stats.FunctionPages{{Type: "self", Out: v.s.cards.Card(v.i).Books().Functions[0].Pages}}
}

// SetLink pulls the plug out of the card's port or puts it in.
func (v servedCard) SetLink(_ context.Context, up bool) error {
	v.s.plugs.ports[v.i].SetLink(up)
	return nil
}

// Books shows what the card holds. The driver's side is not known: it is taken to agree.
func (v servedCard) Books(context.Context) ([]control.Book, error) {
	f := v.s.cards.Card(v.i).Books().Functions[0]
	books := []control.Book{
		{Name: "firmware pages", Driver: f.Pages, Card: &f.Pages},
		{Name: "commands", Driver: f.Running, Card: &f.Running},
	}
	return append(books, objectBooks(f.Objects, f.Objects)...), nil
}

// Reclaim begins a storm of firmware pages: the guest's driver gives them and takes them back.
func (v servedCard) Reclaim(_ context.Context, pages int) error {
	return v.s.cards.Card(v.i).StormPages(0, device.PageFunction{}, pages)
}

// Storm says how far the latest one has come.
func (v servedCard) Storm(context.Context) (control.Storm, error) {
	return storm(v.s.cards.Card(v.i))
}

// Health is what the card shows its driver, whose own view is in the guest.
func (v servedCard) Health(context.Context) (stats.Health, error) {
	return v.s.cards.Card(v.i).Health(0), nil
}

// Trace returns the flight recorder's latest records.
func (v servedCard) Trace(_ context.Context, n int) ([]trace.Record, uint64, error) {
	return v.s.rec.Last(n), v.s.rec.Lost(), nil
}
