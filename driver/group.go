package driver

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"cxkit/driver/internal/object"
	"cxkit/driver/internal/steer"
	"cxkit/prm"
)

// GroupConfig chooses how a group of queues shares frames.
type GroupConfig struct {
	// Queues are receive queues in the order of the indirection table, at least one. One that is there
	// twice gets twice as many flows. A number of entries that is no power of two is spread over a larger
	// table as evenly as that goes.
	Queues []int
	// RSS is how the hash is made. An all-zero key means that of Config.RSS.
	RSS RSS
}

// QueueGroup is some of the NIC's receive queues and a hash that spreads flows over them. Rules lead frames to
// it; the default group gets what no rule takes. Its methods may be called from any goroutine while frames
// come.
type QueueGroup struct {
	nic *NIC

	// Below: who has the turn to make changes.
	table  *rqTable // what the hash leads to
	first  *rqTable // of one entry: frames without a hash
	kinds  []hashedTIR
	other  object.Object // the TIR of frames without a hash
	tirs   steer.TIRs
	inner  steer.TIRs
	class  *steer.Kinds // nil for the default group, whose table steering has
	rss    RSS
	queues []int
	rules  int
	chosen bool // its queues, by SetQueues or at its making: SetChannels leaves them
	closed bool
}

// hashedTIR is the TIR of one kind of traffic.
type hashedTIR struct {
	object object.Object
	l3     prm.L3ProtType
	l4     prm.L4ProtType
	ports  bool
	inner  bool
}

// ErrGroupInUse: rules lead to the group.
var ErrGroupInUse = errors.New("queue group in use by rules")

// DefaultGroup is the group of all queues, which gets what no rule takes. It cannot be closed.
func (n *NIC) DefaultGroup() *QueueGroup { return n.flows.main }

// NewQueueGroup makes a group for rules to lead to.
func (n *NIC) NewQueueGroup(ctx context.Context, c GroupConfig) (*QueueGroup, error) {
	unlock, err := n.lock(ctx)
	if err != nil {
		return nil, fmt.Errorf("make queue group: %w", err)
	}
	defer unlock()
	g, err := n.makeGroup(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("make queue group: %w", err)
	}
	g.class, err = steer.NewKinds(ctx, n.base.objects, n.logMaxTable(), &g.tirs)
	if err != nil {
		return nil, fmt.Errorf("make queue group: %w", errors.Join(err, g.destroy(context.WithoutCancel(ctx))))
	}
	g.chosen = true
	n.flows.groups[g] = true
	return g, nil
}

// tableRoom is how many entries the tables of groups may have. 256, as Linux has, keep the load of queues
// whose number is no power of two even within 1 in 256/queues; with many queues it is 512.
func (n *NIC) tableRoom() int {
	return min(512, 1<<min(n.base.general.LogMaxRQTSize, 16))
}

// spread makes an indirection table of a list of queues.
func (n *NIC) spread(queues []int) ([]int, error) {
	room := n.tableRoom()
	for _, q := range queues {
		if q < 0 || q >= n.Queues() {
			return nil, fmt.Errorf("queue %d: the NIC has %d", q, n.Queues())
		}
	}
	switch k := len(queues); {
	case k == 0:
		return nil, errors.New("no queue")
	case k > room:
		return nil, fmt.Errorf("%d entries: the card's tables have %d", k, room)
	case bits.OnesCount(uint(k)) == 1 && k > 128:
		return slices.Clone(queues), nil
	}
	size := min(256, room)
	for size < 2*len(queues) && size < room {
		size *= 2
	}
	list := make([]int, size)
	for i := range list {
		list[i] = queues[i%len(queues)]
	}
	return list, nil
}

// makeGroup makes the group without a table of kinds.
func (n *NIC) makeGroup(ctx context.Context, c GroupConfig) (*QueueGroup, error) {
	if c.RSS.Key == ([40]byte{}) {
		c.RSS.Key = n.config.RSS.Key
	}
	if err := c.RSS.check(); err != nil {
		return nil, err
	}
	list, err := n.spread(c.Queues)
	if err != nil {
		return nil, err
	}
	g := &QueueGroup{nic: n, rss: c.RSS, queues: slices.Clone(c.Queues)}
	if err := g.build(ctx, list); err != nil {
		return nil, errors.Join(err, g.destroy(context.WithoutCancel(ctx)))
	}
	return g, nil
}

func (g *QueueGroup) build(ctx context.Context, list []int) (err error) {
	n := g.nic
	if g.table, err = n.makeTable(ctx, list, max(len(list), n.tableRoom())); err != nil {
		return err
	}
	if g.first, err = n.makeTable(ctx, list[:1], 1); err != nil {
		return err
	}
	if g.other, err = n.makeTIR(ctx, g.first, prm.TIRContext{}); err != nil {
		return err
	}
	if err = g.makeKinds(ctx, &g.tirs, false); err != nil || !n.config.Tunnels {
		return err
	}
	g.tirs.Inner = &g.inner
	return g.makeKinds(ctx, &g.inner, true)
}

// makeKinds makes the TIRs of all kinds of traffic, by outer or inner headers.
func (g *QueueGroup) makeKinds(ctx context.Context, to *steer.TIRs, inner bool) error {
	to.Other = g.other.Number
	for _, k := range []struct {
		number *uint32
		l3     prm.L3ProtType
		l4     prm.L4ProtType
		ports  bool
	}{
		{&to.TCPv4, prm.L3ProtIPv4, prm.L4ProtTCP, true}, {&to.UDPv4, prm.L3ProtIPv4, prm.L4ProtUDP, true},
		{&to.TCPv6, prm.L3ProtIPv6, prm.L4ProtTCP, true}, {&to.UDPv6, prm.L3ProtIPv6, prm.L4ProtUDP, true},
		{&to.IPv4, prm.L3ProtIPv4, 0, false}, {&to.IPv6, prm.L3ProtIPv6, 0, false},
	} {
		t := hashedTIR{l3: k.l3, l4: k.l4, ports: k.ports, inner: inner}
		var err error
		if t.object, err = g.nic.makeTIR(ctx, g.table, t.context(&g.rss)); err != nil {
			return err
		}
		*k.number = t.object.Number
		g.kinds = append(g.kinds, t)
	}
	return nil
}

// context is what the TIR hashes.
func (t *hashedTIR) context(r *RSS) prm.TIRContext {
	c := prm.TIRContext{RXHashFn: prm.RXHashFnToeplitz, RXHashSymmetric: !r.Asymmetric, RXHashToeplitzKey: r.Key}
	s := prm.RXHashFieldSelect{L3ProtType: t.l3, L4ProtType: t.l4, SelectedFields: prm.RXHashField(r.selected(t.ports))}
	if s.SelectedFields == 0 {
		// Ports alone, for frames that have none: everything goes to one queue.
		c.RXHashFn, s = prm.RXHashFnNone, prm.RXHashFieldSelect{}
	}
	if t.inner {
		c.RXHashFieldSelectorInner = s
	} else {
		c.RXHashFieldSelectorOuter = s
	}
	return c
}

// destroy ends what there is of the group. Nothing leads to it.
func (g *QueueGroup) destroy(ctx context.Context) error {
	var errs []error
	if g.class != nil {
		if err := g.class.Close(ctx); err != nil {
			return err
		}
		g.class = nil
	}
	for _, k := range g.kinds {
		errs = append(errs, g.nic.base.objects.Destroy(ctx, k.object))
	}
	if g.other.Kind != 0 {
		errs = append(errs, g.nic.base.objects.Destroy(ctx, g.other))
	}
	errs = append(errs, g.nic.dropTable(ctx, g.table), g.nic.dropTable(ctx, g.first))
	return errors.Join(errs...)
}

// turn waits for the turn to change the group.
func (g *QueueGroup) turn(ctx context.Context, what string) (unlock func(), err error) {
	unlock, err = g.nic.lock(ctx)
	if err == nil && g.closed {
		unlock()
		err = errors.New("the group is closed")
	}
	if err != nil {
		return nil, fmt.Errorf("%s of queue group: %w", what, err)
	}
	return unlock, nil
}

// SetQueues spreads the group's flows over other queues (GroupConfig.Queues). Frames of a flow that moves to
// another queue may overtake each other, none is lost.
func (g *QueueGroup) SetQueues(ctx context.Context, queues []int) error {
	unlock, err := g.turn(ctx, "change queues")
	if err != nil {
		return err
	}
	defer unlock()
	err = g.setQueues(ctx, queues)
	g.chosen = g.chosen || err == nil
	return err
}

// setQueues is SetQueues for who has the turn.
func (g *QueueGroup) setQueues(ctx context.Context, queues []int) error {
	list, err := g.nic.spread(queues)
	if err == nil {
		err = g.nic.setTable(ctx, g.table, list)
	}
	if err == nil {
		err = g.nic.setTable(ctx, g.first, list[:1])
	}
	if err != nil {
		return fmt.Errorf("change queues of queue group: %w", err)
	}
	g.queues = slices.Clone(queues)
	return nil
}

// SetRSS changes the hash. On error some kinds of traffic may have the new one.
func (g *QueueGroup) SetRSS(ctx context.Context, r RSS) error {
	unlock, err := g.turn(ctx, "change hash")
	if err != nil {
		return err
	}
	defer unlock()
	if r.Key == ([40]byte{}) {
		r.Key = g.nic.config.RSS.Key
	}
	if err := r.check(); err != nil {
		return fmt.Errorf("change hash of queue group: %w", err)
	}
	var errs []error
	for i := range g.kinds {
		k := &g.kinds[i]
		in := &prm.ModifyTIRIn{TIRN: k.object.Number, BitmaskHash: true, Context: k.context(&r)}
		errs = append(errs, g.nic.base.objects.Exec(ctx, in, &prm.ModifyTIROut{}))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("change hash of queue group: %w", err)
	}
	g.rss = r
	return nil
}

// Config is the group's present configuration. It waits for changes under way.
func (g *QueueGroup) Config(ctx context.Context) (GroupConfig, error) {
	unlock, err := g.turn(ctx, "configuration")
	if err != nil {
		return GroupConfig{}, err
	}
	defer unlock()
	return GroupConfig{Queues: slices.Clone(g.queues), RSS: g.rss}, nil
}

// Close ends the group. It fails with ErrGroupInUse while rules lead there, and for the default group.
func (g *QueueGroup) Close(ctx context.Context) error {
	unlock, err := g.turn(ctx, "end")
	if err != nil {
		return err
	}
	defer unlock()
	if g.rules > 0 || g == g.nic.flows.main {
		return fmt.Errorf("end of queue group: %w", ErrGroupInUse)
	}
	if err := g.destroy(ctx); err != nil {
		return fmt.Errorf("end of queue group: %w", err)
	}
	g.closed = true
	delete(g.nic.flows.groups, g)
	return nil
}
