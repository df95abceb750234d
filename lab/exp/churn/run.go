package churn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"cxkit/device"
	"cxkit/device/fault"
	"cxkit/driver"
	"cxkit/internal/rig"
	"cxkit/lab"
	"cxkit/prm"
	"cxkit/stats"
)

// outcome is what a measurement found.
type outcome struct {
	readings, channels, reopened, modes uint64
	answered, tallied, failed           uint64
	warnings, leaks, fallen             uint64
	took                                time.Duration
	which                               []string // commands failed, and how
}

// warnings counts what is logged as a warning or worse.
type warnings struct {
	slog.Handler
	n *atomic.Uint64
}

func (w warnings) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (w warnings) Handle(context.Context, slog.Record) error    { w.n.Add(1); return nil }
func (w warnings) WithAttrs([]slog.Attr) slog.Handler           { return w }
func (w warnings) WithGroup(string) slog.Handler                { return w }

// slot is a function and the NIC that it is at the moment.
type slot struct {
	nic   atomic.Pointer[driver.NIC]
	open  func(ctx context.Context) error
	reset func(ctx context.Context) error
	close func() error
}

// bench is a card and its functions.
type bench struct {
	p     setting
	rig   *rig.Rig
	slots []*slot // the physical function first

	logged atomic.Uint64
	mu     sync.Mutex // guards o
	o      outcome
}

// run makes changes while loops read.
func (p setting) run(ctx context.Context) (o *outcome, err error) {
	b := &bench{p: p}
	if err := b.up(ctx); err != nil {
		return nil, errors.Join(err, b.down(ctx))
	}
	began := time.Now()
	over := make(chan struct{})
	var loops sync.WaitGroup
	for i := range p.loops {
		loops.Go(func() { b.loop(ctx, over, i) })
	}
	err = b.changes(ctx)
	close(over)
	loops.Wait()
	b.o.took = time.Since(began)
	err = errors.Join(err, b.down(ctx))
	for _, f := range b.rig.Card.Books().Functions {
		b.o.answered += f.Answered
		if !f.Clean() {
			b.o.leaks++
		}
	}
	b.o.warnings = b.logged.Load()
	return &b.o, errors.Join(err, b.rig.Close())
}

// up brings everything up.
func (b *bench) up(ctx context.Context) (err error) {
	c := device.Config{Seed: 1, VFs: b.p.vfs, OtherLatency: device.Latency{Min: b.p.latency}}
	if b.p.refuses {
		c.Faults = fault.Plan{Seed: 1, Faults: []fault.Fault{{
			Kind: fault.BadStatus, Opcodes: []prm.Opcode{prm.OpQueryVportCounter}, Probability: 0.05, Status: prm.StatusInternalError,
		}}}
	}
	if b.rig, err = rig.New(rig.Config{Device: c}); err != nil {
		return err
	}
	if err := b.add(ctx, 0); err != nil {
		return err
	}
	pf := b.slots[0].nic.Load()
	if err := pf.EnableVFs(ctx, b.p.vfs); err != nil {
		return err
	}
	for i := range b.p.vfs {
		if err := b.add(ctx, b.rig.Card.VF(0, i+1)); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) add(ctx context.Context, i int) error {
	f, err := b.rig.Function(i)
	if err != nil {
		return err
	}
	s := &slot{reset: f.Reset, close: f.Close}
	s.open = func(ctx context.Context) error {
		nic, err := driver.Open(ctx, f, driver.Config{
			MaxChannels: mostChannels, RxRing: 64, TxRing: 64, Logger: slog.New(warnings{n: &b.logged}),
		})
		if err == nil {
			s.nic.Store(nic)
		}
		return err
	}
	b.slots = append(b.slots, s)
	return s.open(ctx)
}

// shut closes a function's NIC and adds up what its commands did.
func (b *bench) shut(ctx context.Context, s *slot) error {
	nic := s.nic.Load()
	if nic == nil {
		return nil
	}
	err := nic.Close(ctx)
	var left *driver.LeftoverError
	b.mu.Lock()
	defer b.mu.Unlock()
	if errors.As(err, &left) {
		b.o.leaks++
		err = nil
	}
	for _, op := range nic.CommandStats().Opcodes {
		b.o.failed += op.Failed
		if op.Failed > 0 {
			b.o.which = append(b.o.which, op.Name+" "+op.LastErrno)
		}
		if prm.Opcode(op.Opcode) != prm.OpManagePages {
			b.o.tallied += op.Count
		}
	}
	s.nic.CompareAndSwap(nic, nil)
	return err
}

// settle waits until the drivers have nothing of their own to ask any more, as after a change of mode: closing
// gives up what is under way.
func (b *bench) settle(ctx context.Context) error {
	return lab.Settle(ctx, func() (issued uint64) {
		for _, s := range b.slots {
			if nic := s.nic.Load(); nic != nil {
				issued += nic.CommandStats().Issued
			}
		}
		return issued
	})
}

// down closes everything, virtual functions first.
func (b *bench) down(ctx context.Context) (err error) {
	ctx = context.WithoutCancel(ctx)
	for i := len(b.slots) - 1; i >= 0; i-- {
		if i == 0 {
			err = errors.Join(err, b.settle(ctx)) // it is told of the others' ends
		}
		err = errors.Join(err, b.shut(ctx, b.slots[i]), b.slots[i].close())
	}
	return err
}

// mostChannels is how many channels a function has at most.
const mostChannels = 4

// changes are made in rounds: all functions get other numbers of channels, a virtual function after the other is
// closed, reset and opened again, and the switch changes its mode.
func (b *bench) changes(ctx context.Context) error {
	pf := b.slots[0].nic.Load()
	for round := range b.p.rounds {
		mode := driver.Switchdev
		if round%2 == 1 {
			mode = driver.Legacy
		}
		lost, err := pf.SetMode(ctx, mode)
		if err != nil {
			return err
		}
		if lost != (driver.Lost{}) {
			return fmt.Errorf("the change to %v mode lost %+v where nothing was sent", mode, lost)
		}
		b.o.modes++
		for i, s := range b.slots {
			nic := s.nic.Load()
			lost, err := nic.SetChannels(ctx, 1+(nic.Queues()+(round+i)%(mostChannels-1))%mostChannels)
			if err != nil {
				return err
			}
			if lost != (driver.Lost{}) {
				return fmt.Errorf("function %d lost %+v where nothing was sent", i, lost)
			}
			b.o.channels++
		}
		s := b.slots[1+round%b.p.vfs]
		if err := b.shut(ctx, s); err != nil {
			return err
		}
		if err := s.reset(ctx); err != nil {
			return err
		}
		if err := s.open(ctx); err != nil {
			return err
		}
		b.o.reopened++
	}
	return nil
}

// loop lists one function's statistics after the other until it is over: what it has begun it ends, as a
// command that is given up is one that failed.
func (b *bench) loop(ctx context.Context, over <-chan struct{}, first int) {
	last := make(map[*driver.NIC]stats.Snapshot)
	for i := first; ctx.Err() == nil; i++ {
		select {
		case <-over:
			return
		default:
			runtime.Gosched() // there may be nothing to read but a function that is being opened
		}
		nic := b.slots[i%len(b.slots)].nic.Load()
		if nic == nil {
			continue // between closing and opening
		}
		s, err := nic.Stats(ctx)
		if err != nil {
			continue // closed meanwhile, or refused: the driver's tables count failures
		}
		fallen := fell(last[nic], s)
		last[nic] = s
		b.mu.Lock()
		b.o.readings++
		b.o.fallen += fallen
		b.mu.Unlock()
	}
}

// fell counts counters that are less than they were.
func fell(before, now stats.Snapshot) (n uint64) {
	was := make(map[string]uint64, len(before.Counters))
	for _, c := range before.Counters {
		was[c.Name] = c.Value
	}
	for _, c := range now.Counters {
		if c.Value < was[c.Name] && !stats.Gauge(c.Name) {
			n++
		}
	}
	return n
}
