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

func TestWorkItemsAreCountedByTheQueue(t *testing.T) {
	const commands = 1200
	for mode, want := range map[cmdif.Submit]uint64{cmdif.SubmitCaller: 0, cmdif.SubmitQueue: commands} {
		t.Run(mode.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
				for range commands {
					if err := nop(c, t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				// Page commands never go through the queue.
				if err := c.Exec(t.Context(), &prm.ManagePagesIn{}, &prm.ManagePagesOut{}); err != nil {
					t.Error(err)
				}
				s := c.Stats()
				if s.Queue.Items != want || s.Queue.Executed != want || s.Queue.Canceled != 0 {
					t.Errorf("work items: %+v, want %d", s.Queue, want)
				}
				if n, _ := s.Lookup(uint16(prm.OpNop)); n.Count != commands || card.Count(prm.OpNop) != commands {
					t.Errorf("%d commands counted, firmware saw %d", n.Count, card.Count(prm.OpNop))
				}
			}, func(c *cmdif.Config) { c.Submit = mode })
		})
	}
}

func TestCommandTheWorkerNeverCameToWasNeverIssued(t *testing.T) { // R18
	log := newRecorder()
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		// The worker is held up for 70 s by the first item.
		first := async(func() error {
			return c.Exec(context.Background(), &hooked{hook: func() { time.Sleep(70 * time.Second) }}, &prm.NopOut{})
		})
		synctest.Wait()
		begin := time.Now()
		err := c.Exec(t.Context(), &prm.QueryISSIIn{}, &prm.QueryISSIOut{})
		noAnswer(t, err, cmdif.NeverIssued, cmdif.ErrTimeout)
		if d := time.Since(begin); d < time.Minute || d > 61*time.Second {
			t.Errorf("gave up after %v", d)
		}
		if cmdif.Issued(err) || cmdif.Errno(err) != "ECANCELED" {
			t.Errorf("errno %s, issued %v", cmdif.Errno(err), cmdif.Issued(err))
		}
		if err := <-first; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if n := card.Count(prm.OpQueryISSI); n != 0 {
			t.Error("firmware saw it after all")
		}
		for range 40 { // all slots are usable
			if err := nop(c, t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if s := c.Stats(); s.Queue.Canceled != 1 || s.Queue.Executed != 41 || s.Queue.Items != 42 {
			t.Errorf("work items: %+v", s.Queue)
		}
		log.expect(t, "QUERY_ISSI(0x10a) canceled on out of queue timeout.")
	}, queueMode, log.attach)
}

func TestFullSlotsKeepTheWholeQueueBack(t *testing.T) { // 3.3: head-of-line blocking, and its absence
	for mode, want := range map[cmdif.Submit]bool{cmdif.SubmitCaller: false, cmdif.SubmitQueue: true} {
		t.Run(mode.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
				events(c)
				free := fill(t, card, c, 31)
				// One command waits for a slot; a second gives up soon if it is behind the first.
				waiter := async(func() error { return nop(c, context.Background()) })
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				noAnswer(t, c.Exec(ctx, &prm.QueryISSIIn{}, &prm.QueryISSIOut{}), cmdif.NeverIssued, context.DeadlineExceeded)
				if n := c.Stats().Queue.Canceled; (n == 1) != want {
					t.Errorf("%d commands ended before the worker came to them", n)
				}
				card.Handle(prm.OpNop, func(call *fwtest.Call) { call.Finish(); c.Complete(1 << call.Slot) })
				free()
				if err := <-waiter; err != nil {
					t.Error(err)
				}
			}, func(c *cmdif.Config) { c.Submit = mode })
		})
	}
}

func TestQueueIsFirstInFirstOut(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		var got []uint16
		done := make(chan struct{}, 200)
		card.Handle(prm.OpNop, func(call *fwtest.Call) { call.Finish() })
		for i := range 200 {
			in := &hooked{NopIn: prm.NopIn{OpMod: uint16(i)}, hook: func() { got = append(got, uint16(i)) }}
			if err := c.Start(in, &prm.NopOut{}, func(error) { done <- struct{}{} }); err != nil {
				t.Fatal(err)
			}
		}
		for range 200 {
			<-done
		}
		for i, x := range got {
			if int(x) != i {
				t.Fatalf("item %d was handled as number %d", x, i)
			}
		}
	})
}

func TestQueuesOfAPoolShareItsLock(t *testing.T) {
	var pool cmdif.WorkPool
	synctest.Test(t, func(t *testing.T) {
		edit := func(c *cmdif.Config) { c.Submit, c.Work = cmdif.SubmitQueue, &pool }
		cardA, cardB := fwtest.New(), fwtest.New()
		a, b := open(t, cardA, edit), open(t, cardB, edit)
		for range 10 {
			if err := errors.Join(nop(a, t.Context()), nop(b, t.Context())); err != nil {
				t.Fatal(err)
			}
		}
		if x, y := a.Stats().Queue.Items, b.Stats().Queue.Items; x != 10 || y != 10 {
			t.Errorf("%d and %d work items, want 10 each", x, y)
		}
	})
}
