package fwpages

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cxkit/dma"
	"cxkit/driver/internal/cmdif"
	"cxkit/prm"
)

// firmware executes MANAGE_PAGES and QUERY_PAGES without a command interface.
type firmware struct {
	mu      sync.Mutex
	pages   []uint64
	owner   map[uint64]Function
	wants   int32
	takes   []uint32 // counts asked back
	cants   int
	give    error                                             // what GIVE ends with
	returns func(asked uint32, out *prm.ManagePagesOut) error // replaces TAKE
	noSpace bool
}

func (f *firmware) Exec(_ context.Context, in cmdif.In, out cmdif.Out) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch in := in.(type) {
	case *prm.QueryPagesIn:
		out.(*prm.QueryPagesOut).NumPages = f.wants
	case *prm.ManagePagesIn:
		out := out.(*prm.ManagePagesOut)
		switch prm.PagesOpMod(in.OpMod) {
		case prm.PagesCantGive:
			f.cants++
		case prm.PagesGive:
			if f.give != nil {
				return f.give
			}
			f.pages = append(f.pages, in.PAS...)
			if fn := (Function{in.FunctionID, in.EmbeddedCPUFunction}); fn != (Function{}) {
				f.belong(fn, in.PAS)
			}
		case prm.PagesTake:
			f.takes = append(f.takes, in.InputNumEntries)
			if len(out.PAS) != int(in.InputNumEntries) {
				return fmt.Errorf("room for %d pages, %d asked", len(out.PAS), in.InputNumEntries)
			}
			if f.returns != nil {
				return f.returns(in.InputNumEntries, out)
			}
			out.PAS = f.back(Function{in.FunctionID, in.EmbeddedCPUFunction}, min(int(in.InputNumEntries), 50_000))
			out.OutputNumEntries = uint32(len(out.PAS))
		}
	}
	return nil
}

// belong notes that pages are those of another function than the driver's own.
func (f *firmware) belong(fn Function, pas []uint64) {
	if f.owner == nil {
		f.owner = make(map[uint64]Function)
	}
	for _, pa := range pas {
		f.owner[pa] = fn
	}
}

// back returns at most n pages of a function, those given last.
func (f *firmware) back(fn Function, n int) (pas []uint64) {
	if f.owner == nil {
		n = min(n, len(f.pages))
		pas = slices.Clone(f.pages[len(f.pages)-n:])
		f.pages = f.pages[:len(f.pages)-n]
		return pas
	}
	for i := len(f.pages) - 1; i >= 0 && len(pas) < n; i-- {
		if pa := f.pages[i]; f.owner[pa] == fn {
			pas = append(pas, pa)
			f.pages = slices.Delete(f.pages, i, i+1)
		}
	}
	return pas
}

func manager(t *testing.T, f *firmware, change func(*Config)) *Manager {
	t.Helper()
	grow := space(1 << 32)
	c := Config{
		Exec: f, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		NewArena: func(size int, kind dma.Kind) (*dma.Arena, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.noSpace {
				return nil, dma.ErrSize
			}
			if kind != dma.Reserved {
				t.Errorf("firmware pages of kind %v", kind)
			}
			return grow(size / dma.PageSize)
		},
	}
	if change != nil {
		change(&c)
	}
	m := New(c)
	m.Start()
	t.Cleanup(func() {
		if err := m.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if err := m.Release(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// boot makes a manager whose firmware has n pages.
func boot(t *testing.T, f *firmware, n int, change func(*Config)) *Manager {
	t.Helper()
	m := manager(t, f, change)
	f.wants = int32(n)
	if err := m.Boot(t.Context(), prm.QueryPagesBoot); err != nil {
		t.Fatal(err)
	}
	return m
}

func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func TestRequestCountsAtTheirLimits(t *testing.T) { // R03
	for _, test := range []struct {
		count     int32
		has       int
		asked     []uint32 // by TAKE
		has2      int
		cants     int
		unlimited bool
	}{
		{count: 0, has: 100, has2: 100},
		{count: 1, has: 100, has2: 101},
		{count: -1, has: 100, asked: []uint32{1}, has2: 99},
		{count: -50_000, has: 60_000, asked: []uint32{50_000}, has2: 10_000},
		{count: -50_001, has: 60_000, asked: []uint32{50_000}, has2: 10_000},
		{count: -50_001, has: 60_000, asked: []uint32{50_001}, has2: 10_000, unlimited: true}, // firmware's own limit
		{count: 50_000, has: 1, has2: 50_001},
		{count: 50_001, has: 1, has2: 50_002},
		{count: math.MinInt32, has: 60_000, asked: []uint32{50_000}, has2: 10_000},
		{count: math.MinInt32, has: 100, asked: []uint32{100}, has2: 0},
		{count: math.MinInt32, has: 0},
		{count: math.MaxInt32, has: 100, has2: 100, cants: 1},
		{count: 0x20000000, has: 100, has2: 100, cants: 1}, // R06: npages*8 overflows 32 bits
	} {
		t.Run(fmt.Sprint(test.count, "_of_", test.has), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := &firmware{}
				m := boot(t, f, test.has, func(c *Config) {
					if test.unlimited {
						c.ReclaimLimit = new(0)
					}
				})
				m.Handle(prm.PageRequestEvent{NumPages: test.count})
				synctest.Wait()
				if !slices.Equal(f.takes, test.asked) || len(f.pages) != test.has2 || f.cants != test.cants {
					t.Errorf("asked %v back, firmware has %d pages and was told %d times that there are none; want %v, %d, %d",
						f.takes, len(f.pages), f.cants, test.asked, test.has2, test.cants)
				}
				if b := m.Books(); b.Out != test.has2 {
					t.Errorf("books: %+v", b)
				}
			})
		})
	}
}

func TestReclaimOfMillionsGoesInRoundsOfTheLimit(t *testing.T) { // R01, R02
	bubble(t, func(t *testing.T) {
		f := &firmware{}
		m := boot(t, f, 1_300_000, nil)
		rounds := 0
		for left := 1_300_000; left > 0; left = len(f.pages) {
			m.Handle(prm.PageRequestEvent{NumPages: -int32(left)}) // firmware raises the event again for the rest
			synctest.Wait()
			if rounds++; rounds > 26 {
				t.Fatal("more than 26 rounds")
			}
		}
		if rounds != 26 || m.Books().Out != 0 || slices.Max(f.takes) != 50_000 {
			t.Errorf("%d rounds, at most %d pages at once, books %+v", rounds, slices.Max(f.takes), m.Books())
		}
	})
}

func TestFirmwareThatReturnsFewerThanAsked(t *testing.T) { // R02
	bubble(t, func(t *testing.T) {
		f := &firmware{}
		m := boot(t, f, 60_000, nil)
		f.returns = func(asked uint32, out *prm.ManagePagesOut) error {
			out.OutputNumEntries = 31_234
			out.PAS = append(out.PAS[:0], f.pages[:31_234]...)
			return nil
		}
		m.Handle(prm.PageRequestEvent{NumPages: -50_000})
		synctest.Wait()
		if b := m.Books(); b.Out != 60_000-31_234 || b.BadReturn != 0 {
			t.Errorf("books: %+v", b)
		}
	})
}

func TestReturnedAddressesAreChecked(t *testing.T) { // R07
	for name, test := range map[string]struct {
		answer  func(pages []uint64) (n uint32, pas []uint64)
		back    int
		bad     uint64
		refused uint64
	}{
		"more than asked":       {func(p []uint64) (uint32, []uint64) { return 11, p[:10] }, 0, 0, 1},
		"4 billion":             {func(p []uint64) (uint32, []uint64) { return math.MaxUint32, p[:10] }, 0, 0, 1},
		"twice":                 {func(p []uint64) (uint32, []uint64) { return 10, append(slices.Clone(p[:9]), p[3]) }, 9, 1, 0},
		"never given":           {func(p []uint64) (uint32, []uint64) { return 2, []uint64{p[0], 0xDEAD000} }, 1, 1, 0},
		"never given, but ours": {func(p []uint64) (uint32, []uint64) { return 2, []uint64{p[0], p[0] + 511*4096} }, 1, 1, 0},
		"unaligned":             {func(p []uint64) (uint32, []uint64) { return 2, []uint64{p[0], p[1] + 8} }, 1, 1, 0},
		"address 0":             {func(p []uint64) (uint32, []uint64) { return 1, []uint64{0} }, 0, 1, 0},
		"all ones":              {func(p []uint64) (uint32, []uint64) { return 1, []uint64{math.MaxUint64} }, 0, 1, 0},
		"nothing":               {func(p []uint64) (uint32, []uint64) { return 0, nil }, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := &firmware{}
				m := boot(t, f, 100, nil)
				f.returns = func(asked uint32, out *prm.ManagePagesOut) error {
					var pas []uint64
					out.OutputNumEntries, pas = test.answer(f.pages)
					out.PAS = append(out.PAS[:0], pas...)
					return nil
				}
				m.Handle(prm.PageRequestEvent{NumPages: -10})
				synctest.Wait()
				if b := m.Books(); b.Out != 100-test.back || b.BadReturn != test.bad || b.TakeFails != test.refused {
					t.Errorf("books: %+v", b)
				}
			})
		})
	}
}

func TestGiveThatFails(t *testing.T) {
	refused := &prm.CommandError{Op: prm.OpManagePages, Status: prm.StatusLimitExceeded}
	for name, test := range map[string]struct {
		err   error
		out   int // pages that firmware may have
		cants int
	}{
		"refused":      {refused, 0, 0},
		"never issued": {&cmdif.NoAnswerError{Cause: cmdif.NeverIssued, Err: cmdif.ErrTimeout}, 0, 1},
		"no mailboxes": {cmdif.ErrNoMailbox, 0, 1},
		"silent":       {&cmdif.NoAnswerError{Cause: cmdif.FirmwareSilent, Err: cmdif.ErrTimeout}, 64, 0},
		"flushed":      {&cmdif.NoAnswerError{Cause: cmdif.Flushed, Err: cmdif.ErrTimeout}, 64, 0},
		"bad answer":   {&cmdif.ProtocolError{}, 64, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := &firmware{}
				m := boot(t, f, 10, nil)
				f.give = test.err
				m.Handle(prm.PageRequestEvent{NumPages: 64})
				synctest.Wait()
				if b := m.Books(); b.Out != 10+test.out || int(b.Doubtful) != test.out || f.cants != test.cants {
					t.Errorf("books %+v, told %d times that there are none", b, f.cants)
				}
				f.give = nil
				m.Handle(prm.PageRequestEvent{NumPages: 64})
				synctest.Wait()
				seen := map[uint64]bool{}
				for _, pa := range f.pages {
					if seen[pa] {
						t.Fatalf("page %#x was given twice", pa)
					}
					seen[pa] = true
				}
			})
		})
	}
}

func TestNoMemoryIsAnsweredWithCannotGive(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &firmware{}
		m := boot(t, f, 10, nil)
		f.noSpace = true
		m.Handle(prm.PageRequestEvent{NumPages: 1000})
		synctest.Wait()
		if b := m.Books(); b.Out != 10 || f.cants != 1 || b.Refused != 1 {
			t.Errorf("books %+v, told %d times", b, f.cants)
		}
	})
}

func TestLimitOfPages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &firmware{}
		m := boot(t, f, 10, func(c *Config) { c.MaxPages = 100 })
		for range 20 {
			m.Handle(prm.PageRequestEvent{NumPages: 9})
			synctest.Wait()
		}
		if len(f.pages) != 100 || f.cants != 10 {
			t.Errorf("firmware has %d pages, was refused %d times", len(f.pages), f.cants)
		}
	})
}

func TestUnknownFunctionsGetNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &firmware{}
		m := boot(t, f, 10, nil)
		m.Handle(prm.PageRequestEvent{FuncID: 7, NumPages: 5})
		m.Handle(prm.PageRequestEvent{FuncID: 0, ECFunction: true, NumPages: 5}) // ba5d8f72b82c: another function
		m.Handle(prm.PageRequestEvent{FuncID: 7, NumPages: -5})
		synctest.Wait()
		if len(f.pages) != 10 || f.cants != 2 || len(f.takes) != 0 {
			t.Errorf("firmware has %d pages, %d refusals, takes %v", len(f.pages), f.cants, f.takes)
		}
	})
}

func TestReleaseAllFreesWithoutACommand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &firmware{}
		m := boot(t, f, 10, nil)
		vf := Function{ID: 1}
		m.Enable(vf)
		m.Handle(prm.PageRequestEvent{FuncID: 1, NumPages: 1000})
		synctest.Wait()
		m.Handle(prm.PageRequestEvent{FuncID: 1, ReleaseAllPages: true}) // not agreed on yet
		synctest.Wait()
		if b := m.Books(); b.Out != 1010 {
			t.Errorf("books: %+v", b)
		}
		m.AllowReleaseAll()
		m.Handle(prm.PageRequestEvent{FuncID: 1, ReleaseAllPages: true})
		m.Handle(prm.PageRequestEvent{FuncID: 0, ReleaseAllPages: true}) // the function that runs: never
		synctest.Wait()
		if b := m.Books(); b.Out != 10 || len(f.takes) != 0 {
			t.Errorf("books %+v, takes %v", b, f.takes)
		}
	})
}

func TestBootPagesForTwoFunctions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &firmware{}
		m := boot(t, f, 10, nil)
		m.config.Exec = exec(func(in cmdif.In, out cmdif.Out) error {
			out.(*prm.QueryPagesOut).FunctionID = 3
			return nil
		})
		if err := m.Boot(t.Context(), prm.QueryPagesInit); err == nil {
			t.Error("accepted")
		}
	})
}

type exec func(in cmdif.In, out cmdif.Out) error

func (e exec) Exec(_ context.Context, in cmdif.In, out cmdif.Out) error { return e(in, out) }

func TestReclaimAllTakesBatchesUntilNothingIsLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &firmware{}
		m := boot(t, f, 12_868, nil)
		if err := m.ReclaimAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(f.takes) != 17 || f.takes[0] != 768 || f.takes[16] != 12_868%768 {
			t.Errorf("takes: %v", f.takes)
		}
	})
}

func TestReclaimAllGoesOnAsLongAsPagesCome(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &firmware{}
		m := boot(t, f, 40, nil)
		f.returns = func(asked uint32, out *prm.ManagePagesOut) error {
			time.Sleep(4 * time.Second) // one page each 4 s: slower than no page at all for 5 s
			out.OutputNumEntries = 1
			out.PAS = append(out.PAS[:0], f.pages[0])
			f.pages = f.pages[1:]
			return nil
		}
		if err := m.ReclaimAll(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestReclaimAllEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &firmware{}
		m := boot(t, f, 40, nil)
		f.returns = func(uint32, *prm.ManagePagesOut) error { return nil }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := m.ReclaimAll(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error: %v", err)
		}
	})
}
