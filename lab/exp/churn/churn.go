package churn

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"cxkit/lab"
	"cxkit/lab/report"
)

// Columns of the rows.
const (
	colLoops    = "loops"
	colReadings = "readings"
	colChannels = "changes of channels"
	colReopened = "functions reset"
	colModes    = "changes of mode"
	colCommands = "commands"
	colFailed   = "failed commands"
	colWhich    = "of them"
	colWarnings = "warnings"
	colLeaks    = "leaks"
	colFallen   = "counters that fell"
	colSeconds  = "seconds"
)

// Rounds of changes are drawn from these.
const leastRounds, mostRounds = 6, 12

// Experiment is E4.
func Experiment() *lab.Experiment {
	return &lab.Experiment{
		Name:   "churn",
		About:  "statistics loops while channels, functions and modes change: failures, warnings, leaks",
		Change: "firmware",
		Knobs: []lab.Knob{
			{Name: "firmware", Help: "does what it is told, or refuses a statistics command now and then: what the counters of failures are checked with",
				Default: "sound", Values: []string{"refuses", "sound"}, Before: "refuses", After: "sound"},
			{Name: "loops", Help: "parallel loops, each a full listing after the other", Default: "32"},
			{Name: "vfs", Help: "virtual functions, 1 to 8", Default: "2", Full: "8"},
			{Name: "latency", Help: "how long firmware takes for a command", Default: "20us", Full: "1ms"},
		},
		Thread: lab.Thread{
			Source:     "net/mlx5: Cut workqueue traffic of firmware commands and stats",
			Conditions: "channel reconfiguration and switchdev on and off under parallel ethtool -S loops",
			Figures:    map[string]string{"failed commands and warnings after": "0 and 0"},
		},
		Incomparable: []string{
			"The thread's change is not what is switched off here: without it nothing fails either. What is switched off is sound firmware, to see that failures are counted.",
		},
		Check:   func(knobs map[string]string) error { _, err := parse(knobs); return err },
		Measure: measure,
		Effect:  effect,
		Plot:    plot,
	}
}

type setting struct {
	refuses    bool
	loops, vfs int
	latency    time.Duration
	rounds     int
}

func parse(knobs map[string]string) (p setting, err error) {
	p.refuses = knobs["firmware"] == "refuses"
	for _, k := range []struct {
		name string
		to   *int
		most int
	}{{"loops", &p.loops, 1024}, {"vfs", &p.vfs, 8}} {
		if *k.to, err = strconv.Atoi(knobs[k.name]); err != nil || *k.to < 1 || *k.to > k.most {
			return p, fmt.Errorf("%s=%s: want 1 to %d", k.name, knobs[k.name], k.most)
		}
	}
	if p.latency, err = time.ParseDuration(knobs["latency"]); err != nil || p.latency < 0 || p.latency > time.Second {
		return p, fmt.Errorf("latency=%s: want a time up to 1s, such as 20us", knobs["latency"])
	}
	return p, nil
}

func measure(ctx context.Context, s lab.Setting) (lab.Measured, error) {
	p, err := parse(s.Knobs)
	if err != nil {
		return lab.Measured{}, err
	}
	p.rounds = leastRounds + s.Rand.IntN(mostRounds-leastRounds+1)
	m := lab.Measured{
		Drawn: map[string]int{"rounds of changes": p.rounds},
		Rows: report.Table{Columns: []string{
			colLoops, colReadings, colChannels, colReopened, colModes, colCommands, colFailed, colWhich, colWarnings, colLeaks, colFallen, colSeconds,
		}},
	}
	o, err := p.run(ctx)
	if err != nil {
		return m, err
	}
	m.Rows.Add(p.loops, o.readings, o.channels, o.reopened, o.modes, o.answered, o.failed, strings.Join(slices.Compact(slices.Sorted(slices.Values(o.which))), ", "), o.warnings, o.leaks, o.fallen, o.took.Seconds())
	m.Agreements = []lab.Agreement{{
		What:  "commands answered",
		First: lab.Count{By: "the card's answers", Value: o.answered}, Second: lab.Count{By: "the drivers' command tables", Value: o.tallied},
	}}
	return m, nil
}

// effect: nothing goes wrong, and there was something to go wrong.
func effect(m lab.Measured) (shown bool, words string) {
	get := func(column string) float64 { return m.Rows.Float(0, column) }
	shown = get(colFailed) == 0 && get(colWarnings) == 0 && get(colLeaks) == 0 && get(colFallen) == 0 &&
		get(colReadings) > 0 && get(colChannels) > 0 && get(colReopened) > 0 && get(colModes) > 0
	which := ""
	if i := slices.Index(m.Rows.Columns, colWhich); m.Rows.Rows[0][i] != "" {
		which = fmt.Sprintf(" (%v)", m.Rows.Rows[0][i])
	}
	return shown, fmt.Sprintf("%.0f failed commands%s, %.0f warnings, %.0f leaks, %.0f counters that fell in %.0f readings",
		get(colFailed), which, get(colWarnings), get(colLeaks), get(colFallen), get(colReadings))
}

func plot(before, after lab.Measured) report.Plot {
	return report.Plot{
		Title: "Statistics loops while channels, functions and modes change", Y: "number", Groups: []string{"with failing firmware, and as set"},
		Series: lab.BeforeAndAfter(before, after, colReadings, colFailed),
	}
}
