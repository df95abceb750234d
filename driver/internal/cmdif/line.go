package cmdif

import (
	"context"
	"math/bits"
	"time"
)

// ticket is a caller's place in a line.
type ticket struct {
	ready chan struct{} // one value when the ticket has been served
	timer *time.Timer

	// Guarded by Interface.mu.
	slot       int   // served with: the slot, -1 if the line is not for slots or err is set
	err        error // served with
	prev, next *ticket
	in         *line // nil when in none
}

// line is callers in the order they came. Joining, leaving and serving cost the same however long it is.
// Guarded by Interface.mu.
type line struct {
	first, last *ticket
	waiting     int
}

func (l *line) join(t *ticket) {
	t.in, t.prev, t.next = l, l.last, nil
	if l.last != nil {
		l.last.next = t
	} else {
		l.first = t
	}
	l.last = t
	l.waiting++
}

// leave takes t out of the line; it reports whether it was there.
func (l *line) leave(t *ticket) bool {
	if t.in != l {
		return false
	}
	if t.prev != nil {
		t.prev.next = t.next
	} else {
		l.first = t.next
	}
	if t.next != nil {
		t.next.prev = t.prev
	} else {
		l.last = t.prev
	}
	t.in, t.prev, t.next = nil, nil, nil
	l.waiting--
	return true
}

// serve takes the first ticket out of the line and hands it slot and err; it reports whether there was one.
func (l *line) serve(slot int, err error) bool {
	t := l.first
	if t == nil {
		return false
	}
	l.leave(t)
	t.slot, t.err = slot, err
	t.ready <- struct{}{}
	return true
}

// refuse ends the wait of everybody in the line.
func (l *line) refuse(why error) {
	for l.serve(-1, why) {
	}
}

// await waits until t, which has joined l, is served, ctx ends, or limit is over (0: no limit). When it
// gives up at the moment of being served, served is true although there is an error: what came with the
// ticket is the caller's to hand on. Called without mu, returns with it.
func (c *Interface) await(ctx context.Context, l *line, t *ticket, limit time.Duration) (served bool, err error) {
	if limit > 0 {
		t.timer.Reset(limit)
	}
	select {
	case <-t.ready:
	case <-ctx.Done():
		err = ctx.Err()
	case <-t.timer.C:
		err = ErrTimeout
	}
	t.timer.Stop()
	c.mu.Lock()
	if err == nil {
		return true, nil
	}
	if l.leave(t) {
		return false, err
	}
	<-t.ready // sent before the ticket left the line
	return true, err
}

// ticket returns an unused ticket. Runs with mu held.
func (c *Interface) ticket() *ticket {
	if n := len(c.tickets); n > 0 {
		t := c.tickets[n-1]
		c.tickets = c.tickets[:n-1]
		return t
	}
	return &ticket{ready: make(chan struct{}, 1), timer: stoppedTimer(), slot: -1}
}

// tear takes an unused ticket back. Runs with mu held.
func (c *Interface) tear(t *ticket) {
	t.slot, t.err = -1, nil
	c.tickets = append(c.tickets, t)
}

// lane is a set of slots that commands of one class share, and those who wait for one. Guarded by
// Interface.mu. General commands have one lane, MANAGE_PAGES the other.
type lane struct {
	slots uint32 // that belong to it
	free  uint32
	stuck uint32
	line
}

// take returns the lowest free slot, -1 if there is none.
func (l *lane) take() int {
	if l.free == 0 {
		return -1
	}
	i := bits.TrailingZeros32(l.free)
	l.free &^= 1 << i
	return i
}

// limit is how many commands of a kind may be under way at once, and those who wait to be one of them.
// Guarded by Interface.mu.
type limit struct {
	size int
	used int
	line
}

// enter makes the caller one of the limit's commands. try says that it must not wait.
func (c *Interface) enter(ctx context.Context, l *limit, try bool) error {
	c.mu.Lock()
	switch {
	case c.dead != nil:
		defer c.mu.Unlock()
		return c.dead
	case l.used < l.size && l.waiting == 0:
		l.used++
		c.mu.Unlock()
		return nil
	case try:
		c.mu.Unlock()
		return ErrBusy
	}
	t := c.ticket()
	l.join(t)
	patience := c.timeout()
	c.mu.Unlock()
	served, err := c.await(ctx, &l.line, t, patience) // takes mu
	defer c.mu.Unlock()
	if served && t.err != nil {
		served, err = false, t.err
	}
	if served && err != nil {
		l.pass()
	}
	c.tear(t)
	return err
}

// pass hands a command's place to the next in line. Runs with mu held.
func (l *limit) pass() {
	if !l.serve(-1, nil) {
		l.used--
	}
}

// exit ends the caller's command; l may be nil.
func (c *Interface) exit(l *limit) {
	if l == nil {
		return
	}
	c.mu.Lock()
	l.pass()
	c.mu.Unlock()
}
