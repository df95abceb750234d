package device

import (
	"context"
	"runtime"
	"runtime/debug"
	"time"

	"cxkit/pci"
)

// write is one register write on its way to the engine.
type write struct {
	function uint16
	size     uint8
	off      uint32
	value    uint64
}

const (
	// inboxLimit is how many writes wait at most. A driver that writes more without the engine running
	// has them taken in its own goroutine, as a full PCI bus would make it wait.
	inboxLimit = 1 << 16
	// timersPerStep bounds the timers that fire in one step.
	timersPerStep = 256
	// idleYields is how often Run yields before it sleeps.
	idleYields = 32
	// pollMin and pollMax bound the sleep between looks at frames that wait for receive buffers: a
	// receive queue has no doorbell.
	pollMin = 20 * time.Microsecond
	pollMax = 100 * time.Microsecond
	// Between looks at doorbell pages in memory Run sleeps for a share of the time that nothing has come, from
	// watchMin, in which a busy driver rings a few times, to watchMax: what comes after a pause waits for an
	// eighth of it more, and an idle driver with queues costs a thousand looks a second.
	watchShare = 8
	watchMin   = 100 * time.Microsecond
	watchMax   = time.Millisecond
)

// workState is what the data path has left to do.
type workState uint8

const (
	// workIdle: nothing until a doorbell, a frame or a timer.
	workIdle workState = iota
	// workWatch: nothing, but doorbells may come by memory; look again after a while.
	workWatch
	// workPoll: frames are held for lack of receive buffers; look again soon.
	workPoll
	// workMore: the budget ended it.
	workMore
)

// post takes note of a register write.
func (c *Card) post(w write) {
	c.inboxMu.Lock()
	for len(c.inbox) >= inboxLimit {
		c.inboxMu.Unlock()
		c.mu.Lock()
		c.guard(func() { c.drain() })
		c.mu.Unlock()
		c.inboxMu.Lock()
	}
	c.inbox = append(c.inbox, w)
	sleeping, napping := c.sleeping, c.napping
	c.sleeping = false
	c.inboxMu.Unlock()
	if sleeping {
		c.signal(napping)
	}
}

// wakeUp makes Run look for work. Any goroutine may call it.
func (c *Card) wakeUp() {
	c.inboxMu.Lock()
	sleeping, napping := c.sleeping, c.napping
	c.sleeping = false
	c.woken = true
	c.inboxMu.Unlock()
	if sleeping {
		c.signal(napping)
	}
}

func (c *Card) signal(napping bool) {
	if napping {
		c.napper.wake()
		return
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// guard runs f between begin and end. When f touches memory that its host has made vanish (a peer in
// another process truncated the file behind it), guard ends f, and the function whose memory it was is
// lost: see function.lose. The other functions' part of f is done by the next step. c.mu is held.
func (c *Card) guard(f func()) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		r := recover()
		if r == nil {
			c.end()
			return
		}
		victim := c.faulted(r)
		c.end()
		if victim == nil {
			panic(r)
		}
		victim.lose()
	}()
	c.begin()
	f()
}

// faulted finds the function whose memory a recovered panic is about; nil if it is another panic.
func (c *Card) faulted(r any) *function {
	fault, ok := r.(interface{ Addr() uintptr })
	if !ok {
		return nil
	}
	for _, f := range c.entered {
		if m, ok := f.mem.(pci.Faulter); ok && m.Fault(fault.Addr()) {
			return f
		}
	}
	return nil
}

// begin reads the clock; end leaves the memories that the step entered. c.mu is held.
func (c *Card) begin() { c.now = c.config.Clock().Sub(c.epoch) }

func (c *Card) end() {
	for _, f := range c.entered {
		f.interruptEQs()
		f.entered = false
		f.mem.Leave()
	}
	c.entered = c.entered[:0]
}

// drain acts on the register writes that have come. c.mu is held.
func (c *Card) drain() bool {
	rest := c.act() // of a drain that a fault ended
	c.inboxMu.Lock()
	if len(c.inbox) == 0 {
		c.inboxMu.Unlock()
		return rest
	}
	c.inbox, c.draining, c.acted = c.draining[:0], c.inbox, 0
	c.inboxMu.Unlock()
	// Read after the writes were taken: a driver that saw the function ready writes its doorbell after
	// that, and must not meet an engine that lives in the time before.
	c.begin()
	return c.act()
}

// act acts on what is left of c.draining.
func (c *Card) act() (busy bool) {
	for c.acted < len(c.draining) {
		w := &c.draining[c.acted]
		c.acted++
		c.functions[w.function].write(uint64(w.off), int(w.size), w.value)
		busy = true
	}
	return busy
}

// fireTimers runs the timers that are due.
func (c *Card) fireTimers() (fired bool) {
	for range timersPerStep {
		t := c.timers.due(c.now)
		if t == nil {
			return fired
		}
		fired = true
		t.fire()
	}
	return true
}

// Step lets the engine work once: it takes the register writes that have come, ends the commands whose
// time is up, and moves at most about budget packets. busy tells that it did something or has more to
// do. Any goroutine may call it; steps exclude each other.
func (c *Card) Step(budget int) (busy bool) {
	busy, state := c.step(budget)
	return busy || state == workMore
}

func (c *Card) step(budget int) (busy bool, state workState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false, workIdle
	}
	// Unless the step comes to its end there is more to do.
	busy, state = true, workMore
	c.guard(func() { busy, state = c.work(budget) })
	return busy, state
}

// work is what a step does.
func (c *Card) work(budget int) (busy bool, state workState) {
	busy = c.drain()
	if c.goOnWithCommands() {
		busy = true
	}
	if c.fireTimers() {
		busy = true
	}
	c.checkLinks()
	rung, watch := c.lookAtBells()
	moved, state := c.dataWork(budget)
	if c.monitors > 0 {
		c.checkMonitors()
	}
	if watch {
		state = max(state, workWatch)
	}
	return busy || rung || moved, state
}

// runBudget is how many packets Run moves in a step.
const runBudget = 256

// Run is the engine: it steps until ctx ends or the card is closed, and sleeps when there is nothing to
// do. It returns ctx's error, or nil after Close. One goroutine runs it.
func (c *Card) Run(ctx context.Context) error {
	alarm := time.NewTimer(time.Hour)
	defer alarm.Stop()
	idle, poll, watched := 0, pollMin, time.Duration(0)
	for {
		busy, state := c.step(runBudget)
		if busy || state == workMore {
			idle, poll, watched = 0, pollMin, 0
			if err := ctx.Err(); err != nil {
				return err
			}
			continue
		}
		if idle++; idle <= idleYields {
			runtime.Gosched()
			continue
		}
		var sleep time.Duration
		switch state {
		case workPoll:
			sleep = min(poll, pollMax)
			poll = 2 * sleep
		case workWatch:
			sleep = min(max(watched/watchShare, watchMin), watchMax)
			watched += sleep
		default:
			poll = pollMin
		}
		var done bool
		var err error
		if state == workWatch && c.napper != nil || state == workIdle && c.fineTimer() {
			done, err = c.nap(ctx, sleep)
		} else {
			done, err = c.sleep(ctx, alarm, sleep)
		}
		if done {
			return err
		}
		idle = 0
		if sleep != 0 {
			idle = idleYields // one look, then back to sleep
		}
	}
}

// sleep blocks until there is work, at most limit if that is not zero.
func (c *Card) sleep(ctx context.Context, alarm *time.Timer, limit time.Duration) (done bool, err error) {
	if !c.asleep(false) {
		return false, nil
	}
	next, timed, open := c.nextTimer()
	if !open {
		return true, nil
	}
	if limit > 0 && (!timed || limit < next) {
		next, timed = limit, true
	}
	var expired <-chan time.Time
	if timed {
		alarm.Reset(max(next, 0))
		expired = alarm.C
	}
	select {
	case <-c.wake:
	case <-expired:
	case <-ctx.Done():
		return true, ctx.Err()
	}
	c.awake()
	return false, nil
}

// fineTimer tells whether the next timer is to fire on time, and Run can see to it.
func (c *Card) fineTimer() bool {
	if !c.naps {
		return false
	}
	c.mu.Lock()
	fine := len(c.timers.heap) != 0 && c.timers.heap[0].fine
	c.mu.Unlock()
	if fine && c.napper == nil {
		var err error
		if c.napper, err = newNapper(); err != nil {
			c.naps = false // not on this system, or no file descriptors: coarse timers do
		}
	}
	return fine && c.naps
}

// nap is a short sleep, of d at most if that is not zero, that ends on time.
func (c *Card) nap(ctx context.Context, d time.Duration) (done bool, err error) {
	next, timed, open := c.nextTimer()
	if !open {
		return true, nil
	}
	if timed && (d == 0 || next < d) {
		d = next
	}
	c.napper.arm(d) // before anybody may end it
	if c.asleep(true) {
		c.napper.nap()
		c.awake()
	}
	err = ctx.Err()
	return err != nil, err
}

// nextTimer is how long it is until the next timer fires. open tells that the card has not been closed.
func (c *Card) nextTimer() (next time.Duration, timed, open bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next, timed = c.timers.next()
	if timed {
		next -= c.config.Clock().Sub(c.epoch)
	}
	return next, timed, !c.closed
}

// asleep takes note that Run sleeps, unless there is work. A timer armed after that comes with a wake-up.
func (c *Card) asleep(napping bool) bool {
	c.inboxMu.Lock()
	defer c.inboxMu.Unlock()
	if len(c.inbox) > 0 || c.woken {
		c.woken = false
		return false
	}
	c.sleeping, c.napping = true, napping
	return true
}

// awake takes note that Run looks for work.
func (c *Card) awake() {
	c.inboxMu.Lock()
	defer c.inboxMu.Unlock()
	c.sleeping, c.woken = false, false
}

// Do runs f in the engine, between two steps, and returns when f has. f may use what the engine owns.
func (c *Card) do(f func()) {
	c.mu.Lock()
	defer c.wakeUp()
	defer c.mu.Unlock()
	c.guard(f)
}

// Do runs f while the engine stands still: control that must not race with it, such as injecting a
// fault. f must not call methods of the card that wait for the engine (Do, Books, Step, Plug, Close, or
// Reset, Attach and Detach of a function).
func (c *Card) Do(f func()) { c.do(f) }
