package cmdif_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"cxkit/driver/internal/cmdif"
	"cxkit/driver/internal/fwtest"
	"cxkit/prm"
)

// open makes a command interface on a scripted card; both end with the test.
func open(t *testing.T, card *fwtest.Card, edits ...func(*cmdif.Config)) *cmdif.Interface {
	t.Helper()
	w, err := card.Window(0)
	if err != nil {
		t.Fatal(err)
	}
	config := cmdif.Config{
		Window: w, NewArena: card.NewArena, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	for _, edit := range edits {
		edit(&config)
	}
	c, err := cmdif.Open(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := c.Quiesce(ctx); err != nil {
			t.Error(err)
		}
		if b := c.Books(); b.InFlight != 0 {
			t.Errorf("%d slots in use after all commands have ended", b.InFlight)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if b := c.Books(); b.Mailboxes != 0 || len(b.Stuck) != 0 {
			t.Errorf("books after close: %+v", b)
		}
		card.Close()
		if n := card.Arenas(); n != 0 {
			t.Errorf("%d arenas are left", n)
		}
		if n := card.BadDMA(); n != 0 {
			t.Errorf("firmware was led to unmapped memory %d times", n)
		}
		if n := card.Unsigned(); n != 0 {
			t.Errorf("%d entries were not signed", n)
		}
		if strays, _, reserved := card.Faults(); strays != 0 || len(reserved) != 0 {
			t.Errorf("%d doorbells of slots the driver owns, reserved bits set in %v", strays, reserved)
		}
	})
	return c
}

// bubble runs f on virtual time with a fresh card and interface in polling mode.
func bubble(t *testing.T, f func(t *testing.T, card *fwtest.Card, c *cmdif.Interface), edits ...func(*cmdif.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		card := fwtest.New()
		f(t, card, open(t, card, edits...))
	})
}

// queueMode makes blocking commands go through the ordered queue.
func queueMode(c *cmdif.Config) { c.Submit = cmdif.SubmitQueue }

// bothModes runs f with each way to submit.
func bothModes(t *testing.T, f func(t *testing.T, card *fwtest.Card, c *cmdif.Interface)) {
	for _, mode := range []cmdif.Submit{cmdif.SubmitCaller, cmdif.SubmitQueue} {
		t.Run(mode.String(), func(t *testing.T) {
			bubble(t, f, func(c *cmdif.Config) { c.Submit = mode })
		})
	}
}

// hooked is a NOP that does something while it is encoded: after it has its slot, before it is posted.
type hooked struct {
	prm.NopIn
	hook func()
}

func (h *hooked) Put(b []byte) {
	h.hook()
	h.NopIn.Put(b)
}

// fill occupies n general slots; what it returns frees them and waits for the callers.
func fill(t *testing.T, card *fwtest.Card, c *cmdif.Interface, n int) (free func()) {
	t.Helper()
	calls := hold(card, prm.OpQueryISSI)
	var ends []<-chan error
	for range n {
		ends = append(ends, async(func() error {
			return c.Exec(context.Background(), &prm.QueryISSIIn{}, &prm.QueryISSIOut{})
		}))
	}
	synctest.Wait()
	return func() {
		t.Helper()
		for range n {
			call := <-calls
			call.Finish()
			c.Complete(1 << call.Slot)
		}
		for _, end := range ends {
			if err := <-end; err != nil {
				t.Error(err)
			}
		}
	}
}

// events switches to event mode without an event queue: the test announces completions itself.
func events(c *cmdif.Interface) { c.UseEvents(func() int { return 0 }) }

func nop(c *cmdif.Interface, ctx context.Context) error {
	return c.Exec(ctx, &prm.NopIn{}, &prm.NopOut{})
}

// async runs f in a goroutine and returns where its result arrives.
func async(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// noAnswer checks what kind of NoAnswerError err is.
func noAnswer(t *testing.T, err error, cause cmdif.Cause, why error) {
	t.Helper()
	var e *cmdif.NoAnswerError
	if !errors.As(err, &e) || e.Cause != cause || !errors.Is(err, why) {
		t.Errorf("error is %v, want cause %v because of %v", err, cause, why)
	}
}

// hold makes an opcode's commands wait until they are released.
func hold(card *fwtest.Card, op prm.Opcode) (calls chan *fwtest.Call) {
	calls = make(chan *fwtest.Call, 64)
	card.Handle(op, func(c *fwtest.Call) { calls <- c })
	return calls
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
