package hca_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"cxkit/driver/internal/cmdif"
	"cxkit/driver/internal/fwtest"
	"cxkit/driver/internal/hca"
	"cxkit/prm"
)

func TestPagesAreGivenWhileEveryGeneralSlotWaitsForThem(t *testing.T) { // mechanisms.md, hazards
	bubble(t, func(t *testing.T, card *fwtest.Card) {
		h := up(t, card)
		// Every command waits until firmware has been given 31 more pages.
		enough := make(chan struct{})
		card.Handle(prm.OpNop, func(c *fwtest.Call) { <-enough; c.Default() })
		given := 0
		card.Handle(prm.OpManagePages, func(c *fwtest.Call) {
			c.Default()
			if c.In[7] == byte(prm.PagesGive) {
				if given++; given == 31 {
					close(enough)
				}
			}
		})
		done := make(chan error, 40)
		for range 40 {
			go func() { done <- h.Objects.Exec(t.Context(), &prm.NopIn{}, &prm.NopOut{}) }()
		}
		synctest.Wait()
		if b := h.Books(); b.Commands.InFlight != 31 {
			t.Errorf("%d commands in flight", b.Commands.InFlight)
		}
		for range 31 {
			card.RequestPages(1)
			synctest.Wait() // firmware asks again when it has been answered
		}
		for range 40 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if b := h.Books(); b.Pages.Out != 136+31 {
			t.Errorf("books: %+v", b.Pages)
		}
		if err := h.Down(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestBringUpCommandThatWaitsForPages(t *testing.T) { // R06 (a)
	bubble(t, func(t *testing.T, card *fwtest.Card) {
		card.Handle(prm.OpAllocPD, func(c *fwtest.Call) {
			card.RequestPages(10)
			for len(card.Pages()) < 146 {
				time.Sleep(time.Millisecond)
			}
			c.Default()
		})
		h := up(t, card)
		if err := h.Down(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestReclaimOfAMillionPagesThroughTheCommandInterface(t *testing.T) { // R01
	bubble(t, func(t *testing.T, card *fwtest.Card) {
		card.SetPages(6, 130_000)
		h := up(t, card)
		peak := h.Books().Commands.Peak
		if want := (130_000 + 63) / 64; peak != want {
			t.Errorf("the init pages took %d mailboxes, want %d", peak, want)
		}
		for left := 130_006; left > 0; left = len(card.Pages()) {
			card.RequestPages(-1_300_000)
			synctest.Wait()
		}
		// boot, init, 50,000 + 50,000 + 30,006
		if n := card.Count(prm.OpManagePages); n != 5 {
			t.Errorf("%d page commands, want 5", n)
		}
		if err := h.Down(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestRequestThatCannotBeMetIsAnsweredSo(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card) {
		h := up(t, card)
		cants := make(chan *fwtest.Call, 8)
		card.Handle(prm.OpManagePages, func(c *fwtest.Call) {
			if c.In[7] == byte(prm.PagesCantGive) {
				cants <- c
			}
			c.Default()
		})
		card.RequestPages(1<<31 - 1)
		<-cants
		card.FailArenas(errors.New("no memory"))
		card.RequestPages(100_000)
		<-cants
		card.FailArenas(nil)
		card.RequestPages(20)
		synctest.Wait()
		if n := len(card.Pages()); n != 156 {
			t.Errorf("firmware has %d pages", n)
		}
		if err := h.Down(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestTakeWithoutAnAnswerKeepsItsPagesOut(t *testing.T) { // R04, 79a0e32b32ac
	bubble(t, func(t *testing.T, card *fwtest.Card) {
		h := up(t, card)
		card.Handle(prm.OpManagePages, func(c *fwtest.Call) {})
		card.RequestPages(-4)
		time.Sleep(61 * time.Second)
		b := h.Books()
		if b.Pages.Out != 136 || b.Pages.TakeFails != 1 || len(b.Commands.Stuck) != 1 {
			t.Errorf("books: %+v", b)
		}
		card.Handle(prm.OpManagePages, nil)
		begin := time.Now()
		err := h.Down(t.Context())
		var left *hca.LeftoverError
		if !errors.As(err, &left) || left.Pages != 136 || !errors.Is(err, cmdif.ErrStuck) && len(left.Commands) != 1 {
			t.Errorf("error: %v", err)
		}
		if d := time.Since(begin); d > 10*time.Second {
			t.Errorf("took %v: the page slot is stuck, that is known", d)
		}
	})
}

func TestRequestsDuringTeardown(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card) {
		h := up(t, card)
		for _, op := range []prm.Opcode{prm.OpDestroyMKey, prm.OpDeallocPD, prm.OpDestroyEQ, prm.OpTeardownHCA} {
			card.Handle(op, func(c *fwtest.Call) {
				card.RequestPages(3)
				card.RequestPages(-2)
				c.Default()
			})
		}
		if err := h.Down(t.Context()); err != nil {
			t.Error(err)
		}
		if n := len(card.Pages()); n != 0 {
			t.Errorf("firmware still has %d pages", n)
		}
	})
}

func TestHalfHungFirmware(t *testing.T) { // R12
	bubble(t, func(t *testing.T, card *fwtest.Card) {
		h := up(t, card)
		card.Handle(prm.OpDestroyEQ, func(c *fwtest.Call) {})
		card.Handle(prm.OpAccessReg, func(c *fwtest.Call) {})
		err := h.Objects.Exec(t.Context(), &prm.AccessRegIn{}, &prm.AccessRegOut{})
		var silent *cmdif.NoAnswerError
		if !errors.As(err, &silent) || silent.Cause != cmdif.FirmwareSilent {
			t.Errorf("error: %v", err)
		}
		if err := h.Objects.Exec(t.Context(), &prm.QueryAdapterIn{}, &prm.QueryAdapterOut{}); err != nil {
			t.Errorf("queries still work on such firmware: %v", err)
		}
		begin := time.Now()
		err = h.Down(t.Context())
		var left *hca.LeftoverError
		if !errors.As(err, &left) || len(left.Commands) != 2 {
			t.Errorf("error: %v", err)
		}
		if d := time.Since(begin); d > 65*time.Second {
			t.Errorf("took %v", d)
		}
	})
}
