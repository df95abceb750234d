package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"cxkit/driver/internal/eswitch"
	"cxkit/driver/internal/object"
)

// switchdev is the switchdev mode in force. The physical function itself is the representor of the uplink:
// it receives what came from there and no rule took, and what it sends goes there.
type switchdev struct {
	tables  *eswitch.Switchdev
	sources *eswitch.Sources
	reps    []*Representor
	rules   map[*SwitchRule]bool
}

// Representor is a virtual function's port at its manager, in switchdev mode: what the virtual function sends
// and no rule takes is received here, and what is sent here the virtual function receives. It has a queue pair
// and buffers of its own, which have one owner as those of a NIC have. The owner may go on using the queues when
// the mode ends: it finds them closed, but packets that it still has lose their memory, and SetMode names them in
// a BuffersOutError.
type Representor struct {
	vport Vport
	nic   *NIC // the queues' part of one
	undo  object.Stack
	from  eswitch.Source
	ready bool // from is in force
}

// Vport is the vport that the representor stands for.
func (r *Representor) Vport() Vport { return r.vport }

// Rx is the receive queue, Tx the send queue. They end with the mode.
func (r *Representor) Rx() *RxQueue { return r.nic.RxQueue(0) }

// Tx is the send queue.
func (r *Representor) Tx() *TxQueue { return r.nic.TxQueue(0) }

// representorRing is the ring size of representors: what has no rule is little.
const representorRing = 256

// Representor returns the representor of virtual function i, from 1 (ErrMode: not in switchdev mode).
func (n *NIC) Representor(ctx context.Context, i int) (*Representor, error) {
	s, unlock, err := n.lockManaged(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if s.dev == nil {
		return nil, fmt.Errorf("representor %d: %w", i, ErrMode)
	}
	if _, err := s.findVF(i); err != nil {
		return nil, err
	}
	return s.dev.reps[i-1], nil
}

// newSwitchdev makes the mode's tables and representors and puts them into force.
func (n *NIC) newSwitchdev(ctx context.Context, config eswitch.Config) (*switchdev, error) {
	d := &switchdev{rules: map[*SwitchRule]bool{}}
	err := n.buildSwitchdev(ctx, d, config)
	if err != nil {
		_, e := n.closeSwitchdev(context.WithoutCancel(ctx), d)
		return nil, errors.Join(err, e)
	}
	return d, nil
}

func (n *NIC) buildSwitchdev(ctx context.Context, d *switchdev, config eswitch.Config) (err error) {
	if d.tables, err = eswitch.NewSwitchdev(ctx, config); err != nil {
		return err
	}
	if d.sources, err = eswitch.NewSources(ctx, config, n.flows.flows.Head()); err != nil {
		return err
	}
	n.ways = func(ctx context.Context, sqn uint32) (eswitch.Queue, error) {
		return d.tables.AddQueue(ctx, sqn, uint16(Uplink))
	}
	for _, q := range n.queues().sends() {
		if err := q.findWay(ctx); err != nil {
			return err
		}
	}
	for _, v := range n.esw.vfs {
		r, err := n.newRepresentor(ctx, d, v.number)
		if err != nil {
			return fmt.Errorf("representor of vport %d: %w", v.number, err)
		}
		d.reps = append(d.reps, r)
	}
	n.esw.mu.Lock()
	n.esw.reps = d.reps
	n.esw.mu.Unlock()
	return d.tables.Root(ctx)
}

// newRepresentor makes the queues of a representor and joins them to its vport.
func (n *NIC) newRepresentor(ctx context.Context, d *switchdev, v Vport) (*Representor, error) {
	r := &Representor{vport: v}
	c := Config{
		StatsInterval: n.config.StatsInterval,
		Queues:        1, RxRing: representorRing, TxRing: representorRing, MTU: n.config.MTU, BufferSize: n.config.BufferSize,
		Arena: n.config.Arena, CheckBuffers: n.config.CheckBuffers, Logger: n.config.Logger, Trace: n.config.Trace,
	}
	c, err := c.complete()
	if err != nil {
		return nil, err
	}
	p := &NIC{config: c, log: n.log.With("representor", int(v)), base: n.base, closed: make(chan struct{})}
	// Books of its own, which are read when its memory is freed; what is in them is in the NIC's, too.
	p.base.objects, p.base.undo = object.NewBook(n.base.objects), &r.undo
	p.maxFrame.Store(n.maxFrame.Load())
	p.addrs.turn = n.addrs.turn
	p.flows.tables = make(map[*rqTable]bool)
	r.nic = p
	fail := func(err error) (*Representor, error) {
		_, e := n.closeRepresentor(context.WithoutCancel(ctx), r)
		return nil, errors.Join(err, e)
	}
	for _, step := range []func(context.Context) error{
		p.checkPlane, p.makePool, p.makeShared, p.makeQueues, func(ctx context.Context) error { return p.makeRepresentorStats(v) },
	} {
		if err := step(ctx); err != nil {
			return fail(err)
		}
	}
	r.Rx().guarded, r.Tx().guarded = true, true
	to, err := p.target(ctx, 0)
	if err != nil {
		return fail(err)
	}
	r.undo.Add("the representor's TIR", func(ctx context.Context) error { return p.dropTarget(ctx, 0) })
	p.ways = func(ctx context.Context, sqn uint32) (eswitch.Queue, error) {
		return d.tables.AddQueue(ctx, sqn, uint16(v))
	}
	if err := r.Tx().findWay(ctx); err != nil {
		return fail(err)
	}
	if r.from, err = d.sources.Add(ctx, uint16(v), to.tir.Number); err != nil {
		return fail(err)
	}
	r.ready = true
	return r, nil
}

// closeRepresentor ends a representor and returns what it still had. Its queues' owners find them closed.
func (n *NIC) closeRepresentor(ctx context.Context, r *Representor) (lost Lost, err error) {
	var errs []error
	r.nic.stopPlane()
	select { // a change under way, other rings, ends first
	case n.addrs.turn <- struct{}{}:
		defer func() { <-n.addrs.turn }()
	case <-ctx.Done():
		return lost, ctx.Err()
	}
	if r.ready {
		errs = append(errs, r.from.Remove(ctx))
		// Nothing leads to the receive queue any more, and nobody posts.
		lost, err = r.abandon(ctx)
		errs = append(errs, err)
	}
	for _, q := range r.nic.queues().sends() {
		errs = append(errs, q.leaveWay(ctx))
	}
	errs = append(errs, r.undo.Unwind(ctx))
	safe := len(r.nic.queuesOut()) == 0
	return lost, errors.Join(append(errs, r.nic.finishPlane(safe))...)
}

// abandon stops the queues, which are closed, and counts what nobody polled and what was not sent.
func (r *Representor) abandon(ctx context.Context) (lost Lost, err error) {
	rx, tx := r.Rx(), r.Tx()
	errRx := rx.stop(ctx)
	if errRx == nil {
		rx.ending = true
		rx.salvage()
		lost.Received = len(rx.carry)
	}
	errTx := tx.stop(ctx)
	if errTx == nil {
		tx.takeSent()
		lost.Sending = tx.giveUp()
	}
	return lost, errors.Join(errRx, errTx)
}

// closeSwitchdev takes the mode down, which is in force no more, and returns what its representors had.
func (n *NIC) closeSwitchdev(ctx context.Context, d *switchdev) (lost Lost, err error) {
	var errs []error
	n.esw.mu.Lock()
	if len(d.reps) > 0 && slices.Equal(n.esw.reps, d.reps) {
		n.esw.reps = nil
	}
	n.esw.mu.Unlock()
	for r := range d.rules {
		errs = append(errs, n.removeRule(ctx, d, r))
	}
	for _, r := range d.reps {
		l, err := n.closeRepresentor(ctx, r)
		errs = append(errs, err)
		lost.Received += l.Received
		lost.Sending += l.Sending
	}
	if lost != (Lost{}) {
		n.log.Info("representors ended with frames in their rings", "representors", len(d.reps), "received", lost.Received, "sending", lost.Sending)
	}
	for _, q := range n.queues().sends() {
		errs = append(errs, q.leaveWay(ctx))
	}
	n.ways = nil
	if d.sources != nil {
		errs = append(errs, d.sources.Close(ctx, n.flows.flows.Head()))
	}
	if d.tables != nil {
		errs = append(errs, d.tables.Close(ctx))
	}
	return lost, errors.Join(errs...)
}

// stopRepresentors makes the queues of representors take no more calls; err is why, nil that the NIC closes.
func (n *NIC) stopRepresentors(err error) {
	if n.esw == nil {
		return
	}
	n.esw.mu.Lock()
	reps := slices.Clone(n.esw.reps)
	n.esw.mu.Unlock()
	for _, r := range reps {
		if err == nil {
			r.nic.stopPlane()
			continue
		}
		r.Rx().end(err)
		r.Tx().end(err)
	}
}
