// Command commands measures who hands firmware commands to the card in Linux, a worker of an ordered queue or the
// caller, while loops of `ethtool -S` run:
//
//	go run ./examples/kernel/commands                 32 loops: docs/lab/linux-commands.md
//	go run ./examples/kernel/commands -rounds 2       a minute
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
	"time"

	"cxkit/examples/kernel/ftrace"
	"cxkit/examples/kernel/study"
)

//go:embed guest.sh
var script string

// edit is the change that has callers issue their commands.
const edit = "examples/kernel/edits/commands-in-caller.sed"

// maxReads bounds the processes that the kernel's table of times has room for.
const maxReads = 20_000

// outcome is what one guest counted.
type outcome struct {
	module   string
	release  string
	commands int // by the driver's table of commands
	failed   int
	warnings int
	seconds  float64
	items    int            // cmd_work_handler, by the workqueue's trace event
	latency  []ftrace.Entry // of mlx5_cmd_do, by kprobes, in powers of two of ns
}

func main() {
	loops := flag.Int("loops", 32, "loops of ethtool -S")
	rounds := flag.Int("rounds", 20, "how often each reads")
	kernel := flag.String("kernel", "6.12", "kernel to measure")
	out := flag.String("out", "", "file for the report; standard output if empty")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *kernel, *loops, *rounds, *out); err != nil {
		fmt.Fprintln(os.Stderr, "commands:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kernel string, loops, rounds int, out string) (err error) {
	if loops < 1 || loops > 128 || rounds < 1 || rounds > maxReads/loops {
		return fmt.Errorf("-loops %d -rounds %d: want 1 to 128, and %d reads at most", loops, rounds, maxReads)
	}
	b, err := study.Open(ctx, os.Stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	var outcomes []outcome
	for _, o := range []outcome{{module: "Debian's"}, {module: "edited"}} {
		fmt.Fprintf(os.Stderr, "kernel %s, %s mlx5_core\n", kernel, o.module)
		if err := o.measure(ctx, b, kernel, loops, rounds); err != nil {
			return fmt.Errorf("kernel %s, %s mlx5_core: %w", kernel, o.module, err)
		}
		outcomes = append(outcomes, o)
	}
	return study.Report(out, func(w io.Writer) error { return report(w, kernel, loops, rounds, outcomes) })
}

// measure boots one driver.
func (o *outcome) measure(ctx context.Context, b *study.Bench, kernel string, loops, rounds int) error {
	patch := ""
	if o.module == "edited" {
		patch = edit
	}
	r, err := b.Run(ctx, study.Guest{
		Kernel: kernel, Patch: patch, Script: fmt.Sprintf("loops=%d rounds=%d\n%s", loops, rounds, script),
		Flags: []string{"--limit", "20m"},
	})
	if err != nil {
		return err
	}
	var work []ftrace.Entry
	err = errors.Join(r.Get("commands", &o.commands), r.Get("failed", &o.failed), r.Get("warnings", &o.warnings), r.Get("seconds", &o.seconds),
		r.Get("kernel", &o.release), r.Get("hist /tmp/work", &work), r.Get("hist /tmp/latency", &o.latency))
	if err != nil {
		return err
	}
	o.items = items(work)
	return o.check(loops * rounds)
}

// items are the work items of commands.
func items(work []ftrace.Entry) (n int) {
	for _, e := range work {
		if strings.Contains(e.Key, "cmd_work_handler") && strings.Contains(e.Key, "mlx5_cmd_") {
			n += int(e.Hits)
		}
	}
	return n
}

// timed is how many commands kprobes saw, and how long all of them took.
func (o *outcome) timed() (n int, sum time.Duration) {
	for _, e := range o.latency {
		n += int(e.Hits)
		sum += time.Duration(e.Sums["lat"])
	}
	return n, sum
}

// check holds the counts against one another.
func (o *outcome) check(reads int) error {
	timed, _ := o.timed()
	switch {
	case o.failed > 0 || o.warnings > 0:
		return fmt.Errorf("%d commands or reads failed, and the kernel warned %d times", o.failed, o.warnings)
	case o.commands < reads:
		return fmt.Errorf("%d commands for %d reads of all counters", o.commands, reads)
	case timed != o.commands:
		return fmt.Errorf("the driver counted %d commands, kprobes %d", o.commands, timed)
	case o.module == "edited" && o.items != 0:
		return fmt.Errorf("%d work items for %d commands; want none: callers issue them", o.items, o.commands)
	case o.module != "edited" && o.items != o.commands:
		return fmt.Errorf("%d work items for %d commands; want one each", o.items, o.commands)
	}
	return nil
}

// quantile is the end of the bin in which a share of the commands, from 0 to 1, ends.
func (o *outcome) quantile(share float64) (time.Duration, error) {
	var bins [64]uint64
	var all, seen uint64
	for _, e := range o.latency {
		i, err := ftrace.PowerOfTwo(e.Key)
		if err != nil {
			return 0, err
		}
		bins[i] += e.Hits
		all += e.Hits
	}
	for i, n := range bins {
		if seen += n; n > 0 && float64(seen) >= share*float64(all) {
			return time.Duration(1) << min(i, 62), nil
		}
	}
	return 0, errors.New("no command was timed")
}
