package lab

import (
	"context"
	"time"
)

// Settle waits until a count stands still for 20 ms, as commands issued do when drivers have nothing of their own
// to ask any more.
func Settle(ctx context.Context, count func() uint64) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for last := uint64(0); ; {
		now := count()
		if now == last {
			return nil
		}
		last = now
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
