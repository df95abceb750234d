package transporttest

import (
	"context"
	"errors"
	"runtime"
	"sync"

	"cxkit/dma"
	"cxkit/pci"
)

var lifetimeChecks = []check{
	{"ResetClearsTheFunction", resetClearsTheFunction},
	{"ResetWaitsForTheStep", resetWaitsForTheStep},
	{"ResetKeepsArenasMapped", resetKeepsArenasMapped},
	{"ResetRefusesAnEndedContext", resetRefusesAnEndedContext},
	{"CloseEndsEverything", closeEndsEverything},
	{"CloseUnblocksWaiters", closeUnblocksWaiters},
	{"CloseWaitsForTheStep", closeWaitsForTheStep},
	{"CloseInTheMiddleOfEverything", closeInTheMiddleOfEverything},
}

func resetClearsTheFunction(b *bench) {
	b.reg.Store32(regScratch, 1)
	b.reg.Store32(regAppend, 1)
	b.raise(3, 1)
	resets := b.reg.Load32(regResets) // opening may have reset it, too
	if err := b.f.Reset(context.Background()); err != nil {
		b.Fatal(err)
	}
	if got := b.reg.Load32(regScratch); got != 0 {
		b.Errorf("scratch reads %#x, want 0", got)
	}
	if got := b.reg.Load32(regLogLen); got != 0 {
		b.Errorf("%d log entries, want none", got)
	}
	if got := b.reg.Load32(regResets) - resets; got != 1 {
		b.Errorf("the card counts %d function level resets, want 1", got)
	}
	b.silent(3)
	b.raise(3, 1)
	b.wait(3)
}

func resetWaitsForTheStep(b *bench) {
	a := b.arena(dma.PageSize, b.kind())
	b.start(command{op: cmdHold, dest: a.Bus(), length: dma.PageSize, arg: 0x5a, notify: 5})
	b.wait(5)
	if err := b.f.Reset(context.Background()); err != nil {
		b.Fatal(err)
	}
	clear(a.Bytes()) // under -race: the card must be out
	b.must("nothing", command{op: cmdNothing})
	if got := sum(a.Bytes()); got != 0 {
		b.Error("the card wrote after a reset")
	}
	b.silent(5)
}

func resetKeepsArenasMapped(b *bench) {
	a := b.arena(dma.PageSize, b.kind())
	if err := b.f.Reset(context.Background()); err != nil {
		b.Fatal(err)
	}
	b.must("fill", command{op: cmdFill, dest: a.Bus(), length: 16, arg: 1})
	if got := sum(a.Bytes()); got != 16 {
		b.Errorf("the arena sums to %d, want 16", got)
	}
}

func resetRefusesAnEndedContext(b *bench) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	resets := b.reg.Load32(regResets)
	if err := b.f.Reset(ctx); !errors.Is(err, context.Canceled) {
		b.Errorf("reset: %v, want context.Canceled", err)
	}
	if got := b.reg.Load32(regResets) - resets; got != 0 {
		b.Errorf("the card was reset %d times", got)
	}
}

func closeEndsEverything(b *bench) {
	a := b.arena(dma.PageSize, b.kind())
	b.must("fill", command{op: cmdFill, dest: a.Bus(), length: 8, arg: 3})
	if err := b.f.Close(); err != nil {
		b.Fatal(err)
	}
	if err := b.f.Close(); err != nil {
		b.Errorf("second close: %v", err)
	}
	if got := sum(a.Bytes()); got != 24 {
		b.Errorf("the arena sums to %d after Close, want 24", got)
	}
	if err := a.Close(); err != nil {
		b.Errorf("close of an arena after the function: %v", err)
	}
	var p [4]byte
	_, arenaErr := b.f.NewArena(1, b.kind())
	_, windowErr := b.f.Window(0)
	for what, err := range map[string]error{
		"ReadConfig":  b.f.ReadConfig(0, p[:]),
		"WriteConfig": b.f.WriteConfig(0, p[:]),
		"NewArena":    arenaErr,
		"Window":      windowErr,
		"Wait":        b.waitFor(1),
		"Reset":       b.f.Reset(context.Background()),
	} {
		if !errors.Is(err, pci.ErrClosed) {
			b.Errorf("%s after Close: %v, want pci.ErrClosed", what, err)
		}
	}
	b.reg.Store32(regScratch, 1)
	b.reg.Store64(regScratch, 1)
	if got := b.reg.Load32(regScratch); got != 0xffffffff {
		b.Errorf("a register reads %#x after Close, want ones", got)
	}
	if got := b.reg.Load64(regScratch); got != 0xffffffffffffffff {
		b.Errorf("an 8-byte register reads %#x after Close, want ones", got)
	}
	if b.f.Info().Vectors != Vectors {
		b.Error("Info changed with Close")
	}
}

func closeUnblocksWaiters(b *bench) {
	var wg sync.WaitGroup
	errs := make([]error, Vectors)
	for v := range Vectors {
		wg.Go(func() { errs[v] = b.waitFor(v) })
	}
	runtime.Gosched()
	if err := b.f.Close(); err != nil {
		b.Error(err)
	}
	wg.Wait()
	for v, err := range errs {
		if !errors.Is(err, pci.ErrClosed) {
			b.Errorf("vector %d: %v, want pci.ErrClosed", v, err)
		}
	}
}

func closeWaitsForTheStep(b *bench) {
	a := b.arena(dma.PageSize, b.kind())
	b.start(command{op: cmdHold, dest: a.Bus(), length: dma.PageSize, arg: 0x5a, notify: 5})
	b.wait(5)
	if err := b.f.Close(); err != nil {
		b.Fatal(err)
	}
	clear(a.Bytes()) // under -race: the card must be out
	for range 1000 {
		runtime.Gosched()
	}
	if got := sum(a.Bytes()); got != 0 {
		b.Error("the card wrote after Close")
	}
}

func closeInTheMiddleOfEverything(b *bench) {
	a := b.arena(dma.PageSize, b.kind())
	var wg sync.WaitGroup
	started := make(chan struct{}, 5)
	loop := func(f func() error) {
		wg.Go(func() {
			started <- struct{}{}
			for f() == nil {
				runtime.Gosched()
			}
		})
	}
	gone := func() error {
		if b.reg.Load32(regID) != cardID {
			return pci.ErrClosed
		}
		return nil
	}
	loop(func() error { b.reg.Store32(regAppend, 1); return gone() })
	loop(func() error { return b.waitFor(0) })
	loop(func() error {
		b.start(command{op: cmdFill, dest: a.Bus(), length: dma.PageSize, arg: 1, notify: 0})
		return gone()
	})
	loop(func() error {
		x, err := b.f.NewArena(dma.PageSize, b.kind())
		if err == nil {
			err = x.Close()
		}
		return err
	})
	loop(func() error { var p [64]byte; return b.f.ReadConfig(0, p[:]) })
	for range 5 {
		<-started
	}
	if err := b.f.Close(); err != nil {
		b.Error(err)
	}
	wg.Wait()
}
