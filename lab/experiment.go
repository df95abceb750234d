package lab

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"cxkit/lab/report"
)

// Experiment is one question, asked with knobs. All fields but Check are set.
type Experiment struct {
	Name  string
	About string
	Knobs []Knob
	// Change is the name of the knob whose value is the change of the thread: it has Before and After.
	Change string
	// Thread is what the kernel thread measured.
	Thread Thread
	// Incomparable says what of the thread's figures this can't reproduce, and why.
	Incomparable []string
	// Check finds what is wrong with the values of knobs that have no list of them; nil: nothing can be.
	Check func(knobs map[string]string) error
	// Measure runs once with the knobs as set.
	Measure func(ctx context.Context, s Setting) (Measured, error)
	// Effect tells whether a measurement shows what the change is claimed to do, and in words what it
	// shows.
	Effect func(m Measured) (shown bool, words string)
	// Plot is the figure of a result's rows; before are those of the self-check.
	Plot func(before, after Measured) report.Plot
}

// Knob is what can be set with --set NAME=VALUE.
type Knob struct {
	Name, Help string
	Default    string
	Full       string   // the default with --full; Default if empty
	Values     []string // all that may be set; anything that Measure takes if empty
	// Before and After are the values of the knob of the change.
	Before, After string
}

// Thread is what a kernel thread measured.
type Thread struct {
	Source     string            `json:"source"`
	Conditions string            `json:"conditions"`
	Figures    map[string]string `json:"figures"`
}

// Setting is the knobs of one measurement.
type Setting struct {
	Knobs map[string]string
	// Rand is what a measurement draws its random input from.
	Rand *rand.Rand
}

// Measured is what one measurement found.
type Measured struct {
	// Drawn is the input that was drawn at random.
	Drawn map[string]int `json:"drawn"`
	// Rows are the figures.
	Rows report.Table `json:"rows"`
	// Agreements are what was counted twice.
	Agreements []Agreement `json:"agreements"`
}

// Agreement is one quantity, counted by two counters that don't know each other.
type Agreement struct {
	What   string `json:"what"`
	First  Count  `json:"first"`
	Second Count  `json:"second"`
}

// Count is what a counter says.
type Count struct {
	By    string `json:"by"`
	Value uint64 `json:"value"`
}

// check reports a disagreement.
func (a Agreement) check() error {
	if a.First.Value != a.Second.Value {
		return fmt.Errorf("%s: %d by %s, but %d by %s", a.What, a.First.Value, a.First.By, a.Second.Value, a.Second.By)
	}
	return nil
}

// knobs gives every knob its value: what is set, else the default.
func (e *Experiment) knobs(set map[string]string, full bool) (map[string]string, error) {
	values := map[string]string{}
	for _, k := range e.Knobs {
		values[k.Name] = k.Default
		if full && k.Full != "" {
			values[k.Name] = k.Full
		}
	}
	for name, value := range set {
		i := slices.IndexFunc(e.Knobs, func(k Knob) bool { return k.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("%s has no knob %s: it has %s", e.Name, name, e.knobNames())
		}
		if k := e.Knobs[i]; len(k.Values) != 0 && !slices.Contains(k.Values, value) {
			return nil, fmt.Errorf("%s=%s: want one of %s", name, value, strings.Join(k.Values, ", "))
		}
		values[name] = value
	}
	if e.Check != nil {
		return values, e.Check(values)
	}
	return values, nil
}

// CheckBy makes an Experiment's Check of the function with which its Measure reads the knobs.
func CheckBy[T any](parse func(Setting) (T, error)) func(knobs map[string]string) error {
	return func(knobs map[string]string) error {
		_, err := parse(Setting{Knobs: knobs, Rand: rand.New(rand.NewPCG(0, 0))})
		return err
	}
}

func (e *Experiment) knobNames() string {
	var names []string
	for _, k := range e.Knobs {
		names = append(names, k.Name)
	}
	return strings.Join(names, ", ")
}

// change is the knob of the change.
func (e *Experiment) change() Knob {
	return e.Knobs[slices.IndexFunc(e.Knobs, func(k Knob) bool { return k.Name == e.Change })]
}

// BeforeAndAfter makes two series of each column, one a measurement, as plots of experiments show them.
// Column names end in their unit, which the legend leaves out.
func BeforeAndAfter(before, after Measured, columns ...string) []report.Series {
	var all []report.Series
	for _, c := range columns {
		for _, side := range []struct {
			name string
			m    Measured
		}{{"before", before}, {"as set", after}} {
			s := report.Series{Name: side.name + ", " + strings.TrimSuffix(c, " ns")}
			for i := range side.m.Rows.Rows {
				s.Values = append(s.Values, side.m.Rows.Float(i, c))
			}
			all = append(all, s)
		}
	}
	return all
}
