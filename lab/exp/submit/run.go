package submit

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
)

// outcome is what one measurement with one number of functions found.
type outcome struct {
	items, contended uint64
	lockWait         time.Duration
	profiled         time.Duration
	profileCount     uint64
	answered         uint64 // by the cards
	tallied          uint64 // by the drivers
	took             time.Duration
	latency          *hdrhistogram.Histogram // ns
}

func (o *outcome) quantile(q float64) time.Duration {
	return time.Duration(o.latency.ValueAtQuantile(q))
}

// newHistogram covers 1 ns to a minute with three digits.
func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(time.Minute), 3) }

// bench is functions that are up, each on a card of its own.
type bench struct {
	rigs []*rig.Rig
	nics []*driver.NIC
	undo []func() error
}

// newBench brings n functions up.
func newBench(ctx context.Context, p setting, n int) (*bench, error) {
	b := &bench{}
	submit := driver.SubmitCaller
	if p.queue {
		submit = driver.SubmitQueue
	}
	pool := &driver.WorkPool{}
	for i := range n {
		r, err := rig.New(rig.Config{Device: device.Config{
			Address: fmt.Sprintf("0000:%02x:00.0", i+1), Seed: uint64(i), OtherLatency: device.Latency{Min: p.latency},
		}})
		if err != nil {
			return b, err
		}
		b.rigs = append(b.rigs, r)
		b.undo = append(b.undo, r.Close)
		f, err := r.Function(0)
		if err != nil {
			return b, err
		}
		b.undo = append(b.undo, f.Close)
		nic, err := driver.Open(ctx, f, driver.Config{Submit: submit, WorkPool: pool, RxRing: driver.MinRing, TxRing: driver.MinRing})
		if err != nil {
			return b, err
		}
		b.nics = append(b.nics, nic)
		b.undo = append(b.undo, func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			return nic.Close(ctx)
		})
	}
	return b, nil
}

// settle waits until the drivers have nothing of their own to ask any more, as after a link came up.
func (b *bench) settle(ctx context.Context) error {
	return lab.Settle(ctx, func() (issued uint64) {
		for _, nic := range b.nics {
			issued += nic.CommandStats().Issued
		}
		return issued
	})
}

// close takes everything down in reverse.
func (b *bench) close() (err error) {
	for i := len(b.undo) - 1; i >= 0; i-- {
		err = errors.Join(err, b.undo[i]())
	}
	return err
}

// count reads all counters. They only grow.
func (b *bench) count() (o outcome) {
	for i, nic := range b.nics {
		c := nic.CommandStats()
		o.items += c.Queue.Items
		for _, op := range c.Opcodes {
			if prm.Opcode(op.Opcode) != prm.OpManagePages {
				o.tallied += op.Count
			}
		}
		o.answered += b.rigs[i].Card.Books().Functions[0].Answered
		o.contended, o.lockWait = c.Queue.Contended, c.Queue.LockWait // of the pool: the same for all
	}
	o.profileCount, o.profiled = lockProfile()
	return o
}

// run measures with n functions.
func (p setting) run(ctx context.Context, n int) (o *outcome, err error) {
	b, err := newBench(ctx, p, n)
	defer func() { err = errors.Join(err, b.close()) }()
	if err != nil {
		return nil, err
	}
	if err := b.settle(ctx); err != nil {
		return nil, err
	}
	defer profileLocks()()
	before := b.count()
	began := time.Now()
	latency, err := b.loops(ctx, p)
	took := time.Since(began)
	after := b.count()
	if err != nil {
		return nil, err
	}
	return &outcome{
		items: after.items - before.items, contended: after.contended - before.contended, lockWait: after.lockWait - before.lockWait,
		profiled: after.profiled - before.profiled, profileCount: after.profileCount - before.profileCount,
		answered: after.answered - before.answered, tallied: after.tallied - before.tallied,
		took: took, latency: latency,
	}, nil
}

// loops runs the loops to their ends and returns how long commands took their callers.
func (b *bench) loops(ctx context.Context, p setting) (*hdrhistogram.Histogram, error) {
	all := newHistogram()
	var mu sync.Mutex // guards all and errs
	var errs []error
	var wg sync.WaitGroup
	for i := range p.loops {
		wg.Go(func() {
			h := newHistogram()
			err := b.loop(ctx, p, i, h)
			mu.Lock()
			defer mu.Unlock()
			all.Merge(h)
			if err != nil {
				errs = append(errs, fmt.Errorf("loop %d: %w", i, err))
			}
		})
	}
	wg.Wait()
	return all, errors.Join(errs...)
}

// loop refreshes one function after the other. The inputs and outputs are the loop's own.
func (b *bench) loop(ctx context.Context, p setting, first int, h *hdrhistogram.Histogram) error {
	commands := refreshCommands()
	for round := range p.rounds {
		nic := b.nics[(first+round)%len(b.nics)]
		for _, c := range commands {
			began := time.Now()
			if err := nic.Exec(ctx, c.in, c.out); err != nil {
				return err
			}
			if err := h.RecordValue(min(int64(time.Since(began)), int64(time.Minute))); err != nil {
				return err
			}
		}
	}
	return nil
}

// statistics is one command of a refresh.
type statistics struct {
	in  driver.CommandIn
	out driver.CommandOut
}

// refreshCommands are the commands of a refresh: the vport's counters, and groups of the port's.
func refreshCommands() []statistics {
	all := []statistics{{&prm.QueryVportCounterIn{}, &prm.QueryVportCounterOut{}}}
	groups := []prm.PPCNTGroup{prm.PPCNTGroup8023, prm.PPCNTGroup2863, prm.PPCNTGroup2819}
	for i := range refresh - 1 {
		r := prm.RegPPCNT{LocalPort: 1, Grp: prm.PPCNTGroupPerPriority, PrioTC: uint8(i - len(groups))}
		if i < len(groups) {
			r.Grp, r.PrioTC = groups[i], 0
		}
		image := make([]byte, r.Len())
		r.Put(image)
		all = append(all, statistics{
			&prm.AccessRegIn{OpMod: uint16(prm.AccessRegRead), RegisterID: prm.RegIDPPCNT, RegisterData: image},
			&prm.AccessRegOut{RegisterData: make([]byte, len(image))},
		})
	}
	return all
}
