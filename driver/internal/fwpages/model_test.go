package fwpages_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"cxkit/device"
	"cxkit/device/fault"
	"cxkit/dma"
	"cxkit/driver/internal/cmdif"
	"cxkit/driver/internal/fwpages"
	"cxkit/driver/internal/hca"
	"cxkit/internal/rig"
	"cxkit/pci"
	"cxkit/prm"
	"cxkit/transport/inproc"
)

// host is a function whose host can run out of memory for firmware.
type host struct {
	pci.Function
	poor atomic.Bool
}

var errPoor = errors.New("no memory for firmware")

func (h *host) NewArena(size int, kind dma.Kind) (*dma.Arena, error) {
	if kind == dma.Reserved && h.poor.Load() {
		return nil, errPoor
	}
	return h.Function.NewArena(size, kind)
}

// bench is a driver without queues on a card in this process.
type bench struct {
	tb   failer
	rig  *rig.Rig
	host *host
	hca  *hca.HCA

	closed sync.Once
}

type failer interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
	Errorf(string, ...any)
	Error(...any)
}

func up(tb failer, t *testing.T, d device.Config, c hca.Config) *bench {
	tb.Helper()
	r, err := rig.New(rig.Config{Device: d, Transport: inproc.Config{Kind: dma.Heap}})
	if err != nil {
		tb.Fatal(err)
	}
	b := &bench{tb: tb, rig: r}
	t.Cleanup(b.close) // where a test ends early
	f, err := r.Function(0)
	if err != nil {
		tb.Fatal(err)
	}
	b.host = &host{Function: f}
	c.Function, c.Queues, c.Log = b.host, 1, slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
	if b.hca, err = hca.Up(t.Context(), c); err != nil {
		tb.Fatal(err)
	}
	return b
}

// end takes everything down. It returns what the driver says of it.
func (b *bench) end(t *testing.T) error {
	err := b.hca.Down(t.Context())
	if x := b.rig.Card.Books().Functions[0]; err == nil && (x.Pages != 0 || x.Running != 0) {
		b.tb.Errorf("the card's books: %+v", x)
	}
	b.close()
	return err
}

func (b *bench) close() {
	b.closed.Do(func() {
		var err error
		if b.hca != nil {
			_ = b.hca.Down(context.Background()) // again, where the test ends early
		}
		if b.host != nil {
			err = b.host.Close()
		}
		if err := errors.Join(err, b.rig.Close()); err != nil {
			b.tb.Error(err)
		}
	})
}

// manage makes both sides know another function.
func (b *bench) manage(id uint16, ec bool) device.PageFunction {
	b.tb.Helper()
	f := device.PageFunction{ID: id, EC: ec}
	if err := b.rig.Card.ManagePages(0, f); err != nil {
		b.tb.Fatal(err)
	}
	b.hca.Pages.Enable(fwpages.Function{ID: id, EC: ec})
	return f
}

// books are the driver's of one function.
func (b *bench) books(f device.PageFunction) fwpages.FunctionBooks {
	for _, x := range b.hca.Pages.Books().Functions {
		if x.ID == f.ID && x.EC == f.EC {
			return x
		}
	}
	return fwpages.FunctionBooks{}
}

// agree compares the addresses that both sides have of functions. The driver may keep more: those of
// which it can't know.
func (b *bench) agree(functions ...device.PageFunction) {
	b.tb.Helper()
	seen := map[uint64]device.PageFunction{}
	for _, f := range functions {
		theirs, err := b.rig.Card.PageAddresses(0, f)
		if err != nil {
			b.tb.Fatal(err)
		}
		ours := b.hca.Pages.Addresses(fwpages.Function{ID: f.ID, EC: f.EC}, 1<<30)
		extra := 0
		for _, pa := range ours {
			if i, ok := slices.BinarySearch(theirs, pa); ok {
				theirs = slices.Delete(theirs, i, i+1)
			} else {
				extra++
			}
			if g, ok := seen[pa]; ok {
				b.tb.Fatalf("page %#x is lent to %+v and to %+v", pa, g, f)
			}
			seen[pa] = f
		}
		x := b.books(f)
		if len(theirs) > 0 || extra > int(x.Doubtful) {
			b.tb.Fatalf("%+v: firmware has %d pages that the driver did not lend, %#x first; the driver has %d more than firmware, of which %d are in doubt",
				f, len(theirs), append(theirs, 0)[0], extra, x.Doubtful)
		}
	}
	if n := b.hca.Pages.Books(); n.Out != len(seen) || n.BadReturn != 0 {
		b.tb.Fatalf("%d pages are out, the books say %d; %d bad returns", len(seen), n.Out, n.BadReturn)
	}
}

// calm waits until nothing is under way.
func (b *bench) calm() {
	time.Sleep(time.Second) // of virtual time
	synctest.Wait()
}

func inBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func TestReclaimIsBoundedOnTheModel(t *testing.T) { // R01, R02
	for name, test := range map[string]struct {
		limit            *int // of the driver
		firmware         int  // of the card
		pages            int
		rounds, mailbox  int
		offers           int
		longest, batches int
	}{
		"50,000":                  {nil, 0, 1_300_000, 26, 782, 26, 0, 0},
		"1,000":                   {new(1000), 0, 130_000, 130, 16, 130, 0, 0},
		"none":                    {new(0), 0, 1_300_000, 26, 20_313, 26, 0, 0},
		"firmware returns fewer":  {nil, 31_234, 130_000, 5, 782, 5, 0, 0}, // R02; mechanisms.md, clamp is not firmware's limit
		"firmware would give all": {nil, 1 << 30, 130_000, 3, 782, 3, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b := up(t, t, device.Config{Memory: device.Memory{TakeLimit: test.firmware}}, hca.Config{ReclaimLimit: test.limit})
				own := device.PageFunction{}
				before := b.hca.Pages.Books().Out
				if err := b.rig.Card.HoardPages(0, own, test.pages); err != nil {
					t.Fatal(err)
				}
				b.calm()
				if n := b.books(own).Out; n != before+test.pages {
					t.Fatalf("firmware hoards %d pages, the driver says %d", test.pages, n-before)
				}
				takes := b.count(prm.OpManagePages)
				peaks := b.watchMailboxes(t)
				if err := b.rig.Card.ReturnPages(0, own, test.pages); err != nil {
					t.Fatal(err)
				}
				b.calm()
				if n := b.count(prm.OpManagePages) - takes; n != test.rounds {
					t.Errorf("%d rounds, want %d", n, test.rounds)
				}
				if got := peaks(); got != test.mailbox {
					t.Errorf("a TAKE took up to %d mailboxes, want %d", got, test.mailbox)
				}
				if n := b.books(own).Out; n != before {
					t.Errorf("%d pages are out, %d were before", n, before)
				}
				b.agree(own)
				if err := b.end(t); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// count is how many commands of an opcode were issued.
func (b *bench) count(op prm.Opcode) int {
	for _, c := range b.hca.Commands().Opcodes {
		if c.Opcode == uint16(op) {
			return int(c.Count)
		}
	}
	return 0
}

// watchMailboxes follows how many mailboxes are out, by looking at every TAKE while firmware has it.
func (b *bench) watchMailboxes(t *testing.T) (peak func() int) {
	most := 0
	stop := make(chan struct{})
	done := make(chan struct{})
	// Commands take a millisecond of virtual time; the watcher looks every tenth.
	late := fault.Plan{Other: &fault.Latency{Min: time.Millisecond, Max: time.Millisecond}}
	if err := b.rig.Card.Inject(late); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Microsecond):
				most = max(most, b.hca.Books().Commands.Mailboxes)
			}
		}
	}()
	return func() int {
		close(stop)
		<-done
		return most
	}
}

func TestStormsLoseNoPage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := up(t, t, device.Config{}, hca.Config{})
		own, vf := device.PageFunction{}, b.manage(1, false)
		before := b.hca.Pages.Books().Out
		for i := range 20 {
			for _, f := range []device.PageFunction{own, vf} {
				if err := b.rig.Card.StormPages(0, f, 60_000+i); err != nil {
					t.Fatal(err)
				}
			}
			b.calm()
			for _, f := range []device.PageFunction{own, vf} {
				s, err := b.rig.Card.Storm(0, f)
				if err != nil || s.Phase != device.StormOver || s.Hoarded != 60_000+i || s.Returned != 60_000+i || s.Takes != 2 || s.Refused {
					t.Fatalf("storm %d of %+v: %+v, %v", i, f, s, err)
				}
			}
			b.agree(own, vf)
			if n := b.hca.Pages.Books().Out; n != before {
				t.Fatalf("%d pages are out after storm %d, %d were before", n, i, before)
			}
		}
		if err := b.end(t); err != nil {
			t.Error(err)
		}
	})
}

func TestStormOnAHostWithoutMemory(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := up(t, t, device.Config{}, hca.Config{MaxPages: 10_000})
		own := device.PageFunction{}
		before := b.hca.Pages.Books().Out
		if err := b.rig.Card.StormPages(0, own, 1_000_000); err != nil {
			t.Fatal(err)
		}
		b.calm()
		s, err := b.rig.Card.Storm(0, own)
		if err != nil || s.Phase != device.StormOver || !s.Refused || b.hca.Pages.Books().Out != before || b.hca.Pages.Books().Refused != 1 {
			t.Errorf("%+v, %v; books %+v", s, err, b.hca.Pages.Books())
		}
		if err := b.end(t); err != nil {
			t.Error(err)
		}
	})
}

// A command that firmware holds until it has been given pages gets them in all its general slots.
func TestCommandsThatWaitForPagesGetThem(t *testing.T) { // R06 (a); mechanisms.md, hazards
	inBubble(t, func(t *testing.T) {
		b := up(t, t, device.Config{
			Memory:       device.Memory{Objects: map[string]int{"pd": 1 << 20}},
			OtherLatency: device.Latency{Min: time.Millisecond, Max: 10 * time.Millisecond},
		}, hca.Config{})
		done := make(chan error, 100)
		pds := make(chan uint32, 100)
		for range 100 {
			go func() {
				var out prm.AllocPDOut
				done <- b.hca.Objects.Exec(t.Context(), &prm.AllocPDIn{}, &out)
				pds <- out.PD
			}()
		}
		for range 100 {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		b.calm()
		b.agree(device.PageFunction{})
		if n := b.hca.Pages.Books().Out; n < 100*256 {
			t.Errorf("100 objects of 1 MiB took %d pages", n)
		}
		for range 100 {
			if err := b.hca.Objects.Exec(t.Context(), &prm.DeallocPDIn{PD: <-pds}, &prm.DeallocPDOut{}); err != nil {
				t.Error(err)
			}
		}
		b.calm()
		if n := b.hca.Pages.Books().Out; n > 100*256 {
			t.Errorf("firmware kept %d pages of objects that are gone", n)
		}
		if err := b.end(t); err != nil {
			t.Error(err)
		}
	})
}

// 8 million pages for one function delay what another waits for by one TAKE, and general commands not at
// all (mechanisms.md, hazards: pg_wq has one thread).
func TestAHugeReclaimDelaysOthersByOneTake(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const takes, others = 20 * time.Millisecond, time.Millisecond
		b := up(t, t, device.Config{
			Latency:      map[uint16]device.Latency{uint16(prm.OpManagePages): {Min: takes, Max: takes}},
			OtherLatency: device.Latency{Min: others, Max: others},
		}, hca.Config{})
		own, vf := device.PageFunction{}, b.manage(1, false)
		const pages = 500_000
		if err := b.rig.Card.HoardPages(0, own, pages); err != nil {
			t.Fatal(err)
		}
		b.calm()
		if err := b.rig.Card.ReturnPages(0, own, pages); err != nil {
			t.Fatal(err)
		}
		time.Sleep(takes / 2) // in the middle of the first of 10 TAKEs
		begin := time.Now()
		if err := b.rig.Card.HoardPages(0, vf, 100); err != nil {
			t.Fatal(err)
		}
		general := make(chan time.Duration, 1)
		go func() {
			var worst time.Duration
			for range 50 {
				begin := time.Now()
				if err := b.hca.Objects.Exec(t.Context(), &prm.NopIn{}, &prm.NopOut{}); err != nil {
					t.Error(err)
				}
				worst = max(worst, time.Since(begin))
			}
			general <- worst
		}()
		for b.books(vf).Given == 0 {
			time.Sleep(takes / 20)
		}
		if d := time.Since(begin); d > 2*takes {
			t.Errorf("the other function's pages took %v; a TAKE and a GIVE take %v", d, 2*takes)
		}
		if n := b.books(own).Returned; n >= pages/2 {
			t.Errorf("%d pages are back already", n)
		}
		if worst := <-general; worst > others {
			t.Errorf("a general command took %v, firmware %v", worst, others)
		}
		b.calm()
		b.agree(own, vf)
		if err := b.end(t); err != nil {
			t.Error(err)
		}
	})
}

func TestHostPagesOf64KiBOnTheModel(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := up(t, t, device.Config{}, hca.Config{HostPage: 65536})
		own := device.PageFunction{}
		if x := b.books(own); x.Out != 518 || x.Hosts != (518+15)/16 {
			t.Errorf("%d pages of %d host pages", x.Out, x.Hosts)
		}
		if err := b.rig.Card.StormPages(0, own, 100_003); err != nil {
			t.Fatal(err)
		}
		b.calm()
		b.agree(own)
		if x := b.books(own); x.Out != 518 || x.Hosts > 518/16+2 {
			t.Errorf("after a storm %d pages of %d host pages are out", x.Out, x.Hosts)
		}
		if err := b.end(t); err != nil {
			t.Error(err)
		}
	})
}

func TestFunctionsByVHCAIDOnTheModel(t *testing.T) { // R06
	inBubble(t, func(t *testing.T) {
		b := up(t, t, device.Config{Memory: device.Memory{VHCAIDs: true}}, hca.Config{})
		if err := b.rig.Card.StormPages(0, device.PageFunction{}, 5000); err != nil {
			t.Fatal(err)
		}
		vf := b.manage(7, false)
		if err := b.rig.Card.HoardPages(0, vf, 50); err != nil {
			t.Fatal(err)
		}
		b.calm()
		own := device.PageFunction{ID: b.hca.General.VHCAID}
		if own.ID == 0 {
			t.Fatal("vhca_id and function_id are the same: nothing is tested")
		}
		b.agree(own, vf)
		if x := b.books(own); x.Out != 518 || x.Returned != 5000 || x.Type != fwpages.Self {
			t.Errorf("books: %+v", x)
		}
		if err := b.end(t); err != nil {
			t.Error(err)
		}
	})
}

func TestResetOfAFunctionFreesItsPagesWithoutACommand(t *testing.T) { // c6168161f693
	inBubble(t, func(t *testing.T) {
		b := up(t, t, device.Config{}, hca.Config{})
		vf := b.manage(1, false)
		if err := b.rig.Card.HoardPages(0, vf, 10_000); err != nil {
			t.Fatal(err)
		}
		b.calm()
		before := b.count(prm.OpManagePages)
		if err := b.rig.Card.ResetPages(0, vf); err != nil {
			t.Fatal(err)
		}
		b.calm()
		if x := b.books(vf); x.Out != 0 || x.Released != 10_000 || b.count(prm.OpManagePages) != before {
			t.Errorf("books %+v, %d commands", x, b.count(prm.OpManagePages)-before)
		}
		if err := b.hca.Pages.Disable(t.Context(), fwpages.Function{ID: 1}); err != nil {
			t.Error(err)
		}
		if err := b.end(t); err != nil {
			t.Error(err)
		}
	})
}

// The reset comes before, in the middle of, or after each of the TAKEs and GIVEs of a function.
func TestResetRacesWithTakesAndGives(t *testing.T) { // mechanisms.md, hazards
	inBubble(t, func(t *testing.T) {
		const latency = time.Millisecond
		b := up(t, t, device.Config{OtherLatency: device.Latency{Min: latency, Max: latency}}, hca.Config{ReclaimLimit: new(1000)})
		vf := b.manage(1, false)
		for i := range 60 {
			if err := b.rig.Card.StormPages(0, vf, 3000); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(i) * latency / 10)
			if err := b.rig.Card.ResetPages(0, vf); err != nil {
				t.Fatal(err)
			}
			if i%3 == 0 { // wants pages again at once
				if err := b.rig.Card.HoardPages(0, vf, 10); err != nil {
					t.Fatal(err)
				}
			}
			b.calm()
			b.agree(device.PageFunction{}, vf)
		}
		if err := b.rig.Card.ResetPages(0, vf); err != nil {
			t.Fatal(err)
		}
		b.calm()
		x := b.books(vf)
		t.Logf("%d pages given, %d returned, %d released, %d in doubt", x.Given, x.Returned, x.Released, x.Doubtful)
		if err := b.end(t); (err != nil) != (x.Out > 0) {
			t.Errorf("%d pages are out: %v", x.Out, err)
		}
	})
}

// Pages that firmware is still working in come back later, when they are free.
func TestBusyPagesComeBackWhenTheyAreFree(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := up(t, t, device.Config{}, hca.Config{})
		own := device.PageFunction{}
		if err := errors.Join(b.rig.Card.BusyPages(0, own, 700), b.rig.Card.StormPages(0, own, 60_000)); err != nil {
			t.Fatal(err)
		}
		b.calm()
		if n := b.books(own).Out; n != 518+700 {
			t.Errorf("%d pages are out, want %d", n, 518+700)
		}
		if err := b.rig.Card.BusyPages(0, own, 0); err != nil {
			t.Fatal(err)
		}
		b.calm()
		if n := b.books(own).Out; n != 518 {
			t.Errorf("%d pages are out, want 518", n)
		}
		b.agree(own)
		if err := b.end(t); err != nil {
			t.Error(err)
		}
	})
}

// A hairpin's peer was removed first: an SQ still holds 4 pages, and the TAKE for them never ends.
func TestPageReclaimOfADeadPeerTimesOut(t *testing.T) { // R04, CVE-2021-47246
	inBubble(t, func(t *testing.T) {
		b := up(t, t, device.Config{}, hca.Config{})
		own := device.PageFunction{}
		if err := b.rig.Card.BusyPages(0, own, 4); err != nil {
			t.Fatal(err)
		}
		// All come back but four: the next TAKE hangs.
		n := (518 + 767) / 768
		if err := b.rig.Card.Inject(fault.Plan{Faults: []fault.Fault{
			{Kind: fault.NoAnswer, Opcodes: []prm.Opcode{prm.OpManagePages}, Skip: n},
		}}); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		err := b.end(t)
		var left *hca.LeftoverError
		var pages *fwpages.LeftError
		if !errors.As(err, &left) || left.Pages != 4 || !errors.As(err, &pages) || pages.Pages != 4 || len(pages.Addresses) != 4 ||
			!errors.Is(err, cmdif.ErrTimeout) || cmdif.Errno(pages.Err) != "ETIMEDOUT" {
			t.Errorf("error: %v", err)
		}
		if d := time.Since(begin); d > 70*time.Second {
			t.Errorf("teardown took %v: one time-out is 60 s", d)
		}
	})
}

// Objects that were left keep pages at unload: they are named, not freed, and unloading ends.
func TestPagesOfObjectsThatWereLeftAreNamed(t *testing.T) { // VLAN-cleanup bug
	inBubble(t, func(t *testing.T) {
		b := up(t, t, device.Config{}, hca.Config{})
		own := device.PageFunction{}
		if err := errors.Join(b.rig.Card.BusyPages(0, own, 11_560), b.rig.Card.HoardPages(0, own, 12_000)); err != nil {
			t.Fatal(err)
		}
		b.calm()
		begin := time.Now()
		err := b.end(t)
		var left *hca.LeftoverError
		if !errors.As(err, &left) || left.Pages != 11_560 {
			t.Errorf("error: %v", err)
		}
		if d := time.Since(begin); d > 10*time.Second {
			t.Errorf("took %v: firmware is waited for 5 s", d)
		}
	})
}
