package event

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"cxkit/dma"
	"cxkit/driver/internal/cmdif"
	"cxkit/driver/internal/object"
	"cxkit/mmio"
	"cxkit/pci"
	"cxkit/prm"
	"cxkit/trace"
)

// Config is what a dispatcher works with.
type Config struct {
	Function  pci.Function
	Objects   *object.Book
	NewArena  func(size int, kind dma.Kind) (*dma.Arena, error)
	Window    *mmio.Window // BAR 0
	Doorbells uint64       // offset of the UAR page in it
	UAR       uint32       // its index
	Log       *slog.Logger
	Trace     *trace.Log // may be nil

	// Commands gets the slots that a command event names; Pages gets page requests; Fatal is told that
	// the function can't raise interrupts any more, or that firmware reported an internal error. They
	// follow the rules of handlers.
	Commands func(slots uint32)
	Pages    func(PageRequest)
	Fatal    func(error)
}

// Dispatcher owns the event queues of a function and one goroutine per vector in use.
type Dispatcher struct {
	config Config
	ctx    context.Context // ends the vector goroutines
	cancel context.CancelFunc
	group  sync.WaitGroup

	mu         sync.Mutex // guards all below
	vectors    map[int]*vector
	completion []*EQ
	leaked     []*dma.Arena // rings of queues that firmware may still write

	subs subscribers
}

// vector is what one goroutine serves.
type vector struct {
	mu     sync.Mutex
	queues []*EQ
}

// New makes a dispatcher without queues. Close ends it.
func New(config Config) *Dispatcher {
	ctx, cancel := context.WithCancel(context.Background())
	d := &Dispatcher{config: config, ctx: ctx, cancel: cancel, vectors: make(map[int]*vector)}
	d.subs.cqs = make(map[uint32]*completion)
	return d
}

// spec describes an event queue to create.
type spec struct {
	vector int
	log    uint8
	mask   uint64 // event types 0..63; 0 for completions
	handle func(*EQ, *prm.EQE)
}

// CreateCommandEQ makes the queue of command completions on vector 0. From then on firmware posts an
// event per command: the caller switches the command interface to event mode.
func (d *Dispatcher) CreateCommandEQ(ctx context.Context) (*EQ, error) {
	return d.create(ctx, spec{vector: 0, log: 8, mask: 1 << prm.EventCommandCompletion, handle: (*EQ).handleCommand})
}

// CreateAsyncEQ makes the queue of asynchronous events on vector 0; mask has a bit per event type.
func (d *Dispatcher) CreateAsyncEQ(ctx context.Context, mask uint64) (*EQ, error) {
	return d.create(ctx, spec{vector: 0, log: asyncLog, mask: mask, handle: (*EQ).handleAsync})
}

// CreatePagesEQ makes the queue of page requests on vector 0.
func (d *Dispatcher) CreatePagesEQ(ctx context.Context) (*EQ, error) {
	return d.create(ctx, spec{vector: 0, log: 8, mask: 1 << prm.EventPageRequest, handle: (*EQ).handlePages})
}

// asyncLog sizes the asynchronous queue: 2^10 entries. Linux takes 2^13 because page faults arrive there
// too, which this driver does not ask for.
const asyncLog = 10

// completionLog sizes completion queues' event queues as Linux does: 1024 CQs and drainLimit to spare.
const completionLog = 11

// CreateCompletionEQs makes n completion event queues on vectors 1..n, or all on vector 0 when the
// function has no other.
func (d *Dispatcher) CreateCompletionEQs(ctx context.Context, n int) error {
	for i := range n {
		v := 0
		if last := d.config.Function.Info().Vectors - 1; last > 0 {
			v = 1 + i%last
		}
		q, err := d.create(ctx, spec{vector: v, log: completionLog, handle: (*EQ).handleCompletion})
		if err != nil {
			return fmt.Errorf("completion EQ %d on vector %d: %w", i, v, err)
		}
		d.mu.Lock()
		d.completion = append(d.completion, q)
		d.mu.Unlock()
	}
	return nil
}

// Completion returns the event queue for the CQs of the i-th pair of queues: they are spread in turn.
// It is nil when there is none.
func (d *Dispatcher) Completion(i int) *EQ {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.completion) == 0 || i < 0 {
		return nil
	}
	return d.completion[i%len(d.completion)]
}

// create makes the ring, the firmware object, and starts reading and arms.
func (d *Dispatcher) create(ctx context.Context, s spec) (*EQ, error) {
	size := prm.EQESize << s.log
	arena, err := d.config.NewArena(size, dma.Auto)
	if err != nil {
		return nil, fmt.Errorf("event queue of %d entries: %w", 1<<s.log, err)
	}
	ring := arena.Bytes()
	for at := prm.EQEOwnOff; at < size; at += prm.EQESize {
		dma.StoreBE32(ring, at, prm.EQEOwnDword(0, true)) // not yet written by the device: its first pass writes 0
	}
	in := prm.CreateEQIn{
		Context: prm.EQContext{
			LogEQSize: s.log,
			UARPage:   d.config.UAR,
			Intr:      uint16(s.vector),
		},
		EventBitmask: [4]uint64{s.mask},
		PAS:          make([]uint64, arena.Size()/dma.PageSize),
	}
	for i := range in.PAS {
		in.PAS[i] = arena.Bus() + uint64(i)*dma.PageSize
	}
	o, err := d.config.Objects.Create(ctx, &in, &prm.CreateEQOut{})
	if err != nil {
		if cmdif.Issued(err) {
			d.leak(arena) // a queue of unknown number may write there
			return nil, err
		}
		return nil, errors.Join(err, arena.Close())
	}
	q := &EQ{d: d, object: o, vector: s.vector, log: s.log, arena: arena, ring: ring, handle: s.handle}
	d.register(q)
	q.mu.Lock()
	q.arm()
	q.mu.Unlock()
	return q, nil
}

// register adds the queue to its vector and starts the vector's goroutine with its first queue.
func (d *Dispatcher) register(q *EQ) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v := d.vectors[q.vector]
	if v == nil {
		v = &vector{}
		d.vectors[q.vector] = v
		d.group.Go(func() { d.serve(q.vector, v) })
	}
	v.mu.Lock()
	v.queues = append(v.queues, q)
	v.mu.Unlock()
}

const (
	// emptyLimit is how many interrupts in a row may find nothing; a card that goes on is listened to
	// once per emptyPause only, so that it can't keep a processor busy.
	emptyLimit = 64
	emptyPause = time.Millisecond
)

// serve is the goroutine of one vector. It ends with the dispatcher or with the function.
func (d *Dispatcher) serve(number int, v *vector) {
	pause := time.NewTimer(time.Hour)
	pause.Stop()
	empty := 0
	for {
		if err := d.config.Function.Wait(d.ctx, number); err != nil {
			if d.ctx.Err() == nil {
				d.config.Fatal(fmt.Errorf("wait for vector %d: %w", number, err))
			}
			return
		}
		v.mu.Lock()
		queues := v.queues
		v.mu.Unlock()
		found := 0
		for _, q := range queues {
			found += q.serve()
		}
		if found > 0 {
			empty = 0
			continue
		}
		if empty++; empty < emptyLimit {
			continue
		}
		if empty == emptyLimit {
			d.config.Log.Warn("interrupts with nothing behind them", "vector", number, "in_a_row", empty)
		}
		pause.Reset(emptyPause)
		select {
		case <-pause.C:
		case <-d.ctx.Done():
		}
		pause.Stop()
	}
}

// Destroy ends a queue: firmware first, then its ring. When firmware does not confirm, the ring stays
// until Close is told that the function was reset.
func (d *Dispatcher) Destroy(ctx context.Context, q *EQ) error {
	err := d.config.Objects.Destroy(ctx, q.object)
	q.end()
	d.mu.Lock()
	if v := d.vectors[q.vector]; v != nil {
		v.mu.Lock()
		v.queues = without(v.queues, q)
		v.mu.Unlock()
	}
	d.completion = without(d.completion, q)
	d.mu.Unlock()
	if err != nil || d.config.Objects.Has(q.object) {
		d.leak(q.arena)
		return err
	}
	return q.arena.Close()
}

// without returns a new slice: the old one may be in use by a vector's goroutine.
func without(list []*EQ, q *EQ) []*EQ {
	kept := make([]*EQ, 0, len(list))
	for _, x := range list {
		if x != q {
			kept = append(kept, x)
		}
	}
	return kept
}

// DestroyCompletionEQs ends the completion queues.
func (d *Dispatcher) DestroyCompletionEQs(ctx context.Context) error {
	d.mu.Lock()
	list := d.completion
	d.mu.Unlock()
	var errs []error
	for i := len(list) - 1; i >= 0; i-- {
		errs = append(errs, d.Destroy(ctx, list[i]))
	}
	return errors.Join(errs...)
}

func (d *Dispatcher) leak(a *dma.Arena) {
	d.mu.Lock()
	d.leaked = append(d.leaked, a)
	d.mu.Unlock()
}

// Stop ends the goroutines and waits for them: after it no handler runs. Not to be called by a handler.
func (d *Dispatcher) Stop() {
	d.cancel()
	d.group.Wait()
}

// Release frees the rings that firmware may have written. The function has been reset before.
func (d *Dispatcher) Release() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, a := range d.leaked {
		errs = append(errs, a.Close())
	}
	d.leaked = nil
	return errors.Join(errs...)
}

// Leaked is how many rings wait for Release.
func (d *Dispatcher) Leaked() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.leaked)
}
