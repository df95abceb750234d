package stats

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"cxkit/device"
	"cxkit/driver"
	"cxkit/internal/rig"
	"cxkit/lab"
	"cxkit/prm"
	"cxkit/stats"
)

// outcome is what one measurement found.
type outcome struct {
	reads, answered, tallied uint64
	age                      time.Duration // of the oldest data that a reader got
	took                     time.Duration
	latency                  *hdrhistogram.Histogram // of a read, ns
}

func (o *outcome) quantile(q float64) time.Duration {
	return time.Duration(o.latency.ValueAtQuantile(q))
}

// bench is a card with its virtual functions and representors, all up.
type bench struct {
	rig      *rig.Rig
	nics     []*driver.NIC
	quick    []func() stats.Snapshot // of each interface
	perRound int                     // commands that a refresh of all interfaces takes
	undo     []func() error
}

// newBench brings everything up. The bench is there even with an error, to be closed.
func newBench(ctx context.Context, p setting) (*bench, error) {
	b := &bench{}
	var err error
	b.rig, err = rig.New(rig.Config{Device: device.Config{
		Profile: "cx4lx", Seed: 1, VFs: p.vfs, OtherLatency: device.Latency{Min: p.latency},
	}})
	if err != nil {
		return b, err
	}
	b.undo = append(b.undo, b.rig.Close)
	pf, err := b.open(ctx, p, 0)
	if err != nil {
		return b, err
	}
	mode := driver.Legacy
	if p.switchdev {
		mode = driver.Switchdev
	}
	if _, err := pf.SetMode(ctx, mode); err != nil {
		return b, err
	}
	if err := pf.EnableVFs(ctx, p.vfs); err != nil {
		return b, err
	}
	for i := range p.vfs {
		if _, err := b.open(ctx, p, b.rig.Card.VF(0, i+1)); err != nil {
			return b, err
		}
	}
	for _, nic := range b.nics {
		b.quick = append(b.quick, nic.QuickStats)
	}
	for i := range p.vfs {
		if !p.switchdev {
			break
		}
		r, err := pf.Representor(ctx, i+1)
		if err != nil {
			return b, err
		}
		b.quick = append(b.quick, r.QuickStats)
	}
	for _, read := range b.quick {
		for _, g := range read().Groups {
			if g.Link {
				b.perRound += g.Commands
			}
		}
	}
	return b, nil
}

// open opens a function of the card.
func (b *bench) open(ctx context.Context, p setting, i int) (*driver.NIC, error) {
	f, err := b.rig.Function(i)
	if err != nil {
		return nil, err
	}
	b.undo = append(b.undo, f.Close)
	nic, err := driver.Open(ctx, f, driver.Config{StatsInterval: &p.interval, RxRing: 64, TxRing: 64})
	if err != nil {
		return nil, err
	}
	b.nics = append(b.nics, nic)
	b.undo = append(b.undo, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		return nic.Close(ctx)
	})
	return nic, nil
}

// close takes everything down in reverse.
func (b *bench) close() (err error) {
	for i := len(b.undo) - 1; i >= 0; i-- {
		err = errors.Join(err, b.undo[i]())
	}
	return err
}

// settle waits until nothing is asked any more: no reader reads.
func (b *bench) settle(ctx context.Context) error {
	return lab.Settle(ctx, func() (issued uint64) {
		for _, nic := range b.nics {
			issued += nic.CommandStats().Issued
		}
		return issued
	})
}

// count reads all counters of commands but for pages. They only grow.
func (b *bench) count() (answered, tallied uint64) {
	for _, f := range b.rig.Card.Books().Functions {
		answered += f.Answered
	}
	for _, nic := range b.nics {
		for _, op := range nic.CommandStats().Opcodes {
			if prm.Opcode(op.Opcode) != prm.OpManagePages {
				tallied += op.Count
			}
		}
	}
	return answered, tallied
}

// run lets readers read all interfaces so many times a second each.
func (b *bench) run(ctx context.Context, p setting, rate, readers int) (*outcome, error) {
	if err := b.settle(ctx); err != nil {
		return nil, err
	}
	answered, tallied := b.count()
	began := time.Now()
	o := &outcome{latency: newHistogram()}
	var mu sync.Mutex // guards o and errs
	var errs []error
	var wg sync.WaitGroup
	for range readers {
		wg.Go(func() {
			one, err := b.reader(ctx, p, rate)
			mu.Lock()
			defer mu.Unlock()
			o.reads += one.reads
			o.age = max(o.age, one.age)
			o.latency.Merge(one.latency)
			if err != nil {
				errs = append(errs, err)
			}
		})
	}
	wg.Wait()
	o.took = time.Since(began)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if err := b.settle(ctx); err != nil {
		return nil, err
	}
	o.answered, o.tallied = b.count()
	o.answered -= answered
	o.tallied -= tallied
	return o, nil
}

// newHistogram covers 1 ns to a second with two digits.
func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(time.Second), 2) }

// reader reads all interfaces, one after the other as /proc/net/dev does, so many times a second.
func (b *bench) reader(ctx context.Context, p setting, rate int) (*outcome, error) {
	o := &outcome{latency: newHistogram()}
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < p.duration; {
		for _, read := range b.quick {
			at := time.Now()
			s := read()
			took := time.Since(at)
			o.reads++
			if err := o.latency.RecordValue(min(max(int64(took), 1), int64(time.Second))); err != nil {
				return o, fmt.Errorf("latency of a read: %w", err)
			}
			if len(s.Groups) > 0 && !s.Groups[0].Read.IsZero() && time.Since(began) > time.Second/2 {
				o.age = max(o.age, s.Age(at)) // once the reader has had its first refresh
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return o, ctx.Err()
		}
	}
	return o, nil
}
