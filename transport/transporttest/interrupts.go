package transporttest

import (
	"context"
	"errors"
	"math"
	"math/bits"
	"runtime"
	"sync"
	"time"
)

var interruptChecks = []check{
	{"InterruptsReachTheirVector", interruptsReachTheirVector},
	{"AnInterruptBeforeWaitIsKept", anInterruptBeforeWaitIsKept},
	{"InterruptsCoalesce", interruptsCoalesce},
	{"NoInterruptIsLost", noInterruptIsLost},
	{"WaitEndsWithItsContext", waitEndsWithItsContext},
	{"WaitRefusesVectorsThatDoNotExist", waitRefusesVectorsThatDoNotExist},
	{"RaisesOfVectorsThatDoNotExistAreIgnored", raisesOfVectorsThatDoNotExistAreIgnored},
	{"VectorsWaitInParallel", vectorsWaitInParallel},
}

var tableChecks = []check{
	{"MSIXTableReadsBack", msixTableReadsBack},
	{"MaskedVectorsStayPending", maskedVectorsStayPending},
	{"AMaskedFunctionKeepsItsVectorsPending", aMaskedFunctionKeepsItsVectorsPending},
	{"ResetClearsTheMSIXTable", resetClearsTheMSIXTable},
}

// raise has the card raise a vector n times; when it returns they have been raised.
func (b *bench) raise(vector, n int) {
	b.Helper()
	b.must("raise", command{op: cmdRaise, source: uint64(vector), length: n})
}

func interruptsReachTheirVector(b *bench) {
	for v := 1; v < Vectors; v++ {
		b.raise(v, 1)
		b.wait(v)
		if v > 1 {
			b.silent(v - 1)
		}
		b.silent(v)
	}
}

func anInterruptBeforeWaitIsKept(b *bench) {
	b.raise(7, 1)
	b.raise(9, 1)
	b.wait(9)
	b.wait(7)
}

func interruptsCoalesce(b *bench) {
	b.raise(4, 1000)
	b.wait(4)
	b.silent(4)
}

// A consumer that waits, then reads what there is, must see the last of what there was.
func noInterruptIsLost(b *bench) {
	const n = 300
	done := b.reg.Load32(regDone)
	var wg sync.WaitGroup
	wg.Go(func() {
		for range n {
			b.reg.Store32(regLength, 1)
			b.reg.Store64(regSource, math.MaxUint64) // nobody's vector
			b.reg.Store32(regNotify, 6)
			b.reg.Store32(regCommand, cmdRaise)
			runtime.Gosched()
		}
	})
	for seen := uint32(0); seen < n; {
		b.wait(6)
		seen = b.reg.Load32(regDone) - done
	}
	wg.Wait()
}

func waitEndsWithItsContext(b *bench) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var err error
	wg.Go(func() { err = b.f.Wait(ctx, 2) })
	runtime.Gosched()
	cancel()
	wg.Wait()
	if !errors.Is(err, context.Canceled) {
		b.Errorf("wait: %v, want context.Canceled", err)
	}
	expired, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	if err := b.f.Wait(expired, 2); !errors.Is(err, context.DeadlineExceeded) {
		b.Errorf("wait: %v, want context.DeadlineExceeded", err)
	}
	b.raise(2, 1) // the vector still works
	b.wait(2)
}

func waitRefusesVectorsThatDoNotExist(b *bench) {
	for _, v := range []int{-1, Vectors, math.MaxInt, math.MinInt} {
		if err := b.waitFor(v); err == nil || errors.Is(err, context.DeadlineExceeded) {
			b.Errorf("vector %d: %v", v, err)
		}
	}
}

func raisesOfVectorsThatDoNotExistAreIgnored(b *bench) {
	for _, v := range []int{-1, Vectors, math.MaxInt32, math.MinInt32} {
		b.raise(v, 3)
	}
	for v := range Vectors {
		b.silent(v)
	}
}

func vectorsWaitInParallel(b *bench) {
	var wg sync.WaitGroup
	for v := 1; v < Vectors; v++ {
		wg.Go(func() { b.waitQuietly(v) })
	}
	for v := Vectors - 1; v > 0; v-- {
		b.raise(v, 1)
	}
	wg.Wait()
}

// waitQuietly is wait for goroutines that are not the test's.
func (b *bench) waitQuietly(vector int) {
	if err := b.waitFor(vector); err != nil {
		b.Errorf("wait for vector %d: %v", vector, err)
	}
}

// The MSI-X table is little endian.
func (b *bench) storeTable(off uint64, v uint32) {
	b.reg.Store32(msixTable+off, bits.ReverseBytes32(v))
}
func (b *bench) loadTable(off uint64) uint32 {
	return bits.ReverseBytes32(b.reg.Load32(msixTable + off))
}
func (b *bench) pending() uint64 { return bits.ReverseBytes64(b.reg.Load64(msixPBA)) }

func msixTableReadsBack(b *bench) {
	const v = 3
	for word, want := range []uint32{0xfee00000, 0x1, 0x4021, 1} {
		b.storeTable(v*16+uint64(word)*4, want)
		if got := b.loadTable(v*16 + uint64(word)*4); got != want {
			b.Errorf("word %d reads %#x, want %#x", word, got, want)
		}
	}
	b.reg.Store64(msixTable+v*16, bits.ReverseBytes64(0x1122334455667788))
	if lo, hi := b.loadTable(v*16), b.loadTable(v*16+4); lo != 0x55667788 || hi != 0x11223344 {
		b.Errorf("an address written at once reads %#x %#x", hi, lo)
	}
	b.storeTable(v*16+12, 0xffffffff)
	if got := b.loadTable(v*16 + 12); got != 1 {
		b.Errorf("vector control reads %#x, want its one defined bit", got)
	}
	if got := b.loadTable((v+1)*16 + 12); got != 1 {
		b.Errorf("vector control of a neighbour reads %#x, want masked as after a reset", got)
	}
	b.reg.Store64(msixPBA, math.MaxUint64)
	if got := b.pending(); got != 0 {
		b.Errorf("pending bits were written: %#x", got)
	}
}

func maskedVectorsStayPending(b *bench) {
	const v = 8
	b.storeTable(v*16+12, 1)
	b.raise(v, 2)
	b.silent(v)
	if got := b.pending(); got != 1<<v {
		b.Errorf("pending bits %#x, want bit %d", got, v)
	}
	b.raise(v+1, 1) // others go on
	b.wait(v + 1)
	b.storeTable(v*16+12, 0)
	b.wait(v)
	b.silent(v)
	if got := b.pending(); got != 0 {
		b.Errorf("pending bits %#x after delivery", got)
	}
}

func aMaskedFunctionKeepsItsVectorsPending(b *bench) {
	control := func(bits uint16) {
		if err := b.f.WriteConfig(offMSIX+2, []byte{byte(bits), byte(bits >> 8)}); err != nil {
			b.Fatal(err)
		}
	}
	done := b.reg.Load32(regDone)
	control(0xc000)
	b.start(command{op: cmdRaise, source: 10, length: 1, notify: -1})
	for deadline := time.Now().Add(b.patience); b.reg.Load32(regDone) == done; runtime.Gosched() {
		if time.Now().After(deadline) {
			b.Fatal("the card does nothing")
		}
	}
	b.silent(10)
	if got := b.pending(); got != 1<<10 {
		b.Errorf("pending bits %#x, want bit 10", got)
	}
	control(0x8000)
	b.wait(10)
}

func resetClearsTheMSIXTable(b *bench) {
	const v = 8
	b.storeTable(v*16, 0xfee00000)
	b.storeTable(v*16+12, 1)
	b.raise(v, 1)
	if err := b.f.Reset(context.Background()); err != nil {
		b.Fatal(err)
	}
	if got := b.pending(); got != 0 {
		b.Errorf("pending bits %#x after a reset", got)
	}
	if got := b.loadTable(v * 16); got != 0 {
		b.Errorf("message address %#x after a reset", got)
	}
	b.silent(v)
}
