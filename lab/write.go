package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"cxkit/lab/report"
)

// Write puts result.json, before.csv, after.csv and plot.svg into a folder, which is made if need be.
func (r *Result) Write(dir string, p report.Plot) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	return errors.Join(
		writeFile(dir, "result.json", func(w io.Writer) error {
			e := json.NewEncoder(w)
			e.SetIndent("", "  ")
			return e.Encode(r)
		}),
		writeFile(dir, "before.csv", r.Comparison.Before.Rows.WriteCSV),
		writeFile(dir, "after.csv", r.Measured.Rows.WriteCSV),
		writeFile(dir, "plot.svg", p.WriteSVG),
	)
}

func writeFile(dir, name string, write func(io.Writer) error) error {
	f, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	return errors.Join(write(f), f.Close())
}

// WriteText prints the result for people.
func (r *Result) WriteText(w io.Writer) error {
	p := &printer{w: w}
	p.printf("%s: %s\n", r.Experiment, r.About)
	p.printf("seed %d, %s/%s, %d CPUs, %s, %.1f s\n", r.Seed, r.Machine.OS, r.Machine.Arch, r.Machine.CPUs, r.Machine.Go, r.Took)
	for _, name := range slices.Sorted(maps.Keys(r.Knobs)) {
		p.printf("  %s=%s\n", name, r.Knobs[name])
	}
	for _, name := range slices.Sorted(maps.Keys(r.Measured.Drawn)) {
		p.printf("  %s: %d, drawn at random\n", name, r.Measured.Drawn[name])
	}
	p.printf("\nbefore: %s\n", r.Comparison.EffectBefore)
	p.table(r.Comparison.Before.Rows)
	p.printf("\nas set: %s\n", r.Comparison.EffectAfter)
	p.table(r.Measured.Rows)
	p.printf("\ncounted twice:\n")
	for _, m := range []Measured{r.Comparison.Before, r.Measured} {
		for _, a := range m.Agreements {
			p.printf("  %s: %d by %s, %d by %s\n", a.What, a.First.Value, a.First.By, a.Second.Value, a.Second.By)
		}
	}
	p.printf("\nthe thread (%s; %s):\n", r.Thread.Source, r.Thread.Conditions)
	for _, name := range slices.Sorted(maps.Keys(r.Thread.Figures)) {
		p.printf("  %s: %s\n", name, r.Thread.Figures[name])
	}
	p.printf("\nnot comparable:\n")
	for _, text := range r.Comparison.Incomparable {
		p.printf("  %s\n", text)
	}
	if r.Comparison.SelfCheck != "" {
		p.printf("\nself-check %s\n", r.Comparison.SelfCheck)
	}
	return p.err
}

// printer keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

func (p *printer) table(t report.Table) {
	if p.err == nil {
		p.err = t.WriteText(p.w)
	}
}
