package driver

import (
	"context"
	"errors"
	"fmt"

	"cxkit/dma"
	"cxkit/driver/internal/cmdif"
	"cxkit/driver/internal/event"
	"cxkit/driver/internal/object"
	"cxkit/driver/internal/queue"
	"cxkit/pci"
	"cxkit/prm"
)

// base is what Open hands to the data plane: the ways into the function, and the objects that every queue
// needs. It does not change while the NIC is open.
type base struct {
	function pci.Function
	objects  *object.Book // runs commands
	undo     undo
	events   *event.Dispatcher

	// completions are the completion event queues, one or more; queue pairs share them in
	// turn.
	completions []*event.EQ

	door    queue.Doorbell
	uarPage uint32 // the doorbell page's number, for contexts

	pd, transportDomain uint32
	lkey                uint32 // memory key that reaches everything

	general prm.CapGeneral
	eth     prm.CapEthernetOffloads
	flow    prm.CapFlowTable
	// fdbLogSize is log2 of the largest table of the e-switch.
	fdbLogSize uint8

	info Info
}

// undo remembers how to take things back; Close does so in reverse.
type undo interface {
	// Add registers the opposite of something just done. what names it in errors: "destroy RQ 0x12".
	Add(what string, f func(ctx context.Context) error)
}

// create makes an object and registers its end.
func (b *base) create(ctx context.Context, in cmdif.In, out cmdif.Out) (object.Object, error) {
	o, err := b.objects.Create(ctx, in, out)
	if err != nil {
		return o, err
	}
	b.undo.Add("destroy "+o.String(), func(ctx context.Context) error { return b.objects.Destroy(ctx, o) })
	return o, nil
}

// startPlane makes buffers, queues, steering and link state on top of b and starts what runs beside them.
// Whatever it does is registered with b.undo, so that after an error as at the end HCA.Down takes it back.
func (n *NIC) startPlane(ctx context.Context, b base) error {
	n.base = b
	n.closed = make(chan struct{})
	n.addrs.turn = make(chan struct{}, 1)
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"compare the configuration with the card", n.checkPlane},
		{"make packet buffers", n.makePool},
		{"create what queues share", n.makeShared},
		{"create queues", n.makeQueues},
		{"prepare counters", n.makeStats},
		{"create what spreads frames over queues", n.makeReceiveSide},
		{"set addresses and MTU", n.startAddresses},
		{"bring the link up", n.startLink},
		{"prepare the e-switch", n.startSwitch},
	} {
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// stopPlane is the first step of Close: queues take no more calls, and whoever waits on the NIC returns.
// The owners of queues have stopped using them. It may be called more than once.
func (n *NIC) stopPlane() {
	n.closeOnce.Do(func() {
		n.releasing.Lock() // those that release now are waited for, later ones see that the NIC is closed
		close(n.closed)
		n.releasing.Unlock()
		for _, q := range n.queues().rx {
			q.close(ErrNICClosed)
		}
		for _, q := range n.queues().sends() {
			q.close(ErrNICClosed)
		}
		n.stopRepresentors(nil)
	})
}

// forgetRings takes the buffers of rings that no longer exist out of the books.
func (n *NIC) forgetRings() {
	rx, tx := n.made()
	for _, q := range rx {
		if q.rq != nil {
			q.rq.Taken = q.rq.Posted
		}
	}
	for _, q := range tx {
		if q.sq != nil {
			q.sq.Done, q.sq.Freed = q.sq.Posted, q.sq.Queued
		}
	}
}

// isClosed tells that stopPlane was called.
func (n *NIC) isClosed() bool {
	select {
	case <-n.closed:
		return true
	default:
		return false
	}
}

// finishPlane is the last step of Close, after HCA.Down. safe tells that the card can reach no memory any
// more: then what queues left behind had kept is freed. It returns the buffers that the application still
// has, by queue, as *BuffersOutError; their memory is gone. Without safe the rings' buffers are named so, too.
func (n *NIC) finishPlane(safe bool) error {
	var errs []error
	if safe {
		for _, a := range n.kept {
			errs = append(errs, a.Close())
		}
		n.kept = nil
	}
	if n.pool != nil {
		if safe {
			n.forgetRings()
		} else {
			errs = append(errs, n.inRings())
		}
		rx, _ := n.made()
		for _, q := range rx {
			q.forgetHeld()
		}
		errs = append(errs, n.buffersOut())
	}
	return errors.Join(errs...)
}

// arena makes memory that both sides use until no queue can reach it any more.
func (n *NIC) arena(what string, size int) (*dma.Arena, error) {
	a, err := n.base.function.NewArena(size, n.config.Arena)
	if err != nil {
		return nil, fmt.Errorf("memory for %s: %w", what, err)
	}
	n.base.undo.Add("free "+what, func(context.Context) error {
		if left := n.queuesOut(); len(left) > 0 {
			n.kept = append(n.kept, a)
			return fmt.Errorf("%d bytes kept: the card may still use them through %v", a.Size(), left)
		}
		return a.Close()
	})
	n.log.Debug("memory", "for", what, "bytes", a.Size(), "backing", a.Backing())
	return a, nil
}

// queuesOut lists queues that the card still has.
func (n *NIC) queuesOut() (left []object.Object) {
	for _, o := range n.base.objects.Out() {
		switch o.Kind {
		case object.CQ, object.RQ, object.SQ:
			left = append(left, o)
		}
	}
	return left
}
