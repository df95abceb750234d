package fault

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"cxkit/prm"
)

// Plan is what to break.
type Plan struct {
	// Seed makes what the faults draw repeatable.
	Seed uint64
	// Faults are asked in their order.
	Faults []Fault
	// Latency is how long firmware takes, by opcode; Other for all opcodes that are not in it. A plan that
	// gives none leaves the card's own.
	Latency map[prm.Opcode]Latency
	Other   *Latency
}

// Empty reports whether the plan changes nothing.
func (p Plan) Empty() bool { return len(p.Faults) == 0 && len(p.Latency) == 0 && p.Other == nil }

// Fault is one thing to break. Which fields have a meaning depends on the kind; Check refuses the others.
type Fault struct {
	Kind Kind
	// Name is what reports call it; the kind if empty.
	Name string

	// When: see the package comment.
	After       time.Duration
	For         time.Duration
	Skip        int
	Times       int     // 0: no limit
	Probability float64 // 0 means 1

	// Which: empty means all.
	Functions []int
	Opcodes   []prm.Opcode
	Slots     []int
	Events    []prm.EventType
	EQs       []uint8
	Vectors   []int
	// Queues are numbers of CQs for completions and their events, of SQs for SQBell.
	Queues    []uint32
	Doorbell  Doorbell  // LostDoorbell; CommandBell if empty
	Direction Direction // LostCQE, LateCQE: both if empty

	// What.
	Delay        time.Duration
	To           int
	Status       prm.Status
	Syndrome     uint32
	Delivery     prm.DeliveryStatus
	Bytes        int
	Health       *HealthBuffer
	NoLink       bool
	ModuleStatus prm.ModuleStatus
	ModuleError  uint8 // prm's error_type of a port module event
	Watts        int
	Pages        int // of 4 KiB
	What         LineError
	Count        int
}

// title names a fault in reports and errors.
func (f *Fault) title() string {
	if f.Name != "" {
		return f.Name
	}
	return string(f.Kind)
}

// maxStorm is the most pages of a storm: 64 GiB.
const maxStorm = 16 << 20

// maxPlan bounds the faults of a plan.
const maxPlan = 1000

// Check finds what is wrong with a plan: unknown kinds, fields that a kind has no use for, values out of
// range. All mistakes are reported.
func (p Plan) Check() error {
	var all []error
	if len(p.Faults) > maxPlan {
		return fmt.Errorf("%d faults: a plan has at most %d", len(p.Faults), maxPlan)
	}
	for i := range p.Faults {
		if err := p.Faults[i].Check(); err != nil {
			all = append(all, fmt.Errorf("fault %d: %w", i+1, err))
		}
	}
	for op, l := range p.Latency {
		if err := l.Check(); err != nil {
			all = append(all, fmt.Errorf("latency of %v: %w", op, err))
		}
	}
	if p.Other != nil {
		if err := p.Other.Check(); err != nil {
			all = append(all, fmt.Errorf("latency of other commands: %w", err))
		}
	}
	return errors.Join(all...)
}

// Check finds what is wrong with a fault.
func (f *Fault) Check() error {
	t, ok := f.Kind.trait()
	if !ok {
		return fmt.Errorf("kind %q: want one of %v", f.Kind, Kinds())
	}
	var all []error
	bad := func(format string, args ...any) {
		all = append(all, fmt.Errorf("%s: "+format, append([]any{f.title()}, args...)...))
	}
	switch {
	case f.After < 0:
		bad("after %v is negative", f.After)
	case f.For < 0:
		bad("for %v is negative", f.For)
	case f.Skip < 0:
		bad("skip %d is negative", f.Skip)
	case f.Times < 0:
		bad("times %d is negative", f.Times)
	case !(f.Probability >= 0 && f.Probability <= 1): // nor NaN
		bad("probability %v: want 0 to 1", f.Probability)
	case f.Delay < 0:
		bad("delay %v is negative", f.Delay)
	}
	for _, n := range f.Functions {
		if n < 0 {
			bad("function %d is negative", n)
		}
	}
	for _, n := range f.Slots {
		if n < 0 || n > 31 {
			bad("slot %d: a command queue has 0 to 31", n)
		}
	}
	for _, field := range f.fields(t) {
		if field.set && !slices.Contains(field.of, f.Kind) {
			bad("%s has no meaning for this kind; it is for %v", field.name, field.of)
		}
	}
	f.checkValues(bad)
	return errors.Join(all...)
}

// field is a field of Fault that only some kinds have a use for.
type field struct {
	name string
	set  bool
	of   []Kind
}

// fields lists them.
func (f *Fault) fields(t trait) []field {
	commands := []Kind{NoAnswer, Late, Ghost, WrongSlot, BadToken, BadSignature, BadStatus, BadDelivery, HalfOutput, LostEQE, LostDoorbell}
	if t.state {
		commands = append(commands, f.Kind) // a command begins it
	}
	cqe := []Kind{LostCQE, LateCQE}
	return []field{
		{"opcode", len(f.Opcodes) != 0, commands},
		{"slot", len(f.Slots) != 0, commands},
		{"event", len(f.Events) != 0, []Kind{LostEQE}},
		{"eq", len(f.EQs) != 0, []Kind{LostEQE, LostDoorbell}},
		{"vector", len(f.Vectors) != 0, []Kind{LostInterrupt, MisdirectedInterrupt}},
		{"queue", len(f.Queues) != 0, append(cqe, LostEQE, LostDoorbell)},
		{"doorbell", f.Doorbell != "", []Kind{LostDoorbell}},
		{"direction", f.Direction != "", cqe},
		{"delay", f.Delay != 0, []Kind{Late, Ghost, LateCQE}},
		{"to", f.To != 0, []Kind{WrongSlot, MisdirectedInterrupt}},
		{"status", f.Status != 0, []Kind{BadStatus}},
		{"syndrome", f.Syndrome != 0, []Kind{BadStatus}},
		{"delivery", f.Delivery != 0, []Kind{BadDelivery}},
		{"bytes", f.Bytes != 0, []Kind{HalfOutput}},
		{"health", f.Health != nil, []Kind{Health}},
		{"no_link", f.NoLink, []Kind{Unplug}},
		{"module_status", f.ModuleStatus != 0, []Kind{Module}},
		{"module_error", f.ModuleError != 0, []Kind{Module}},
		{"watts", f.Watts != 0, []Kind{Power}},
		{"pages", f.Pages != 0, []Kind{Storm}},
		{"what", f.What != "", []Kind{PortErrors, PCIeErrors}},
		{"count", f.Count != 0, []Kind{PortErrors, PCIeErrors}},
	}
}

// checkValues holds the fields of the kind against their ranges.
func (f *Fault) checkValues(bad func(string, ...any)) {
	switch f.Kind {
	case Late, LateCQE:
		if f.Delay == 0 {
			bad("delay is missing")
		}
	case WrongSlot:
		if f.To < 0 || f.To > 31 {
			bad("to %d: a command queue has slots 0 to 31", f.To)
		}
	case MisdirectedInterrupt:
		if f.To < 0 {
			bad("to %d: no such vector", f.To)
		}
	case BadDelivery:
		if f.Delivery > 0x7f {
			bad("delivery %#x: want 1 to 0x7f", uint8(f.Delivery))
		}
	case HalfOutput:
		if f.Bytes < 0 {
			bad("bytes %d is negative", f.Bytes)
		}
	case Health:
		if f.Health != nil && f.Health.Syndrome == 0 {
			bad("a health buffer with syndrome 0 is no failure")
		}
	case Module:
		if f.ModuleStatus > 0xf || f.ModuleError > 0xf {
			bad("module status %#x, error %#x: want 0 to 0xf", uint8(f.ModuleStatus), f.ModuleError)
		}
	case Power:
		if f.Watts < 0 || f.Watts > 0xfff {
			bad("%d watts: want 0 to 4095", f.Watts)
		}
	case Storm:
		if f.Pages < 1 || f.Pages > maxStorm {
			bad("pages %d: want 1 to %d", f.Pages, maxStorm)
		}
	case PortErrors, PCIeErrors:
		f.checkErrors(bad)
	case LostDoorbell:
		switch f.Doorbell {
		case "", CommandBell:
			if len(f.EQs) != 0 || len(f.Queues) != 0 {
				bad("a command doorbell has no eq or queue")
			}
		case SQBell, CQBell, EQBell:
			if len(f.Opcodes) != 0 || len(f.Slots) != 0 {
				bad("a doorbell of kind %s has no opcode or slot", f.Doorbell)
			}
		default:
			bad("doorbell %q: want command, sq, cq or eq", f.Doorbell)
		}
	case LostEQE:
		if len(f.Opcodes)+len(f.Slots) != 0 && !f.onlyEvent(prm.EventCommandCompletion) {
			bad("only command completions have an opcode or slot")
		}
		if len(f.Queues) != 0 && !f.onlyEvent(prm.EventCompletion) {
			bad("queue needs event completion")
		}
	}
	if f.Direction != "" && f.Direction != Sent && f.Direction != Received {
		bad("direction %q: want send or receive", f.Direction)
	}
}

// onlyEvent reports whether a LostEQE concerns only events of type t.
func (f *Fault) onlyEvent(t prm.EventType) bool {
	if len(f.Events) == 0 {
		return t == prm.EventCommandCompletion
	}
	return len(f.Events) == 1 && f.Events[0] == t
}

// byCommand reports whether a state begins with a command rather than at a time.
func (f *Fault) byCommand() bool { return len(f.Opcodes) != 0 || len(f.Slots) != 0 || f.Skip > 0 }

// point is the step at which the fault strikes; ok is false for a state that begins by itself.
func (f *Fault) point() (p Point, ok bool) {
	t, _ := f.Kind.trait()
	if t.state {
		return AtCommand, f.byCommand()
	}
	if f.Kind == LostDoorbell && (f.Doorbell == "" || f.Doorbell == CommandBell) {
		return AtCommand, true
	}
	return t.point, true
}
