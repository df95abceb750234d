package reclaim

import (
	"context"
	"errors"
	"runtime"
	"time"

	"cxkit/driver"
)

// Preempted is the longest wait of a task that is always ready to run, on one processor with everything
// else: without a reclaim, and during one. Card and driver compute on that processor, both; Go takes it
// from whoever has it for long.
type Preempted struct{ Quiet, Reclaim time.Duration }

// Preempt measures a setting with the scheduler as it is.
func Preempt(ctx context.Context, s Setting) (p Preempted, err error) {
	b, err := open(ctx, s, driver.Config{})
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	begin := time.Now()
	p.Quiet = wait(func() bool { return time.Since(begin) >= 100*time.Millisecond })
	returned := b.nic.PageBooks().Returned
	if err := b.card.ReturnPages(0, b.own, s.Event); err != nil {
		return p, err
	}
	p.Reclaim = wait(func() bool { return ctx.Err() != nil || b.nic.PageBooks().Returned-returned >= uint64(s.Event) })
	return p, ctx.Err()
}

// wait yields until done, and returns the longest time until it ran again.
func wait(done func() bool) (longest time.Duration) {
	for !done() {
		begin := time.Now()
		runtime.Gosched()
		longest = max(longest, time.Since(begin))
	}
	return longest
}
