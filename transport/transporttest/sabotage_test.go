//go:build !race

// Not under -race: the detector notices some of these sabotages before the checks do.

package transporttest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cxkit/dma"
	"cxkit/mmio"
	"cxkit/pci"
	"cxkit/transport/inproc"
)

// Each sabotage breaks a working transport in one way; the checks named must notice.
func TestTheSuiteNoticesBrokenTransports(t *testing.T) {
	for _, s := range []struct {
		name     string
		host     func(pci.Host) pci.Host
		function func(pci.Function) pci.Function
		noticed  []string
	}{
		{name: "none"},
		{name: "interrupts are lost", host: func(h pci.Host) pci.Host { return &lossy{Host: h} },
			noticed: []string{"InterruptsReachTheirVector"}},
		{name: "interrupts come twice", host: func(h pci.Host) pci.Host { return noisy{h} },
			noticed: []string{"InterruptsReachTheirVector"}},
		{name: "steps hold nothing off", host: over(func(m pci.Memory) pci.Memory { return gateless{m} }),
			noticed: []string{"ClosingAnArenaWaitsForTheStep"}},
		{name: "the generation stands still", host: over(func(m pci.Memory) pci.Memory { return still{m} }),
			noticed: []string{"GenerationChangesWhenMemoryGoes"}},
		{name: "views are cut short", host: over(func(m pci.Memory) pci.Memory { return short{m} }),
			noticed: []string{"DMAOutsideArenasIsRefused"}},
		{name: "copies never fail", host: over(func(m pci.Memory) pci.Memory { return careless{m} }),
			noticed: []string{"DMAOutsideArenasIsRefused", "ClosedArenasAreUnmapped"}},
		{name: "writes are lost", function: trapped(func(n int64, store func()) {
			if n%100 != 99 {
				store()
			}
		}), noticed: []string{"PostedWritesArriveInOrder"}},
		{name: "writes come twice", function: trapped(func(_ int64, store func()) { store(); store() }),
			noticed: []string{"PostedWritesArriveInOrder", "WritersInParallelKeepTheirOrder"}},
		{name: "writes are late", function: func(f pci.Function) pci.Function { return &late{Function: f} },
			noticed: []string{"ReadsSeeEarlierWrites", "RegistersKeepEveryWidth"}},
		{name: "resets do nothing", function: func(f pci.Function) pci.Function { return lazy{f} },
			noticed: []string{"ResetClearsTheFunction", "ResetWaitsForTheStep", "ResetClearsTheMSIXTable"}},
		{name: "close does nothing", function: func(f pci.Function) pci.Function { return immortal{f} },
			// Whether the card still writes when CloseWaitsForTheStep looks is up to the scheduler.
			noticed: []string{"CloseEndsEverything"}},
		{name: "any kind is heap", function: func(f pci.Function) pci.Function { return heapOnly{f} },
			noticed: []string{"KindsNotOfferedAreRefused", "ArenasOfEveryKindCarryDMA"}},
		{name: "config is swapped", function: func(f pci.Function) pci.Function { return swapped{f} },
			noticed: []string{"ConfigHasTheIdentifiers", "ConfigIsAccessedInEverySizeAndAlignment"}},
	} {
		t.Run(s.name, func(t *testing.T) {
			o := Options{Kinds: offered(), MSIXTable: true, Open: func(t testing.TB) pci.Function {
				var ep pci.Endpoint = NewCard()
				if s.host != nil {
					ep = endpoint{ep, s.host}
				}
				f, err := inproc.Open(ep, inproc.Config{Kind: dma.Heap})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { f.Close() })
				if s.function != nil {
					return s.function(f)
				}
				return f
			}}
			if s.host != nil {
				o.Kinds = o.Kinds[:1] // a card that strays in heap memory does no harm
			}
			for _, c := range checks(o) {
				if s.noticed != nil && !slices.Contains(s.noticed, c.name) {
					continue
				}
				said := verdict(t, o, c)
				if (said != "") != (s.noticed != nil) {
					t.Errorf("%s: the check said %q", c.name, said)
				}
			}
			for _, name := range s.noticed {
				if !slices.ContainsFunc(checks(o), func(c check) bool { return c.name == name }) {
					t.Errorf("there is no check %s", name)
				}
			}
		})
	}
}

// offered is what the in-process transport has, heap memory first.
func offered() []dma.Kind {
	kinds := []dma.Kind{dma.Heap}
	for _, k := range []dma.Kind{dma.Private, dma.Shared, dma.Reserved} {
		if a, err := dma.New(1, k); err == nil {
			kinds = append(kinds, k)
			a.Close()
		}
	}
	return kinds
}

// verdict runs a check and returns its complaints.
func verdict(t *testing.T, o Options, c check) string {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() { // Fatal ends this goroutine
		defer close(done)
		b := newBench(r, o)
		b.patience = time.Second // a sabotage that loses something makes the check wait in vain
		c.run(b)
	}()
	<-done
	for _, f := range slices.Backward(r.cleanups) {
		f()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.said
}

// recorder is a testing.TB that keeps complaints to itself.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	said     string
	cleanups []func()
}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said += fmt.Sprintf(format, args...) + "\n"
}
func (r *recorder) Error(args ...any)                 { r.Errorf("%s", fmt.Sprint(args...)) }
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...); runtime.Goexit() }
func (r *recorder) Fatal(args ...any)                 { r.Error(args...); runtime.Goexit() }
func (r *recorder) Cleanup(f func())                  { r.cleanups = append(r.cleanups, f) }

// endpoint gives the card a host that has been tampered with.
type endpoint struct {
	pci.Endpoint
	tamper func(pci.Host) pci.Host
}

func (e endpoint) Attach(h pci.Host) error { return e.Endpoint.Attach(e.tamper(h)) }

type lossy struct {
	pci.Host
	n atomic.Int64
}

func (l *lossy) Raise(v int) {
	if l.n.Add(1)%7 != 0 {
		l.Host.Raise(v)
	}
}

type noisy struct{ pci.Host }

func (n noisy) Raise(v int) {
	n.Host.Raise(v)
	n.Host.Raise(v ^ 1)
}

// over puts tamper around the host's memory.
func over(tamper func(pci.Memory) pci.Memory) func(pci.Host) pci.Host {
	return func(h pci.Host) pci.Host { return withMemory{h, tamper(h.Memory())} }
}

type withMemory struct {
	pci.Host
	mem pci.Memory
}

func (w withMemory) Memory() pci.Memory { return w.mem }

type gateless struct{ pci.Memory }

func (gateless) Enter() {}
func (gateless) Leave() {}

type still struct{ pci.Memory }

func (still) Generation() uint64 { return 1 }

type short struct{ pci.Memory }

func (s short) View(addr uint64, n int, access pci.Access) []byte {
	for ; n > 0; n-- {
		if b := s.Memory.View(addr, n, access); b != nil {
			return b
		}
		n /= 2
	}
	return nil
}

type careless struct{ pci.Memory }

func (c careless) ReadAt(p []byte, addr uint64) error  { c.Memory.ReadAt(p, addr); return nil }
func (c careless) WriteAt(p []byte, addr uint64) error { c.Memory.WriteAt(p, addr); return nil }

// trapped puts how around each register write, which it numbers.
func trapped(how func(n int64, store func())) func(pci.Function) pci.Function {
	return func(f pci.Function) pci.Function { return &meddler{Function: f, how: how} }
}

type meddler struct {
	pci.Function
	how func(n int64, store func())
	n   atomic.Int64
}

func (m *meddler) Window(bar int) (*mmio.Window, error) {
	w, err := m.Function.Window(bar)
	if err != nil {
		return nil, err
	}
	return mmio.NewTrapped(&meddling{w, m}, w.Size()), nil
}

type meddling struct {
	w *mmio.Window
	m *meddler
}

func (m *meddling) Load(off uint64, size int) uint64 { return load(m.w, off, size) }
func (m *meddling) Store(off uint64, size int, v uint64) {
	m.m.how(m.m.n.Add(1), func() { store(m.w, off, size, v) })
}

func load(w *mmio.Window, off uint64, size int) uint64 {
	if size == 8 {
		return w.Load64(off)
	}
	return uint64(w.Load32(off))
}

func store(w *mmio.Window, off uint64, size int, v uint64) {
	if size == 8 {
		w.Store64(off, v)
	} else {
		w.Store32(off, uint32(v))
	}
}

// late holds each write back until the next one.
type late struct{ pci.Function }

func (l *late) Window(bar int) (*mmio.Window, error) {
	w, err := l.Function.Window(bar)
	if err != nil {
		return nil, err
	}
	return mmio.NewTrapped(&lateTrap{w: w}, w.Size()), nil
}

type lateTrap struct {
	w    *mmio.Window
	mu   sync.Mutex
	last func()
}

func (l *lateTrap) Load(off uint64, size int) uint64 { return load(l.w, off, size) }
func (l *lateTrap) Store(off uint64, size int, v uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last != nil {
		l.last()
	}
	l.last = func() { store(l.w, off, size, v) }
}

type lazy struct{ pci.Function }

func (lazy) Reset(context.Context) error { return nil }

type immortal struct{ pci.Function }

func (immortal) Close() error { return nil }

type heapOnly struct{ pci.Function }

func (h heapOnly) NewArena(size int, _ dma.Kind) (*dma.Arena, error) {
	return h.Function.NewArena(size, dma.Heap)
}

type swapped struct{ pci.Function }

func (s swapped) ReadConfig(off int, p []byte) error {
	err := s.Function.ReadConfig(off, p)
	slices.Reverse(p)
	return err
}
