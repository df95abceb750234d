package device

import (
	"time"

	"cxkit/device/internal/queue"
)

// moderator lets CQs hold completion events back. A timer of the function ends the wait of all; it fires at the
// first one's end, and the others call hold again.
func (f *function) moderator() queue.Moderator {
	t := &f.moderation
	f.card.timers.disarm(t)
	t.fine = true
	t.fire = func() {
		if f.begin() {
			f.env.Release()
		}
	}
	return queue.Moderator{Grain: f.card.config.ModerationGrain, Hold: func(until time.Duration) {
		if t.index == 0 || until < t.when {
			f.card.timers.arm(t, until)
		}
	}}
}
