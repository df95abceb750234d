package transporttest

import (
	"context"
	"slices"
	"testing"
	"time"

	"cxkit/dma"
	"cxkit/mmio"
	"cxkit/pci"
)

// Options is a transport and what it claims to have.
type Options struct {
	// Open plugs a new Card in and returns the driver's end. What the transport needs beside the function
	// is ended by t.Cleanup; the suite closes the function.
	Open func(t testing.TB) pci.Function
	// Kinds are the kinds of memory that the transport offers. All others must be dma.ErrKind.
	Kinds []dma.Kind
	// MSIXTable: the table in the BAR masks vectors.
	MSIXTable bool
	// Scattered: memory is mapped page by page, so a card's view that crosses pages may be refused. What it
	// copies is not.
	Scattered bool
	// Late: an interrupt may arrive after a register was read behind it.
	Late bool
}

// check is one thing that every function must do.
type check struct {
	name string
	run  func(b *bench)
}

// Run runs the suite as subtests.
func Run(t *testing.T, o Options) {
	for _, c := range checks(o) {
		t.Run(c.name, func(t *testing.T) { c.run(newBench(t, o)) })
	}
}

func checks(o Options) []check {
	list := slices.Concat(configChecks, barChecks, dmaChecks, interruptChecks, lifetimeChecks)
	if o.MSIXTable {
		list = append(list, tableChecks...)
	}
	return list
}

// patience is how long the suite waits for what must happen.
const patience = 30 * time.Second

// bench is a function under test with the card behind it.
type bench struct {
	testing.TB
	o   Options
	f   pci.Function
	reg *mmio.Window // BAR 0

	patience time.Duration
}

func newBench(t testing.TB, o Options) *bench {
	b := &bench{TB: t, o: o, f: o.Open(t), patience: patience}
	t.Cleanup(func() { b.f.Close() })
	w, err := b.f.Window(0)
	if err != nil {
		b.Fatalf("window of BAR 0: %v", err)
	}
	b.reg = w
	if id := w.Load32(regID); id != cardID {
		b.Fatalf("BAR 0 reads %#x at %#x: this is not the suite's card", id, regID)
	}
	return b
}

// arena makes memory, closed at the end of the test unless the test does so.
func (b *bench) arena(size int, kind dma.Kind) *dma.Arena {
	b.Helper()
	a, err := b.f.NewArena(size, kind)
	if err != nil {
		b.Fatalf("arena of %d bytes, %v: %v", size, kind, err)
	}
	b.Cleanup(func() { a.Close() })
	return a
}

// fillAnywhere fills memory that may cross pages.
func (b *bench) fillAnywhere() (op uint32) {
	if b.o.Scattered {
		return cmdFillAt
	}
	return cmdFill
}

// kind is one that both sides can touch.
func (b *bench) kind() dma.Kind { return b.o.Kinds[0] }

// waitFor is Wait with the suite's patience.
func (b *bench) waitFor(vector int) error {
	ctx, cancel := context.WithTimeout(context.Background(), b.patience)
	defer cancel()
	return b.f.Wait(ctx, vector)
}

// wait waits for a vector that must come.
func (b *bench) wait(vector int) {
	b.Helper()
	if err := b.waitFor(vector); err != nil {
		b.Fatalf("wait for vector %d: %v", vector, err)
	}
}

// silent checks that a vector has not been raised. Everything that was raised has arrived: the register
// read before it is behind all interrupts of the commands that are done. Where interrupts are late, two
// commands more are: when the second one's interrupt comes, whoever forwarded the first one's has forwarded
// all that were raised before it.
func (b *bench) silent(vector int) {
	b.Helper()
	b.reg.Load32(regDone)
	if b.o.Late {
		b.must("nothing", command{op: cmdNothing})
		b.must("nothing", command{op: cmdNothing})
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := b.f.Wait(ctx, vector); err == nil {
		b.Errorf("vector %d was raised", vector)
	}
}

// start gives the card a command.
func (b *bench) start(c command) {
	b.reg.Store64(regSource, c.source)
	b.reg.Store64(regDest, c.dest)
	b.reg.Store32(regLength, uint32(c.length))
	b.reg.Store32(regArg, c.arg)
	b.reg.Store32(regNotify, uint32(c.notify))
	b.reg.Store32(regCommand, c.op)
}

// do has the card perform a command, by vector 0, and returns what came of it.
func (b *bench) do(c command) (status int, value uint64) {
	b.Helper()
	c.notify = 0
	b.start(c)
	b.wait(0)
	return int(b.reg.Load32(regStatus)), b.reg.Load64(regValue)
}

// must has the card perform a command that succeeds.
func (b *bench) must(what string, c command) (value uint64) {
	b.Helper()
	status, value := b.do(c)
	if status != statusOK {
		b.Fatalf("%s: card reports %s", what, statusName(status))
	}
	return value
}

// refused has the card perform a command that must fail in this way.
func (b *bench) refused(what string, want int, c command) {
	b.Helper()
	if status, _ := b.do(c); status != want {
		b.Errorf("%s: card reports %s, want %s", what, statusName(status), statusName(want))
	}
}

func statusName(s int) string {
	names := []string{"ok", "no view", "DMA error", "stale view", "memory vanished", "an odd answer"}
	if s < 0 || s >= len(names) {
		return "a status that does not exist"
	}
	return names[s]
}
