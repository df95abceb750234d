package cmdif_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cxkit/driver/internal/cmdif"
	"cxkit/driver/internal/fwtest"
	"cxkit/prm"
)

func TestCommandsOfAllSizesGoThere(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		for _, n := range []int{0, 1, 63, 64, 65, 128, 129, 768, 50_000} {
			pas := make([]uint64, n)
			for i := range pas {
				pas[i] = uint64(i+1) << 12
			}
			in := prm.ManagePagesIn{OpMod: uint16(prm.PagesGive), InputNumEntries: uint32(n), PAS: pas}
			if err := c.Exec(t.Context(), &in, &prm.ManagePagesOut{}); err != nil {
				t.Fatalf("give %d: %v", n, err)
			}
			if got := card.Pages(); !slices.Equal(got, pas) {
				t.Fatalf("firmware got %d pages, the driver gave %d", len(got), n)
			}
			out := prm.ManagePagesOut{PAS: make([]uint64, n)}
			take := prm.ManagePagesIn{OpMod: uint16(prm.PagesTake), InputNumEntries: uint32(n)}
			if err := c.Exec(t.Context(), &take, &out); err != nil {
				t.Fatalf("take %d: %v", n, err)
			}
			if !slices.Equal(out.PAS, pas) {
				t.Fatalf("took %d pages of %d", len(out.PAS), n)
			}
		}
		// 50,000 page addresses travel in 782 mailboxes (reference reports.md, R01).
		if b := c.Books(); b.Mailboxes != 0 || b.Peak != 782 {
			t.Errorf("books: %+v, want none out and 782 at most", b)
		}
	})
}

func TestEachStatusIsATypedError(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		for status := 1; status < 256; status++ {
			card.Handle(prm.OpQueryHCACap, func(c *fwtest.Call) { c.Refuse(prm.Status(status), 0xABCD0000|uint32(status)) })
			err := c.Exec(t.Context(), &prm.QueryHCACapIn{OpMod: 3}, &prm.QueryHCACapOut{})
			var e *prm.CommandError
			if !errors.As(err, &e) || e.Op != prm.OpQueryHCACap || e.OpMod != 3 || e.Status != prm.Status(status) ||
				e.Syndrome != 0xABCD0000|uint32(status) {
				t.Fatalf("status %#x became %v", status, err)
			}
			if !errors.Is(err, prm.Status(status)) || cmdif.Issued(err) {
				t.Fatalf("status %#x: errors.Is does not find it, or it counts as unanswered", status)
			}
		}
	})
}

func TestEachDeliveryStatusIsATypedError(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		for d := 1; d < 128; d++ {
			card.Handle(prm.OpNop, func(c *fwtest.Call) { c.Delivery = prm.DeliveryStatus(d); c.Finish() })
			var e *cmdif.DeliveryError
			if err := nop(c, t.Context()); !errors.As(err, &e) || e.Delivery != prm.DeliveryStatus(d) || e.Op != prm.OpNop {
				t.Fatalf("delivery status %#x became %v", d, err)
			}
		}
	})
}

func TestAnswersThatBreakTheRulesAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		breach func(*fwtest.Call)
		want   string
	}{
		"wrong token of the entry":   {func(c *fwtest.Call) { c.Token++ }, "entry has token"},
		"output longer than asked":   {func(c *fwtest.Call) { c.Length++ }, "were asked for"},
		"output of 4 GiB":            {func(c *fwtest.Call) { c.Length = 1<<32 - 1 }, "were asked for"},
		"wrong token of a block":     {block(3, func(m *prm.Mailbox) { m.SetToken(m.Token() + 1) }), "block 3 has token"},
		"token 0 in the first block": {block(0, func(m *prm.Mailbox) { m.SetToken(0) }), "block 0 has token 0x0"},
		"wrong block number":         {block(1, func(m *prm.Mailbox) { m.SetBlockNumber(2) }), "block 1 says it is block 2"},
		"short chain":                {block(2, func(m *prm.Mailbox) { m.SetNextPtr(0) }), "block 2 links to 0x0"},
		"chain into nowhere":         {block(0, func(m *prm.Mailbox) { m.SetNextPtr(1 << 63) }), "block 0 links to"},
		"chain that goes on":         {block(7, func(m *prm.Mailbox) { m.SetNextPtr(1 << 20) }), "block 7 links to"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
				card.Handle(prm.OpQueryHCACap, func(c *fwtest.Call) {
					test.breach(c)
					c.Finish()
				})
				out := prm.QueryHCACapOut{Capability: [4096]byte{1: 7}}
				err := c.Exec(t.Context(), &prm.QueryHCACapIn{}, &out)
				var e *cmdif.ProtocolError
				if !errors.As(err, &e) || !strings.Contains(e.What, test.want) {
					t.Errorf("error %v, want one that says %q", err, test.want)
				}
				if out.Capability[1] != 7 {
					t.Error("output was decoded all the same")
				}
				if !cmdif.Issued(err) {
					t.Error("the command may have been executed")
				}
				card.Handle(prm.OpQueryHCACap, nil)
				if err := c.Exec(t.Context(), &prm.QueryHCACapIn{}, &out); err != nil {
					t.Errorf("the next command: %v", err)
				}
			})
		})
	}
}

// block changes output mailbox k.
func block(k int, f func(*prm.Mailbox)) func(*fwtest.Call) {
	return func(c *fwtest.Call) {
		c.Block = func(i int, m *prm.Mailbox) {
			if i == k {
				f(m)
			}
		}
	}
}

func TestOutputOfAnEarlierCommandIsNotSeenAgain(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		card.Handle(prm.OpQueryHCACap, func(c *fwtest.Call) {
			for i := 16; i < len(c.Out); i++ {
				c.Out[i] = 0xEE
			}
			c.Finish()
		})
		var out prm.QueryHCACapOut
		if err := c.Exec(t.Context(), &prm.QueryHCACapIn{}, &out); err != nil {
			t.Fatal(err)
		}
		card.Handle(prm.OpQueryHCACap, func(c *fwtest.Call) {
			c.Out = c.Out[:16] // firmware writes no mailbox
			c.Finish()
		})
		if err := c.Exec(t.Context(), &prm.QueryHCACapIn{}, &out); err != nil {
			t.Fatal(err)
		}
		if out.Capability != [4096]byte{} {
			t.Error("bytes of the first output appear in the second")
		}
	})
}

func TestTokensAreNeverZeroNorInUse(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		calls := hold(card, prm.OpNop)
		var done []<-chan error
		for range 30 {
			done = append(done, async(func() error { return nop(c, t.Context()) }))
		}
		synctest.Wait()
		used := map[uint8]bool{0: true}
		var held []*fwtest.Call
		for range 30 {
			call := <-calls
			held = append(held, call)
			if used[call.Token] {
				t.Fatalf("token %#x is 0 or in use", call.Token)
			}
			used[call.Token] = true
		}
		card.Handle(prm.OpQueryISSI, func(c *fwtest.Call) {
			if used[c.Token] {
				t.Errorf("token %#x is 0 or in use", c.Token)
			}
			c.Finish()
		})
		for range 600 { // more than twice around
			if err := c.Exec(t.Context(), &prm.QueryISSIIn{}, &prm.QueryISSIOut{}); err != nil {
				t.Fatal(err)
			}
		}
		for _, call := range held {
			call.Finish()
		}
		for _, d := range done {
			if err := <-d; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestThirtyOneCommandsRunAtOnceAndTheRestWaitInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		events(c)
		calls := hold(card, prm.OpNop)
		var order []int
		var done []<-chan error
		for i := range 40 {
			done = append(done, async(func() error {
				in := prm.NopIn{OpMod: uint16(i)}
				return c.Exec(t.Context(), &in, &prm.NopOut{})
			}))
			synctest.Wait() // so that they arrive in order
		}
		if n := len(calls); n != 31 {
			t.Fatalf("%d commands run at once, want 31", n)
		}
		if b := c.Books(); b.InFlight != 31 {
			t.Errorf("books: %+v", b)
		}
		// A page command has a slot of its own, whatever the others do.
		give := prm.ManagePagesIn{OpMod: uint16(prm.PagesGive), InputNumEntries: 1, PAS: []uint64{4096}}
		card.Handle(prm.OpManagePages, func(call *fwtest.Call) {
			call.Default()
			c.Complete(1 << call.Slot)
		})
		if err := c.Exec(t.Context(), &give, &prm.ManagePagesOut{}); err != nil {
			t.Errorf("page command: %v", err)
		}
		for range 40 {
			call := <-calls
			order = append(order, int(call.In[7]))
			call.Finish()
			c.Complete(1 << call.Slot)
			synctest.Wait()
		}
		for _, d := range done {
			if err := <-d; err != nil {
				t.Error(err)
			}
		}
		if !slices.IsSorted(order[31:]) {
			t.Errorf("commands that waited ran in order %v", order[31:])
		}
	})
}

func TestPageCommandsUseTheLastSlot(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		card.Handle(prm.OpManagePages, func(c *fwtest.Call) {
			if c.Slot != 31 {
				t.Errorf("page command in slot %d", c.Slot)
			}
			c.Default()
		})
		card.Handle(prm.OpNop, func(c *fwtest.Call) {
			if c.Slot != 0 {
				t.Errorf("command in slot %d", c.Slot)
			}
			c.Default()
		})
		if err := c.Exec(t.Context(), &prm.ManagePagesIn{}, &prm.ManagePagesOut{}); err != nil {
			t.Error(err)
		}
		if err := nop(c, t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestNoMailboxesIsAnErrorThatLeavesTheSlotUsable(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		card.FailArenas(errors.New("no memory"))
		err := c.Exec(t.Context(), &prm.QueryHCACapIn{}, &prm.QueryHCACapOut{})
		if !errors.Is(err, cmdif.ErrNoMailbox) || cmdif.Issued(err) {
			t.Errorf("error: %v", err)
		}
		card.FailArenas(nil)
		for range 40 {
			if err := c.Exec(t.Context(), &prm.QueryHCACapIn{}, &prm.QueryHCACapOut{}); err != nil {
				t.Fatal(err)
			}
		}
		w, _ := card.Window(0)
		small, err := cmdif.Open(cmdif.Config{Window: w, NewArena: card.NewArena, MaxMailboxes: 512})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{512 * 64, 512*64 + 1} {
			in := prm.ManagePagesIn{PAS: make([]uint64, n)}
			if err := small.Exec(t.Context(), &in, &prm.ManagePagesOut{}); errors.Is(err, cmdif.ErrNoMailbox) != (n > 512*64) {
				t.Errorf("%d addresses in 512 mailboxes: %v", n, err)
			}
		}
		if err := small.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestQueuesOfImpossibleShapeAreRefused(t *testing.T) {
	for _, shape := range []struct{ size, stride uint8 }{{6, 6}, {0, 6}, {5, 5}, {5, 8}, {15, 15}, {0, 0}} {
		t.Run(fmt.Sprintf("%d_%d", shape.size, shape.stride), func(t *testing.T) {
			card := fwtest.New()
			card.SetRegister(prm.InitSegCmdQOff, prm.InitSegCmdQDword(0, 0, shape.size, shape.stride))
			w, _ := card.Window(0)
			if _, err := cmdif.Open(cmdif.Config{Window: w, NewArena: card.NewArena}); err == nil {
				t.Error("accepted")
			}
		})
	}
}

func TestDeadlineOfTheContextCounts(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		calls := hold(card, prm.OpNop)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		begin := time.Now()
		noAnswer(t, nop(c, ctx), cmdif.FirmwareSilent, context.DeadlineExceeded)
		if d := time.Since(begin); d < 5*time.Second || d > 6*time.Second {
			t.Errorf("gave up after %v", d)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		noAnswer(t, nop(c, ended), cmdif.NeverIssued, context.Canceled)
		if n := len(calls); n != 1 {
			t.Errorf("firmware saw %d commands, want the first only", n)
		}
	})
}
