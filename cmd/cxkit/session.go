package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"cxkit/device"
	"cxkit/device/fault"
	"cxkit/device/wire"
	"cxkit/device/wire/capture"
	"cxkit/driver"
	"cxkit/internal/control"
	"cxkit/internal/rig"
	"cxkit/metrics"
	"cxkit/pci"
	"cxkit/stats"
	"cxkit/trace"
)

// Bounds on what the end of a run may take.
const (
	closeTime = 10 * time.Second
	flushTime = 5 * time.Second

	// When the user wants it to end: for each thing before the card is closed, and for that.
	hastyTime      = time.Second
	hastyCloseTime = 3 * time.Second
)

// session is a run: everything brought up, in order, and how to take it down in reverse.
type session struct {
	c      *runCommand
	w      *world
	screen *screen
	log    *slog.Logger

	rec      *trace.Recorder
	rig      *rig.Rig // nil for a card outside of this process
	function pci.Function
	nic      *driver.NIC
	player   *capture.Player // nil with --port
	plug     *plug
	record   *os.File          // of --record
	recorder *capture.Recorder // into it; nil without --record, and before frames can come
	workers  []*worker
	opened   bool // the NIC was brought up: there is something to report

	second  *second // nil but with --mode forward
	rules   []ruleInForce
	ruled   []ruleResult
	dropped uint64 // frames, by rules

	plan     fault.Plan
	injected atomic.Bool // faults were injected while it ran
	faults   []fault.Report
	found    findings

	undo     []func() error
	closeErr error

	filesMu sync.Mutex // guards files
	files   []*os.File // that the run writes

	started  time.Time // of the process's run
	bringUp  time.Duration
	began    time.Time // when frames could come
	counters stats.Snapshot
	cut      bool // the user ended the run

	taken    atomic.Int64 // frames received, or about to be, when --count counts
	received atomic.Int64 // frames received, when --count counts
	failed   chan error   // the first failure of a worker
	full     chan struct{}
	fullOnce sync.Once
}

func newSession(c *runCommand, w *world) *session {
	s := &session{c: c, w: w, started: time.Now(), failed: make(chan error, 1), full: make(chan struct{})}
	s.screen = newScreen(w, c)
	level := slog.LevelError
	switch {
	case c.Verbose > 1:
		level = slog.LevelDebug
	case c.Verbose == 1:
		level = slog.LevelInfo
	}
	s.log = slog.New(slog.NewTextHandler(s.screen.errors(), &slog.HandlerOptions{Level: level}))
	return s
}

// later registers the opposite of something just done.
func (s *session) later(what string, f func() error) {
	s.undo = append(s.undo, func() error {
		if err := f(); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	})
}

// start brings everything up. Files come first: a mistyped name costs nothing then.
func (s *session) start(ctx context.Context) error {
	var err error
	if s.plan, err = s.c.load(s.c.Seed); err != nil {
		return err
	}
	port, err := await(ctx, s.openPort)
	if err != nil {
		return err
	}
	s.plug = newPlug(port)
	s.later("close the port", func() error {
		if err := port.Close(); !errors.Is(err, capture.ErrStillReading) {
			return err
		}
		return nil // a read of standard input that nothing ends but the end of the process
	})
	if s.c.Record != "" {
		if err := s.openRecord(ctx); err != nil {
			return err
		}
	}
	if err := s.openTrace(ctx); err != nil {
		return err
	}
	if err := s.openCard(ctx); err != nil {
		return err
	}
	if err := s.openNIC(ctx); err != nil {
		return err
	}
	if err := s.beginRecord(); err != nil {
		return err
	}
	s.serve()
	return s.serveMetrics()
}

// openPort opens what the card is plugged into.
func (s *session) openPort() (wire.Port, error) {
	rate, err := s.c.rate()
	if err != nil {
		return nil, err
	}
	var port wire.Port
	switch {
	case !s.c.target().simulated():
		return wire.NewDiscard(), nil // never plugged in: the card has its own cable
	case s.c.Play == "-":
		s.player, err = capture.NewPlayer("standard input", s.w.in, 0, capture.Options{Recorded: s.c.Rate == "recorded", ReadAhead: true})
		port = s.player
	case s.c.Play != "":
		s.player, err = capture.Open(s.c.Play, capture.Options{Recorded: s.c.Rate == "recorded"})
		port = s.player
	case s.c.Port == "discard":
		port = wire.NewDiscard()
	default:
		port, err = wire.OpenTAP(s.c.tapName(), 0)
	}
	if err != nil {
		return nil, err
	}
	if rate != (wire.Rate{}) {
		port = wire.Pace(port, rate, wire.SystemClock{})
	}
	return port, nil
}

// openTrace starts the flight recorder, which always runs: it costs nothing on the data path.
func (s *session) openTrace(ctx context.Context) error {
	config := trace.Config{}
	if s.c.Trace != "" {
		f, err := await(ctx, func() (*os.File, error) {
			return os.OpenFile(s.c.Trace, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
		})
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			return fmt.Errorf("trace: %w", err)
		}
		s.writes(f)
		out := bufio.NewWriter(f)
		config.Writer = out
		s.later("trace", func() error {
			err := s.rec.Err()
			if err == nil { // else out says the same again
				err = out.Flush()
			}
			return errors.Join(err, f.Close())
		})
	}
	s.rec = trace.New(config)
	return nil
}

// openCard makes the card. Its port is plugged in later: until the driver is up frames would be lost.
func (s *session) openCard(ctx context.Context) error {
	var err error
	if t := s.c.target(); !t.simulated() {
		if s.function, err = t.open(ctx, s.log); err != nil {
			return err
		}
		s.later("close the function", s.function.Close)
		s.later("look for leftovers", s.lookAtCard)
		return nil
	}
	s.rig, err = rig.New(rig.Config{
		Device: device.Config{
			Profile: s.c.target().name, Seed: s.c.Seed, Trace: s.rec, Logger: s.log,
			Faults: s.plan, Signatures: s.c.Signatures, Ports: s.c.ports(),
		},
		Plug: wire.NewDiscard(),
	})
	if err != nil {
		return err
	}
	s.later("stop the card", s.rig.Close)
	if s.function, err = s.rig.Function(0); err != nil {
		return err
	}
	s.later("close the function", s.function.Close)
	s.later("look for leftovers", s.lookAtCard)
	return nil
}

// config is how NICs are opened.
func (s *session) config() (driver.Config, error) {
	c := driver.Config{
		Queues: s.c.Queues, MTU: s.c.MTU, Promiscuous: s.c.Promisc, Logger: s.log, Trace: s.rec,
		CommandTimeout: s.c.CommandTimeout, BootTimeout: s.c.BootTimeout, CommandSignatures: s.c.Signatures,
	}
	err := s.c.apply(&c)
	return c, err
}

// slowBringUp is when the user is told that a card takes its time.
const slowBringUp = 10 * time.Second

// interruption is a bring-up that the user ended. What the card kept is said, why else it failed is not.
type interruption struct{ err error }

func (e interruption) Error() string {
	var left *driver.LeftoverError
	if errors.As(e.err, &left) {
		return errInterrupted.Error() + ": " + left.Error()
	}
	return errInterrupted.Error()
}

func (e interruption) Unwrap() []error { return []error{errInterrupted, e.err} }

// patience is a context that ends after limit, and hastyTime after the user wants the run to end.
func (s *session) patience(limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	stop := context.AfterFunc(s.w.ctx, func() { time.AfterFunc(hastyTime, cancel) })
	return ctx, func() { stop(); cancel() }
}

// close closes a NIC.
func (s *session) close(nic *driver.NIC) error {
	limit := closeTime
	if s.w.ctx.Err() != nil {
		limit = hastyCloseTime
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return nic.Close(ctx)
}

func (s *session) openNIC(ctx context.Context) error {
	began := time.Now()
	config, err := s.config()
	if err != nil {
		return err
	}
	slow := time.AfterFunc(slowBringUp, func() {
		s.screen.warn(fmt.Sprintf("cxkit: the card is not up after %v; Ctrl-C ends the run", slowBringUp))
	})
	nic, err := driver.Open(ctx, s.function, config)
	slow.Stop()
	if err != nil {
		if ctx.Err() != nil {
			return interruption{err}
		}
		return err
	}
	s.bringUp = time.Since(began)
	s.nic, s.opened = nic, true
	s.later("close the NIC", func() error { return s.close(nic) })
	for i := range nic.Queues() {
		s.workers = append(s.workers, newWorker(s, i))
	}
	if err := s.putRules(ctx); err != nil {
		return err
	}
	return s.openSecond(ctx)
}

// serve opens the control socket. A run does without if there is no place for one.
func (s *session) serve() {
	server, err := control.Serve(card{s}, s.log)
	if err != nil {
		s.screen.warn(fmt.Sprintf("cxkit: no control socket, cxkit ctl can't attach: %v", err))
		return
	}
	s.later("control socket", server.Close)
}

// serveMetrics answers Prometheus' scrapes, if the user wants it.
func (s *session) serveMetrics() error {
	if s.c.Metrics == "" {
		return nil
	}
	info := s.nic.Info()
	return s.c.metricsFlags.serve(s.screen.warn, s.later, metrics.Target{
		Device: info.Address, Port: "1", Model: info.Model, Firmware: info.Firmware.String(),
		Counters: s.nic.QuickAllStats, Commands: s.nic.CommandStats, Health: s.nic.Health, Pages: s.nic.FunctionPages,
		Buffers: func() []metrics.Buffers {
			posted, sending := s.buffers()
			return []metrics.Buffers{
				{Holder: "posted", Count: posted}, {Holder: "sending", Count: sending},
				{Holder: "elsewhere", Count: s.nic.Config().Buffers - posted - sending},
			}
		},
	})
}

// move plugs the port in, receives until there is a reason to stop, and then what is still under way.
func (s *session) move(ctx context.Context) error {
	running, stop := context.WithCancel(context.Background())
	defer stop()
	s.began = time.Now()
	var wg sync.WaitGroup
	for _, q := range s.workers {
		wg.Go(func() {
			if err := q.run(running); err != nil {
				select {
				case s.failed <- fmt.Errorf("queue %d: %w", q.index, err):
				default:
				}
			}
		})
	}
	err := s.second.start(running, s, &wg)
	if err == nil && s.rig != nil {
		_, err = s.rig.Card.Plug(0, s.plug)
	}
	if err != nil {
		stop()
		wg.Wait()
		return err
	}
	live := s.startLive()
	err = s.untilOver(ctx)
	s.settle()
	stop()
	wg.Wait()
	live()
	return errors.Join(err, s.lateFailure(), s.playError())
}

// untilOver waits for the end, whatever it is.
func (s *session) untilOver(ctx context.Context) error {
	var over <-chan time.Time
	if s.c.Duration > 0 {
		timer := time.NewTimer(s.c.Duration)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-s.plug.Drained():
		return nil
	case <-s.full:
		return nil
	case <-over:
		s.cut = s.player != nil
		s.hurry()
		return nil
	case err := <-s.failed:
		s.cut = s.player != nil
		return err
	case <-s.nic.Failed():
		s.cut = s.player != nil
		return s.nic.Err()
	case <-ctx.Done():
		s.cut = s.player != nil
		if s.player != nil {
			return errInterrupted
		}
		return nil
	}
}

// settle stops what comes and lets the card deliver what it has taken. Reading counters takes commands
// one after the other, so the card's step that dealt with the last frame has ended when they come back.
func (s *session) settle() {
	s.plug.Stop()
	ctx, cancel := s.patience(flushTime)
	defer cancel()
	switch {
	case s.rig == nil:
		return // what comes goes on coming
	case !s.nic.Link().Up:
		return // a card without a link asks for no frames
	}
	select {
	case <-s.plug.Drained():
		s.counters, _ = s.nic.Stats(ctx)
		if s.broken() {
			s.awaitDelivered(ctx)
			s.awaitStorm(ctx)
		}
	case <-s.full: // nobody makes room any more
	case <-s.nic.Failed():
	case <-ctx.Done():
	}
}

// lateFailure is a worker's that ended while the run ended.
func (s *session) lateFailure() error {
	select {
	case err := <-s.failed:
		return err
	default:
		return nil
	}
}

// playError is damage in the capture, unless the run was over before it was reached.
func (s *session) playError() error {
	if s.player == nil {
		return nil
	}
	if err := s.player.Err(); err != nil && !errors.Is(err, wire.ErrClosed) {
		return err
	}
	return nil
}

// finish takes the last counters, takes everything down in reverse, and sums up.
func (s *session) finish() *result {
	if s.opened {
		ctx, cancel := s.patience(closeTime)
		var err error
		s.counters, err = s.nic.Stats(ctx)
		if err = tried(err); err != nil && s.nic.Err() == nil {
			s.closeErr = fmt.Errorf("read counters: %w", err)
		}
		if err := s.readRules(ctx); err != nil && s.nic.Err() == nil {
			s.closeErr = errors.Join(s.closeErr, err)
		}
		cancel()
	}
	r := s.sum()
	s.lookAtQueues()
	for _, f := range slices.Backward(s.undo) {
		s.closeErr = errors.Join(s.closeErr, f())
	}
	if s.recorder != nil {
		r.Recorded = s.recorder.Frames()
	}
	return r
}

// tried leaves out of joined errors those of commands that firmware never saw: where there was no answer to
// one, no further ones are tried.
func tried(err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	var kept []error
	for _, e := range joined.Unwrap() {
		var silent *driver.NoAnswerError
		if !errors.As(e, &silent) || silent.Cause != driver.NeverIssued {
			kept = append(kept, e)
		}
	}
	return errors.Join(kept...)
}

// reserve takes up to n frames of what --count leaves; 0 means none is left now.
func (s *session) reserve(n int) int {
	if s.c.Count == 0 {
		return n
	}
	for {
		taken := s.taken.Load()
		k := min(int64(n), s.c.Count-taken)
		if k <= 0 {
			return 0
		}
		if s.taken.CompareAndSwap(taken, taken+k) {
			return int(k)
		}
	}
}

// settleReserve gives back what was not received of k reserved frames.
func (s *session) settleReserve(k, n int) {
	if s.c.Count == 0 {
		return
	}
	if n < k {
		s.taken.Add(int64(n - k))
	}
	if n > 0 && s.received.Add(int64(n)) >= s.c.Count {
		s.fullOnce.Do(func() { close(s.full) })
	}
}

// complete tells whether --count has been reached.
func (s *session) complete() bool { return s.c.Count > 0 && s.received.Load() >= s.c.Count }
