package driver

import (
	"context"
	"errors"
	"fmt"

	"cxkit/driver/internal/object"
	"cxkit/driver/internal/steer"
	"cxkit/prm"
)

// makeReceiveSide makes what spreads frames over the receive queues: the default group, and the steering
// tables. No frame is steered yet.
func (n *NIC) makeReceiveSide(ctx context.Context) error {
	f := &n.flows
	f.rules = make(map[RuleID]*rule)
	f.tables = make(map[*rqTable]bool)
	f.groups = make(map[*QueueGroup]bool)
	group, err := n.makeGroup(ctx, GroupConfig{Queues: firstQueues(n.Queues()), RSS: n.config.RSS})
	if err != nil {
		return err
	}
	f.main = group
	n.base.undo.Add("end the default queue group", group.destroy)
	s, err := steer.New(ctx, steer.Config{
		Exec: n.base.objects, Objects: n.base.objects, TIRs: group.tirs, LogMaxSize: n.logMaxTable(),
	})
	if err != nil {
		return err
	}
	n.addrs.steering = s
	n.base.undo.Add("stop steering", s.Close)
	f.flows, err = steer.NewFlows(ctx, steer.FlowsConfig{Objects: n.base.objects, Rest: s.First(), LogMaxSize: n.logMaxTable()})
	if err != nil {
		return err
	}
	n.base.undo.Add("end rules and queue groups", n.endFlows)
	return nil
}

func (n *NIC) logMaxTable() uint8 { return n.base.flow.FlowTablePropertiesNICReceive.LogMaxFTSize }

// rqTable is a table of receive queues on the card: where a hash leads to. It follows the queues to other
// rings.
type rqTable struct {
	object object.Object
	room   int   // entries it may have
	queues []int // a power of two, at most room
}

// makeTable makes a table with room for so many entries.
func (n *NIC) makeTable(ctx context.Context, queues []int, room int) (*rqTable, error) {
	t := &rqTable{room: room, queues: queues}
	var err error
	t.object, err = n.base.objects.Create(ctx, &prm.CreateRQTIn{
		Context: prm.RQTContext{RQTMaxSize: uint16(room), RQTActualSize: uint16(len(queues))},
		RQNums:  n.rqNumbers(queues),
	}, &prm.CreateRQTOut{})
	if err != nil {
		return nil, fmt.Errorf("create RSS table of %d entries: %w", len(queues), err)
	}
	n.flows.tables[t] = true
	return t, nil
}

// setTable leads a table to other queues.
func (n *NIC) setTable(ctx context.Context, t *rqTable, queues []int) error {
	in := &prm.ModifyRQTIn{
		RQTN: t.object.Number, BitmaskRQNList: true,
		Context: prm.RQTContext{RQTMaxSize: uint16(t.room), RQTActualSize: uint16(len(queues))},
		RQNums:  n.rqNumbers(queues),
	}
	if err := n.base.objects.Exec(ctx, in, &prm.ModifyRQTOut{}); err != nil {
		return fmt.Errorf("change RSS table %#x: %w", t.object.Number, err)
	}
	t.queues = queues
	return nil
}

// dropTable ends a table, which nothing uses.
func (n *NIC) dropTable(ctx context.Context, t *rqTable) error {
	if t == nil {
		return nil
	}
	if err := n.base.objects.Destroy(ctx, t.object); err != nil {
		return err
	}
	delete(n.flows.tables, t)
	return nil
}

func (n *NIC) rqNumbers(queues []int) []uint32 {
	list, rx := make([]uint32, len(queues)), n.queues().rx
	for i, q := range queues {
		list[i] = rx[q].rqo.Number
	}
	return list
}

// redirect leads every table to the present rings of queue i. The caller has the turn to make changes.
func (n *NIC) redirect(ctx context.Context, i int) error {
	var errs []error
	for t := range n.flows.tables {
		for _, q := range t.queues {
			if q == i {
				errs = append(errs, n.setTable(ctx, t, t.queues))
				break
			}
		}
	}
	return errors.Join(errs...)
}

// target is where a rule for one queue leads to: a TIR over a table of one entry, so that the queue can get
// other rings.
type target struct {
	table *rqTable
	tir   object.Object
	rules int
}

// target returns that of a queue.
func (n *NIC) target(ctx context.Context, queue int) (*target, error) {
	if t := n.flows.targets[queue]; t != nil {
		return t, nil
	}
	if n.flows.targets == nil {
		n.flows.targets = make(map[int]*target)
	}
	t := new(target)
	var err error
	if t.table, err = n.makeTable(ctx, []int{queue}, 1); err != nil {
		return nil, err
	}
	if t.tir, err = n.makeTIR(ctx, t.table, prm.TIRContext{}); err != nil {
		return nil, errors.Join(err, n.dropTable(context.WithoutCancel(ctx), t.table))
	}
	n.flows.targets[queue] = t
	return t, nil
}

// dropTarget ends a queue's target if no rule leads there.
func (n *NIC) dropTarget(ctx context.Context, queue int) error {
	t := n.flows.targets[queue]
	if t == nil || t.rules > 0 {
		return nil
	}
	if err := n.base.objects.Destroy(ctx, t.tir); err != nil {
		return err
	}
	delete(n.flows.targets, queue)
	return n.dropTable(ctx, t.table)
}

// makeTIR makes a TIR over a table; c says what it hashes.
func (n *NIC) makeTIR(ctx context.Context, t *rqTable, c prm.TIRContext) (object.Object, error) {
	c.DispType, c.IndirectTable, c.TransportDomain = prm.TIRDispIndirect, t.object.Number, n.base.transportDomain
	c.TunneledOffloadEn = n.config.Tunnels
	if err := n.mergeIn(&c); err != nil {
		return object.Object{}, err
	}
	o, err := n.base.objects.Create(ctx, &prm.CreateTIRIn{Context: c}, &prm.CreateTIROut{})
	if err != nil {
		return o, fmt.Errorf("create TIR: %w", err)
	}
	return o, nil
}
