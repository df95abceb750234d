package event_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"cxkit/driver/internal/cmdif"
	"cxkit/driver/internal/event"
	"cxkit/driver/internal/fwtest"
	"cxkit/driver/internal/object"
	"cxkit/prm"
)

// bench is a dispatcher on a scripted card, with all its queues.
type bench struct {
	*event.Dispatcher
	card         *fwtest.Card
	cmd          *cmdif.Interface
	objects      *object.Book
	comm, async  *event.EQ
	pages        *event.EQ
	requests     chan prm.PageRequestEvent
	fatal        chan error
	completionEQ *event.EQ
}

func open(t *testing.T) *bench {
	t.Helper()
	card := fwtest.New()
	w, _ := card.Window(0)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	cmd, err := cmdif.Open(cmdif.Config{Window: w, NewArena: card.NewArena, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{
		card: card, cmd: cmd, objects: object.NewBook(cmd),
		requests: make(chan prm.PageRequestEvent, 1000), fatal: make(chan error, 10),
	}
	b.Dispatcher = event.New(event.Config{
		Function: card, Objects: b.objects, NewArena: card.NewArena, Window: w, Doorbells: 8 * 4096, UAR: 8, Log: log,
		Commands: cmd.Complete,
		Pages:    func(r event.PageRequest) { b.requests <- r },
		Fatal:    func(err error) { b.fatal <- err },
	})
	must := func(q *event.EQ, err error) *event.EQ {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	b.comm = must(b.CreateCommandEQ(t.Context()))
	cmd.UseEvents(b.comm.Poll)
	b.async = must(b.CreateAsyncEQ(t.Context(), 1<<prm.EventPortChange|1<<prm.EventCQError|1<<prm.EventWQAccess|
		1<<prm.EventInternalError|1<<prm.EventPortModule))
	b.pages = must(b.CreatePagesEQ(t.Context()))
	if err := b.CreateCompletionEQs(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	b.completionEQ = b.Completion(0)
	t.Cleanup(func() {
		ctx := context.Background()
		for _, err := range []error{
			b.DestroyCompletionEQs(ctx), b.Destroy(ctx, b.pages), b.Destroy(ctx, b.async),
		} {
			if err != nil {
				t.Error(err)
			}
		}
		cmd.UsePolling()
		if err := b.Destroy(ctx, b.comm); err != nil {
			t.Error(err)
		}
		b.Stop()
		if err := errors.Join(cmd.Quiesce(ctx), cmd.Close(), b.Release()); err != nil {
			t.Error(err)
		}
		card.Close()
		if n := card.Arenas(); n != 0 || card.BadDMA() != 0 {
			t.Errorf("%d arenas are left, %d bad accesses", n, card.BadDMA())
		}
		if out := b.objects.Out(); len(out) != 0 {
			t.Errorf("objects are left: %v", out)
		}
	})
	return b
}

func bubble(t *testing.T, f func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, open(t)) })
}

func completion(cqn uint32) *prm.EQE {
	var e prm.EQE
	e.SetEventType(prm.EventCompletion)
	e.SetCompletionCQN(cqn)
	return &e
}

func TestCompletionsReachTheirCQ(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		s := event.NewSignal()
		if err := b.Attach(0x123456, s.Raise, nil); err != nil {
			t.Fatal(err)
		}
		if err := b.Attach(0x123456, s.Raise, nil); err == nil {
			t.Error("the same CQ was attached twice")
		}
		for range 3 {
			b.card.PostTo(b.completionEQ.Number(), completion(0x123456))
			<-s.C()
		}
		b.Detach(0x123456)
		b.card.PostTo(b.completionEQ.Number(), completion(0x123456))
		b.card.PostTo(b.completionEQ.Number(), completion(0xFFFFFF))
		synctest.Wait()
		select {
		case <-s.C():
			t.Error("told after Detach")
		default:
		}
		if n := b.completionEQ.Counts(); n.UnknownCQ != 2 || n.Events != 5 {
			t.Errorf("counts: %+v", n)
		}
	})
}

func TestQueuesAreSpreadOverVectors(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		for i, want := range []int{1, 2, 3, 1, 2, 3} {
			if v := b.Completion(i).Vector(); v != want {
				t.Errorf("queue %d on vector %d, want %d", i, v, want)
			}
		}
		if b.Completion(-1) != nil {
			t.Error("a queue of number -1")
		}
	})
}

func TestBurstLongerThanOneDrainIsTakenWhole(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		var told atomic.Int64
		if err := b.Attach(5, func() { told.Add(1) }, nil); err != nil {
			t.Fatal(err)
		}
		const n = 2048 * 3 // three times around, in bursts that fit
		for sent := 0; sent < n; sent += 512 {
			for range 512 {
				b.card.PostTo(b.completionEQ.Number(), completion(5))
			}
			synctest.Wait()
		}
		if got := told.Load(); got != n {
			t.Errorf("%d of %d events arrived", got, n)
		}
	})
}

func TestAsynchronousEventsReachTheirHandlers(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		ports := make(chan event.PortEvent, 10)
		wqs := make(chan event.QueueError, 10)
		other := make(chan prm.EQE, 10)
		failed := make(chan uint8, 10)
		cancel := b.OnPort(func(p event.PortEvent) { ports <- p })
		b.OnQueueError(func(q event.QueueError) { wqs <- q })
		b.OnOther(func(e prm.EQE) { other <- e })
		if err := b.Attach(9, func() {}, func(s uint8) { failed <- s }); err != nil {
			t.Fatal(err)
		}
		var e prm.EQE
		e.SetEventType(prm.EventPortChange)
		e.SetEventSubType(uint8(prm.PortSubTypeActive))
		(&prm.PortEvent{Port: 1}).Put(e.Data()[:])
		b.card.Post(&e)
		if p := <-ports; p != (event.PortEvent{Port: 1, SubType: prm.PortSubTypeActive}) {
			t.Errorf("port event: %+v", p)
		}
		cancel()
		b.card.Post(&e)

		e = prm.EQE{}
		e.SetEventType(prm.EventCQError)
		(&prm.CQErrorEvent{CQN: 9, Syndrome: prm.CQErrorOverrun}).Put(e.Data()[:])
		b.card.Post(&e)
		if s := <-failed; s != 1 {
			t.Errorf("syndrome %d", s)
		}
		(&prm.CQErrorEvent{CQN: 10}).Put(e.Data()[:])
		b.card.Post(&e)

		e = prm.EQE{}
		e.SetEventType(prm.EventWQAccess)
		(&prm.QPSRQEvent{Type: prm.EventQueueSQ, QPSRQN: 0x42}).Put(e.Data()[:])
		b.card.Post(&e)
		if q := <-wqs; q.Number != 0x42 || q.Queue != prm.EventQueueSQ || q.Event != prm.EventWQAccess {
			t.Errorf("queue error: %v", q)
		}
		e = prm.EQE{}
		e.SetEventType(prm.EventPortModule)
		b.card.Post(&e)
		if x := <-other; x.EventType() != prm.EventPortModule {
			t.Errorf("other event: %v", x.EventType())
		}
		e.SetEventType(prm.EventInternalError)
		b.card.Post(&e)
		if err := <-b.fatal; !errors.Is(err, event.ErrInternal) {
			t.Errorf("fatal: %v", err)
		}
		synctest.Wait()
		if len(ports) != 0 {
			t.Error("told after cancel")
		}
		if n := b.async.Counts(); n.UnknownCQ != 1 || n.UnknownType != 0 {
			t.Errorf("counts: %+v", n)
		}
	})
}

func TestPageRequestsAreHandedOn(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.card.RequestPagesFor(3, -5, false)
		if r := <-b.requests; r.FuncID != 3 || r.NumPages != -5 {
			t.Errorf("request: %+v", r)
		}
	})
}

// Whatever type an entry has, on whatever queue: it is counted, and the next one arrives.
func TestEveryTypeOnEveryQueueIsSurvived(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		for _, q := range []*event.EQ{b.comm, b.async, b.pages, b.completionEQ} {
			for typ := range 256 {
				var e prm.EQE
				for i := range e {
					e[i] = byte(typ * i)
				}
				e.SetEventType(prm.EventType(typ))
				b.card.PostTo(q.Number(), &e)
				if typ%16 == 0 {
					synctest.Wait()
				}
			}
			synctest.Wait()
			if n := q.Counts(); n.Events < 256 || n.UnknownType < 250 {
				t.Errorf("counts: %+v", n)
			}
		}
		// The queues still work.
		if err := b.cmd.Exec(t.Context(), &prm.NopIn{}, &prm.NopOut{}); err != nil {
			t.Error(err)
		}
	})
}

func TestInterruptsWithNothingBehindThem(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		for range 100 {
			b.card.Announce(0) // no slot
			b.card.Announce(^uint32(0))
		}
		synctest.Wait()
		if err := b.cmd.Exec(t.Context(), &prm.NopIn{}, &prm.NopOut{}); err != nil {
			t.Error(err)
		}
	})
}

func TestStormOfEmptyInterruptsIsListenedToSlowly(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		stop := make(chan struct{})
		stopped := make(chan int)
		go func() {
			n := 0
			for {
				select {
				case <-stop:
					stopped <- n
					return
				default:
				}
				b.card.Raise()
				n++
				time.Sleep(10 * time.Microsecond)
			}
		}()
		time.Sleep(2 * time.Second)
		begin := time.Now()
		if err := b.cmd.Exec(t.Context(), &prm.NopIn{}, &prm.NopOut{}); err != nil {
			t.Error(err)
		}
		if d := time.Since(begin); d > 2*time.Millisecond {
			t.Errorf("a command took %v", d)
		}
		close(stop)
		if n := <-stopped; n < 100_000 {
			t.Errorf("only %d interrupts", n)
		}
	})
}

func TestHandlerDoesNotRunAfterDetach(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		entered, leave := make(chan struct{}), make(chan struct{})
		if err := b.Attach(5, func() { close(entered); <-leave }, nil); err != nil {
			t.Fatal(err)
		}
		b.card.PostTo(b.completionEQ.Number(), completion(5))
		<-entered
		detached := make(chan struct{})
		go func() { b.Detach(5); close(detached) }()
		for range 1000 {
			runtime.Gosched() // let Detach get as far as it can
		}
		select {
		case <-detached:
			t.Error("Detach returned while the handler ran")
		default:
		}
		close(leave)
		<-detached
	})
}

func TestRingOfAQueueThatFirmwareKeepsIsHeldBack(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		q := b.Completion(2)
		b.card.Handle(prm.OpDestroyEQ, func(c *fwtest.Call) { c.Refuse(prm.StatusResourceBusy, 1) })
		before := b.card.Arenas()
		if err := b.Destroy(t.Context(), q); !errors.Is(err, prm.StatusResourceBusy) {
			t.Errorf("error: %v", err)
		}
		if b.card.Arenas() != before || b.Leaked() != 1 {
			t.Errorf("%d arenas of %d, %d leaked", b.card.Arenas(), before, b.Leaked())
		}
		b.card.PostTo(q.Number(), completion(1)) // nobody looks there any more
		synctest.Wait()
		b.card.Handle(prm.OpDestroyEQ, nil)
		for _, o := range b.objects.Out() {
			if o.Kind == object.EQ && o.Number == uint32(q.Number()) {
				if err := b.objects.Destroy(t.Context(), o); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

func TestDispatchAllocatesNothing(t *testing.T) {
	b := open(t)
	var told atomic.Int64
	if err := b.Attach(5, func() { told.Add(1) }, nil); err != nil {
		t.Fatal(err)
	}
	b.card.Deaf(true)
	e := completion(5)
	// The card's side allocates nothing either.
	if n := testing.AllocsPerRun(1000, func() {
		b.card.PostTo(b.completionEQ.Number(), e)
		if b.completionEQ.Poll() != 1 {
			t.Fatal("no event")
		}
	}); n != 0 {
		t.Errorf("%v allocations an event", n)
	}
	if told.Load() < 1000 {
		t.Errorf("told %d times", told.Load())
	}
	b.card.Deaf(false)
}
