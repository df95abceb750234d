package main

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"cxkit/lab"
	"cxkit/lab/exp"
)

// labCommand is `cxkit lab`.
type labCommand struct {
	List labList `cmd:"" help:"List the experiments and their knobs."`
	Run  labRun  `cmd:"" help:"Run an experiment."`
}

// Help is what cxkit lab --help adds.
func (labCommand) Help() string {
	return `Experiments reproduce with before/after knobs what kernel threads measured on hardware. Each runs twice,
as set and with its change at 'before', where the effect must be absent; what it claims is counted by two
counters that don't know each other.

Examples:
  cxkit lab list
  cxkit lab run submit --out results
  cxkit lab run submit --set functions=1,12 --set latency=1ms`
}

type labList struct{}

func (labList) Run(w *world) error {
	for _, e := range exp.All() {
		fmt.Fprintf(w.out, "%s: %s\n", e.Name, e.About)
		t := tabwriter.NewWriter(w.out, 0, 0, 2, ' ', 0)
		for _, k := range e.Knobs {
			values := ""
			if len(k.Values) != 0 {
				values = " (" + strings.Join(k.Values, ", ") + ")"
			}
			fmt.Fprintf(t, "  %s=%s\t%s%s\n", k.Name, k.Default, k.Help, values)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return nil
}

type labRun struct {
	Name string            `arg:"" help:"The experiment."`
	Set  map[string]string `placeholder:"KNOB=VALUE" mapsep:"none" help:"Set a knob (repeatable)."`
	Out  string            `placeholder:"DIR" type:"path" help:"Write result.json, CSV and plot.svg into a folder."`
	Full bool              `help:"Larger defaults, and all the time they need; without it a run ends within 50 s."`
	Seed uint64            `help:"Seed of what is drawn at random (default: another one each run)."`
	JSON bool              `name:"json" help:"Print result.json instead of tables."`
}

// Help is what cxkit lab run --help adds.
func (labRun) Help() string {
	return `Exit codes: 0 done; 1 failed: counters that disagree, an effect that is missing or that is there without
the change, or no time left; 2 wrong usage.`
}

// Run runs an experiment. The result is printed and written even if the run failed, as far as it goes.
func (l labRun) Run(w *world) error {
	var e *lab.Experiment
	for _, x := range exp.All() {
		if x.Name == l.Name {
			e = x
		}
	}
	if e == nil {
		return usagef("no experiment %s: cxkit lab list", l.Name)
	}
	if l.Seed == 0 {
		var b [4]byte // short enough to be typed again
		rand.Read(b[:])
		l.Seed = uint64(binary.BigEndian.Uint32(b[:])) | 1
	}
	r, err := lab.Do(w.ctx, e, lab.Options{Set: l.Set, Seed: l.Seed, Full: l.Full})
	if r == nil {
		return usageError{err}
	}
	if err != nil && w.ctx.Err() != nil {
		return errInterrupted
	}
	if l.Out != "" && len(r.Measured.Rows.Rows) != 0 {
		err = errors.Join(err, r.Write(l.Out, e.Plot(r.Comparison.Before, r.Measured)))
	}
	if l.JSON {
		err = errors.Join(err, writeJSON(w.out, r))
	} else {
		err = errors.Join(err, r.WriteText(w.out))
	}
	return err
}
