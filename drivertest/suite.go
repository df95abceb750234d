package drivertest

import (
	"context"
	"maps"
	"runtime"
	"sync"
	"testing"
	"time"

	"cxkit/driver"
	"cxkit/stats"
)

// Test is one named test of the suite.
type Test struct {
	Name    string
	Options Options
	// Config is how the NIC is opened; CheckBuffers is switched on in any case.
	Config driver.Config
	Run    func(e *Env)
}

// Run runs the whole suite, each test on a bench of its own.
func Run(t *testing.T, make Maker) {
	for _, test := range All() {
		t.Run(test.Name, func(t *testing.T) { RunOne(t, make, test) })
	}
}

// RunOne runs one test: opens the NIC, runs it, closes the NIC and compares the books.
func RunOne(t *testing.T, make Maker, test Test) {
	bench := make(t, test.Options)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	e := &Env{T: t, Ctx: ctx, Bench: bench}
	defer e.background.Wait() // after cancel, so that a test that failed early leaves nothing running
	defer cancel()
	e.Open(test.Config)
	e.begin()
	test.Run(e)
	e.Close()
}

// deadline bounds every test; it is long because machines that test are slow.
const deadline = 60 * time.Second

// Env is what a test works with.
type Env struct {
	*testing.T
	Ctx   context.Context
	Bench *Bench
	NIC   *driver.NIC

	before     stats.Snapshot // of the test, on a card that was used
	background sync.WaitGroup
	behind     bool // this Env belongs to a goroutine of Background
}

// Open opens the NIC with c. The suite has done so before Run; tests that closed it call it again.
func (e *Env) Open(c driver.Config) {
	e.Helper()
	c.CheckBuffers = true
	nic, err := driver.Open(e.Ctx, e.Bench.Function, c)
	if err != nil {
		e.Fatalf("open: %v", err)
	}
	e.NIC = nic
}

// Close closes the NIC, if it is open, and compares the books of driver and card.
func (e *Env) Close() {
	e.Helper()
	if e.NIC == nil {
		return
	}
	e.background.Wait()
	nic := e.NIC
	e.NIC = nil
	e.compareBooks(nic)
	if err := nic.Close(e.Ctx); err != nil {
		e.Errorf("close: %v", err)
	}
	e.emptyBooks(nic)
}

// compareBooks checks that driver and card agree while the NIC is up.
func (e *Env) compareBooks(nic *driver.NIC) {
	e.Helper()
	if e.Bench.Books == nil {
		return
	}
	ours := nic.Books()
	theirs, err := e.Bench.Books()
	if err != nil {
		e.Errorf("books of the card: %v", err)
		return
	}
	if ours.FirmwarePages != theirs.Pages {
		e.Errorf("driver says firmware holds %d pages, the card says %d", ours.FirmwarePages, theirs.Pages)
	}
	if !maps.Equal(nonZero(ours.Objects), nonZero(theirs.Objects)) {
		e.Errorf("objects: driver says %v, the card says %v", nonZero(ours.Objects), nonZero(theirs.Objects))
	}
	if ours.Buffers.Violations != 0 {
		e.Errorf("%d buffers were released or sent by someone who did not have them", ours.Buffers.Violations)
	}
}

// emptyBooks checks that nothing is out after Close.
func (e *Env) emptyBooks(nic *driver.NIC) {
	e.Helper()
	ours := nic.Books()
	if ours.FirmwarePages != 0 || len(nonZero(ours.Objects)) != 0 || ours.CommandSlots != 0 || ours.Mailboxes != 0 ||
		ours.Buffers.Posted+ours.Buffers.Application+ours.Buffers.Sending != 0 {
		e.Errorf("after close the driver's books say %+v", ours)
	}
	if e.Bench.Books == nil {
		return
	}
	theirs, err := e.Bench.Books()
	if err != nil {
		e.Errorf("books of the card: %v", err)
		return
	}
	if theirs.Pages != 0 || len(nonZero(theirs.Objects)) != 0 || theirs.Commands != 0 {
		e.Errorf("after close the card's books say %+v", theirs)
	}
}

func nonZero(m map[string]int) map[string]int {
	m = maps.Clone(m)
	maps.DeleteFunc(m, func(_ string, n int) bool { return n == 0 })
	return m
}

// Background runs f in a goroutine that has ended before the NIC is closed.
func (e *Env) Background(f func(e *Env)) {
	inner := &Env{T: e.T, Ctx: e.Ctx, Bench: e.Bench, NIC: e.NIC, before: e.before, behind: true}
	e.background.Go(func() { f(inner) })
}

// Fatalf fails the test and ends the calling goroutine; unlike testing.T's it may be called behind the
// test, too.
func (e *Env) Fatalf(format string, args ...any) {
	e.Helper()
	if !e.behind {
		e.T.Fatalf(format, args...)
	}
	e.Errorf(format, args...)
	runtime.Goexit()
}

// Until polls for a condition of the other side that no event announces, such as a counter.
func (e *Env) Until(what string, holds func() bool) {
	e.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-e.Ctx.Done():
			e.Fatalf("%s: %v", what, e.Ctx.Err())
		}
	}
}
