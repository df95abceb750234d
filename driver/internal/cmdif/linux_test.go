package cmdif_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cxkit/driver/internal/cmdif"
	"cxkit/driver/internal/fwtest"
	"cxkit/prm"
)

// Every test below is named for what Linux's command interface did wrong before the commit in its comment
// (mechanisms.md §4). Rows that are tested elsewhere: 73dd3a4839c1, 1d5558b1f0de, 432161ea26d6,
// 0e2909c6bec9, 3afa3ae3db52, 50b2412b7e78, bacd22df9514.

func TestDeviceThatFailsWhileACommandIsPreparedLeaksNoSlot(t *testing.T) { // cece6f432cca, f3cb3cebe26e
	bothModes(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		events(c)
		in := &hooked{hook: func() {
			c.Complete(^uint32(0)) // forced completions meet a half-made entry
			c.Fail(errors.New("internal error"))
			c.Complete(^uint32(0))
		}}
		err := c.Exec(t.Context(), in, &prm.NopOut{})
		noAnswer(t, err, cmdif.NeverIssued, cmdif.ErrDown)
		for range 40 {
			noAnswer(t, nop(c, t.Context()), cmdif.NeverIssued, cmdif.ErrDown)
		}
		if b := c.Books(); b.InFlight != 0 || len(b.Stuck) != 0 || b.Mailboxes != 0 {
			t.Errorf("books: %+v", b)
		}
		if n := card.Count(prm.OpNop); n != 0 {
			t.Errorf("firmware saw %d commands", n)
		}
	})
}

func TestOnlyTheCommandThatMakesTheEventQueueIsLetInMeanwhile(t *testing.T) { // f7936ddd35d8, d43b7007dbd1
	bothModes(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		c.Only(prm.OpCreateEQ)
		err := nop(c, t.Context())
		noAnswer(t, err, cmdif.NeverIssued, cmdif.ErrNotAllowed)
		if no := cmdif.Errno(err); no != "ENXIO" {
			t.Errorf("errno %s", no)
		}
		if err := c.Start(&prm.NopIn{}, &prm.NopOut{}, func(error) { t.Error("called") }); !errors.Is(err, cmdif.ErrNotAllowed) {
			t.Errorf("callback command: %v", err)
		}
		if err := c.Exec(t.Context(), &prm.CreateEQIn{PAS: []uint64{4096}}, &prm.CreateEQOut{}); err != nil {
			t.Error(err)
		}
		c.Only(0)
		if err := nop(c, t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestEventOfAPolledCommandHarmsNobody(t *testing.T) { // d43b7007dbd1
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		// Firmware has the queue and announces; the driver still polls, then switches.
		calls := hold(card, prm.OpNop)
		end := async(func() error { return nop(c, context.Background()) })
		call := <-calls
		events(c)
		call.Finish()
		c.Complete(1 << call.Slot)
		if err := <-end; err != nil {
			t.Error(err)
		}
		end = async(func() error { return nop(c, context.Background()) })
		call = <-calls
		c.Complete(1 << call.Slot) // the event of the command before, once more
		synctest.Wait()
		if len(end) != 0 {
			t.Errorf("the next command ended with it: %v", <-end)
		}
		call.Finish()
		c.Complete(1 << call.Slot)
		if err := <-end; err != nil {
			t.Error(err)
		}
	})
}

func TestModeSwitchesUnderLoadLoseNobody(t *testing.T) { // 432161ea26d6, d43b7007dbd1
	bothModes(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		card.Handle(prm.OpNop, func(call *fwtest.Call) {
			time.Sleep(time.Duration(1+call.Slot%7) * 100 * time.Microsecond)
			call.Finish()
			c.Complete(1 << call.Slot)
		})
		ctx, stop := context.WithCancel(t.Context())
		var loops sync.WaitGroup
		for range 64 {
			loops.Go(func() {
				for ctx.Err() == nil {
					if err := nop(c, context.Background()); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		for i := range 200 {
			time.Sleep(time.Duration(i%5) * 90 * time.Microsecond)
			if i%2 == 0 {
				events(c)
			} else {
				c.UsePolling()
			}
		}
		events(c)
		stop()
		loops.Wait()
		if n := c.Counters(); n.LostEvents+n.LostInterrupts+n.NoAnswer+n.LateCompletions != 0 {
			t.Errorf("counters: %+v", n)
		}
	})
}

func TestEveryCallerThatIsLetInFindsASlot(t *testing.T) { // 410bd754cd73, 4f6626b0e140, 8e715cd613a1
	bothModes(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		events(c)
		card.Handle(prm.OpNop, func(call *fwtest.Call) {
			call.Finish()
			c.Complete(1 << call.Slot)
		})
		var callers sync.WaitGroup
		for range 100 {
			callers.Go(func() {
				for range 50 {
					if err := nop(c, context.Background()); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		callers.Wait()
	})
}

// The next two run outside a bubble, on real threads: what they look for is what the race detector and a
// double release find.

func TestFailureRacesWithLastCompletions(t *testing.T) { // "refcount: addition on 0", AER-recovery UAF
	for round := range 100 {
		card := fwtest.New()
		func() {
			w, _ := card.Window(0)
			c, err := cmdif.Open(cmdif.Config{
				Window: w, NewArena: card.NewArena, Log: quiet(), Submit: cmdif.Submit(round % 2),
			})
			if err != nil {
				t.Fatal(err)
			}
			events(c)
			card.Handle(prm.OpNop, func(call *fwtest.Call) {
				call.Finish()
				c.Complete(1 << call.Slot)
			})
			var callers sync.WaitGroup
			ends := make(chan error, 400)
			for range 40 {
				callers.Go(func() {
					for range 5 {
						ends <- nop(c, context.Background())
					}
				})
				callers.Go(func() {
					for range 5 {
						if err := c.Start(&prm.NopIn{}, &prm.NopOut{}, func(err error) { ends <- err }); err != nil {
							ends <- err
						}
					}
				})
			}
			for range rand.IntN(20) {
				c.Complete(rand.Uint32())
			}
			c.Fail(errors.New("bus error"))
			c.Complete(^uint32(0))
			callers.Wait()
			for range 400 {
				if err := <-ends; err != nil && !errors.Is(err, cmdif.ErrDown) {
					t.Fatal(err)
				}
			}
			card.Close() // firmware ends what it has
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := c.Quiesce(ctx); err != nil {
				t.Fatal(err)
			}
			if len(ends) != 0 {
				t.Fatalf("%d answers too many", len(ends))
			}
			if b := c.Books(); b.InFlight != 0 || len(b.Stuck) != 0 || b.Mailboxes != 0 {
				t.Fatalf("books: %+v", b)
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}()
	}
}

func TestCancelsRaceWithTheQueue(t *testing.T) { // 02896a7fa4cd: the signal after the last use
	card := fwtest.New()
	w, _ := card.Window(0)
	c, err := cmdif.Open(cmdif.Config{Window: w, NewArena: card.NewArena, Log: quiet(), Submit: cmdif.SubmitQueue})
	if err != nil {
		t.Fatal(err)
	}
	events(c)
	card.Handle(prm.OpNop, func(call *fwtest.Call) {
		call.Finish()
		c.Complete(1 << call.Slot)
	})
	var callers sync.WaitGroup
	for i := range 64 {
		callers.Go(func() {
			for k := range 50 {
				ctx, cancel := context.WithCancel(context.Background())
				if k%3 == 0 {
					go cancel()
				}
				err := nop(c, ctx)
				var silent *cmdif.NoAnswerError
				if err != nil && !(k%3 == 0 && errors.As(err, &silent) && errors.Is(err, context.Canceled)) {
					t.Errorf("caller %d: %v", i, err)
				}
				cancel()
			}
		})
	}
	callers.Wait()
	card.Close()
	if b := c.Books(); b.InFlight != 0 || len(b.Stuck) != 0 {
		t.Errorf("books: %+v", b)
	}
	if s := c.Stats(); s.Queue.Items != 64*50 || s.Queue.Executed+s.Queue.Canceled != s.Queue.Items {
		t.Errorf("work items: %+v", s.Queue)
	}
	if err := errors.Join(c.Quiesce(context.Background()), c.Close()); err != nil {
		t.Error(err)
	}
}

func TestTimeOutBeforeTheSlotTouchesNoSlot(t *testing.T) { // CVE-2024-38556: an index of -22
	bothModes(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		events(c)
		hold(card, prm.OpQueryISSI)
		// Firmware holds all slots for two minutes; nobody's command can be issued.
		calls := make(chan *fwtest.Call, 64)
		card.Handle(prm.OpQueryISSI, func(call *fwtest.Call) { calls <- call })
		var holders []<-chan error
		for range 31 {
			holders = append(holders, async(func() error {
				return c.Exec(context.Background(), &prm.QueryISSIIn{}, &prm.QueryISSIOut{})
			}))
		}
		time.Sleep(59 * time.Second) // their time is almost over
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		err := nop(c, ctx)
		var silent *cmdif.NoAnswerError
		if !errors.As(err, &silent) || silent.Slot != -1 || silent.Cause != cmdif.NeverIssued {
			t.Errorf("error: %v", err)
		}
		for range 31 {
			call := <-calls
			call.Finish()
			c.Complete(1 << call.Slot)
		}
		for _, end := range holders {
			if err := <-end; err != nil {
				t.Error(err)
			}
		}
		if b := c.Books(); b.InFlight != 0 || len(b.Stuck) != 0 {
			t.Errorf("books: %+v", b)
		}
	})
}

func TestCompletionThatCameBeforeTheFailureCounts(t *testing.T) { // CVE-2024-38555
	bothModes(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		events(c)
		calls := hold(card, prm.OpAllocUAR)
		var out prm.AllocUAROut
		end := async(func() error { return c.Exec(context.Background(), &prm.AllocUARIn{}, &out) })
		call := <-calls
		call.Answer(&prm.AllocUAROut{UAR: 9})
		c.Complete(1 << call.Slot)
		c.Fail(errors.New("internal error")) // before the caller has run
		if err := <-end; err != nil || out.UAR != 9 {
			t.Errorf("UAR %d, %v", out.UAR, err)
		}
	})
}

func TestPollersStopWhenTheInterfaceGoesDown(t *testing.T) { // b1f0349bd6d3
	bothModes(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		calls := hold(card, prm.OpNop)
		end := async(func() error { return nop(c, context.Background()) })
		call := <-calls
		time.Sleep(30 * time.Second) // it sleeps between looks by now
		begin := time.Now()
		c.Fail(errors.New("internal error"))
		noAnswer(t, <-end, cmdif.Flushed, cmdif.ErrDown)
		if d := time.Since(begin); d != 0 {
			t.Errorf("polled for %v more", d)
		}
		call.Finish()
	})
}

func TestManyCommandsTimeOutAtOnce(t *testing.T) { // openucx/ucx#7738, R17
	bothModes(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		events(c)
		calls := hold(card, prm.OpCreateMKey)
		var ends []<-chan error
		for range 20 {
			ends = append(ends, async(func() error {
				return c.Exec(context.Background(), &prm.CreateMKeyIn{}, &prm.CreateMKeyOut{})
			}))
		}
		for _, end := range ends {
			err := <-end
			noAnswer(t, err, cmdif.FirmwareSilent, cmdif.ErrTimeout)
			// What failed is said apart from what firmware said: there is no status, no syndrome.
			var refused *prm.CommandError
			if cmdif.Errno(err) != "ETIMEDOUT" || errors.As(err, &refused) {
				t.Errorf("errno %s of %v", cmdif.Errno(err), err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := nop(c, ctx); cmdif.Errno(err) != "ECANCELED" {
			t.Errorf("errno %s of %v", cmdif.Errno(err), err)
		}
		card.Handle(prm.OpCreateCQ, func(call *fwtest.Call) {
			call.Refuse(prm.StatusBadParameter, 0x1f3c11)
			c.Complete(1 << call.Slot)
		})
		err := c.Exec(t.Context(), &prm.CreateCQIn{}, &prm.CreateCQOut{})
		var refused *prm.CommandError
		if !errors.As(err, &refused) || refused.Syndrome != 0x1f3c11 || cmdif.Errno(err) != "EINVAL" {
			t.Errorf("errno %s of %v", cmdif.Errno(err), err)
		}
		s, _ := c.Stats().Lookup(uint16(prm.OpCreateMKey))
		if s.Count != 0 || s.Failed != 20 || s.FailedTransport != 20 || s.LastErrno != "ETIMEDOUT" || s.LastSyndrome != 0 {
			t.Errorf("CREATE_MKEY: %+v", s)
		}
		s, _ = c.Stats().Lookup(uint16(prm.OpCreateCQ))
		if s.Count != 1 || s.FailedStatus != 1 || s.FailedTransport != 0 || s.LastStatus != 3 || s.LastSyndrome != 0x1f3c11 || s.LastErrno != "EINVAL" {
			t.Errorf("CREATE_CQ: %+v", s)
		}
		for range 20 {
			(<-calls).Finish()
		}
	})
}

func TestAllocationErrorOnTheQueueReachesTheCaller(t *testing.T) { // 0e2909c6bec9: "slotted" forgotten
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		card.FailArenas(errors.New("no memory"))
		begin := time.Now()
		for range 40 {
			if err := c.Exec(t.Context(), &prm.QueryHCACapIn{}, &prm.QueryHCACapOut{}); !errors.Is(err, cmdif.ErrNoMailbox) {
				t.Fatal(err)
			}
		}
		if d := time.Since(begin); d != 0 {
			t.Errorf("waited %v", d)
		}
		card.FailArenas(nil)
		if err := nop(c, t.Context()); err != nil {
			t.Error(err)
		}
	}, queueMode)
}

// R08, the "substitution": while slot 0 is held, the ghost takes the event of slot 1.
func TestGhostEventInsteadOfTheRealOne(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		events(c)
		holders := hold(card, prm.OpNop)
		first := async(func() error { return nop(c, context.Background()) })
		holder := <-holders
		card.Handle(prm.OpAllocUAR, func(call *fwtest.Call) {
			call.Finish()
			c.Complete(1 << holder.Slot) // wrong slot
		})
		if err := c.Exec(t.Context(), &prm.AllocUARIn{}, &prm.AllocUAROut{}); err != nil {
			t.Errorf("the command whose event went astray: %v", err)
		}
		if n := c.Counters(); n.LostEvents != 1 || n.SpuriousEvents != 1 {
			t.Errorf("counters: %+v", n)
		}
		noAnswer(t, <-first, cmdif.FirmwareSilent, cmdif.ErrTimeout) // its firmware has it still
		holder.Finish()
		c.Complete(1 << holder.Slot)
		if n := c.Counters(); n.LateCompletions != 1 {
			t.Errorf("counters: %+v", n)
		}
	})
}
