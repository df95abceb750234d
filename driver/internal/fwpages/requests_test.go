package fwpages

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"cxkit/dma"
	"cxkit/driver/internal/cmdif"
	"cxkit/prm"
)

func TestClampKeepsSignAndLimit(t *testing.T) { // R03
	rapid.Check(t, func(t *rapid.T) {
		edges := []int32{0, 1, -1, 50_000, -50_000, 50_001, -50_001, math.MaxInt32, math.MinInt32}
		n := rapid.OneOf(rapid.SampledFrom(edges), rapid.Int32()).Draw(t, "count")
		limit := rapid.SampledFrom([]int{-1, 0, 1, 1000, 50_000, math.MaxInt32, math.MaxInt}).Draw(t, "limit")
		got := clamp(n, limit)
		want := int64(n)
		if limit > 0 {
			want = max(want, -int64(limit))
		}
		if int64(got) != want || (got < 0) != (n < 0) || n > 0 && got != n {
			t.Fatalf("clamp(%d, %d) = %d, want %d", n, limit, got, want)
		}
	})
}

// slow is firmware whose commands take their time, and that keeps a diary.
type slow struct {
	firmware
	take  time.Duration
	diary []string
	begin time.Time
}

// forget begins a new diary.
func (s *slow) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.diary = nil
}

// seen is what firmware has seen since.
func (s *slow) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.diary)
}

func (s *slow) Exec(ctx context.Context, in cmdif.In, out cmdif.Out) error {
	if m, ok := in.(*prm.ManagePagesIn); ok {
		s.mu.Lock()
		n := m.InputNumEntries
		s.diary = append(s.diary, fmt.Sprintf("%v %v f%d %d", time.Since(s.begin), prm.PagesOpMod(m.OpMod), m.FunctionID, n))
		s.mu.Unlock()
		if prm.PagesOpMod(m.OpMod) == prm.PagesTake {
			time.Sleep(s.take)
		}
	}
	return s.firmware.Exec(ctx, in, out)
}

// A reclaim of millions for one function delays what another waits for by one TAKE (mechanisms.md,
// hazards).
func TestGiveWaitsForOneTakeAtMost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &slow{take: time.Second, begin: time.Now()}
		m := boot(t, &f.firmware, 400_000, func(c *Config) { c.Exec = f })
		for i := range 4 {
			m.Enable(Function{ID: uint16(i + 1)})
			m.functions[Function{ID: uint16(i + 1)}].given = 50_000 // as far as TAKE is concerned
		}
		f.forget()
		f.returns = func(asked uint32, out *prm.ManagePagesOut) error {
			out.PAS = out.PAS[:0]
			return nil
		}
		for i := range 4 {
			m.Handle(prm.PageRequestEvent{FuncID: uint16(i), NumPages: -8_000_000})
		}
		time.Sleep(500 * time.Millisecond) // in the middle of the first
		m.Handle(prm.PageRequestEvent{FuncID: 4, NumPages: 7})
		time.Sleep(10 * time.Second)
		want := []string{
			"0s TAKE f0 50000", "1s GIVE f4 7", "1s TAKE f1 50000", "2s TAKE f2 50000", "3s TAKE f3 50000",
		}
		if !slices.Equal(f.seen(), want) {
			t.Errorf("firmware saw %q, want %q", f.seen(), want)
		}
		for i := range 4 {
			m.functions[Function{ID: uint16(i + 1)}].given -= 50_000
		}
	})
}

// Handle needs no memory and loses nothing, whatever the worker does meanwhile (mechanisms.md, hazards:
// no memory in the notifier loses a request).
func TestNoRequestIsLostWhileTheWorkerIsBusy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &slow{take: time.Second, begin: time.Now()}
		m := boot(t, &f.firmware, 100, func(c *Config) { c.Exec = f })
		m.Enable(Function{ID: 1})
		m.Handle(prm.PageRequestEvent{NumPages: -1})
		synctest.Wait()
		f.forget()
		allocs := testing.AllocsPerRun(1000, func() {
			m.Handle(prm.PageRequestEvent{FuncID: 1, NumPages: 3})
			m.Handle(prm.PageRequestEvent{FuncID: 0, NumPages: -2})
		})
		time.Sleep(10 * time.Second)
		want := []string{"1s GIVE f1 3003", "1s TAKE f0 2"}
		if allocs != 0 || !slices.Equal(f.seen(), want) {
			t.Errorf("%v allocations a request; firmware saw %q, want %q", allocs, f.seen(), want)
		}
		if b := m.Books(); b.Out != 100-1+3003-2 || b.Dropped != 0 {
			t.Errorf("books: %+v", b)
		}
	})
}

func TestStormOfRequestsOfStrangersIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &firmware{}
		m := boot(t, f, 1, nil)
		f.mu.Lock() // the worker is stuck in a command
		for i := range 10_000 {
			m.Handle(prm.PageRequestEvent{FuncID: uint16(i + 1), NumPages: 1})
			m.Handle(prm.PageRequestEvent{FuncID: uint16(i + 1), NumPages: -1})
		}
		f.mu.Unlock()
		synctest.Wait()
		b := m.Books()
		if f.cants < maxStrangers || f.cants > maxStrangers+1 || b.Dropped+uint64(f.cants) != 10_000 || b.Nonsense != 10_000 {
			t.Errorf("%d were told that they get nothing; books %+v", f.cants, b)
		}
	})
}

func TestEndlessGivesDoNotKeepOthersFromGivingBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &firmware{}
		m := boot(t, f, 1000, nil)
		m.Enable(Function{ID: 1})
		gives := 0
		m.config.Exec = exec(func(in cmdif.In, out cmdif.Out) error {
			if x, ok := in.(*prm.ManagePagesIn); ok && prm.PagesOpMod(x.OpMod) == prm.PagesGive {
				if gives++; gives < 1000 {
					m.Handle(prm.PageRequestEvent{FuncID: 1, NumPages: 1})
				}
			}
			return f.Exec(context.Background(), in, out)
		})
		m.Handle(prm.PageRequestEvent{NumPages: -5})
		m.Handle(prm.PageRequestEvent{FuncID: 1, NumPages: 1})
		synctest.Wait()
		if gives != 1000 || len(f.takes) != 1 {
			t.Errorf("%d gives, takes %v", gives, f.takes)
		}
	})
}

func TestResetDropsWhatTheFunctionWantedBefore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &slow{take: time.Second, begin: time.Now()}
		m := boot(t, &f.firmware, 100, func(c *Config) { c.Exec = f })
		vf := Function{ID: 1}
		m.Enable(vf)
		m.AllowReleaseAll()
		m.Handle(prm.PageRequestEvent{FuncID: 1, NumPages: 60})
		synctest.Wait()
		m.Handle(prm.PageRequestEvent{NumPages: -1}) // keeps the worker busy
		synctest.Wait()
		f.forget()
		m.Handle(prm.PageRequestEvent{FuncID: 1, NumPages: 5})
		m.Handle(prm.PageRequestEvent{FuncID: 1, NumPages: -5})
		m.Handle(prm.PageRequestEvent{FuncID: 1, ReleaseAllPages: true})
		m.Handle(prm.PageRequestEvent{FuncID: 1, NumPages: 7}) // what it wants after the reset
		time.Sleep(10 * time.Second)
		if want := []string{"1s GIVE f1 7"}; !slices.Equal(f.seen(), want) {
			t.Errorf("firmware saw %q, want %q", f.seen(), want)
		}
		b := m.Books()
		if x := b.Functions[1]; x.Out != 7 || x.Stale != 2 || x.Released != 60 {
			t.Errorf("books: %+v", x)
		}
	})
}

// A reset that comes while a GIVE is under way may have been before or after it: the pages are not used
// again, but can come back.
func TestPagesOfAGiveThatAResetOvertookStayOut(t *testing.T) {
	for name, overtaken := range map[string]bool{"event seen": false, "event still in the queue": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := &firmware{}
				m := boot(t, f, 10, nil)
				vf := Function{ID: 1}
				m.Enable(vf)
				m.AllowReleaseAll()
				m.Handle(prm.PageRequestEvent{FuncID: 1, NumPages: 30})
				synctest.Wait()
				reset := func() { m.Handle(prm.PageRequestEvent{FuncID: 1, ReleaseAllPages: true}) }
				pending := false
				m.UseEvents(func() int {
					if pending {
						pending = false
						reset()
						return 1
					}
					return 0
				})
				m.config.Exec = exec(func(in cmdif.In, out cmdif.Out) error {
					f.back(vf, 30) // forgotten
					if overtaken {
						pending = true
					} else {
						reset()
					}
					return f.Exec(context.Background(), in, out)
				})
				m.Handle(prm.PageRequestEvent{FuncID: 1, NumPages: 20})
				synctest.Wait()
				m.config.Exec = f
				b := m.Books()
				if x := b.Functions[1]; x.Out != 20 || x.Released != 30 || x.Doubtful != 20 {
					t.Fatalf("books: %+v", x)
				}
				// Firmware has them after all, and returns them.
				m.Handle(prm.PageRequestEvent{FuncID: 1, NumPages: -20})
				synctest.Wait()
				if b := m.Books(); b.Out != 10 || len(f.pages) != 10 {
					t.Errorf("books %+v; firmware has %d", b, len(f.pages))
				}
			})
		})
	}
}

// TAKE under way when the reset comes: what it returns is back, and what it does not is freed.
func TestResetWhileATakeIsUnderWay(t *testing.T) { // mechanisms.md, hazards
	for name, returned := range map[string]int{"before the reset": 10, "half before": 4, "after the reset": 0} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := &firmware{}
				m := boot(t, f, 10, nil)
				vf := Function{ID: 1}
				m.Enable(vf)
				m.AllowReleaseAll()
				m.Handle(prm.PageRequestEvent{FuncID: 1, NumPages: 30})
				synctest.Wait()
				given := m.Addresses(vf, 100)
				f.returns = func(asked uint32, out *prm.ManagePagesOut) error {
					m.Handle(prm.PageRequestEvent{FuncID: 1, ReleaseAllPages: true})
					out.OutputNumEntries = uint32(returned)
					out.PAS = append(out.PAS[:0], given[:returned]...)
					return nil
				}
				m.Handle(prm.PageRequestEvent{FuncID: 1, NumPages: -10})
				synctest.Wait()
				x := m.Books().Functions[1]
				if x.Out != 0 || int(x.Returned) != returned || int(x.Released) != 30-returned || x.BadReturn != 0 {
					t.Errorf("books: %+v", x)
				}
			})
		})
	}
}

func TestFunctionsAreCountedByTheTypeTheyHadWhenEnabled(t *testing.T) { // 2026 vhca_id review, R06
	bubble(t, func(t *testing.T) {
		f := &firmware{}
		m := boot(t, f, 10, func(c *Config) { c.MaxVFs = 8 })
		for _, fn := range []Function{{1, false}, {8, false}, {9, false}, {1, true}, {0, true}} {
			m.Enable(fn)
			m.Handle(prm.PageRequestEvent{FuncID: fn.ID, ECFunction: fn.EC, NumPages: 100})
			synctest.Wait()
		}
		if b := m.Books(); b.Types != [types]int{Self: 10, VF: 200, SF: 100, ECVF: 100, HostPF: 100} || b.Out != 510 {
			t.Errorf("by type: %v, %d in all", b.Types, b.Out)
		}
		f.pages = m.Addresses(Function{8, false}, 100)
		m.Handle(prm.PageRequestEvent{FuncID: 8, NumPages: -100})
		synctest.Wait()
		if b := m.Books(); b.Types[VF] != 100 || b.Out != 410 {
			t.Errorf("by type: %v, %d in all", b.Types, b.Out)
		}
		// Its vport is gone; its counts are not.
		if err := m.Disable(t.Context(), Function{8, false}); err != nil {
			t.Error(err)
		}
		if b := m.Books(); b.Given != 510 || b.Returned != 100 || len(b.Functions) != 5 {
			t.Errorf("books: %+v", b)
		}
	})
}

func TestFunctionsByVHCAID(t *testing.T) { // 2026 vhca_id series, R06 (d)
	bubble(t, func(t *testing.T) {
		f := &firmware{}
		m := boot(t, f, 10, nil)
		m.UseVHCAIDs(0x21)
		f.belong(Function{ID: 0x21}, f.pages)
		var ids []string
		m.config.Exec = exec(func(in cmdif.In, out cmdif.Out) error {
			if q, ok := out.(*prm.QueryPagesOut); ok {
				q.FunctionID, q.NumPages = 0x21, 20
				return nil
			}
			x := in.(*prm.ManagePagesIn)
			ids = append(ids, fmt.Sprintf("%v %#x %v", prm.PagesOpMod(x.OpMod), x.FunctionID, x.EmbeddedCPUFunction))
			if x.FunctionID != 0x21 {
				return &prm.CommandError{Op: prm.OpManagePages, Status: prm.StatusBadParameter}
			}
			return f.Exec(context.Background(), in, out)
		})
		if err := m.Boot(t.Context(), prm.QueryPagesInit); err != nil {
			t.Fatal(err)
		}
		m.Handle(prm.PageRequestEvent{FuncID: 0x21, ECFunction: true, NumPages: 5}) // the bit means nothing now
		synctest.Wait()
		if err := m.ReclaimAll(t.Context()); err != nil {
			t.Error(err)
		}
		if want := []string{"GIVE 0x21 false", "GIVE 0x21 false", "TAKE 0x21 false"}; !slices.Equal(ids, want) {
			t.Errorf("commands: %q, want %q", ids, want)
		}
		if b := m.Books(); b.Out != 0 || b.Returned != 35 {
			t.Errorf("books: %+v", b)
		}
	})
}

func TestReclaimAllNamesFunctionsOfTheCardsProcessor(t *testing.T) { // ba5d8f72b82c
	bubble(t, func(t *testing.T) {
		f := &firmware{}
		m := boot(t, f, 10, nil)
		ec := Function{ID: 3, EC: true}
		m.Enable(ec)
		m.Handle(prm.PageRequestEvent{FuncID: 3, ECFunction: true, NumPages: 800})
		synctest.Wait()
		var asked []Function
		books := map[Function][]uint64{ec: m.Addresses(ec, 1000), {}: m.Addresses(Function{}, 100)}
		m.config.Exec = exec(func(in cmdif.In, out cmdif.Out) error {
			x, o := in.(*prm.ManagePagesIn), out.(*prm.ManagePagesOut)
			fn := Function{x.FunctionID, x.EmbeddedCPUFunction}
			asked = append(asked, fn)
			n := min(int(x.InputNumEntries), len(books[fn]))
			o.OutputNumEntries, o.PAS = uint32(n), append(o.PAS[:0], books[fn][:n]...)
			books[fn] = books[fn][n:]
			return nil
		})
		if err := m.ReclaimAll(t.Context()); err != nil {
			t.Error(err)
		}
		if want := []Function{ec, ec, {}}; !slices.Equal(asked, want) || m.Books().Out != 0 {
			t.Errorf("asked %v, want %v; %d pages out", asked, want, m.Books().Out)
		}
	})
}

// The command interface is down before or while pages are taken back: nobody has them back, nothing is
// given again, and Release frees everything.
func TestInterfaceDiesAroundATake(t *testing.T) { // b898ce7bccf1, 79a0e32b32ac
	for name, cause := range map[string]cmdif.Cause{"before": cmdif.NeverIssued, "during": cmdif.Flushed} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := &firmware{}
				m := boot(t, f, 5000, nil)
				takes := 0
				f.returns = func(uint32, *prm.ManagePagesOut) error {
					takes++
					return &cmdif.NoAnswerError{Cause: cause, Err: cmdif.ErrDown}
				}
				m.Handle(prm.PageRequestEvent{NumPages: -100}) // firmware's last words
				synctest.Wait()
				begin := time.Now()
				if err := m.ReclaimAll(t.Context()); err != nil {
					t.Error(err)
				}
				if d := time.Since(begin); d > time.Second || takes != 2 {
					t.Errorf("took %v and %d commands of a device that is down", d, takes)
				}
				if b := m.Books(); b.Out != 5000 || b.Withheld != 5000 || b.Returned != 0 {
					t.Errorf("books: %+v", b)
				}
				if err := m.Release(); err != nil {
					t.Error(err)
				}
				if b := m.Books(); b.Out != 0 || b.Free != 0 {
					t.Errorf("books: %+v", b)
				}
			})
		})
	}
}

func TestDisableWaitsAsLongAsPagesCome(t *testing.T) {
	for name, test := range map[string]struct {
		gap  time.Duration // between pages
		n    int
		left int
		took time.Duration
		down bool
	}{
		"fast":    {time.Millisecond, 40, 0, time.Second, false},
		"slow":    {100 * time.Second, 40, 0, 4001 * time.Second, false},
		"stalls":  {time.Second, 10, 30, 131 * time.Second, false},
		"is down": {0, 0, 40, time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := &firmware{}
				m := boot(t, f, 10, func(c *Config) {
					c.Down = func() error {
						if test.down {
							return cmdif.ErrDown
						}
						return nil
					}
				})
				vf := Function{ID: 1}
				m.Enable(vf)
				m.Handle(prm.PageRequestEvent{FuncID: 1, NumPages: 40})
				synctest.Wait()
				go func() {
					for range test.n {
						time.Sleep(test.gap)
						m.Handle(prm.PageRequestEvent{FuncID: 1, NumPages: -1})
					}
				}()
				begin := time.Now()
				err := m.Disable(t.Context(), vf)
				if d := time.Since(begin); d > test.took {
					t.Errorf("took %v", d)
				}
				var left *LeftError
				switch {
				case test.down:
					if err != nil || m.Books().Withheld != 40 {
						t.Errorf("%v, %+v", err, m.Books())
					}
				case test.left == 0:
					if err != nil || len(m.Books().Functions) != 1 {
						t.Errorf("%v, %+v", err, m.Books())
					}
				case !errors.As(err, &left) || left.Pages != test.left || left.Function != vf || len(left.Addresses) != named:
					t.Errorf("error: %v", err)
				}
				f.pages = append(m.Addresses(Function{}, 100), m.Addresses(vf, 100)...)
			})
		})
	}
}

func TestDisableOfOtherFunctions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := boot(t, &firmware{}, 10, nil)
		if m.Disable(t.Context(), Function{}) == nil || m.Disable(t.Context(), Function{ID: 9}) == nil {
			t.Error("the own function, or an unknown one, was disabled")
		}
	})
}

// Memory runs out in the middle of a request that needs several pieces of it: firmware is told, and
// nothing is lent.
func TestGiveThatFailsMidwayOn64KiBPages(t *testing.T) { // mechanisms.md, hazards
	bubble(t, func(t *testing.T) {
		f := &firmware{}
		m := boot(t, f, 100, func(c *Config) { c.HostPage = 65536 })
		grow := m.config.NewArena
		left := 2
		m.config.NewArena = func(size int, kind dma.Kind) (*dma.Arena, error) {
			if left--; left < 0 {
				return nil, errNone
			}
			return grow(size, kind)
		}
		before := m.Books()
		m.Handle(prm.PageRequestEvent{NumPages: 3 * maxExtent})
		synctest.Wait()
		after := m.Books()
		if f.cants != 1 || after.Out != before.Out || after.Hosts != 7 || after.Free != before.Free || after.AllocFails != 1 {
			t.Errorf("told %d times; books %+v, before %+v", f.cants, after, before)
		}
	})
}
