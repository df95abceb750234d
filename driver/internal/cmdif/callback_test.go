package cmdif_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"cxkit/driver/internal/cmdif"
	"cxkit/driver/internal/fwtest"
	"cxkit/prm"
)

// start runs a callback command and returns where its end arrives.
func start(t *testing.T, c *cmdif.Interface, in cmdif.In, out cmdif.Out) <-chan error {
	t.Helper()
	ended := make(chan error, 2) // room for one too many
	if err := c.Start(in, out, func(err error) { ended <- err }); err != nil {
		t.Fatal(err)
	}
	return ended
}

// once checks that a callback came exactly once, and returns what it said.
func once(t *testing.T, ended <-chan error) error {
	t.Helper()
	err := <-ended
	synctest.Wait()
	if len(ended) != 0 {
		t.Error("the callback came twice")
	}
	return err
}

func TestCallbackCommandDeliversItsOutput(t *testing.T) {
	for _, mode := range []string{"polling", "events"} {
		t.Run(mode, func(t *testing.T) {
			bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
				if mode == "events" {
					events(c)
				}
				card.Handle(prm.OpAllocUAR, func(call *fwtest.Call) {
					time.Sleep(time.Millisecond)
					call.Answer(&prm.AllocUAROut{UAR: 77})
					c.Complete(1 << call.Slot)
				})
				var out prm.AllocUAROut
				if err := once(t, start(t, c, &prm.AllocUARIn{}, &out)); err != nil || out.UAR != 77 {
					t.Errorf("UAR %d, %v", out.UAR, err)
				}
				card.Handle(prm.OpAllocUAR, func(call *fwtest.Call) {
					call.Refuse(prm.StatusNoResources, 5)
					c.Complete(1 << call.Slot)
				})
				if err := once(t, start(t, c, &prm.AllocUARIn{}, &out)); !errors.Is(err, prm.StatusNoResources) {
					t.Errorf("error %v", err)
				}
				if s := c.Stats(); s.Queue.Items != 2 || s.Queue.Executed != 2 {
					t.Errorf("work items: %+v", s.Queue)
				}
			})
		})
	}
}

func TestStartNeverWaits(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		events(c)
		free := fill(t, card, c, 31)
		begin := time.Now()
		var ends []<-chan error
		for range 100 {
			ends = append(ends, start(t, c, &prm.QueryCQIn{}, &prm.QueryCQOut{}))
		}
		if d := time.Since(begin); d != 0 {
			t.Errorf("waited %v", d)
		}
		card.Handle(prm.OpQueryCQ, func(call *fwtest.Call) { call.Finish(); c.Complete(1 << call.Slot) })
		free()
		for _, end := range ends {
			if err := once(t, end); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestCallbackMayStartTheNextCommand(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		events(c)
		card.Handle(prm.OpNop, func(call *fwtest.Call) { call.Finish(); c.Complete(1 << call.Slot) })
		const want = 1000
		n := 0
		done := make(chan struct{})
		var next func(error)
		next = func(err error) {
			if err != nil {
				t.Error(err)
			}
			if n++; n == want {
				close(done)
				return
			}
			if err := c.Start(&prm.NopIn{}, &prm.NopOut{}, next); err != nil {
				t.Error(err)
				close(done)
			}
		}
		if err := c.Start(&prm.NopIn{}, &prm.NopOut{}, next); err != nil {
			t.Fatal(err)
		}
		<-done
	})
}

func TestPageCommandsHaveNoCallbackForm(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		err := c.Start(&prm.ManagePagesIn{}, &prm.ManagePagesOut{}, func(error) { t.Error("called") })
		noAnswer(t, err, cmdif.NeverIssued, cmdif.ErrNoCallback)
		if no := cmdif.Errno(err); no != "EINVAL" {
			t.Errorf("errno %s", no)
		}
	})
}

func TestCallbackCommandThatTimesOutHoldsItsSlot(t *testing.T) { // R10, R11
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		events(c)
		calls := hold(card, prm.OpCreateMKey)
		begin := time.Now()
		err := once(t, start(t, c, &prm.CreateMKeyIn{}, &prm.CreateMKeyOut{}))
		noAnswer(t, err, cmdif.FirmwareSilent, cmdif.ErrTimeout)
		if d := time.Since(begin); d < time.Minute || d > 61*time.Second {
			t.Errorf("gave up after %v", d)
		}
		call := <-calls
		if b := c.Books(); len(b.Stuck) != 1 || b.Stuck[0] != call.Slot {
			t.Errorf("books: %+v", b)
		}
		call.Finish()
		c.Complete(1 << call.Slot)
		c.Complete(1 << call.Slot)
		if b := c.Books(); len(b.Stuck) != 0 {
			t.Errorf("books after the late completion: %+v", b)
		}
	})
}

func TestCallbackCommandWhoseEventWasLostIsRecovered(t *testing.T) { // R14
	for _, lost := range []string{"event", "interrupt"} {
		t.Run(lost, func(t *testing.T) {
			bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
				if lost == "event" {
					events(c)
				} else {
					c.UseEvents(func() int { c.Complete(1); return 1 })
				}
				if err := once(t, start(t, c, &prm.NopIn{}, &prm.NopOut{})); err != nil {
					t.Error(err)
				}
				n := c.Counters()
				if lost == "event" && n.LostEvents != 1 || lost == "interrupt" && n.LostInterrupts != 1 {
					t.Errorf("counters: %+v", n)
				}
			})
		})
	}
}

func TestFailEndsCallbackCommandsWhereverTheyAre(t *testing.T) { // CVE-2024-38555
	for _, mode := range []string{"polling", "events"} {
		t.Run(mode, func(t *testing.T) {
			bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
				if mode == "events" {
					events(c)
				}
				calls := hold(card, prm.OpNop)
				var ends []<-chan error
				for range 40 { // 31 with firmware, one in the worker's hands, the rest on the queue
					ends = append(ends, start(t, c, &prm.NopIn{}, &prm.NopOut{}))
				}
				synctest.Wait()
				why := errors.New("synd 0x1")
				c.Fail(why)
				flushed := 0
				for _, end := range ends {
					err := once(t, end)
					if !errors.Is(err, why) || !errors.Is(err, cmdif.ErrDown) || cmdif.Errno(err) != "ENXIO" {
						t.Fatalf("error: %v", err)
					}
					if cmdif.Issued(err) {
						flushed++
					}
				}
				if flushed != 31 {
					t.Errorf("%d were flushed, want 31", flushed)
				}
				if err := c.Start(&prm.NopIn{}, &prm.NopOut{}, func(error) { t.Error("called") }); !errors.Is(err, cmdif.ErrDown) {
					t.Errorf("a later one: %v", err)
				}
				for range 31 {
					(<-calls).Finish()
				}
			})
		})
	}
}

func TestCallbackCommandOfADownDeviceIsEmulated(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		c.Fail(errors.New("gone"))
		if err := once(t, start(t, c, &prm.DestroyMKeyIn{}, &prm.DestroyMKeyOut{})); err != nil {
			t.Error(err)
		}
		if n := card.Count(prm.OpDestroyMKey); n != 0 {
			t.Error("firmware saw it")
		}
	})
}

func TestCallbacksEndBeforeQuiesceDoes(t *testing.T) { // bacd22df9514
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		calls := hold(card, prm.OpNop)
		var running, ended bool
		if err := c.Start(&prm.NopIn{}, &prm.NopOut{}, func(error) {
			running = true
			time.Sleep(50 * time.Millisecond) // whoever waits for Quiesce frees what this uses
			ended = true
		}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := c.Quiesce(t.Context()); err != nil {
			t.Error(err)
		}
		if !running || !ended {
			t.Error("the callback outlives the interface")
		}
		for _, in := range []cmdif.In{&prm.NopIn{}, &prm.DestroyMKeyIn{}} {
			if err := c.Start(in, &prm.NopOut{}, func(error) { t.Error("called") }); err == nil {
				t.Error("started after the end")
			}
		}
		(<-calls).Finish()
	})
}

func TestTimeOutOfACallbackRacesWithItsCompletion(t *testing.T) { // 50b2412b7e78
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		calls := hold(card, prm.OpNop)
		var late atomic.Pointer[fwtest.Call]
		// While the time-out is handled, the completion comes in two ways.
		c.UseEvents(func() int {
			call := late.Swap(nil)
			if call == nil {
				return 0
			}
			call.Finish()
			c.Complete(1 << call.Slot)
			c.Complete(1 << call.Slot)
			return 1
		})
		for range 40 { // each slot would be leaked or released twice
			end := start(t, c, &prm.NopIn{}, &prm.NopOut{})
			late.Store(<-calls)
			if err := once(t, end); err != nil {
				t.Fatal(err)
			}
		}
		if b := c.Books(); b.InFlight != 0 || len(b.Stuck) != 0 {
			t.Errorf("books: %+v", b)
		}
	})
}

func TestFailedCallbackSubmissionsLeakNothing(t *testing.T) { // 3afa3ae3db52
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		events(c)
		calls := hold(card, prm.OpQueryGeneralObject)
		for round := range 3 {
			var ends []<-chan error
			for i := 0; ; i++ {
				ended := make(chan error, 2)
				err := c.Start(&prm.QueryGeneralObjectIn{}, &prm.QueryGeneralObjectOut{}, func(err error) { ended <- err })
				if err == nil {
					ends = append(ends, ended)
					continue
				}
				if cmdif.Errno(err) != "EBUSY" || i != 16 {
					t.Fatalf("round %d, command %d: %v; want EBUSY at 16", round, i, err)
				}
				break
			}
			for range ends {
				call := <-calls
				call.Finish()
				c.Complete(1 << call.Slot)
			}
			for _, end := range ends {
				if err := once(t, end); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

func TestCallbackWithoutMailboxesEndsOnce(t *testing.T) { // 0e2909c6bec9, 3afa3ae3db52
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		card.FailArenas(errors.New("no memory"))
		for range 40 {
			err := once(t, start(t, c, &prm.QueryHCACapIn{}, &prm.QueryHCACapOut{}))
			if !errors.Is(err, cmdif.ErrNoMailbox) || cmdif.Errno(err) != "ENOMEM" {
				t.Fatalf("error: %v", err)
			}
		}
		card.FailArenas(nil)
		if err := once(t, start(t, c, &prm.QueryHCACapIn{}, &prm.QueryHCACapOut{})); err != nil {
			t.Error(err)
		}
	})
}

func TestCallbacksInFlightSurviveTheSwitchToPolling(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		events(c)
		calls := hold(card, prm.OpNop)
		end := start(t, c, &prm.NopIn{}, &prm.NopOut{})
		call := <-calls
		c.UsePolling()
		begin := time.Now()
		call.Finish() // nobody announces it
		if err := once(t, end); err != nil {
			t.Error(err)
		}
		if d := time.Since(begin); d > time.Second {
			t.Errorf("took %v: it was not polled", d)
		}
	})
}

func TestUserContextsShareHalfOfTheSlots(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		events(c)
		calls := hold(card, prm.OpNop)
		user := c.For(7, false)
		var ends []<-chan error
		for range 20 {
			ends = append(ends, async(func() error { return user.Exec(context.Background(), &prm.NopIn{}, &prm.NopOut{}) }))
		}
		synctest.Wait()
		if n := len(calls); n != 16 {
			t.Errorf("%d commands of an unprivileged context run, want 16 of 31", n)
		}
		starter := user.(interface {
			Start(cmdif.In, cmdif.Out, func(error)) error
		})
		if err := starter.Start(&prm.NopIn{}, &prm.NopOut{}, func(error) { t.Error("called") }); !errors.Is(err, cmdif.ErrBusy) {
			t.Errorf("callback command beyond the limit: %v", err)
		}
		// The driver and contexts with privilege go on.
		for _, x := range []cmdif.Executor{c, c.For(8, true)} {
			card.Handle(prm.OpQueryISSI, func(call *fwtest.Call) {
				call.Finish()
				c.Complete(1 << call.Slot)
			})
			if err := x.Exec(t.Context(), &prm.QueryISSIIn{}, &prm.QueryISSIOut{}); err != nil {
				t.Error(err)
			}
		}
		for range 20 {
			call := <-calls
			if call.In[2] != 0 || call.In[3] != 7 {
				t.Errorf("uid % x, want 7", call.In[2:4])
			}
			call.Finish()
			c.Complete(1 << call.Slot)
			synctest.Wait()
		}
		for _, end := range ends {
			if err := <-end; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestObjectCommandsShareHalfOfTheSlots(t *testing.T) {
	bothModes(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		events(c)
		calls := hold(card, prm.OpQueryGeneralObject)
		var ends []<-chan error
		for range 40 {
			ends = append(ends, async(func() error {
				return c.Exec(context.Background(), &prm.QueryGeneralObjectIn{}, &prm.QueryGeneralObjectOut{})
			}))
		}
		synctest.Wait()
		if n := len(calls); n != 16 {
			t.Errorf("%d object commands run, want 16 of 31", n)
		}
		card.Handle(prm.OpNop, func(call *fwtest.Call) { call.Finish(); c.Complete(1 << call.Slot) })
		if err := nop(c, t.Context()); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		noAnswer(t, c.Exec(ctx, &prm.QueryGeneralObjectIn{}, &prm.QueryGeneralObjectOut{}), cmdif.NeverIssued, context.DeadlineExceeded)
		for range 40 {
			call := <-calls
			call.Finish()
			c.Complete(1 << call.Slot)
			synctest.Wait()
		}
		for _, end := range ends {
			if err := <-end; err != nil {
				t.Error(err)
			}
		}
	})
}
