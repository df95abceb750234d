package submit

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"cxkit/lab"
	"cxkit/lab/report"
)

// Columns of the rows.
const (
	colFunctions = "functions"
	colItems     = "work items"
	colCommands  = "commands"
	colContended = "lock contended"
	colLockWait  = "lock wait ns"
	colProfile   = "mutex profile ns"
	colP50       = "p50 ns"
	colP99       = "p99 ns"
	colP999      = "p99.9 ns"
	colSeconds   = "seconds"
)

// refresh is how many commands a refresh of all statistics takes.
const refresh = 12

// Rounds of each loop are drawn from these, so that 32 loops make about the thread's 46.7k work items at
// most.
const (
	leastRounds = 60
	mostRounds  = 120
)

// Experiment is E3.
func Experiment() *lab.Experiment {
	return &lab.Experiment{
		Name:   "submit",
		About:  "work items of firmware commands, while loops refresh statistics",
		Change: "submit",
		Knobs: []lab.Knob{
			{Name: "submit", Help: "who hands a blocking command to the card", Default: "caller",
				Values: []string{"queue", "caller"}, Before: "queue", After: "caller"},
			{Name: "loops", Help: "parallel loops, each a refresh of 12 commands after the other", Default: "32"},
			{Name: "functions", Help: "functions that the loops go round, one measurement each; each has a card of its own", Default: "1,4,12"},
			{Name: "latency", Help: "how long firmware takes for a command", Default: "100us", Full: "1ms"},
		},
		Thread: lab.Thread{
			Source:     "net/mlx5: Cut workqueue traffic of firmware commands and stats",
			Conditions: "ConnectX-4 Lx, firmware 14.32, 32 parallel ethtool -S loops",
			Figures: map[string]string{
				"mlx5_cmd work items":    "46.7k before, 0 after",
				"hottest workqueue lock": "pool->lock, on a host with a dozen functions",
			},
		},
		Incomparable: []string{
			"How many work items there were: the thread's loops ran for a time that it does not give; here each loop runs a number of rounds. Only N to 0 is claimed.",
			"Lock waits: lockstat of a fleet host and a mutex of a Go program on a machine of another size. Only that the lock is not taken any more is claimed.",
			"Latencies: they are those of the model's firmware, set by a knob, and of this machine's scheduler.",
			"Commands go on as before: items are what is saved.",
		},
		Check:   lab.CheckBy(parse),
		Measure: measure,
		Effect:  effect,
		Plot:    plot,
	}
}

// setting is the knobs, parsed.
type setting struct {
	queue     bool
	loops     int
	functions []int
	latency   time.Duration
	rounds    int
}

// Limits of knobs.
const (
	maxLoops     = 1024
	maxFunctions = 64
)

func parse(s lab.Setting) (setting, error) {
	p := setting{queue: s.Knobs["submit"] == "queue", rounds: leastRounds + s.Rand.IntN(mostRounds-leastRounds+1)}
	var err error
	if p.loops, err = strconv.Atoi(s.Knobs["loops"]); err != nil || p.loops < 1 || p.loops > maxLoops {
		return p, fmt.Errorf("loops=%s: want 1 to %d", s.Knobs["loops"], maxLoops)
	}
	for field := range strings.SplitSeq(s.Knobs["functions"], ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 || n > maxFunctions {
			return p, fmt.Errorf("functions=%s: want numbers from 1 to %d with commas between them", s.Knobs["functions"], maxFunctions)
		}
		p.functions = append(p.functions, n)
	}
	if p.latency, err = time.ParseDuration(s.Knobs["latency"]); err != nil || p.latency < 0 {
		return p, fmt.Errorf("latency=%s: want a time such as 100us", s.Knobs["latency"])
	}
	return p, nil
}

// measure runs the loops over each number of functions.
func measure(ctx context.Context, s lab.Setting) (lab.Measured, error) {
	p, err := parse(s)
	if err != nil {
		return lab.Measured{}, err
	}
	m := lab.Measured{
		Drawn: map[string]int{"rounds of each loop": p.rounds},
		Rows: report.Table{Columns: []string{
			colFunctions, colItems, colCommands, colContended, colLockWait, colProfile, colP50, colP99, colP999, colSeconds,
		}},
	}
	for _, n := range p.functions {
		one, err := p.run(ctx, n)
		if err != nil {
			return m, fmt.Errorf("%d functions: %w", n, err)
		}
		m.Rows.Add(n, one.items, one.answered, one.contended, one.lockWait, one.profiled,
			one.quantile(50), one.quantile(99), one.quantile(99.9), one.took.Seconds())
		m.Agreements = append(m.Agreements, one.agreements(p, n)...)
	}
	return m, nil
}

// agreements are what was counted twice.
func (o *outcome) agreements(p setting, functions int) []lab.Agreement {
	name := fmt.Sprintf(", %d functions", functions)
	card := lab.Count{By: "the cards' answers", Value: o.answered}
	all := []lab.Agreement{
		{What: "commands" + name, First: card, Second: lab.Count{By: "the loops", Value: uint64(p.loops * p.rounds * refresh)}},
		{What: "commands answered" + name, First: card, Second: lab.Count{By: "the drivers' command tables", Value: o.tallied}},
	}
	items := lab.Count{By: "the queues", Value: o.items}
	if p.queue {
		return append(all, lab.Agreement{What: "work items" + name, First: items, Second: card})
	}
	return append(all, lab.Agreement{What: "work items" + name, First: items,
		Second: lab.Count{By: "the mutex profile: waits behind a queue's lock", Value: o.profileCount}})
}

// effect: no work items at all.
func effect(m lab.Measured) (shown bool, words string) {
	var items, commands float64
	for i := range m.Rows.Rows {
		items += m.Rows.Float(i, colItems)
		commands += m.Rows.Float(i, colCommands)
	}
	return items == 0 && commands > 0, fmt.Sprintf("%.0f work items for %.0f commands", items, commands)
}

func plot(before, after lab.Measured) report.Plot {
	p := report.Plot{Title: "Latency of a command as its caller sees it", Y: "ns"}
	p.Series = lab.BeforeAndAfter(before, after, colP50, colP99, colP999)
	for i := range after.Rows.Rows {
		p.Groups = append(p.Groups, fmt.Sprintf("%.0f functions", after.Rows.Float(i, colFunctions)))
	}
	return p
}
