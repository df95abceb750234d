package fault_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"cxkit/device/fault"
	"cxkit/prm"
)

func injector(t *testing.T, list ...fault.Fault) *fault.Injector {
	t.Helper()
	p := fault.Plan{Seed: 3, Faults: list}
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	in := &fault.Injector{}
	if !in.Add(p, time.Minute) {
		t.Fatal("no room")
	}
	return in
}

func TestFaultIsInForceInItsWindow(t *testing.T) {
	in := injector(t, fault.Fault{Kind: fault.NoAnswer, After: time.Second, For: time.Second})
	for _, c := range []struct {
		at   time.Duration
		want bool
	}{
		{0, false}, {time.Minute, false}, {time.Minute + time.Second - 1, false}, {time.Minute + time.Second, true},
		{time.Minute + 2*time.Second - 1, true}, {time.Minute + 2*time.Second, false},
	} {
		if got := in.Strike(fault.AtEnd, &fault.Subject{}, c.at) != nil; got != c.want {
			t.Errorf("at %v: struck %v, want %v", c.at, got, c.want)
		}
	}
}

func TestFaultSkipsAndEnds(t *testing.T) {
	in := injector(t, fault.Fault{Kind: fault.NoAnswer, Skip: 2, Times: 3})
	var got []bool
	for range 7 {
		got = append(got, in.Strike(fault.AtEnd, &fault.Subject{}, time.Hour) != nil)
	}
	if want := []bool{false, false, true, true, true, false, false}; !slices.Equal(got, want) {
		t.Errorf("struck %v, want %v", got, want)
	}
	r := in.Reports()
	if len(r) != 1 || r[0].Matched != 5 || r[0].Struck != 3 || r[0].Name != "no-answer" {
		t.Errorf("report %+v", r)
	}
}

func TestFaultConcernsWhatAllItsSelectorsMatch(t *testing.T) {
	in := injector(t, fault.Fault{
		Kind: fault.NoAnswer, Functions: []int{1, 2}, Opcodes: []prm.Opcode{prm.OpNop, prm.OpCreateCQ}, Slots: []int{4},
	})
	for _, c := range []struct {
		s    fault.Subject
		want bool
	}{
		{fault.Subject{Function: 1, Opcode: prm.OpNop, Slot: 4}, true},
		{fault.Subject{Function: 2, Opcode: prm.OpCreateCQ, Slot: 4}, true},
		{fault.Subject{Function: 0, Opcode: prm.OpNop, Slot: 4}, false},
		{fault.Subject{Function: 1, Opcode: prm.OpAllocPD, Slot: 4}, false},
		{fault.Subject{Function: 1, Opcode: prm.OpNop, Slot: 5}, false},
	} {
		if got := in.Strike(fault.AtEnd, &c.s, time.Hour) != nil; got != c.want {
			t.Errorf("%+v: struck %v, want %v", c.s, got, c.want)
		}
	}
	if in.Strike(fault.AtAnswer, &fault.Subject{Function: 1, Opcode: prm.OpNop, Slot: 4}, time.Hour) != nil {
		t.Error("struck at another point")
	}
}

func TestFirstFaultThatStrikesHasTheStep(t *testing.T) {
	in := injector(t, fault.Fault{Kind: fault.NoAnswer, Name: "one", Times: 1}, fault.Fault{Kind: fault.Late, Delay: 1})
	for _, want := range []fault.Kind{fault.NoAnswer, fault.Late, fault.Late} {
		if got := in.Strike(fault.AtEnd, &fault.Subject{}, time.Hour); got == nil || got.Kind != want {
			t.Errorf("struck %+v, want %v", got, want)
		}
	}
	if r := in.Reports(); r[0].Name != "one" || r[1].Matched != 2 {
		t.Errorf("reports %+v: the second was asked although the first had the step", r)
	}
}

// What a fault draws does not depend on the faults behind it.
func TestFaultsDrawFromSourcesOfTheirOwn(t *testing.T) {
	half := fault.Fault{Kind: fault.LostEQE, Probability: 0.5}
	draw := func(in *fault.Injector) (got []bool) {
		for range 64 {
			got = append(got, in.Strike(fault.AtEvent, &fault.Subject{Event: prm.EventCommandCompletion}, time.Hour) != nil)
		}
		return got
	}
	never := fault.Fault{Kind: fault.LostEQE, EQs: []uint8{9}}
	alone, withAnother := draw(injector(t, half)), draw(injector(t, half, never))
	if !slices.Equal(alone, withAnother) {
		t.Error("another fault changed what this one draws")
	}
	if n := len(slices.DeleteFunc(alone, func(b bool) bool { return !b })); n < 16 || n > 48 {
		t.Errorf("struck %d of 64 with probability 0.5", n)
	}
}

func TestStatesBeginByTimeOrByCommand(t *testing.T) {
	in := injector(t, fault.Fault{Kind: fault.Hang, After: time.Second}, fault.Fault{Kind: fault.AllOnes, Opcodes: []prm.Opcode{prm.OpNop}})
	list, when := in.Starting()
	if len(list) != 1 || list[0].Kind != fault.Hang || when[0] != time.Minute+time.Second {
		t.Fatalf("starting %v at %v", list, when)
	}
	if list, _ := in.Starting(); len(list) != 0 {
		t.Error("the same state starts twice")
	}
	if r := in.Reports(); r[0].Struck != 0 {
		t.Errorf("report %+v before the state has begun", r[0])
	}
	in.Begin(list[0])
	if r := in.Reports(); r[0].Struck != 1 || r[1].Struck != 0 {
		t.Errorf("reports %+v when the first state has begun", r)
	}
	s := fault.Subject{Opcode: prm.OpNop}
	if hit := in.Strike(fault.AtCommand, &s, time.Hour); hit == nil || hit.Kind != fault.AllOnes {
		t.Errorf("struck %+v", hit)
	}
	if in.Strike(fault.AtCommand, &s, time.Hour) != nil {
		t.Error("began twice")
	}
}

func TestLostEQEConcernsCommandsUnlessToldOtherwise(t *testing.T) {
	in := injector(t, fault.Fault{Kind: fault.LostEQE}, fault.Fault{Kind: fault.LostEQE, Events: []prm.EventType{prm.EventPageRequest}})
	for event, want := range map[prm.EventType]bool{
		prm.EventCommandCompletion: true, prm.EventPageRequest: true, prm.EventPortChange: false, prm.EventCompletion: false,
	} {
		if got := in.Strike(fault.AtEvent, &fault.Subject{Event: event}, time.Hour) != nil; got != want {
			t.Errorf("%v: struck %v, want %v", event, got, want)
		}
	}
}

func TestEveryKindHasAText(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range fault.Kinds() {
		if k.Text() == "" || seen[k.Text()] {
			t.Errorf("%s: text %q", k, k.Text())
		}
		seen[k.Text()] = true
	}
	if len(seen) != 26 {
		t.Errorf("%d kinds", len(seen))
	}
}

func TestCheckFindsWhatHasNoMeaning(t *testing.T) {
	for want, f := range map[string]fault.Fault{
		`kind "": want one of`:                  {},
		`kind "x"`:                              {Kind: "x"},
		"after -1ns is negative":                {Kind: fault.Hang, After: -1},
		"for -1ns is negative":                  {Kind: fault.Hang, For: -1},
		"skip -1":                               {Kind: fault.Ghost, Skip: -1},
		"times -1":                              {Kind: fault.Ghost, Times: -1},
		"probability 1.5":                       {Kind: fault.Ghost, Probability: 1.5},
		"delay is missing":                      {Kind: fault.Late},
		"function -1":                           {Kind: fault.Ghost, Functions: []int{-1}},
		"slot 32":                               {Kind: fault.Ghost, Slots: []int{32}},
		"delay has no meaning for this kind":    {Kind: fault.NoAnswer, Delay: 1},
		"opcode has no meaning":                 {Kind: fault.LostInterrupt, Opcodes: []prm.Opcode{1}},
		"vector has no meaning":                 {Kind: fault.LostEQE, Vectors: []int{1}},
		"direction has no meaning":              {Kind: fault.LostEQE, Direction: fault.Sent},
		`direction "up": want send or receive`:  {Kind: fault.LostCQE, Direction: "up"},
		`doorbell "front"`:                      {Kind: fault.LostDoorbell, Doorbell: "front"},
		"a doorbell of kind sq has no opcode":   {Kind: fault.LostDoorbell, Doorbell: fault.SQBell, Slots: []int{1}},
		"a command doorbell has no eq":          {Kind: fault.LostDoorbell, Queues: []uint32{1}},
		"to 32":                                 {Kind: fault.WrongSlot, To: 32},
		"only command completions have":         {Kind: fault.LostEQE, Slots: []int{1}, Events: []prm.EventType{prm.EventPageRequest}},
		"queue needs event completion":          {Kind: fault.LostEQE, Queues: []uint32{1}},
		"a health buffer with syndrome 0":       {Kind: fault.Health, Health: &fault.HealthBuffer{}},
		`what "pcs"`:                            {Kind: fault.PortErrors, What: "pcs", Count: 1},
		`what "crc"`:                            {Kind: fault.PCIeErrors, What: fault.BadFCS, Count: 1},
		"count 0":                               {Kind: fault.PortErrors, What: fault.BadFCS},
		"count 1000000001":                      {Kind: fault.PCIeErrors, What: fault.OwnRecovery, Count: 1_000_000_001},
		"count has no meaning":                  {Kind: fault.Storm, Pages: 1, Count: 1},
		"5000 watts":                            {Kind: fault.Power, Watts: 5000},
		"bytes -1":                              {Kind: fault.HalfOutput, Bytes: -1},
		"delivery 0x80":                         {Kind: fault.BadDelivery, Delivery: 0x80},
		"module status 0x10":                    {Kind: fault.Module, ModuleStatus: 0x10},
		"my fault: status has no meaning for":   {Kind: fault.Hang, Name: "my fault", Status: 1},
		"no_link has no meaning for this kind;": {Kind: fault.Hang, NoLink: true},
	} {
		if err := f.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", f, err, want)
		}
	}
	good := []fault.Fault{
		{Kind: fault.Health, Health: fault.AssertCX6()}, {Kind: fault.Hang, Opcodes: []prm.Opcode{1}, Slots: []int{1}},
		{Kind: fault.LostEQE, Events: []prm.EventType{prm.EventCompletion}, Queues: []uint32{1}},
		{Kind: fault.LostDoorbell, Opcodes: []prm.Opcode{1}}, {Kind: fault.LostDoorbell, Doorbell: fault.EQBell, EQs: []uint8{1}},
	}
	if err := (fault.Plan{Faults: good}).Check(); err != nil {
		t.Errorf("good faults: %v", err)
	}
	if err := (fault.Plan{Faults: make([]fault.Fault, 1001)}).Check(); err == nil {
		t.Error("a plan of 1001 faults")
	}
}

func TestLatencyDistributions(t *testing.T) {
	const n = 20_000
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		l             fault.Latency
		min, p50, p99 time.Duration
		max           time.Duration
	}{
		"none":        {fault.Latency{}, 0, 0, 0, 0},
		"fixed":       {fault.Latency{Min: ms}, ms, ms, ms, ms},
		"uniform":     {fault.Latency{Min: ms, Max: 3 * ms}, ms, 2 * ms, 2980 * time.Microsecond, 3 * ms},
		"normal":      {fault.Latency{Mean: 10 * ms, Deviation: ms}, 0, 10 * ms, 12326 * time.Microsecond, 20 * ms},
		"cut normal":  {fault.Latency{Mean: 10 * ms, Deviation: 10 * ms, Min: 5 * ms, Max: 15 * ms}, 5 * ms, 10 * ms, 15 * ms, 15 * ms},
		"long tail":   {fault.Latency{Median: ms, P99: 50 * ms}, 0, ms, 50 * ms, 1000 * time.Hour},
		"cut tail":    {fault.Latency{Median: ms, P99: 50 * ms, Max: 40 * ms}, 0, ms, 40 * ms, 40 * ms},
		"no tail":     {fault.Latency{Median: ms, P99: ms}, ms - 1, ms, ms, ms + 1},
		"wide normal": {fault.Latency{Mean: ms, Deviation: time.Hour}, 0, ms, 2*time.Hour + 20*time.Minute, 1000 * time.Hour},
	} {
		if err := c.l.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		r := rand.New(rand.NewPCG(1, 2))
		all := make([]time.Duration, n)
		for i := range all {
			all[i] = c.l.Draw(r)
		}
		slices.Sort(all)
		near := func(what string, got, want time.Duration) {
			if diff := (got - want).Abs(); float64(diff) > 0.08*float64(want)+float64(time.Microsecond) && name != "wide normal" {
				t.Errorf("%s: %s is %v, want about %v", name, what, got, want)
			}
		}
		near("median", all[n/2], c.p50)
		near("99th percentile", all[n*99/100], c.p99)
		if all[0] < c.min || all[n-1] > c.max {
			t.Errorf("%s: from %v to %v, want within %v to %v", name, all[0], all[n-1], c.min, c.max)
		}
	}
	for _, bad := range []fault.Latency{
		{Min: -1}, {Min: 2, Max: 1}, {Mean: 1, Median: 1, P99: 2}, {Deviation: 1}, {Median: 1}, {P99: 1}, {Median: 2, P99: 1},
	} {
		if bad.Check() == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}
