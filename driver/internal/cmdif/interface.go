package cmdif

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"cxkit/dma"
	"cxkit/mmio"
	"cxkit/prm"
	"cxkit/stats"
	"cxkit/trace"
)

// Registers of the initialization segment that the command interface uses (00-overview §3).
const (
	regRevision  = 0x004
	regQueueHigh = 0x010
	regQueueLow  = 0x014
	regDoorbell  = 0x018
)

// allOnes is what a register of a device that is gone reads as.
const allOnes = ^uint32(0)

const (
	// DefaultTimeout is how long a command may take, as in Linux (lib/tout.c).
	DefaultTimeout = 60 * time.Second
	// DefaultMailboxes bounds the pool: enough for one command with 16.7 million page addresses.
	DefaultMailboxes = 256 << 10
)

// Config is what a command interface works with. Window and NewArena must be set.
type Config struct {
	Window   *mmio.Window // BAR 0
	NewArena func(size int, kind dma.Kind) (*dma.Arena, error)

	// Timeout is how long a command waits for a slot, and then for its completion; 0: DefaultTimeout.
	Timeout time.Duration
	// MaxMailboxes bounds the mailbox pool, in blocks of 1 KiB; 0: DefaultMailboxes.
	MaxMailboxes int

	// Submit is who hands blocking commands to firmware; SubmitQueue needs the lock of Work, which several
	// functions may share; nil: one of its own.
	Submit Submit
	Work   *WorkPool
	// Mailboxes is how the mailbox pool finds blocks. MeasureFree measures each free.
	Mailboxes   PoolKind
	MeasureFree bool
	// PageCPU is held by callers of page commands; it is given back while firmware has the command. May be
	// nil.
	PageCPU sync.Locker

	Log   *slog.Logger // nil: slog.Default
	Trace *trace.Log   // may be nil
}

// Interface is the command interface of one function. All methods may be called from any goroutine.
type Interface struct {
	config     Config
	queue      *dma.Arena
	pool       pool
	slots      []slot
	work       workQueue
	log        logger
	group      sync.WaitGroup // goroutines of callback commands and of the work queue
	bell       chan struct{}  // wakes finishCallbacks
	signatures atomic.Bool

	mu           sync.Mutex // guards all below
	general      lane
	pages        lane
	throttle     limit
	unprivileged limit
	tokens       tokens
	dead         error      // why no command can be issued any more, a *downError
	only         prm.Opcode // the only one let in, 0: all
	recover      func() int // event mode: polls the command event queue; nil: polling mode
	tickets      []*ticket  // unused
	items        []*item    // unused
	counts       Counters
	tallies      map[prm.Opcode]*tally
	slotWait     stats.Histogram
	inFlight     int
	callers      int           // commands that gate let in
	closing      bool          // Quiesce
	callbacks    int           // Start commands whose notify has not returned
	attended     bool          // finishCallbacks runs
	late         uint32        // slots of late completions to log
	losses       int           // of events and interrupts, since one came
	ended        time.Time     // GiveUpOnSilence; zero: it was not called
	patience     time.Duration // since then
}

// Counters are what the interface has done.
type Counters struct {
	Issued          uint64 // given to firmware
	Refused         uint64 // status not OK
	BadDelivery     uint64 // delivery status not OK
	BadAnswers      uint64 // answers that break the rules
	NoAnswer        uint64 // issued commands that ended without an answer
	NeverIssued     uint64 // commands that got no slot in time, or were not let in
	LostInterrupts  uint64 // completed, event found in the queue, interrupt never seen
	LostEvents      uint64 // completed, no event in the queue
	LateCompletions uint64 // completed after their caller had given up
	SpuriousEvents  uint64 // events for a slot that firmware owns or nobody uses
}

// Books are what is out.
type Books struct {
	InFlight  int   // slots in use by a command with a caller
	Stuck     []int // slots that firmware owns although nobody waits
	Mailboxes int   // blocks out
	Peak      int   // most blocks that were ever out
}

// Open reads the queue's shape from the initialization segment, gives the device a command queue and
// starts in polling mode. The device must not be initializing. Close frees what Open took.
func Open(config Config) (*Interface, error) {
	if config.Timeout == 0 {
		config.Timeout = DefaultTimeout
	}
	if config.MaxMailboxes == 0 {
		config.MaxMailboxes = DefaultMailboxes
	}
	if config.Log == nil {
		config.Log = slog.Default()
	}
	shape := config.Window.Load32(regQueueLow)
	if shape == allOnes {
		return nil, errors.New("command queue register reads as ones: the device is gone")
	}
	size, stride := shape>>4&0xF, shape&0xF
	switch {
	case size > 5 || size+stride > 12:
		return nil, fmt.Errorf("command queue of 2^%d entries, 2^%d bytes apart: at most 2^5 entries and 2^12 bytes are possible", size, stride)
	case size < 1:
		return nil, fmt.Errorf("command queue of 2^%d entries: two are needed, one of them for pages", size)
	case stride < 6:
		return nil, fmt.Errorf("command queue entries 2^%d bytes apart: an entry has 64", stride)
	}
	queue, err := config.NewArena(dma.PageSize, dma.Auto)
	if err != nil {
		return nil, fmt.Errorf("command queue page: %w", err)
	}
	if config.Work == nil {
		config.Work = new(WorkPool)
	}
	c := &Interface{config: config, queue: queue, bell: make(chan struct{}, 1), tallies: make(map[prm.Opcode]*tally)}
	c.log.Logger = config.Log
	c.work.c, c.work.pool = c, config.Work
	c.pool.limit, c.pool.linear, c.pool.measured = config.MaxMailboxes, config.Mailboxes == PoolLinear, config.MeasureFree
	c.pool.grow = func(n int) (*dma.Arena, error) { return config.NewArena(n, dma.Auto) }
	c.slots = make([]slot, 1<<size)
	last := len(c.slots) - 1
	c.general.slots = 1<<last - 1
	c.pages.slots = 1 << last
	c.general.free, c.pages.free = c.general.slots, c.pages.slots
	c.throttle.size, c.unprivileged.size = (last+1)/2, (last+1)/2 // half of the general slots, rounded up
	for i := range c.slots {
		s := &c.slots[i]
		s.index = i
		s.entry = queue.Region(i<<stride, entrySize).Bytes
		s.lane = &c.general
		if i == last {
			s.lane = &c.pages
		}
		s.wake = make(chan struct{}, 1)
		s.timer = stoppedTimer()
	}
	config.Window.Store32(regQueueHigh, uint32(queue.Bus()>>32))
	config.Window.Store32(regQueueLow, uint32(queue.Bus())) // the device takes the address now; nic_interface 0
	return c, nil
}

func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// Slots is how many entries the queue has, the one for pages included.
func (c *Interface) Slots() int { return len(c.slots) }

// UseEvents switches to event mode: the command event queue exists, Complete is called by its reader, and
// poll takes what is in that queue without waiting for an interrupt. Commands that are in flight go on
// being polled. Nothing has to stop for the switch: how a command's end is noticed is its own, and its
// ownership bit decides. (Linux drains its semaphores; 432161ea26d6, d43b7007dbd1.)
func (c *Interface) UseEvents(poll func() int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recover = poll
}

// UsePolling switches back, before the command event queue is destroyed: commands in flight are polled
// from now on.
func (c *Interface) UsePolling() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recover = nil
	for i := range c.slots {
		if c.slots[i].state == posted {
			c.slots[i].wakeUp()
		}
	}
	c.ring()
}

// UseSignatures makes all further commands carry signatures in their mailboxes, and refuses answers
// without valid ones. Firmware has the cmdif_checksum capability on.
func (c *Interface) UseSignatures(on bool) { c.signatures.Store(on) }

// Complete takes a command event: bit i says that firmware has finished the entry in slot i. The slots'
// ownership bits decide: events that come twice or for a slot in use by a later command change nothing.
// It is an event handler: it neither blocks nor allocates.
func (c *Interface) Complete(mask uint32) {
	now := time.Now()
	c.mu.Lock()
	defer c.unlock()
	for i := range maxSlots {
		if mask>>i&1 == 0 {
			continue
		}
		if i >= len(c.slots) {
			c.counts.SpuriousEvents++
			continue
		}
		s := &c.slots[i]
		switch {
		case s.state == posted && s.returned():
			s.state, s.end = done, now
			c.losses = 0
			if s.item != nil {
				c.ring()
			} else {
				s.wakeUp()
			}
		case s.state == stuck && s.returned():
			c.reclaim(s)
		default:
			c.counts.SpuriousEvents++
		}
	}
}

// Fail gives the device up: every command in flight ends with a NoAnswerError whose Err is why, once, and
// so does every later one, at once. Their slots stay out of use. Only the first call counts.
func (c *Interface) Fail(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail(why)
}

// GiveUpOnSilence makes the first command without an answer, from now on, the end of the device: as Fail
// with its error. Teardown uses it, so that it costs one time-out and not one per object; patience is that
// time-out, 0 for Config.Timeout.
func (c *Interface) GiveUpOnSilence(patience time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if patience <= 0 {
		patience = c.config.Timeout
	}
	c.ended, c.patience = time.Now(), min(patience, c.config.Timeout)
	// Whoever waits does so with another time-out.
	for i := range c.slots {
		if c.slots[i].state == posted {
			c.slots[i].wakeUp()
		}
	}
	c.ring()
}

// timeout is how long a command may take now. Runs with mu held.
func (c *Interface) timeout() time.Duration {
	if c.ended.IsZero() {
		return c.config.Timeout
	}
	return c.patience
}

// fail runs with mu held.
func (c *Interface) fail(why error) {
	if c.dead != nil {
		return
	}
	c.dead = &downError{why}
	for i := range c.slots {
		if s := &c.slots[i]; s.state == posted {
			s.state = flushed
			s.wakeUp()
		}
	}
	c.ring()
	c.general.refuse(c.dead)
	c.pages.refuse(c.dead)
	c.throttle.refuse(c.dead)
	c.unprivileged.refuse(c.dead)
}

// Books returns what is out. Slots whose late completion nobody has seen yet are looked at first.
func (c *Interface) Books() Books {
	c.mu.Lock()
	defer c.unlock()
	c.sweep(&c.general)
	c.sweep(&c.pages)
	b := Books{InFlight: c.inFlight, Stuck: c.stuckSlots()}
	b.Mailboxes, b.Peak = c.pool.usage()
	return b
}

// Counters returns what the interface has done.
func (c *Interface) Counters() Counters {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts
}

// StuckCommands names the commands that firmware still owns.
func (c *Interface) StuckCommands() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []string
	for i := range c.slots {
		if s := &c.slots[i]; s.state == stuck {
			names = append(names, fmt.Sprintf("cmd[%d]: %v", i, s.command))
		}
	}
	return names
}

// Settle waits for commands whose callers gave up before the command's time was over: firmware will most
// probably complete them. It ends when none is left that is younger than Timeout, or at the end of the
// patience of GiveUpOnSilence.
func (c *Interface) Settle(ctx context.Context) {
	pause := stoppedTimer()
	defer pause.Stop()
	for {
		c.mu.Lock()
		c.sweep(&c.general)
		c.sweep(&c.pages)
		young := false
		for i := range c.slots {
			s := &c.slots[i]
			young = young || s.state == stuck && time.Since(s.start) < c.config.Timeout
		}
		young = young && (c.ended.IsZero() || time.Since(c.ended) < c.patience)
		young = young && c.dead == nil
		c.unlock()
		if !young {
			return
		}
		pause.Reset(pollLong)
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
	}
}

// Quiesce waits until no command has a caller any more. New commands are refused with ErrClosed.
func (c *Interface) Quiesce(ctx context.Context) error {
	c.mu.Lock()
	c.closing = true
	c.fail(ErrClosed)
	c.mu.Unlock()
	for {
		c.mu.Lock()
		n := c.callers + c.callbacks
		c.mu.Unlock()
		if n == 0 {
			c.group.Wait() // what is left has nothing to wait for
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d commands have not ended: %w", n, ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}

// Close frees queue and mailboxes. Commands have ended (Quiesce) and the device does no more DMA (it was
// reset, or answered everything): the caller sees to both.
func (c *Interface) Close() error {
	c.group.Wait()
	c.mu.Lock()
	for i := range c.slots {
		if s := &c.slots[i]; s.state == stuck {
			s.lane.stuck &^= 1 << i // the device can't write it any more
			c.pass(s)
		}
	}
	c.mu.Unlock()
	return errors.Join(c.pool.close(), c.queue.Close())
}
