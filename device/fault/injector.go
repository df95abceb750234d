package fault

import (
	"math/rand/v2"
	"slices"
	"time"

	"cxkit/prm"
)

// Subject is what is about to happen at a point. Only the fields that the point has are looked at.
type Subject struct {
	Function int
	// Commands, and command completion events.
	Opcode prm.Opcode
	Slot   int
	// Events.
	Event prm.EventType
	EQ    uint8
	// Interrupts.
	Vector int
	// Completions, completion events, doorbells.
	Queue     uint32
	Doorbell  Doorbell
	Direction Direction
}

// Injector decides which steps of a card go wrong. Its card's engine owns it.
type Injector struct {
	faults [points][]*active
	states []*active
	all    []*active
}

// active is a fault of a plan that was added.
type active struct {
	Fault
	start time.Duration // of its plan
	rand  *rand.Rand

	matched, struck int
}

// Limit is how many faults an injector keeps: those of the plans that a card was given in its life.
const Limit = 10_000

// Add takes the faults of a checked plan, which starts at now. It reports whether there was room.
func (in *Injector) Add(p Plan, now time.Duration) bool {
	if len(in.all)+len(p.Faults) > Limit {
		return false
	}
	for i, f := range p.Faults {
		a := &active{Fault: f, start: now, rand: rand.New(rand.NewPCG(p.Seed, uint64(i)))}
		in.all = append(in.all, a)
		if point, ok := f.point(); ok {
			in.faults[point] = append(in.faults[point], a)
		} else {
			in.states = append(in.states, a)
		}
	}
	return true
}

// Any reports whether faults may strike at one of the points: if not the step needs no wrapper.
func (in *Injector) Any(at ...Point) bool {
	return slices.ContainsFunc(at, func(p Point) bool { return len(in.faults[p]) != 0 })
}

// Strike asks whether a step goes wrong, and how: nil if it does not.
func (in *Injector) Strike(at Point, s *Subject, now time.Duration) *Fault {
	for _, a := range in.faults[at] {
		if a.strike(s, now) {
			return &a.Fault
		}
	}
	return nil
}

// Starting takes the states that begin by themselves and were added since the last call, with when they
// begin.
func (in *Injector) Starting() (faults []*Fault, when []time.Duration) {
	for _, a := range in.states {
		faults, when = append(faults, &a.Fault), append(when, a.start+a.After)
	}
	in.states = nil
	return faults, when
}

// Begin notes that a state that Starting returned has begun.
func (in *Injector) Begin(f *Fault) {
	for _, a := range in.all {
		if &a.Fault == f {
			a.matched, a.struck = 1, 1
			return
		}
	}
}

func (a *active) strike(s *Subject, now time.Duration) bool {
	begin := a.start + a.After
	if now < begin || a.For > 0 && !a.Kind.State() && now >= begin+a.For || a.spent() || !a.matches(s) {
		return false
	}
	a.matched++
	if a.matched <= a.Skip {
		return false
	}
	if a.Probability > 0 && a.rand.Float64() >= a.Probability {
		return false
	}
	a.struck++
	return true
}

// spent reports whether the fault has struck as often as it may. A state that a command begins does so
// once unless it is told otherwise.
func (a *active) spent() bool {
	times := a.Times
	if times == 0 && a.Kind.State() {
		times = 1
	}
	return times > 0 && a.struck >= times
}

func (a *active) matches(s *Subject) bool {
	return has(a.Functions, s.Function) && has(a.Opcodes, s.Opcode) && has(a.Slots, s.Slot) &&
		has(a.EQs, s.EQ) && has(a.Vectors, s.Vector) && has(a.Queues, s.Queue) &&
		(a.Direction == "" || a.Direction == s.Direction) &&
		(a.Kind != LostEQE || has(a.Events, s.Event) && (len(a.Events) != 0 || s.Event == prm.EventCommandCompletion)) &&
		(a.Kind != LostDoorbell || a.Doorbell == s.Doorbell || a.Doorbell == "" && s.Doorbell == CommandBell)
}

// has is slices.Contains where an empty list contains everything.
func has[T comparable](list []T, v T) bool { return len(list) == 0 || slices.Contains(list, v) }

// Report is what became of a fault.
type Report struct {
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	// Matched counts the steps that the fault concerned, Struck those it made go wrong.
	Matched int `json:"matched"`
	Struck  int `json:"struck"`
}

// Reports lists all faults that were ever added, in their order.
func (in *Injector) Reports() []Report {
	var all []Report
	for _, a := range in.all {
		all = append(all, Report{Name: a.title(), Kind: a.Kind, Matched: a.matched, Struck: a.struck})
	}
	return all
}
