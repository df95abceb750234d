package driver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"cxkit/driver/internal/object"
	"cxkit/driver/internal/steer"
	"cxkit/prm"
)

// RulePriorities is how many priorities of rules there are.
const RulePriorities = steer.Priorities

// Rule says what becomes of received frames that match. Rules see the frames that the virtual port lets in
// (its addresses, or promiscuous mode), before the NIC's own filters of VLANs and addresses.
type Rule struct {
	// Priority is 0 to RulePriorities-1; 0 is looked at first. Which of several rules of one priority that
	// match applies is not defined.
	Priority int
	// Match is which frames; the zero Match is all.
	Match Match

	// Action is what to do with them.
	Action RuleAction
	// Queue is the receive queue of RuleQueue.
	Queue int
	// Group is the group of RuleGroup; nil is the default group.
	Group *QueueGroup

	// Tag is reported in Packet.FlowTag, 0 to MaxRuleTag; 0 is none. Rules that drop have none.
	Tag uint32
	// Count counts the frames that match (RuleCounter).
	Count bool
}

// MaxRuleTag is the largest tag of a rule.
const MaxRuleTag = 1<<24 - 1

// RuleAction is what a rule does.
type RuleAction uint8

const (
	// RulePass lets the frame go on as if there were no rules.
	RulePass RuleAction = iota
	// RuleDrop drops it.
	RuleDrop
	// RuleQueue delivers it to a queue.
	RuleQueue
	// RuleGroup spreads it over a group of queues.
	RuleGroup
)

// actionNames is never assigned to.
var actionNames = [...]string{RulePass: "pass", RuleDrop: "drop", RuleQueue: "queue", RuleGroup: "group"}

func (a RuleAction) String() string { return name(actionNames[:], int(a)) }

// RuleID names a rule in force. IDs are not used again.
type RuleID uint64

// ErrRulesFull: the rule's priority has no room left.
var ErrRulesFull = steer.ErrFull

// flows are the NIC's rules and queue groups. All is used by who has the turn to make changes.
type flows struct {
	main    *QueueGroup
	flows   *steer.Flows
	next    RuleID
	rules   map[RuleID]*rule
	targets map[int]*target
	tables  map[*rqTable]bool
	groups  map[*QueueGroup]bool
}

// rule is a rule in force.
type rule struct {
	Rule
	entry   steer.FlowEntry
	counter object.Object // Kind 0: none
}

// AddRule puts a rule in force. Frames that come meanwhile meet either the rules before or those after. It
// fails with an *UnsupportedError for what the card cannot match or count, and with ErrRulesFull. Any
// goroutine may call it.
func (n *NIC) AddRule(ctx context.Context, r Rule) (RuleID, error) {
	unlock, err := n.lock(ctx)
	if err != nil {
		return 0, fmt.Errorf("add rule: %w", err)
	}
	defer unlock()
	id, err := n.putRule(ctx, r)
	if err != nil {
		return 0, fmt.Errorf("add rule: %w", err)
	}
	return id, nil
}

func (n *NIC) putRule(ctx context.Context, r Rule) (RuleID, error) {
	flow, err := n.flow(&r)
	if err != nil {
		return 0, err
	}
	made := &rule{Rule: r}
	back := context.WithoutCancel(ctx)
	fail := func(err error) (RuleID, error) {
		if made.counter.Kind != 0 {
			err = errors.Join(err, n.base.objects.Destroy(back, made.counter))
		}
		if r.Action == RuleQueue {
			err = errors.Join(err, n.dropTarget(back, r.Queue))
		}
		return 0, err
	}
	if r.Count {
		if made.counter, err = n.base.objects.Create(ctx, &prm.AllocFlowCounterIn{}, &prm.AllocFlowCounterOut{}); err != nil {
			return fail(fmt.Errorf("allocate flow counter: %w", err))
		}
		flow.Action.Flow |= prm.FlowActionCount
		flow.Action.Counters = []uint32{made.counter.Number}
	}
	to, err := n.destination(ctx, &r)
	if err != nil {
		return fail(err)
	}
	flow.Action.To = to
	if made.entry, err = n.flows.flows.Add(ctx, flow); err != nil {
		return fail(err)
	}
	n.lead(&r, 1)
	n.flows.next++
	n.flows.rules[n.flows.next] = made
	return n.flows.next, nil
}

// flow checks the rule and makes what steering takes, without destination and counter.
func (n *NIC) flow(r *Rule) (*steer.Flow, error) {
	switch {
	case r.Priority < 0 || r.Priority >= RulePriorities:
		return nil, fmt.Errorf("priority %d: want 0 to %d", r.Priority, RulePriorities-1)
	case r.Tag > MaxRuleTag:
		return nil, fmt.Errorf("tag %#x: at most %#x", r.Tag, MaxRuleTag)
	case r.Action > RuleGroup:
		return nil, fmt.Errorf("action %d", r.Action)
	case r.Action == RuleDrop && r.Tag != 0:
		return nil, errors.New("a rule that drops has no tag")
	case r.Action != RuleQueue && r.Queue != 0 || r.Action == RuleQueue && (r.Queue < 0 || r.Queue >= n.Queues()):
		return nil, fmt.Errorf("queue %d with action %v: the NIC has %d queues", r.Queue, r.Action, n.Queues())
	case r.Group != nil && (r.Action != RuleGroup || r.Group.nic != n || r.Group.closed):
		return nil, fmt.Errorf("action %v with a queue group that is closed or of another NIC, or for another action", r.Action)
	case r.Count && !n.base.flow.FlowTablePropertiesNICReceive.FlowCounter:
		return nil, n.unsupported("flow counters")
	}
	f := &steer.Flow{Priority: r.Priority, Action: steer.Action{Flow: prm.FlowActionForward, Tag: r.Tag}}
	if r.Action == RuleDrop {
		f.Action.Flow = prm.FlowActionDrop
	}
	var err error
	if f.Enable, err = r.Match.encode(&f.Mask, &f.Value); err != nil {
		return nil, err
	}
	can := &n.base.flow.FlowTablePropertiesNICReceive.FTFieldSupport
	what := lacking(&f.Mask, can)
	if what == "" {
		what = lackingMore(&f.Mask, can, n.base.general.FlexParserProtocols)
	}
	if what != "" {
		return nil, n.unsupported("rules by " + what)
	}
	return f, nil
}

// destination is where the rule leads to.
func (n *NIC) destination(ctx context.Context, r *Rule) ([]prm.DestFormat, error) {
	switch r.Action {
	case RulePass:
		return []prm.DestFormat{n.flows.flows.Rest()}, nil
	case RuleQueue:
		t, err := n.target(ctx, r.Queue)
		if err != nil {
			return nil, err
		}
		return []prm.DestFormat{steer.To(t.tir.Number)}, nil
	case RuleGroup:
		g := n.group(r)
		if tirn := g.tirs.Direct(r.Match.Headers.version(), r.Match.Headers.protocol()); tirn != 0 {
			return []prm.DestFormat{steer.To(tirn)}, nil
		}
		if g == n.flows.main {
			return []prm.DestFormat{n.addrs.steering.Kinds()}, nil
		}
		return []prm.DestFormat{g.class.To()}, nil
	}
	return nil, nil
}

func (n *NIC) group(r *Rule) *QueueGroup {
	if r.Group == nil {
		return n.flows.main
	}
	return r.Group
}

// lead notes that one rule more or less leads somewhere.
func (n *NIC) lead(r *Rule, change int) {
	switch r.Action {
	case RuleQueue:
		n.flows.targets[r.Queue].rules += change
	case RuleGroup:
		n.group(r).rules += change
	}
}

// RemoveRule ends a rule; one that is not in force is ErrAbsent.
func (n *NIC) RemoveRule(ctx context.Context, id RuleID) error {
	unlock, err := n.lock(ctx)
	if err == nil {
		defer unlock()
		err = n.dropRule(ctx, id)
	}
	if err != nil {
		return fmt.Errorf("remove rule %d: %w", id, err)
	}
	return nil
}

func (n *NIC) dropRule(ctx context.Context, id RuleID) error {
	r := n.flows.rules[id]
	if r == nil {
		return ErrAbsent
	}
	if err := n.flows.flows.Remove(ctx, r.entry); err != nil {
		return err
	}
	delete(n.flows.rules, id)
	n.lead(&r.Rule, -1)
	var err error
	if r.counter.Kind != 0 {
		err = n.base.objects.Destroy(ctx, r.counter)
	}
	if r.Action == RuleQueue {
		err = errors.Join(err, n.dropTarget(ctx, r.Queue))
	}
	return err
}

// Rules lists the rules in force by their IDs. It waits for changes under way.
func (n *NIC) Rules(ctx context.Context) (map[RuleID]Rule, error) {
	unlock, err := n.lock(ctx)
	if err != nil {
		return nil, fmt.Errorf("list rules: %w", err)
	}
	defer unlock()
	m := make(map[RuleID]Rule, len(n.flows.rules))
	for id, r := range n.flows.rules {
		m[id] = r.Rule
	}
	return m, nil
}

// RuleCounter reads how many frames a rule with Count has matched, and their bytes.
func (n *NIC) RuleCounter(ctx context.Context, id RuleID) (packets, bytes uint64, err error) {
	unlock, err := n.lock(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("counter of rule %d: %w", id, err)
	}
	r := n.flows.rules[id]
	unlock()
	if r == nil || r.counter.Kind == 0 {
		return 0, 0, fmt.Errorf("counter of rule %d: %w", id, ErrAbsent)
	}
	out := &prm.QueryFlowCounterOut{FlowStatistics: make([]prm.TrafficCounter, 1)}
	if err := n.base.objects.Exec(ctx, &prm.QueryFlowCounterIn{FlowCounterID: r.counter.Number}, out); err != nil {
		return 0, 0, fmt.Errorf("counter of rule %d: %w", id, err)
	}
	return out.FlowStatistics[0].Packets, out.FlowStatistics[0].Octets, nil
}

// endFlows takes back all rules and all groups but the default one.
func (n *NIC) endFlows(ctx context.Context) error {
	// A change that runs may have seconds to go: its commands end before this one's turn, or with them
	// the device is given up.
	select {
	case n.addrs.turn <- struct{}{}:
		defer func() { <-n.addrs.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	f := &n.flows
	var entries []steer.FlowEntry
	for _, id := range slices.Sorted(maps.Keys(f.rules)) {
		entries = append(entries, f.rules[id].entry)
	}
	errs := []error{f.flows.Close(ctx, entries)}
	for _, r := range f.rules {
		if r.counter.Kind != 0 {
			errs = append(errs, n.base.objects.Destroy(ctx, r.counter))
		}
	}
	clear(f.rules)
	for queue, t := range f.targets {
		t.rules = 0
		errs = append(errs, n.dropTarget(ctx, queue))
	}
	for g := range f.groups {
		errs = append(errs, g.destroy(ctx))
		g.closed = true
	}
	clear(f.groups)
	return errors.Join(errs...)
}
