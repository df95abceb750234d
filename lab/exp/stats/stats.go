package stats

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"cxkit/lab"
	"cxkit/lab/report"
)

// Columns of the rows.
const (
	colRate     = "reads/s"
	colReaders  = "readers"
	colReads    = "reads"
	colCommands = "commands"
	colRound    = "commands per round"
	colRounds   = "rounds"
	col13s      = "commands in 13 s"
	colAge      = "oldest data ns"
	colP50      = "read p50 ns"
	colP99      = "read p99 ns"
	colSeconds  = "seconds"
)

// threadSeconds is how long the thread's reader ran.
const threadSeconds = 13

// Experiment is E2.
func Experiment() *lab.Experiment {
	return &lab.Experiment{
		Name:   "stats",
		About:  "firmware commands that readers of interfaces' counters cost",
		Change: "interval",
		Knobs: []lab.Knob{
			{Name: "interval", Help: "least time between two refreshes that readers ask for", Default: "200ms",
				Values: []string{"0s", "200ms"}, Before: "0s", After: "200ms"},
			{Name: "eswitch", Help: "mode of the card's switch: with representors or without", Default: "switchdev", Values: []string{"switchdev", "legacy"}},
			{Name: "vfs", Help: "virtual functions, 1 to 8", Default: "8"},
			{Name: "rates", Help: "rounds over all interfaces that a reader makes a second; a measurement each", Default: "5,10,20,37,100,200"},
			{Name: "readers", Help: "readers at a time; a measurement each at 37 rounds a second", Default: "32,1000"},
			{Name: "latency", Help: "how long firmware takes for a command", Default: "100us", Full: "1ms"},
			{Name: "duration", Help: "how long a measurement takes", Default: "1500ms", Full: "13s"},
		},
		Thread: lab.Thread{
			Source:     "net/mlx5: Cut workqueue traffic of firmware commands and stats",
			Conditions: "ConnectX-4 Lx, firmware 14.32, switchdev, 8 VFs, one reader of /proc/net/dev for 13 s",
			Figures: map[string]string{
				"commands in 13 s": "13.4k before, 1.8k after: 7.4 times less",
				"refresh interval": "on each read before, at least 200 ms after",
			},
		},
		Incomparable: []string{
			"How often the thread's reader read: it does not say. 13.4k commands are 484 rounds of 27.7, so about 37 a second; the row of 37 reads/s is where the thread's figures fall on the curve.",
			"Commands per round are those of this driver: 3 for the physical function, 2 for a virtual one, 1 for a representor.",
			"Latencies of commands are those of the model's firmware, set by a knob.",
		},
		Check:   func(knobs map[string]string) error { _, err := parse(knobs); return err },
		Measure: measure,
		Effect:  effect,
		Plot:    plot,
	}
}

// setting is the knobs, parsed.
type setting struct {
	interval  time.Duration
	switchdev bool
	vfs       int
	rates     []int
	readers   []int
	latency   time.Duration
	duration  time.Duration
}

// Limits of knobs. A rate of more than maxRate is more than tickers keep up with.
const (
	maxVFs, maxRate, maxReaders = 8, 1000, 10_000
	threadRate                  = 37
)

func parse(knobs map[string]string) (p setting, err error) {
	p.switchdev = knobs["eswitch"] == "switchdev"
	if p.interval, err = time.ParseDuration(knobs["interval"]); err != nil {
		return p, err
	}
	if p.vfs, err = number("vfs", knobs["vfs"], maxVFs); err != nil {
		return p, err
	}
	list := func(name string, most int) (all []int, err error) {
		for field := range strings.SplitSeq(knobs[name], ",") {
			n, err := number(name, field, most)
			if err != nil {
				return nil, err
			}
			all = append(all, n)
		}
		return all, nil
	}
	if p.rates, err = list("rates", maxRate); err != nil {
		return p, err
	}
	if p.readers, err = list("readers", maxReaders); err != nil {
		return p, err
	}
	if p.latency, err = time.ParseDuration(knobs["latency"]); err != nil || p.latency < 0 || p.latency > time.Second {
		return p, fmt.Errorf("latency=%s: want a time up to 1s, such as 100us", knobs["latency"])
	}
	if p.duration, err = time.ParseDuration(knobs["duration"]); err != nil || p.duration < time.Second || p.duration > time.Minute {
		return p, fmt.Errorf("duration=%s: want a time of 1s to 1m", knobs["duration"])
	}
	return p, nil
}

func number(name, text string, most int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%s=%s: want numbers from 1 to %d", name, text, most)
	}
	return n, nil
}

// measure makes the curve over rates, then that over readers.
func measure(ctx context.Context, s lab.Setting) (m lab.Measured, err error) {
	p, err := parse(s.Knobs)
	if err != nil {
		return m, err
	}
	// What is drawn: how much longer than the knob says each measurement takes, in ms.
	more := s.Rand.IntN(200)
	p.duration += time.Duration(more) * time.Millisecond
	m = lab.Measured{
		Drawn: map[string]int{"ms that measurements take longer": more},
		Rows: report.Table{Columns: []string{
			colRate, colReaders, colReads, colCommands, colRound, colRounds, col13s, colAge, colP50, colP99, colSeconds,
		}},
	}
	b, err := newBench(ctx, p)
	defer func() { err = errors.Join(err, b.close()) }()
	if err != nil {
		return m, err
	}
	add := func(rate, readers int) error {
		o, err := b.run(ctx, p, rate, readers)
		if err != nil {
			return err
		}
		m.Rows.Add(rate, readers, o.reads, o.answered, b.perRound, float64(o.answered)/float64(b.perRound),
			float64(o.answered)*threadSeconds/o.took.Seconds(), o.age, o.quantile(50), o.quantile(99), o.took.Seconds())
		m.Agreements = append(m.Agreements, lab.Agreement{
			What:   fmt.Sprintf("commands, %d reads/s of %d", rate, readers),
			First:  lab.Count{By: "the card's answers", Value: o.answered},
			Second: lab.Count{By: "the drivers' command tables", Value: o.tallied},
		})
		return nil
	}
	for _, rate := range p.rates {
		if err := add(rate, 1); err != nil {
			return m, err
		}
	}
	for _, n := range p.readers {
		if err := add(threadRate, n); err != nil {
			return m, err
		}
	}
	return m, nil
}

// effect: however often and however many read, rounds are 200 ms apart. One round more than fits is under way
// at each end.
func effect(m lab.Measured) (shown bool, words string) {
	const perSecond = 5
	shown = true
	most, at := 0.0, 0
	for i := range m.Rows.Rows {
		rounds, seconds := m.Rows.Float(i, colRounds), m.Rows.Float(i, colSeconds)
		if rounds > perSecond*seconds+2 {
			shown = false
		}
		if r := rounds / seconds; r > most {
			most, at = r, i
		}
	}
	return shown, fmt.Sprintf("at most %.1f rounds a second, with %.0f reads a second of %.0f readers",
		most, m.Rows.Float(at, colRate), m.Rows.Float(at, colReaders))
}

func plot(before, after lab.Measured) report.Plot {
	p := report.Plot{Title: "Firmware commands in 13 s", Y: "commands", Series: lab.BeforeAndAfter(before, after, col13s)}
	for i := range after.Rows.Rows {
		p.Groups = append(p.Groups, fmt.Sprintf("%.0f/s x %.0f", after.Rows.Float(i, colRate), after.Rows.Float(i, colReaders)))
	}
	return p
}
