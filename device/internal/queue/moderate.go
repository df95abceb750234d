package queue

import (
	"slices"
	"time"
)

// Moderation holds completion events back: an armed CQ that has completions sends its event when there are
// cq_max_count of them, or when cq_period is over (reference 01a, 03 §4). The period runs from the event before
// (cq_period_mode 0, "from EQE"), so that what comes after a pause is told at once, or from the first completion that
// waits (1, "from CQE"). A period of 0 turns moderation off, whatever the count: nothing would bound the wait.
//
// An arm of a CQ that has completions already is answered at once: the driver has just looked, and asks because it
// did not see them.

// Moderator is what CQs need to hold events back.
type Moderator struct {
	// Grain is the shortest period that is kept. Shorter ones end with the burst that completions came in.
	Grain time.Duration
	// Hold is called when an event is held back: the card calls Release at that time. nil: none is held back.
	Hold func(until time.Duration)

	now  time.Duration
	held []*CQ
}

// moderation is a CQ's part.
type moderation struct {
	event time.Duration // when the last one was sent, plus one, 0 for never
	first time.Duration // when the first completion came that waits, if waits is set
	waits bool
	held  bool // it is in Moderator.held
}

// periodFromCQE is the value of cq_period_mode.
const periodFromCQE = 1

// due tells whether an event that an armed CQ owes is sent now, and sees to it that it is sent later.
func (q *CQ) due(waiting uint32) bool {
	m, c := &q.env.Moderator, &q.config.Context
	period := time.Duration(c.CQPeriod) * time.Microsecond
	if period == 0 || period < m.Grain || m.Hold == nil {
		return true
	}
	if c.CQMaxCount != 0 && waiting >= uint32(c.CQMaxCount) {
		return true
	}
	if !q.moderation.waits {
		q.moderation.waits, q.moderation.first = true, m.now
	}
	from := q.moderation.first
	if c.CQPeriodMode != periodFromCQE {
		if q.moderation.event == 0 {
			return true
		}
		from = q.moderation.event - 1
	}
	if m.now >= from+period {
		return true
	}
	if !q.moderation.held {
		q.moderation.held = true
		m.held = append(m.held, q)
	}
	m.Hold(from + period)
	return false
}

// sent takes note that the event was sent.
func (q *CQ) sent() {
	q.moderation.event, q.moderation.waits = q.env.Moderator.now+1, false
}

// Holds tells whether events are held back.
func (e *Env) Holds() bool { return len(e.Moderator.held) != 0 }

// Release sends the events whose time has come; Hold is called for the others. Begin has been called.
func (e *Env) Release() {
	held := e.Moderator.held
	e.Moderator.held = nil
	for _, q := range held {
		q.moderation.held = false
		q.notify(false)
	}
}

// Moderated lets a change of moderation take effect on an event that is held back. Begin has been called.
func (q *CQ) Moderated() {
	if q.moderation.held {
		q.notify(false)
	}
}

// Forget makes the CQ, which is being destroyed, send no event any more.
func (q *CQ) Forget() {
	q.armed = disarmed
	if q.moderation.held {
		held := &q.env.Moderator.held
		*held = slices.DeleteFunc(*held, func(o *CQ) bool { return o == q })
	}
}
