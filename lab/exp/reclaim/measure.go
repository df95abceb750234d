package reclaim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"cxkit/device"
	"cxkit/device/fault"
	"cxkit/driver"
	"cxkit/internal/rig"
	"cxkit/prm"
	"cxkit/stats"
)

// Setting is one row of the experiment.
type Setting struct {
	// Event is how many pages firmware offers back at once.
	Event int
	// Limit is driver.Config.ReclaimLimit: the most pages taken with one command; 0 means none.
	Limit int
	// Pool is how mailboxes are found.
	Pool driver.MailboxPool
	// HostPage is the size of the host's pages; 0 means 4096.
	HostPage int
	// MaxRounds ends the measurement early; 0: when all pages are back.
	MaxRounds int
	Seed      uint64
}

// Result is what a setting does.
type Result struct {
	Setting
	// Blocks is how many mailboxes the first command's answer took; Memory what the pool had then, in bytes.
	Blocks int
	Memory int
	// Free is the time to free each of these mailboxes.
	Free stats.Histogram
	// Rounds is how many commands took the pages back, Returned how many came. Complete: all.
	// CardReturned is how many the card gave back, by its own books.
	Rounds, Returned int
	CardReturned     int
	Complete         bool
	// Total is the time from the event to the last page's return.
	Total time.Duration
	// Stall is the longest time that another task waited for the page worker's processor.
	Stall time.Duration
	// Hosts is how many host pages firmware's pages took before and after.
	Hosts [2]int
}

// MedianFree is the end of the bin that holds the median time of a free. Unlike the mean, it does not count
// what the machine did while a free was under way.
func (r *Result) MedianFree() time.Duration { return r.Free.Quantile(0.5) }

// MeanFree is the mean time of a free, each bin's middle for its values.
func (r *Result) MeanFree() time.Duration {
	var sum, n float64
	for i, b := range r.Free.Bins {
		sum += float64(b) * 1.5 * float64(uint64(1)<<i)
		n += float64(b)
	}
	if n == 0 {
		return 0
	}
	return time.Duration(sum / n)
}

// Measure runs one setting.
func Measure(ctx context.Context, s Setting) (Result, error) {
	r := Result{Setting: s}
	if err := r.firstCommand(ctx); err != nil {
		return r, fmt.Errorf("mailboxes of the first command: %w", err)
	}
	if err := r.allCommands(ctx); err != nil {
		return r, fmt.Errorf("time and stall: %w", err)
	}
	return r, nil
}

// bench is a NIC on a card whose firmware has the pages.
type bench struct {
	card *device.Card
	nic  *driver.NIC
	own  device.PageFunction
	base int // pages that firmware had before
	undo []func() error
}

func open(ctx context.Context, s Setting, c driver.Config) (b *bench, err error) {
	b = new(bench)
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	r, err := rig.New(rig.Config{Device: device.Config{Seed: s.Seed}})
	if err != nil {
		return b, err
	}
	b.undo = append(b.undo, r.Close)
	f, err := r.Function(0)
	if err != nil {
		return b, err
	}
	b.undo = append(b.undo, f.Close)
	c.ReclaimLimit, c.MailboxPool, c.HostPage = &s.Limit, s.Pool, s.HostPage
	if b.nic, err = driver.Open(ctx, f, c); err != nil {
		return b, err
	}
	b.undo = append(b.undo, func() error { return b.nic.Close(context.WithoutCancel(ctx)) })
	b.card = r.Card
	b.base = b.nic.PageBooks().Out
	if err := b.card.HoardPages(0, b.own, s.Event); err != nil {
		return b, err
	}
	return b, b.until(ctx, func() (bool, error) {
		// The pages are there, and the last command that gave some is over.
		p := b.nic.PageBooks()
		return p.Given >= uint64(b.base+s.Event) && b.nic.CommandStats().Mailbox.Out == 0, nil
	})
}

// latency says how long firmware takes for a page command from now on.
func (b *bench) latency(d time.Duration) error {
	return b.card.Inject(fault.Plan{Latency: map[prm.Opcode]fault.Latency{prm.OpManagePages: {Min: d, Max: d}}})
}

func (b *bench) close() error {
	var errs []error
	for i := len(b.undo) - 1; i >= 0; i-- {
		errs = append(errs, b.undo[i]())
	}
	return errors.Join(errs...)
}

// pause is how often the experiment looks.
const pause = 200 * time.Microsecond

// until waits for done.
func (b *bench) until(ctx context.Context, done func() (bool, error)) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// pageCommands is how many MANAGE_PAGES have been answered.
func (b *bench) pageCommands() int {
	for _, c := range b.nic.CommandStats().Opcodes {
		if c.Opcode == uint16(prm.OpManagePages) {
			return int(c.Count)
		}
	}
	return 0
}

// cancel makes firmware keep what it has not given back yet.
func (b *bench) cancel() error { return b.card.KeepPages(0, b.own) }

// firstLatency is how long firmware takes for a page command in the first part: long enough to look at the
// mailboxes while it has one.
const firstLatency = 20 * time.Millisecond

// firstCommand counts and times the mailboxes of one command's answer, as the thread's histograms do.
func (r *Result) firstCommand(ctx context.Context) (err error) {
	b, err := open(ctx, r.Setting, driver.Config{MeasureMailboxes: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	r.Hosts[0] = b.nic.PageBooks().Hosts
	before := b.nic.CommandStats().Mailbox
	if err := b.latency(firstLatency); err != nil {
		return err
	}
	if err := b.card.ReturnPages(0, b.own, r.Event); err != nil {
		return err
	}
	// A pool frees the chain of a command in one go: what is freed first is the first command's.
	err = b.until(ctx, func() (bool, error) {
		m := b.nic.CommandStats().Mailbox
		if m.Out > r.Blocks {
			r.Blocks, r.Memory = m.Out, memory(r.Pool, m.Blocks)
		}
		r.Free = m.Free.Since(before.Free)
		return r.Free.Count() > 0, nil
	})
	if err != nil {
		return err
	}
	r.Blocks = int(r.Free.Count())
	return errors.Join(b.cancel(), b.latency(0))
}

// memory is what so many blocks take: 1 KiB each, and where three share a page, a third more.
func memory(pool driver.MailboxPool, blocks int) int {
	if pool == driver.MailboxPoolLinear {
		return (blocks + 2) / 3 * 4096
	}
	return blocks * 1024
}

// allCommands takes all pages back, while a task that shares the worker's processor looks how long it has
// to wait.
func (r *Result) allCommands(ctx context.Context) (err error) {
	var cpu sync.Mutex
	b, err := open(ctx, r.Setting, driver.Config{PageCPU: &cpu})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	before := b.pageCommands()
	returned := b.nic.PageBooks().Returned
	held := b.card.Books().Functions[0].Pages
	stop := probe(&cpu)
	begin := time.Now()
	if err := b.card.ReturnPages(0, b.own, r.Event); err != nil {
		stop()
		return err
	}
	err = b.until(ctx, func() (bool, error) {
		r.Returned = int(b.nic.PageBooks().Returned - returned)
		r.Complete = r.Returned >= r.Event
		return r.Complete || r.MaxRounds > 0 && b.pageCommands()-before >= r.MaxRounds, nil
	})
	r.Total = time.Since(begin)
	if err == nil && !r.Complete {
		err = b.cancel()
	}
	r.Stall = stop()
	if err == nil {
		err = b.idle(ctx)
	}
	r.Rounds = b.pageCommands() - before
	r.Returned = int(b.nic.PageBooks().Returned - returned)
	r.CardReturned = held - b.card.Books().Functions[0].Pages
	r.Hosts[1] = b.nic.PageBooks().Hosts
	return err
}

// probe is a task that wants the processor every tenth of a millisecond; stop ends it and returns its
// longest wait.
func probe(cpu *sync.Mutex) (stop func() time.Duration) {
	done := make(chan struct{})
	worst := make(chan time.Duration, 1)
	go func() {
		tick := time.NewTicker(100 * time.Microsecond)
		defer tick.Stop()
		var longest time.Duration
		for {
			select {
			case <-tick.C:
				begin := time.Now()
				cpu.Lock()
				longest = max(longest, time.Since(begin))
				cpu.Unlock()
			case <-done:
				worst <- longest
				return
			}
		}
	}()
	return func() time.Duration {
		close(done)
		return <-worst
	}
}
