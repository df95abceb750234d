// Command stats measures what readers of /proc/net/dev cost in firmware commands in Linux, with and without 200 ms
// between refreshes of an interface:
//
//	go run ./examples/kernel/stats                one reader and 32 for 13 s: docs/lab/linux-stats.md
//
// It boots Debian's own mlx5_core and one that an edit changed, and fails if what was counted disagrees.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"cxkit/examples/kernel/ftrace"
	"cxkit/examples/kernel/study"
)

//go:embed guest.sh
var script string

// edit is the change that keeps refreshes apart.
const edit = "examples/kernel/edits/stats-interval.sed"

// row is what one number of readers cost.
type row struct {
	module           string
	readers          int
	reads            int
	commands, probed int // by the driver's table, by kprobes
	refreshes        int // of the interface, by the workqueue's trace event
	seconds          float64
}

func main() {
	readers := flag.Int("readers", 32, "readers, beside one")
	rate := flag.Int("rate", 37, "how often each reads in a second")
	seconds := flag.Int("seconds", 13, "for how long")
	out := flag.String("out", "", "file for the report; standard output if empty")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *readers, *rate, *seconds, *out); err != nil {
		fmt.Fprintln(os.Stderr, "stats:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, readers, rate, seconds int, out string) (err error) {
	if readers < 2 || readers > 1000 || rate < 1 || rate > 1000 || seconds < 1 || seconds > 600 {
		return fmt.Errorf("-readers %d -rate %d -seconds %d: want 2 to 1,000, 1 to 1,000, 1 to 600", readers, rate, seconds)
	}
	b, err := study.Open(ctx, os.Stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	var (
		rows    []row
		release string
	)
	for _, module := range []string{"Debian's", "edited"} {
		fmt.Fprintf(os.Stderr, "%s mlx5_core\n", module)
		g := study.Guest{
			Kernel: "6.12", Script: fmt.Sprintf("readers=%d rate=%d seconds=%d\n%s", readers, rate, seconds, script),
			Flags: []string{"--limit", "25m"},
		}
		if module == "edited" {
			g.Patch = edit
		}
		r, err := b.Run(ctx, g)
		if err != nil {
			return err
		}
		var warnings int
		if err := errors.Join(r.Get("warnings", &warnings), r.Get("kernel", &release)); err != nil {
			return err
		}
		if warnings > 0 {
			return fmt.Errorf("%s mlx5_core: the kernel warned %d times", module, warnings)
		}
		for _, n := range []int{1, readers} {
			v := row{module: module, readers: n}
			if err := v.read(r); err != nil {
				return fmt.Errorf("%s mlx5_core, %d readers: %w", module, n, err)
			}
			rows = append(rows, v)
		}
	}
	w := io.Writer(os.Stdout)
	if out != "" {
		f, err := os.Create(out)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		w = f
	}
	return report(w, release, fmt.Sprintf("-readers %d -rate %d -seconds %d", readers, rate, seconds), rows)
}

// read takes a row out of a guest's results.
func (v *row) read(r study.Results) error {
	var probed, work []ftrace.Entry
	err := errors.Join(
		r.Get(fmt.Sprintf("commands %d", v.readers), &v.commands), r.Get(fmt.Sprintf("reads %d", v.readers), &v.reads),
		r.Get(fmt.Sprintf("seconds %d", v.readers), &v.seconds),
		r.Get(fmt.Sprintf("hist /tmp/commands-%d", v.readers), &probed), r.Get(fmt.Sprintf("hist /tmp/work-%d", v.readers), &work))
	if err != nil {
		return err
	}
	for _, e := range probed {
		v.probed += int(e.Hits)
	}
	for _, e := range work {
		if strings.Contains(e.Key, "mlx5e_update_stats_work") {
			v.refreshes += int(e.Hits)
		}
	}
	return v.check()
}

// check holds the counts against one another. Refreshes are queued once at most in 200 ms with the edit, and on the
// first read.
func (v *row) check() error {
	switch {
	case v.commands != v.probed:
		return fmt.Errorf("the driver counted %d commands, kprobes %d", v.commands, v.probed)
	case v.refreshes < 1 || v.commands < v.refreshes:
		return fmt.Errorf("%d refreshes with %d commands", v.refreshes, v.commands)
	case v.module == "edited" && float64(v.refreshes) > v.seconds*5+2:
		return fmt.Errorf("%d refreshes in %.1f s: more than one in 200 ms", v.refreshes, v.seconds)
	}
	return nil
}
