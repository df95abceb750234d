package device

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cxkit/pci"
	"cxkit/prm"
)

// runBench makes a bench whose engine runs by itself, in a bubble of virtual time.
func runBench(t *testing.T, config Config) (b *bench, stop func() error) {
	t.Helper()
	config.Clock = time.Now
	b = newBench(t, config)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.card.Run(ctx) }()
	b.rest = synctest.Wait
	time.Sleep(time.Second) // boot
	return b, func() error {
		cancel()
		return <-ended
	}
}

func TestRunWakesForDoorbellsAndTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const latency = 30 * time.Millisecond
		b, stop := runBench(t, Config{Latency: map[uint16]Latency{uint16(prm.OpNop): {Min: latency}}})
		b.bringUp()
		e := b.newEQ(b.allocUAR(), 8, 2, prm.EventCommandCompletion)
		e.arm()
		begin := time.Now()
		b.post(3, bytesOf(&prm.NopIn{}), 16)
		if err := b.fn.Wait(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took != latency {
			t.Errorf("the command took %v, want %v", took, latency)
		}
		if b.owned(3) || e.next() == nil {
			t.Error("the interrupt came before the answer")
		}
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
	})
}

func TestCloseEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, stop := runBench(t, Config{})
		b.settle()
		if err := b.card.Close(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := stop(); err != nil {
			t.Errorf("Run returned %v after Close", err)
		}
		if b.card.Step(1) {
			t.Error("a closed card works")
		}
	})
}

func TestDoRunsWhileTheEngineSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, stop := runBench(t, Config{})
		b.settle()
		ran := false
		b.card.Do(func() { ran = true })
		if !ran {
			t.Error("Do returned before its function ran")
		}
		stop()
	})
}

func TestPlugWakesTheEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, stop := runBench(t, Config{})
		b.bringUp()
		e := b.newEQ(b.allocUAR(), 8, 1, prm.EventPortChange)
		e.arm()
		wire := &testPort{down: true}
		if _, err := b.card.Plug(0, wire); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		b.card.Do(func() { wire.down = false })
		if err := b.fn.Wait(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if x := e.next(); x == nil || x.EventSubType() != uint8(prm.PortSubTypeActive) {
			t.Errorf("event % x", x)
		}
		stop()
	})
}

// TestEverythingAtOnce has nothing to compare: the race detector and the end of the test are the check.
func TestEverythingAtOnce(t *testing.T) {
	b := newBench(t, Config{Clock: time.Now, Ports: 2, BootTime: time.Nanosecond})
	ctx, cancel := context.WithCancel(t.Context())
	var engine, work sync.WaitGroup
	engine.Go(func() { b.card.Run(ctx) })
	b.startQueue()
	const rounds = 300
	for range 2 {
		work.Go(func() {
			for i := range rounds {
				b.regs.Store32(regCmdDoorbell, 0xffffffff)
				b.regs.Store64(uint64(20+i%4)<<12+0x800, uint64(i))
				b.regs.Store32(uint64(20)<<12+0x40, uint32(i))
				b.regs.Load32(regHealthCounter)
				b.regs.Load32(regCmdqLow)
			}
		})
	}
	work.Go(func() {
		for range rounds {
			b.card.Books()
			b.card.Do(func() {})
			b.card.Step(1)
		}
	})
	work.Go(func() {
		for range rounds / 10 {
			b.fn.Reset(ctx)
			b.fn.WriteConfig(4, []byte{0x06, 0x04})
		}
	})
	work.Go(func() {
		for range rounds / 10 {
			b.card.Plug(1, &testPort{})
			b.card.Plug(1, nil)
		}
	})
	work.Wait()
	cancel()
	engine.Wait()
}

func TestInboxIsBounded(t *testing.T) {
	b := newBench(t, Config{})
	for range 3 * inboxLimit / 2 {
		b.regs.Store32(regCmdDoorbell, 1)
	}
	if n := len(b.card.inbox); n > inboxLimit {
		t.Errorf("%d writes wait", n)
	}
	b.startQueue()
	b.must(&prm.NopIn{}, &prm.NopOut{})
}

func TestDoorbellsDoNotAllocate(t *testing.T) {
	b := newBench(t, Config{})
	b.bringUp()
	uar := uint64(b.allocUAR()) << uarShift
	if n := testing.AllocsPerRun(200, func() {
		for range 64 {
			b.regs.Store64(uar+0x800, 5<<8)
			b.regs.Store64(uar+0x20, 7)
			b.regs.Store32(uar+0x40, 9<<24)
		}
		b.card.Step(64)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestOneHostAtATime(t *testing.T) {
	b := newBench(t, Config{})
	host := fakeHost{}
	if err := b.card.Function(0).Attach(host); !errors.Is(err, errAttached) {
		t.Errorf("a second host: %v", err)
	}
	b.bringUp()
	b.fn.Close()
	if books := b.card.Books().Functions[0]; books.Attached || !books.Clean() {
		t.Errorf("books after unplugging: %+v", books)
	}
	b.attach(0)
	b.bringUp()
}

type fakeHost struct{}

func (fakeHost) Memory() pci.Memory { return nil }
func (fakeHost) Raise(int)          {}

func TestFunctionsAreIndependent(t *testing.T) {
	b := newBench(t, Config{Ports: 2})
	b.bringUp()
	first := b.fn
	b.attach(1)
	b.bringUp()
	b.allocUAR()
	books := b.card.Books().Functions
	if books[0].Objects["uar"] != 0 || books[1].Objects["uar"] != 1 {
		t.Errorf("books %+v", books)
	}
	if books[0].Address != "0000:08:00.0" || books[1].Address != "0000:08:00.1" {
		t.Errorf("addresses %s, %s", books[0].Address, books[1].Address)
	}
	if err := first.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	if books = b.card.Books().Functions; books[1].Objects["uar"] != 1 || books[0].Pages != 0 {
		t.Errorf("books after a reset of function 0: %+v", books)
	}
	var macs [2][6]byte
	for i, f := range b.card.functions {
		macs[i] = f.vport.permanent
	}
	if macs[0] == macs[1] {
		t.Errorf("both functions have the address %x", macs[0])
	}
	first.Close()
}

func TestBadConfigurationsAreNamed(t *testing.T) {
	for name, c := range map[string]Config{
		"profile":    {Profile: "cx9"},
		"ports":      {Ports: 9},
		"no ports":   {Ports: -1},
		"address":    {Address: "08:00.0"},
		"vectors":    {Vectors: 5000},
		"group MAC":  {MAC: [6]byte{1, 2, 3, 4, 5, 6}},
		"latency":    {OtherLatency: Latency{Min: 2, Max: 1}},
		"op latency": {Latency: map[uint16]Latency{1: {Min: -1, Max: 1}}},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestTimersFireInOrder(t *testing.T) {
	var h timers
	var fired []int
	var all [50]timer
	for i := range all {
		all[i].fire = func() { fired = append(fired, i) }
		h.arm(&all[i], time.Duration(i*7%10))
	}
	for i := 0; i < 50; i += 3 {
		h.disarm(&all[i])
	}
	h.arm(&all[1], 100)
	h.disarm(&all[0]) // not armed: nothing
	last := time.Duration(-1)
	for now := time.Duration(0); now <= 100; now++ {
		for x := h.due(now); x != nil; x = h.due(now) {
			if x.when < last {
				t.Fatalf("timer of %v after one of %v", x.when, last)
			}
			last = x.when
			x.fire()
		}
	}
	if len(fired) != 33 || fired[len(fired)-1] != 1 {
		t.Errorf("fired %v", fired)
	}
	if _, ok := h.next(); ok {
		t.Error("timers are left")
	}
}
