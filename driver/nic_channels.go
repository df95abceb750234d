package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"cxkit/driver/internal/eswitch"
)

// Another number of channels: as ethtool -L, but channels that stay are not touched.

// Lost is what a change of channels or of the e-switch's mode cost.
type Lost struct {
	// Received are frames that were in receive queues which ended, or that Poll had put aside there.
	Received int
	// Sending are frames that were in transmit queues which ended, in error or with their mode; they count as dropped.
	Sending int
}

// SetChannels changes the number of receive and of transmit queues, 1 to Config.MaxChannels, while frames come.
// The first queues stay as they are and lose nothing. The default group spreads frames over all queues that there
// are then, unless QueueGroup.SetQueues has chosen some.
//
// Fewer channels: no rule leads to a queue that goes and no chosen group has one, or it fails with ErrBusy. The
// owners of these queues have stopped using them; a wait that is under way returns ErrChannelGone, which is then
// their Err. What they have posted is sent first, which ctx bounds. What they have received and nobody has polled
// is lost: Lost says how much. Packets that the application has of them stay its own. Their counters stay, and go on when
// there are as many channels again.
//
// When it fails with more channels the NIC has as many as before; with fewer it has count, or as before (Queues
// tells). Any goroutine may call it.
func (n *NIC) SetChannels(ctx context.Context, count int) (Lost, error) {
	lost, err := n.setChannels(ctx, count)
	if err != nil {
		return lost, fmt.Errorf("set %d channels: %w", count, err)
	}
	return lost, nil
}

func (n *NIC) setChannels(ctx context.Context, count int) (Lost, error) {
	if count < 1 || count > n.config.MaxChannels {
		return Lost{}, fmt.Errorf("want 1 to %d (Config.MaxChannels)", n.config.MaxChannels)
	}
	unlock, err := n.lockQueues(ctx)
	if err != nil {
		return Lost{}, err
	}
	defer unlock()
	switch had := n.Queues(); {
	case count > had:
		return Lost{}, n.addChannels(ctx, had, count)
	case count < had:
		return n.dropChannels(ctx, had, count)
	}
	return Lost{}, nil
}

// lockQueues waits for the turn to change which queues there are: the e-switch's, which has a rule for each that
// sends, and the NIC's.
func (n *NIC) lockQueues(ctx context.Context) (unlock func(), err error) {
	if n.esw == nil {
		return n.lock(ctx)
	}
	_, unlockSwitch, err := n.lockSwitch(ctx)
	if err != nil {
		return nil, err
	}
	unlockNIC, err := n.lock(ctx)
	if err != nil {
		unlockSwitch()
		return nil, err
	}
	return func() { unlockNIC(); unlockSwitch() }, nil
}

// firstQueues are the numbers of the first n queues.
func firstQueues(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// spreadOver spreads what no rule takes over the first count queues, unless some were chosen. On error it spreads
// them as before.
func (n *NIC) spreadOver(ctx context.Context, count int) error {
	g := n.flows.main
	if g.chosen {
		return nil
	}
	old := g.queues
	err := g.setQueues(ctx, firstQueues(count))
	if err != nil {
		err = errors.Join(err, g.setQueues(context.WithoutCancel(ctx), old))
	}
	return err
}

func (n *NIC) addChannels(ctx context.Context, had, count int) (err error) {
	back := context.WithoutCancel(ctx)
	for i := had; i < count && err == nil; i++ {
		if s := &n.slots[i]; s.rx != nil || s.tx != nil || s.program != nil {
			err = fmt.Errorf("channel %d: its queues of before could not be ended", i)
			count = i // these stay
			break
		}
		err = n.makeChannel(ctx, i, n.ringsMemory)
		for _, q := range n.slots[i].sends() {
			if err == nil {
				err = q.findWay(ctx)
			}
		}
	}
	if err == nil {
		n.publish(count)
		if err = n.spreadOver(ctx, count); err == nil {
			return nil
		}
		n.publish(had)
	}
	for i := count - 1; i >= had; i-- {
		_, e := n.endChannel(back, i)
		err = errors.Join(err, e)
	}
	return err
}

func (n *NIC) dropChannels(ctx context.Context, had, count int) (lost Lost, err error) {
	if err := n.checkUnused(count); err != nil {
		return lost, err
	}
	for i := count; i < had; i++ {
		for _, q := range n.slots[i].sends() {
			// A queue in error sends nothing any more.
			if err := q.Flush(ctx); err != nil && q.Err() == nil {
				return lost, fmt.Errorf("tx queue %d: %d frames are not sent: %w", i, q.Pending(), err)
			}
		}
	}
	if err := n.spreadOver(ctx, count); err != nil {
		return lost, err
	}
	n.publish(count)
	var errs []error
	for i := had - 1; i >= count; i-- {
		l, err := n.endChannel(context.WithoutCancel(ctx), i)
		errs = append(errs, err)
		lost.Received += l.Received
		lost.Sending += l.Sending
	}
	if lost != (Lost{}) {
		n.log.Info("channels ended with frames in their rings", "channels", had-count, "received", lost.Received, "sending", lost.Sending)
	}
	return lost, errors.Join(errs...)
}

// checkUnused checks that no rule leads to queue count or above and no chosen group has one, as ethtool -L does.
func (n *NIC) checkUnused(count int) error {
	for q, t := range n.flows.targets {
		if q >= count && t.rules > 0 {
			return fmt.Errorf("queue %d: %w by %d rules", q, ErrBusy, t.rules)
		}
	}
	groups := []*QueueGroup{n.flows.main}
	for g := range n.flows.groups {
		groups = append(groups, g)
	}
	for _, g := range groups {
		if most := slices.Max(g.queues); g.chosen && most >= count {
			return fmt.Errorf("queue %d: %w by a queue group", most, ErrBusy)
		}
	}
	return nil
}

// sends are the transmit queues of a channel.
func (s *slot) sends() (list []*TxQueue) {
	for _, q := range []*TxQueue{s.tx, s.program} {
		if q != nil {
			list = append(list, q)
		}
	}
	return list
}

// endChannel ends the queues of channel i, which are not in use any more. One that could not be ended stays in
// its slot for Close.
func (n *NIC) endChannel(ctx context.Context, i int) (lost Lost, err error) {
	s := &n.slots[i]
	var errs []error
	if q := s.rx; q != nil {
		if lost.Received, err = q.finish(ctx); err == nil {
			s.rx = nil
		}
		errs = append(errs, err)
	}
	for _, at := range []**TxQueue{&s.tx, &s.program} {
		q := *at
		if q == nil {
			continue
		}
		left, err := q.finish(ctx)
		if err == nil {
			*at = nil
		}
		lost.Sending += left
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return lost, fmt.Errorf("end channel %d: %w", i, err)
	}
	return lost, nil
}

// finish ends a receive queue to which nothing leads any more, and gives what it has back. It returns how many
// frames are lost.
func (q *RxQueue) finish(ctx context.Context) (lost int, err error) {
	q.close(ErrChannelGone)
	if q.rqo.Kind != 0 {
		if err := q.stop(ctx); err != nil {
			return 0, fmt.Errorf("rx queue %d: %w", q.index, err)
		}
		q.ending = true
		q.salvage()
	}
	lost = q.dropHeld()
	if q.rq != nil {
		q.returnPosted()
	}
	err = q.nic.destroyRings(ctx, q.rqo, q.cqo, q.arena)
	q.cache.Empty()
	if q.pages != nil {
		q.pages.Retire()
	}
	if err != nil {
		return lost, fmt.Errorf("rx queue %d: %w", q.index, err)
	}
	return lost, nil
}

// dropHeld gives the buffers of packets back that Poll has not handed out, and returns how many frames they are.
func (q *RxQueue) dropHeld() (frames int) {
	drop := func(pkts []Packet) {
		for i := range pkts {
			if p := &pkts[i]; len(p.Data) > 0 {
				frames += p.Segments()
			}
		}
		q.nic.ReleaseAll(pkts)
	}
	book := func(pkts []Packet) {
		for i := range pkts {
			if buffer := pkts[i].buffer; buffer != 0 {
				q.pool.Holders[buffer-1] = q.delivered
			}
		}
	}
	book(q.carry)
	drop(q.carry)
	q.carry = nil
	if m := q.merge; m != nil {
		drop(m.ready[m.out:])
		drop(m.heads[:])
		m.ready, m.out = m.ready[:0], 0
	}
	if q.xdp != nil {
		passed := q.xdp.arrived.end()
		book(passed)
		drop(passed)
	}
	return frames
}

// finish ends a transmit queue and returns how many frames were not sent.
func (q *TxQueue) finish(ctx context.Context) (left int, err error) {
	q.close(ErrChannelGone)
	if err := q.leaveWay(ctx); err != nil {
		return 0, fmt.Errorf("tx queue %d: %w", q.index, err)
	}
	if q.sqo.Kind != 0 {
		if err := q.stop(ctx); err != nil {
			return 0, fmt.Errorf("tx queue %d: %w", q.index, err)
		}
		left = q.giveUp()
	}
	err = q.nic.destroyRings(ctx, q.sqo, q.cqo, q.arena)
	q.cache.Empty()
	if err != nil {
		return left, fmt.Errorf("tx queue %d: %w", q.index, err)
	}
	return left, nil
}

// ways makes rules by which what a queue sends gets to the vport that it is meant for, as switchdev mode wants
// them. It is changed by who has the e-switch's turn.
type ways func(ctx context.Context, sqn uint32) (eswitch.Queue, error)

// findWay makes the way for the queue's present ring, if it needs one. That of another ring is left as it is.
func (q *TxQueue) findWay(ctx context.Context) error {
	q.way = nil
	if q.nic.ways == nil {
		return nil
	}
	way, err := q.nic.ways(ctx, q.sq.Number())
	if err != nil {
		return fmt.Errorf("lead tx queue %d to its vport: %w", q.index, err)
	}
	q.way = &way
	return nil
}

// leaveWay ends it.
func (q *TxQueue) leaveWay(ctx context.Context) error {
	if q.way == nil {
		return nil
	}
	err := q.way.Remove(ctx)
	if err == nil {
		q.way = nil
	}
	return err
}
