package cmdif_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"cxkit/driver/internal/cmdif"
	"cxkit/driver/internal/fwtest"
	"cxkit/prm"
)

// Names of the tests below refer to reports of real hardware (reference reports.md) and to fixes in
// Linux (mechanisms.md §4) where there is one.

func TestSlotOfATimedOutCommandIsNotReused(t *testing.T) { // R11, 73dd3a4839c1
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		calls := hold(card, prm.OpNop)
		begin := time.Now()
		noAnswer(t, nop(c, t.Context()), cmdif.FirmwareSilent, cmdif.ErrTimeout)
		if d := time.Since(begin); d < time.Minute || d > time.Minute+time.Second {
			t.Errorf("gave up after %v", d)
		}
		call := <-calls
		if b := c.Books(); len(b.Stuck) != 1 || b.Stuck[0] != call.Slot || b.InFlight != 0 {
			t.Errorf("books: %+v", b)
		}
		card.Handle(prm.OpNop, func(c *fwtest.Call) {
			if c.Slot == call.Slot {
				t.Error("the slot was used again")
			}
			c.Finish()
		})
		for range 100 {
			if err := nop(c, t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		call.Finish()
	})
}

func TestMailboxesOfATimedOutCommandAreNotReused(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		calls := hold(card, prm.OpQueryHCACap)
		err := c.Exec(t.Context(), &prm.QueryHCACapIn{}, &prm.QueryHCACapOut{})
		noAnswer(t, err, cmdif.FirmwareSilent, cmdif.ErrTimeout)
		if b := c.Books(); b.Mailboxes != 8 {
			t.Errorf("books: %+v, want the 8 mailboxes of the output out", b)
		}
		// The late answer goes to memory that nobody else uses.
		card.Handle(prm.OpQueryHCACap, nil)
		late := <-calls
		for i := range late.Out {
			late.Out[i] = 0x55
		}
		late.Out[0] = 0
		late.Finish()
		var out prm.QueryHCACapOut
		if err := c.Exec(t.Context(), &prm.QueryHCACapIn{OpMod: prm.CapOpMod(prm.CapGroupAtomic, prm.CapMax)}, &out); err != nil {
			t.Fatal(err)
		}
		if out.Capability != [4096]byte{} {
			t.Error("the late answer ended up in a later command's output")
		}
		if b := c.Books(); b.Mailboxes != 0 || len(b.Stuck) != 0 {
			t.Errorf("books after the late completion: %+v", b)
		}
	})
}

func TestAnswerThatComesLateMakesTheSlotUsableAgain(t *testing.T) { // R10
	for _, mode := range []string{"polling", "events"} {
		t.Run(mode, func(t *testing.T) {
			bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
				if mode == "events" {
					events(c)
				}
				card.Handle(prm.OpAccessReg, func(call *fwtest.Call) {
					time.Sleep(time.Minute + 13700*time.Millisecond)
					call.Finish()
					c.Complete(1 << call.Slot)
				})
				noAnswer(t, c.Exec(t.Context(), &prm.AccessRegIn{}, &prm.AccessRegOut{}), cmdif.FirmwareSilent, cmdif.ErrTimeout)
				if b := c.Books(); len(b.Stuck) != 1 {
					t.Errorf("books: %+v", b)
				}
				time.Sleep(14 * time.Second)
				if b := c.Books(); len(b.Stuck) != 0 {
					t.Errorf("books after the late completion: %+v", b)
				}
				if n := c.Counters(); n.LateCompletions != 1 || n.NoAnswer != 1 {
					t.Errorf("counters: %+v", n)
				}
			})
		})
	}
}

func TestWithEverySlotStuckCommandsFailFast(t *testing.T) { // R11
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		calls := hold(card, prm.OpNop)
		var done []<-chan error
		for range 33 { // two have to wait for a slot
			done = append(done, async(func() error { return nop(c, t.Context()) }))
		}
		never := 0
		for _, d := range done {
			err := <-d
			var e *cmdif.NoAnswerError
			if errors.As(err, &e) && e.Cause == cmdif.NeverIssued {
				never++
				continue
			}
			noAnswer(t, err, cmdif.FirmwareSilent, cmdif.ErrTimeout)
		}
		if never != 2 {
			t.Errorf("%d commands were never issued, want 2", never)
		}
		begin := time.Now()
		noAnswer(t, nop(c, t.Context()), cmdif.NeverIssued, cmdif.ErrStuck)
		if d := time.Since(begin); d != 0 {
			t.Errorf("failed after %v, want at once", d)
		}
		// The page slot still works.
		if err := c.Exec(t.Context(), &prm.ManagePagesIn{}, &prm.ManagePagesOut{}); err != nil {
			t.Errorf("page command: %v", err)
		}
		// One late completion, without any event, is enough to go on.
		call := <-calls
		call.Finish()
		card.Handle(prm.OpNop, func(c *fwtest.Call) {
			if c.Slot != call.Slot {
				t.Errorf("slot %d was used, only %d is free", c.Slot, call.Slot)
			}
			c.Finish()
		})
		for range 3 {
			if err := nop(c, t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestWaitersAreRefusedWhenTheLastSlotGetsStuck(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		hold(card, prm.OpNop)
		begin := time.Now()
		var done []<-chan error
		for range 31 {
			done = append(done, async(func() error { return nop(c, t.Context()) }))
		}
		time.Sleep(30 * time.Second)
		waiter := async(func() error { return nop(c, t.Context()) })
		for _, d := range done {
			<-d
		}
		noAnswer(t, <-waiter, cmdif.NeverIssued, cmdif.ErrStuck)
		if d := time.Since(begin); d > 61*time.Second {
			t.Errorf("the waiter was refused after %v, when its own time was over", d)
		}
	})
}

func TestCommandThatGotNoSlotWasNeverIssued(t *testing.T) { // R18
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		calls := hold(card, prm.OpNop)
		var done []<-chan error
		for range 31 {
			done = append(done, async(func() error { return nop(c, t.Context()) }))
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := c.Exec(ctx, &prm.QueryISSIIn{}, &prm.QueryISSIOut{})
		noAnswer(t, err, cmdif.NeverIssued, context.DeadlineExceeded)
		if cmdif.Issued(err) || card.Count(prm.OpQueryISSI) != 0 {
			t.Error("it was issued")
		}
		for range 31 {
			(<-calls).Finish()
		}
		for _, d := range done {
			if err := <-d; err != nil {
				t.Error(err)
			}
		}
		if b := c.Books(); b.InFlight != 0 || len(b.Stuck) != 0 {
			t.Errorf("books: %+v", b)
		}
	})
}

func TestCompletionWithoutAnEventIsFoundByTheOwnershipBit(t *testing.T) { // R08, R14, 1d5558b1f0de
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		events(c)
		begin := time.Now()
		if err := nop(c, t.Context()); err != nil {
			t.Fatalf("interrupts lost became: %v", err)
		}
		if d := time.Since(begin); d < time.Second || d > 2*time.Second {
			t.Errorf("found after %v, want a look after a second", d)
		}
		if n := c.Counters(); n.LostEvents != 1 || n.NoAnswer != 0 {
			t.Errorf("counters: %+v", n)
		}
		done := make(chan error, 1)
		begin = time.Now()
		if err := c.Start(&prm.NopIn{}, &prm.NopOut{}, func(err error) { done <- err }); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Errorf("callback command: %v", err)
		}
		if d := time.Since(begin); d < 500*time.Millisecond || d > time.Second { // there was a loss before
			t.Errorf("callback command: found after %v", d)
		}
		if n := c.Counters(); n.LostEvents != 2 || n.NoAnswer != 0 {
			t.Errorf("counters: %+v", n)
		}
	})
}

// Where no event comes at all, commands soon do without: a bring-up has some hundred of them.
func TestCommandsWithoutAnyEventGetFaster(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		events(c)
		begin := time.Now()
		for range 100 {
			if err := nop(c, t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(begin); d < time.Second || d > 5*time.Second {
			t.Errorf("100 commands took %v", d)
		}
		if n := c.Counters(); n.LostEvents != 100 {
			t.Errorf("counters: %+v", n)
		}
		// With the first event that comes, the next is trusted as before.
		card.Handle(prm.OpNop, func(call *fwtest.Call) {
			call.Finish()
			c.Complete(1 << call.Slot)
		})
		if err := nop(c, t.Context()); err != nil {
			t.Fatal(err)
		}
		card.Handle(prm.OpNop, nil)
		begin = time.Now()
		if err := nop(c, t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begin); d < time.Second {
			t.Errorf("the next event was trusted for %v", d)
		}
	})
}

// Between a completion and its event there is a moment: a look at that moment finds no loss.
func TestCompletionThatIsAheadOfItsEventIsNoLoss(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		events(c)
		card.Handle(prm.OpNop, func(call *fwtest.Call) {
			time.Sleep(999 * time.Millisecond)
			call.Finish()
			time.Sleep(50 * time.Millisecond) // a look comes meanwhile
			c.Complete(1 << call.Slot)
		})
		if err := nop(c, t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 1020*time.Millisecond) // gives up at such a moment
		defer cancel()
		if err := nop(c, ctx); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if n := c.Counters(); n.LostEvents+n.LostInterrupts != 0 {
			t.Errorf("counters: %+v", n)
		}
	})
}

// Whoever gives up although the command is complete learns that its event was lost, at any time.
func TestCallerThatGivesUpNamesALostEvent(t *testing.T) {
	for _, patience := range []time.Duration{10 * time.Millisecond, 2100 * time.Millisecond} {
		bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
			events(c)
			card.Handle(prm.OpNop, func(call *fwtest.Call) {
				time.Sleep(patience - 5*time.Millisecond)
				call.Finish()
			})
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			begin := time.Now()
			if err := nop(c, ctx); err != nil {
				t.Fatal(err)
			}
			if n := c.Counters(); n.LostEvents != 1 {
				t.Errorf("counters: %+v", n)
			}
			if d := time.Since(begin) - patience; d > 200*time.Millisecond {
				t.Errorf("took %v longer than it was to", d)
			}
		})
	}
}

func TestEventWhoseInterruptWasLostIsFoundInTheQueue(t *testing.T) { // R14
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		c.UseEvents(func() int { c.Complete(1); return 1 })
		if err := nop(c, t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := c.Counters(); n.LostInterrupts != 1 || n.LostEvents != 0 {
			t.Errorf("counters: %+v", n)
		}
	})
}

func TestStaleEventDoesNotCompleteTheNextCommand(t *testing.T) { // R08
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		events(c)
		calls := hold(card, prm.OpAllocUAR)
		done := async(func() error { return c.Exec(t.Context(), &prm.AllocUARIn{}, &prm.AllocUAROut{}) })
		call := <-calls
		time.Sleep(14 * time.Millisecond)
		c.Complete(1 << call.Slot) // of an earlier life
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("the command ended with a stale event: %v", err)
		default:
		}
		call.Finish()
		c.Complete(1 << call.Slot)
		if err := <-done; err != nil {
			t.Error(err)
		}
		c.Complete(1 << call.Slot) // and once more
		if n := c.Counters(); n.SpuriousEvents != 2 {
			t.Errorf("counters: %+v", n)
		}
	})
}

func TestCompletionByBitAndByEventReleasesOnce(t *testing.T) { // R09, 432161ea26d6
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		for _, eventFirst := range []bool{true, false} {
			card.Handle(prm.OpTeardownHCA, func(call *fwtest.Call) {
				call.Finish()
				if eventFirst {
					c.Complete(1 << call.Slot)
				}
			})
			if err := c.Exec(t.Context(), &prm.TeardownHCAIn{}, &prm.TeardownHCAOut{}); err != nil {
				t.Fatal(err)
			}
			c.Complete(^uint32(0))
			if b := c.Books(); b.InFlight != 0 || len(b.Stuck) != 0 || b.Mailboxes != 0 {
				t.Fatalf("books: %+v", b)
			}
		}
	})
}

func TestGoingBackToPollingEndsCommandsInFlight(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		events(c)
		calls := hold(card, prm.OpNop)
		done := async(func() error { return nop(c, t.Context()) })
		call := <-calls
		c.UsePolling()
		call.Finish() // no event
		begin := time.Now()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if d := time.Since(begin); d > time.Second {
			t.Errorf("ended after %v: it was not polled", d)
		}
	})
}

func TestFailEndsEverybodyOnce(t *testing.T) { // CVE-2024-38555, cece6f432cca, b1f0349bd6d3
	for _, mode := range []string{"polling", "events"} {
		t.Run(mode, func(t *testing.T) {
			bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
				if mode == "events" {
					events(c)
				}
				calls := hold(card, prm.OpNop)
				var done []<-chan error
				for range 35 {
					done = append(done, async(func() error { return nop(c, t.Context()) }))
				}
				synctest.Wait()
				why := errors.New("synd 0x1")
				c.Fail(why)
				c.Fail(errors.New("later"))
				flushed := 0
				begin := time.Now()
				for _, d := range done {
					var e *cmdif.NoAnswerError
					err := <-d
					if !errors.As(err, &e) || !errors.Is(err, why) {
						t.Fatalf("error: %v", err)
					}
					if e.Cause == cmdif.Flushed {
						flushed++
					}
				}
				if flushed != 31 {
					t.Errorf("%d commands were flushed, want 31", flushed)
				}
				noAnswer(t, nop(c, t.Context()), cmdif.NeverIssued, why)
				if d := time.Since(begin); d > time.Second {
					t.Errorf("took %v", d)
				}
				if b := c.Books(); len(b.Stuck) != 31 {
					t.Errorf("books: %+v: firmware still owns 31 slots", b)
				}
				for range 31 { // late, and announced: nothing may happen twice
					call := <-calls
					call.Finish()
					c.Complete(1 << call.Slot)
					c.Complete(1 << call.Slot)
				}
				if b := c.Books(); len(b.Stuck) != 0 {
					t.Errorf("books: %+v", b)
				}
			})
		})
	}
}

func TestDeviceThatIsGoneIsSaidToBeGone(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		card.Vanish()
		noAnswer(t, nop(c, t.Context()), cmdif.DeviceGone, cmdif.ErrTimeout)
		w, _ := card.Window(0)
		if _, err := cmdif.Open(cmdif.Config{Window: w, NewArena: card.NewArena}); err == nil {
			t.Error("a queue was set up on a device that is gone")
		}
	})
}

func TestSettleWaitsForCommandsThatWereGivenUpEarly(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		card.Handle(prm.OpNop, func(c *fwtest.Call) {
			time.Sleep(10 * time.Second)
			c.Finish()
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		noAnswer(t, nop(c, ctx), cmdif.FirmwareSilent, context.DeadlineExceeded)
		begin := time.Now()
		c.Settle(t.Context())
		if d := time.Since(begin); d < 8*time.Second || d > 10*time.Second || len(c.Books().Stuck) != 0 {
			t.Errorf("settled after %v, books %+v", d, c.Books())
		}

		calls := hold(card, prm.OpNop)
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		noAnswer(t, nop(c, ctx), cmdif.FirmwareSilent, context.DeadlineExceeded)
		begin = time.Now()
		c.Settle(t.Context()) // in vain
		if d := time.Since(begin); d > time.Minute || len(c.Books().Stuck) != 1 {
			t.Errorf("settled after %v, books %+v", d, c.Books())
		}
		begin = time.Now()
		c.Settle(t.Context()) // its time is over
		if d := time.Since(begin); d != 0 {
			t.Errorf("settled after %v", d)
		}
		(<-calls).Finish()
	})
}

func TestFirstSilenceEndsATeardown(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		c.GiveUpOnSilence(0)
		hold(card, prm.OpNop)
		begin := time.Now()
		noAnswer(t, nop(c, t.Context()), cmdif.FirmwareSilent, cmdif.ErrTimeout)
		for range 10 {
			noAnswer(t, nop(c, t.Context()), cmdif.NeverIssued, cmdif.ErrTimeout)
		}
		if d := time.Since(begin); d > 61*time.Second {
			t.Errorf("took %v", d)
		}
	})
}

// A teardown in a hurry waits for nobody as long as a command may take: not for commands that it issues, not
// for those under way, not for those that were given up.
func TestPatienceOfATeardownBoundsEveryWait(t *testing.T) {
	const patience = 3 * time.Second
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		events(c)
		hold(card, prm.OpNop)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		noAnswer(t, nop(c, ctx), cmdif.FirmwareSilent, context.DeadlineExceeded)
		under := async(func() error { return nop(c, t.Context()) })
		callback := make(chan error, 1)
		if err := c.Start(&prm.NopIn{}, &prm.NopOut{}, func(err error) { callback <- err }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		begin := time.Now()
		c.GiveUpOnSilence(patience)
		c.Settle(t.Context())
		for _, err := range []error{<-under, <-callback, nop(c, t.Context())} {
			var e *cmdif.NoAnswerError
			if !errors.As(err, &e) {
				t.Errorf("error: %v", err)
			}
		}
		if d := time.Since(begin); d > patience+time.Second {
			t.Errorf("took %v", d)
		}
	})
}

// A worker that teardown stops in the middle of a command must not make it leave the rest undone.
func TestCallerThatGivesUpDoesNotEndATeardown(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		c.GiveUpOnSilence(0)
		held := hold(card, prm.OpNop)
		ctx, cancel := context.WithCancel(t.Context())
		worker := async(func() error { return nop(c, ctx) })
		call := <-held
		cancel()
		noAnswer(t, <-worker, cmdif.FirmwareSilent, context.Canceled)
		card.Handle(prm.OpNop, nil)
		if err := nop(c, t.Context()); err != nil {
			t.Errorf("the next command: %v", err)
		}
		call.Finish()
	})
}
