package device

import (
	"time"

	"cxkit/device/internal/queue"
	"cxkit/prm"

	faults "cxkit/device/fault"
)

// lossyCompletions is the filter of a function's CQs while faults may concern completions.
type lossyCompletions struct{ f *function }

// heldCQEs are the completions of a CQ that are late, in their order. There are at most as many as the
// CQ has entries; a driver posts no more.
type heldCQEs struct {
	list []heldCQE
	size int
}

type heldCQE struct {
	cqe  [64]byte
	word uint32
	due  time.Duration
}

// Completion implements queue.Filter. Behind a late completion the others wait, so that they keep their
// order.
func (w lossyCompletions) Completion(q *queue.CQ, cqe *[64]byte, word uint32) bool {
	f := w.f
	s := faults.Subject{Queue: q.Number, Direction: faults.Received}
	switch prm.CQEOpcode(word >> 4 & 0xf) {
	case prm.CQERequester, prm.CQERequesterError:
		s.Direction = faults.Sent
	}
	hit := f.strike(faults.AtCompletion, &s)
	if hit != nil && hit.Kind == faults.LostCQE {
		return false
	}
	held := f.states.held[q]
	if hit == nil && (held == nil || len(held.list) == 0) {
		return true
	}
	if held == nil {
		held = &heldCQEs{size: 1 << q.Config().LogSize}
		if f.states.held == nil {
			f.states.held = make(map[*queue.CQ]*heldCQEs)
		}
		f.states.held[q] = held
	}
	if len(held.list) >= held.size {
		return true // the CQ overruns, as it would have
	}
	due := f.card.now
	if hit != nil {
		due += hit.Delay
	}
	if n := len(held.list); n > 0 {
		due = max(due, held.list[n-1].due)
	}
	held.list = append(held.list, heldCQE{*cqe, word, due})
	if len(held.list) == 1 {
		f.later(due-f.card.now, func() { f.deliverHeld(q) })
	}
	return false
}

// deliverHeld writes the late completions of a CQ whose time has come, and waits for the next.
func (f *function) deliverHeld(q *queue.CQ) {
	held := f.states.held[q]
	if held == nil {
		return
	}
	if now, ok := f.cqs.Get(q.Number); !ok || now != q || !f.begin() {
		delete(f.states.held, q)
		return
	}
	n := 0
	for n < len(held.list) && held.list[n].due <= f.card.now && q.Late(&held.list[n].cqe, held.list[n].word) {
		n++
	}
	f.env.Flush()
	held.list = append(held.list[:0], held.list[n:]...)
	if len(held.list) == 0 || !q.Working() {
		delete(f.states.held, q)
		return
	}
	f.later(held.list[0].due-f.card.now, func() { f.deliverHeld(q) })
}
