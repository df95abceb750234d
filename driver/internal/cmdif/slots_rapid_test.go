package cmdif_test

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"cxkit/driver/internal/cmdif"
	"cxkit/driver/internal/fwtest"
	"cxkit/prm"
)

// reference is what must be true of commands whatever happens: the simplest model that can be wrong about
// none of it. A command is known by a number in its op_mod, which firmware sends back.
type reference struct {
	mu       sync.Mutex
	commands []*record
	owned    map[int]*fwtest.Call // by slot: posted and not completed
	cancels  []context.CancelFunc
	failed   bool
}

// record is one command.
type record struct {
	seen, finished bool // by firmware
	ended          int  // answers that the caller got
	err            error
	got            uint16
}

func (r *reference) add() (int, *record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := &record{}
	r.commands = append(r.commands, x)
	return len(r.commands) - 1, x
}

func (r *reference) end(x *record, out *prm.QueryHCACapOut, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x.ended++
	x.err, x.got = err, binary.BigEndian.Uint16(out.Capability[:])
}

// post is firmware fetching a command.
func (r *reference) post(t rapid.TB, call *fwtest.Call) {
	if r.owned[call.Slot] != nil {
		t.Fatalf("slot %d was posted while firmware owned it", call.Slot)
	}
	if (call.Op == prm.OpManagePages) != (call.Slot == 31) {
		t.Fatalf("%v in slot %d", call.Op, call.Slot)
	}
	r.owned[call.Slot] = call
	if call.Op == prm.OpQueryHCACap {
		x := r.commands[binary.BigEndian.Uint16(call.In[6:])]
		if x.seen {
			t.Fatalf("a command was issued twice")
		}
		x.seen = true
	}
}

// finish is firmware completing what it has in a slot.
func (r *reference) finish(slot int) {
	call := r.owned[slot]
	delete(r.owned, slot)
	if call.Op == prm.OpQueryHCACap {
		r.mu.Lock()
		r.commands[binary.BigEndian.Uint16(call.In[6:])].finished = true
		r.mu.Unlock()
		copy(call.Out[16:18], call.In[6:8])
	}
	call.Finish()
}

// check compares every command that has ended with what may be.
func (r *reference) check(t rapid.TB) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, x := range r.commands {
		switch {
		case x.ended == 0:
		case x.ended > 1:
			t.Fatalf("command %d ended %d times", i, x.ended)
		case x.err == nil && (!x.finished || x.got != uint16(i)):
			t.Fatalf("command %d: finished by firmware %v, answer of %d", i, x.finished, x.got)
		case x.err != nil && cmdif.Issued(x.err) != x.seen:
			t.Fatalf("command %d: seen by firmware %v, the driver says %v", i, x.seen, x.err)
		case errors.Is(x.err, cmdif.ErrDown) && !r.failed:
			t.Fatalf("command %d: %v, but nobody gave the device up", i, x.err)
		}
	}
}

// Whatever callers, firmware, stray events, mode switches and failures do: no slot that firmware owns is
// posted again, every caller gets exactly one answer, and it is that caller's.
func TestCommandsUnderRandomHistories(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(timeless{t}, func(rt *rapid.T) { randomHistory(rt) })
	})
}

func randomHistory(rt *rapid.T) {
	card := fwtest.New()
	w, _ := card.Window(0)
	c, err := cmdif.Open(cmdif.Config{
		Window: w, NewArena: card.NewArena, Timeout: 2 * time.Second, Log: quiet(),
		Submit:    cmdif.Submit(rapid.IntRange(0, 1).Draw(rt, "submit")),
		Mailboxes: cmdif.PoolKind(rapid.IntRange(0, 1).Draw(rt, "pool")),
	})
	if err != nil {
		rt.Fatal(err)
	}
	r := &reference{owned: map[int]*fwtest.Call{}}
	calls := make(chan *fwtest.Call, 4096)
	for _, op := range []prm.Opcode{prm.OpNop, prm.OpManagePages, prm.OpQueryHCACap} {
		card.Handle(op, func(c *fwtest.Call) { calls <- c })
	}
	others := make(chan error, 4096) // ends of commands that are not tracked
	untracked := 0
	collect := func() {
		synctest.Wait()
		for len(calls) > 0 {
			r.post(rt, <-calls)
		}
		r.check(rt)
	}
	exec := func(in cmdif.In, out cmdif.Out, end func(error)) {
		ctx, cancel := context.WithCancel(context.Background())
		r.cancels = append(r.cancels, cancel)
		go func() { end(c.Exec(ctx, in, out)) }()
	}
	caps := func(callback bool) {
		i, x := r.add()
		in, out := &prm.QueryHCACapIn{OpMod: uint16(i)}, &prm.QueryHCACapOut{}
		end := func(err error) { r.end(x, out, err) }
		if !callback {
			exec(in, out, end)
		} else if err := c.Start(in, out, end); err != nil {
			end(err)
		}
	}
	rt.Repeat(map[string]func(*rapid.T){
		"": func(*rapid.T) { collect() },
		"exec": func(rt *rapid.T) {
			for range rapid.SampledFrom([]int{1, 1, 3, 20}).Draw(rt, "n") {
				caps(false)
			}
		},
		"start": func(rt *rapid.T) {
			for range rapid.SampledFrom([]int{1, 1, 3, 20}).Draw(rt, "n") {
				caps(true)
			}
		},
		"pages": func(*rapid.T) {
			untracked++
			exec(&prm.ManagePagesIn{}, &prm.ManagePagesOut{PAS: make([]uint64, 70)}, func(err error) { others <- err })
		},
		"finish": func(rt *rapid.T) {
			if len(r.owned) == 0 {
				rt.Skip()
			}
			slot := rapid.SampledFrom(keys(r.owned)).Draw(rt, "slot")
			r.finish(slot)
			if rapid.Bool().Draw(rt, "event") {
				c.Complete(1 << slot)
			}
		},
		"event": func(rt *rapid.T) { c.Complete(rapid.Uint32().Draw(rt, "mask")) },
		"mode": func(rt *rapid.T) {
			if rapid.Bool().Draw(rt, "events") {
				events(c)
			} else {
				c.UsePolling()
			}
		},
		"cancel": func(rt *rapid.T) {
			if len(r.cancels) == 0 {
				rt.Skip()
			}
			r.cancels[rapid.IntRange(0, len(r.cancels)-1).Draw(rt, "which")]()
		},
		"time": func(rt *rapid.T) {
			time.Sleep(time.Duration(rapid.IntRange(1, 2_100).Draw(rt, "ms")) * time.Millisecond)
		},
		"fail": func(rt *rapid.T) {
			if rapid.IntRange(0, 7).Draw(rt, "device") != 0 {
				rt.Skip()
			}
			r.failed = true
			c.Fail(errors.New("synd 0x1"))
		},
		"books": func(rt *rapid.T) {
			b := c.Books()
			if b.InFlight+len(b.Stuck) > 32 {
				rt.Fatalf("books: %+v", b)
			}
			for _, slot := range b.Stuck {
				if r.owned[slot] == nil {
					rt.Fatalf("slot %d is stuck although firmware has completed it", slot)
				}
			}
		},
	})
	collect()
	for _, slot := range keys(r.owned) {
		r.finish(slot)
	}
	r.failed = true
	if err := c.Quiesce(context.Background()); err != nil {
		rt.Fatal(err)
	}
	for range untracked {
		<-others
	}
	for _, cancel := range r.cancels {
		cancel()
	}
	synctest.Wait()
	for len(calls) > 0 {
		call := <-calls
		r.post(rt, call)
		r.finish(call.Slot)
	}
	r.check(rt)
	for i, x := range r.commands {
		if x.ended != 1 {
			rt.Fatalf("command %d ended %d times", i, x.ended)
		}
	}
	if b := c.Books(); b.InFlight != 0 || len(b.Stuck) != 0 || b.Mailboxes != 0 {
		rt.Fatalf("at the end: %+v", b)
	}
	if s := c.Stats(); s.Queue.Executed+s.Queue.Canceled != s.Queue.Items {
		rt.Fatalf("work items: %+v", s.Queue)
	}
	if strays, _, _ := card.Faults(); strays != 0 || card.BadDMA() != 0 || card.Unsigned() != 0 {
		rt.Fatalf("%d stray doorbells, %d bad accesses, %d unsigned", strays, card.BadDMA(), card.Unsigned())
	}
	if err := c.Close(); err != nil {
		rt.Fatal(err)
	}
	card.Close()
}

func keys(m map[int]*fwtest.Call) []int {
	var list []int
	for i := range 32 {
		if m[i] != nil {
			list = append(list, i)
		}
	}
	return list
}

// timeless hides a test's deadline, which a bubble must not ask for.
type timeless struct{ rapid.TB }
