package flr

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"cxkit/lab"
	"cxkit/lab/report"
)

// Columns of the rows.
const (
	colPages    = "pages"
	colCommands = "commands"
	colTook     = "took ns"
)

// Experiment compares the two ways.
func Experiment() *lab.Experiment {
	return &lab.Experiment{
		Name:   "flr",
		About:  "pages of functions that are reset come back all at once, or page by page",
		Change: "release",
		Knobs: []lab.Knob{
			{Name: "release", Help: "how pages come back", Default: "all", Values: []string{"page", "all"}, Before: "page", After: "all"},
			{Name: "functions", Help: "functions that are reset together", Default: "4"},
			{Name: "pages", Help: "pages of each", Default: "20000", Full: "200000"},
			{Name: "latency", Help: "how long firmware takes for a page command", Default: "1ms"},
		},
		Thread: lab.Thread{
			Source:     "net/mlx5: Release all pages (c6168161f693)",
			Conditions: "ConnectX-4 Lx, 4 VFs reset together",
			Figures:    map[string]string{"time": "3.18 s page by page, 0.31 s all at once"},
		},
		Incomparable: []string{"Times: firmware's latency is a knob. Only that no command is needed is claimed."},
		Check:        lab.CheckBy(parse),
		Measure:      measureKnobs,
		Effect: func(m lab.Measured) (shown bool, words string) {
			n := m.Rows.Float(0, colCommands)
			return len(m.Rows.Rows) == 1 && n == 0, fmt.Sprintf("%.0f commands for %.0f pages", n, m.Rows.Float(0, colPages))
		},
		Plot: func(before, after lab.Measured) report.Plot {
			return report.Plot{Title: "Pages of functions that are reset", Y: "ns", Groups: []string{"time"}, Series: []report.Series{
				{Name: "before", Values: []float64{before.Rows.Float(0, colTook)}}, {Name: "as set", Values: []float64{after.Rows.Float(0, colTook)}},
			}}
		},
	}
}

func parse(s lab.Setting) (x Setting, err error) {
	x.Seed = s.Rand.Uint64()
	if x.Functions, err = strconv.Atoi(s.Knobs["functions"]); err != nil || x.Functions < 1 || x.Functions > 64 {
		return x, fmt.Errorf("functions=%s: want 1 to 64", s.Knobs["functions"])
	}
	if x.Pages, err = strconv.Atoi(s.Knobs["pages"]); err != nil || x.Pages < 1 || x.Pages > 200_000 {
		return x, fmt.Errorf("pages=%s: want 1 to 200000", s.Knobs["pages"])
	}
	if x.Latency, err = time.ParseDuration(s.Knobs["latency"]); err != nil || x.Latency < 0 {
		return x, fmt.Errorf("latency=%s: want a time such as 1ms", s.Knobs["latency"])
	}
	return x, nil
}

func measureKnobs(ctx context.Context, s lab.Setting) (lab.Measured, error) {
	m := lab.Measured{Drawn: map[string]int{}, Rows: report.Table{Columns: []string{colPages, colCommands, colTook}}}
	x, err := parse(s)
	if err != nil {
		return m, err
	}
	r, err := Measure(ctx, x)
	if err != nil {
		return m, err
	}
	w := r.AllAtOnce
	if s.Knobs["release"] == "page" {
		w = r.ByPage
	}
	m.Rows.Add(x.Functions*x.Pages, w.Commands, w.Took)
	m.Agreements = append(m.Agreements, lab.Agreement{What: "pages that came back",
		First:  lab.Count{By: "the driver's ledger", Value: uint64(w.Freed)},
		Second: lab.Count{By: "what the functions were given", Value: uint64(x.Functions * x.Pages)}})
	return m, r.Check()
}
