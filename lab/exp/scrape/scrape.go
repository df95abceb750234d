package scrape

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"cxkit/device"
	"cxkit/driver"
	"cxkit/internal/rig"
	"cxkit/lab"
	"cxkit/lab/report"
	"cxkit/metrics"
)

// Columns of the rows.
const (
	colQueues  = "queues"
	colScrapes = "scrapes"
	colSamples = "samples a scrape"
	colBytes   = "bytes a scrape"
	colBest    = "best ns"
	colMedian  = "median ns"
	colRounds  = "commands a scrape"
)

// fewSamples is what a scrape has at most however many queues there are.
const fewSamples = 1000

// Experiment compares scrapes with and without the counters of queues.
func Experiment() *lab.Experiment {
	return &lab.Experiment{
		Name:   "scrape",
		About:  "what a scrape of a card with many queues costs",
		Change: "samples",
		Knobs: []lab.Knob{
			{Name: "samples", Help: "of every queue, or sums over queues only", Default: "sums",
				Values: []string{"queues", "sums"}, Before: "queues", After: "sums"},
			{Name: "queues", Help: "receive and transmit queues, 32 to 256", Default: "128"},
		},
		Thread: lab.Thread{
			Source:     "prometheus/node_exporter 2096, 1832, 2966",
			Conditions: "Mellanox cards with many queues under the ethtool collector",
			Figures: map[string]string{
				"entries of one device":           "674; 10,196 of 17,738 metrics were ethtool's",
				"metrics of one card":             "6,500 in 0.05 s",
				"ethtool collector, large server": "1.22 s",
			},
		},
		Incomparable: []string{
			"Times of the exporter: ethtool asks firmware for every group during a scrape; here a scrape reads what was read before, and firmware is asked behind its back.",
			"How many counters a queue has: Linux prints 77 a channel, this driver those that mean something to it.",
		},
		Check:   func(knobs map[string]string) error { _, err := parse(knobs); return err },
		Measure: measure,
		Effect:  effect,
		Plot: func(before, after lab.Measured) report.Plot {
			return report.Plot{Title: "A scrape", Y: "samples", Groups: []string{"samples a scrape"}, Series: lab.BeforeAndAfter(before, after, colSamples)}
		},
	}
}

func parse(knobs map[string]string) (queues int, err error) {
	if queues, err = strconv.Atoi(knobs["queues"]); err != nil || queues < 32 || queues > driver.MaxQueues {
		return 0, fmt.Errorf("queues=%s: want 32 to %d", knobs["queues"], driver.MaxQueues)
	}
	return queues, nil
}

func measure(ctx context.Context, s lab.Setting) (m lab.Measured, err error) {
	queues, err := parse(s.Knobs)
	if err != nil {
		return m, err
	}
	scrapes := 20 + s.Rand.IntN(20)
	m = lab.Measured{
		Drawn: map[string]int{"scrapes": scrapes},
		Rows:  report.Table{Columns: []string{colQueues, colScrapes, colSamples, colBytes, colBest, colMedian, colRounds}},
	}
	r, err := rig.New(rig.Config{Device: device.Config{Seed: 1}})
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	f, err := r.Function(0)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	nic, err := driver.Open(ctx, f, driver.Config{Queues: queues, RxRing: 64, TxRing: 64})
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, nic.Close(context.WithoutCancel(ctx))) }()
	info := nic.Info()
	server, err := metrics.Serve("127.0.0.1:0", metrics.NewCollector(metrics.Options{Queues: s.Knobs["samples"] == "queues"}, metrics.Target{
		Device: info.Address, Port: "1", Model: info.Model, Firmware: info.Firmware.String(),
		Counters: nic.QuickAllStats, Commands: nic.CommandStats, Health: nic.Health, Pages: nic.FunctionPages,
	}))
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, server.Close()) }()

	// A first one, and a reading of all groups: which opcodes there are does not change any more.
	if _, err := nic.Stats(ctx); err != nil {
		return m, err
	}
	// Firmware stands still: what a scrape gets it gets without it.
	if err := r.Stop(); err != nil {
		return m, err
	}
	defer r.Start()
	before := nic.CommandStats().Issued
	var times []time.Duration
	var body []byte
	for range scrapes {
		began := time.Now()
		if body, err = get(ctx, "http://"+server.Addr()+"/metrics"); err != nil {
			return m, err
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	issued := nic.CommandStats().Issued - before
	samples, expected := count(body, s.Knobs["samples"] == "queues", len(nic.SoftwareStats().Counters), queues)
	m.Rows.Add(queues, scrapes, samples, len(body), times[0], times[len(times)/2], float64(issued)/float64(scrapes))
	m.Agreements = []lab.Agreement{{
		What:   "samples of the driver's own counters",
		First:  lab.Count{By: "lines of the scrape", Value: uint64(expected.lines)},
		Second: lab.Count{By: "the driver's list", Value: uint64(expected.listed)},
	}}
	return m, nil
}

func get(ctx context.Context, url string) (body []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, answer.Body.Close()) }()
	if body, err = io.ReadAll(answer.Body); err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("scrape: %s: %.200s", answer.Status, body)
	}
	return body, err
}

// own counts the samples of the counters that the driver keeps.
type own struct{ lines, listed int }

// count counts the samples of a scrape; own compares those of queues with the driver's list.
func count(body []byte, perQueue bool, software, queues int) (samples int, o own) {
	for line := range bytes.Lines(body) {
		if bytes.HasPrefix(line, []byte("#")) {
			continue
		}
		samples++
		if strings.HasPrefix(string(line), "mlx5_queue_") {
			o.lines++
		}
	}
	if perQueue {
		o.listed = software - software%queues // the sums are fewer than queues
	}
	return samples, o
}

// effect: a scrape stays small, whatever the number of queues, and waits for no command.
func effect(m lab.Measured) (shown bool, words string) {
	samples, commands, scrapes := m.Rows.Float(0, colSamples), m.Rows.Float(0, colRounds), m.Rows.Float(0, colScrapes)
	return samples < fewSamples && commands*scrapes <= 1,
		fmt.Sprintf("%.0f samples of %.0f queues in %v at best, with firmware that stands still", samples, m.Rows.Float(0, colQueues),
			time.Duration(m.Rows.Float(0, colBest)).Round(10*time.Microsecond))
}
