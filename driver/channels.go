package driver

import (
	"context"
	"fmt"
	"slices"

	"cxkit/driver/internal/object"
)

// channels are the queues that a NIC has at the moment: receive queue i, transmit queue i and, with programs,
// program i are channel i. They do not change: SetChannels puts others in their place.
type channels struct {
	rx      []*RxQueue
	tx      []*TxQueue
	program []*TxQueue       // of programs; nobody else uses them
	counts  []*channelCounts // of all channels that there ever were
}

// queues are the channels in use. Any goroutine may call it.
func (n *NIC) queues() *channels {
	if c := n.channels.Load(); c != nil {
		return c
	}
	return new(channels)
}

// sends are all transmit queues, those of programs too.
func (c *channels) sends() []*TxQueue { return slices.Concat(c.tx, c.program) }

// slot is the place of a channel.
type slot struct {
	rx      *RxQueue
	tx      *TxQueue
	program *TxQueue
	counts  *channelCounts // of whatever queues it has and had
}

// makeSlots makes places for all channels that there may be, and registers the end of the queues that will be
// there then.
func (n *NIC) makeSlots() {
	n.slots = make([]slot, n.config.MaxChannels)
	for i := range n.slots {
		s := &n.slots[i]
		s.counts = new(channelCounts)
		n.undoRings(fmt.Sprintf("rx queue %d", i), func() (wq, cq object.Object) {
			if s.rx != nil {
				wq, cq = s.rx.rqo, s.rx.cqo
			}
			return wq, cq
		})
		for _, q := range []struct {
			name string
			at   **TxQueue
		}{{"tx queue", &s.tx}, {"program's tx queue", &s.program}} {
			n.undoRings(fmt.Sprintf("%s %d", q.name, i), func() (wq, cq object.Object) {
				if t := *q.at; t != nil {
					wq, cq = t.sqo, t.cqo
				}
				return wq, cq
			})
		}
	}
}

// undoRings registers the end of the rings that a queue will have then.
func (n *NIC) undoRings(queue string, rings func() (wq, cq object.Object)) {
	n.base.undo.Add("completions of "+queue, func(ctx context.Context) error {
		_, cq := rings()
		if cq.Kind == 0 {
			return nil
		}
		n.base.events.Detach(cq.Number)
		return n.base.objects.Destroy(ctx, cq)
	})
	n.base.undo.Add(queue, func(ctx context.Context) error {
		wq, _ := rings()
		if wq.Kind == 0 {
			return nil
		}
		return n.base.objects.Destroy(ctx, wq)
	})
}

// made are the queues that were made and not ended, in use or not, some without rings. At the end of the NIC, or who has the turn to
// make changes, calls it.
func (n *NIC) made() (rx []*RxQueue, tx []*TxQueue) {
	for i := range n.slots {
		s := &n.slots[i]
		if s.rx != nil {
			rx = append(rx, s.rx)
		}
		for _, q := range []*TxQueue{s.tx, s.program} {
			if q != nil {
				tx = append(tx, q)
			}
		}
	}
	return rx, tx
}

// publish makes the first count channels those in use.
func (n *NIC) publish(count int) {
	c := &channels{counts: slices.Clone(n.queues().counts)}
	for i := range n.slots[:count] {
		s := &n.slots[i]
		c.rx, c.tx = append(c.rx, s.rx), append(c.tx, s.tx)
		if s.program != nil {
			c.program = append(c.program, s.program)
		}
		if i >= len(c.counts) {
			c.counts = append(c.counts, s.counts)
		}
	}
	n.channels.Store(c)
}

// makeChannel makes the queues of channel i and starts them. memory is asked for memory for each queue's rings.
func (n *NIC) makeChannel(ctx context.Context, i int, memory func(what string, bytes int) (*ringMemory, error)) error {
	c, s := &n.config, &n.slots[i]
	m, err := memory(fmt.Sprintf("rings of rx queue %d", i), n.rxShape(c.RxRing).bytes())
	if err != nil {
		return err
	}
	r, err := n.makeRx(ctx, i, m)
	if err != nil {
		return fmt.Errorf("rx queue %d: %w", i, err)
	}
	if m, err = memory(fmt.Sprintf("rings of tx queue %d", i), txBytes(c.TxRing)); err != nil {
		return err
	}
	if _, err := n.makeTx(ctx, i, &s.tx, &s.counts.tx, m); err != nil {
		return fmt.Errorf("tx queue %d: %w", i, err)
	}
	if c.Program == nil {
		return nil
	}
	if m, err = memory(fmt.Sprintf("rings of program's tx queue %d", i), txBytes(c.TxRing)); err != nil {
		return err
	}
	if err := n.makeProgram(ctx, r, m); err != nil {
		return fmt.Errorf("rx queue %d: %w", i, err)
	}
	return nil
}

// inheritCounts makes the queues' counters go on from those of an earlier NIC. Nobody uses n yet.
func (n *NIC) inheritCounts(old *NIC) {
	c := *n.queues()
	c.counts = slices.Clone(c.counts)
	for i, o := range old.queues().counts {
		if i == len(c.counts) {
			c.counts = append(c.counts, new(channelCounts))
			if i < len(n.slots) {
				n.slots[i].counts = c.counts[i]
			}
		}
		c.counts[i].beforeRx, c.counts[i].beforeTx = o.received(), o.sent()
	}
	n.channels.Store(&c)
}
