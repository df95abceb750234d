// Command reclaim measures how Linux takes firmware pages back, with and without a limit of 50,000 pages a command:
//
//	go run ./examples/kernel/reclaim                               1.3 million pages, both kernels: docs/lab/linux-reclaim.md
//	go run ./examples/kernel/reclaim -kernels 6.12 -pages 100000   a minute
//
// For each kernel it boots Debian's own mlx5_core and one that an edit changed, and fails if a count is not what
// arithmetic says.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"cxkit/examples/kernel/study"
)

//go:embed guest.sh
var script string

// takeLimit is how many pages firmware gives back with one command, and the limit of the thread.
const takeLimit = 50_000

// perMailbox is how many addresses of pages a mailbox holds: 512 bytes, 8 an address.
const perMailbox = 64

// variant is one driver to measure.
type variant struct {
	kernel, module, patch string
	limit                 int // 0 is none
}

// variants are a kernel's two drivers, the one without a limit first.
func variants(kernel string) ([]variant, error) {
	const edits = "examples/kernel/edits/"
	switch kernel {
	case "6.1": // before 501c3005f031
		return []variant{
			{kernel: kernel, module: "Debian's"},
			{kernel: kernel, module: "edited", patch: edits + "reclaim-limit.sed", limit: takeLimit},
		}, nil
	case "6.12": // has it
		return []variant{
			{kernel: kernel, module: "edited", patch: edits + "reclaim-no-limit.sed"},
			{kernel: kernel, module: "Debian's", limit: takeLimit},
		}, nil
	}
	return nil, fmt.Errorf("kernel %q: there are edits for 6.1 and 6.12", kernel)
}

// outcome is what one guest measured.
type outcome struct {
	variant
	release string
	rounds  []study.Round
	stall   study.Stall
	stalls  int // how often the kernel said that a processor is stuck
	storm   storm
}

// storm is what the card counted: cxkit ctl reclaim --json.
type storm struct {
	Hoarded  int           `json:"hoarded"`
	Gives    int           `json:"gives"`
	Takes    int           `json:"takes"`
	Returned int           `json:"returned"`
	Filled   time.Duration `json:"filled_ns"`
	Took     time.Duration `json:"took_ns"`
}

func main() {
	pages := flag.Int("pages", 1_300_000, "pages that firmware gets and gives back")
	kernels := flag.String("kernels", "6.1,6.12", "kernels to measure")
	out := flag.String("out", "", "file for the report; standard output if empty")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *pages, strings.Split(*kernels, ","), *out); err != nil {
		fmt.Fprintln(os.Stderr, "reclaim:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, pages int, kernels []string, out string) (err error) {
	if pages < 1 || pages > 1_400_000 {
		return fmt.Errorf("-pages %d: want 1 to 1,400,000, what a guest of 7 GiB has", pages)
	}
	var all []variant
	for _, k := range kernels {
		v, err := variants(k)
		if err != nil {
			return err
		}
		all = append(all, v...)
	}
	b, err := study.Open(ctx, os.Stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	var outcomes []outcome
	for _, v := range all {
		fmt.Fprintf(os.Stderr, "kernel %s, %s mlx5_core, limit %s\n", v.kernel, v.module, limitText(v.limit))
		o, err := measure(ctx, b, v, pages)
		if err != nil {
			return err
		}
		outcomes = append(outcomes, o)
	}
	return study.Report(out, func(w io.Writer) error { return report(w, pages, outcomes) })
}

// measure boots one driver.
func measure(ctx context.Context, b *study.Bench, v variant, pages int) (outcome, error) {
	o := outcome{variant: v}
	frees := mailboxes(pages, v.limit, takeLimit).total
	// A page of 4 KiB each, and what the kernel writes down of it; a record of a traced call takes 80 bytes.
	mem := max(1024, 768+pages*4200/(1<<20)*115/100)
	buffer := max(4096, frees*120/1024)
	answers := make(chan error, 1)
	results, err := b.Run(ctx, study.Guest{
		Kernel: v.kernel, Patch: v.patch,
		Script: fmt.Sprintf("pages=%d buffer=%d\n%s", pages, buffer, script),
		Flags:  []string{"--mem", fmt.Sprint(mem), "--limit", "30m", "--append", "preempt=none"},
		Host: func(ctx context.Context, words []string) error {
			go func() { answers <- o.provoke(ctx, b, words) }()
			return nil
		},
	})
	if err != nil {
		return o, err
	}
	select {
	case err = <-answers:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	err = errors.Join(err, results.Get("rounds", &o.rounds), results.Get("stall", &o.stall), results.Get("stalls", &o.stalls), results.Get("kernel", &o.release))
	if err == nil {
		err = o.check(pages)
	}
	if err != nil {
		return o, fmt.Errorf("kernel %s, %s: %w", v.kernel, v.module, err)
	}
	return o, nil
}

// provoke is what the guest asks the host for.
func (o *outcome) provoke(ctx context.Context, b *study.Bench, words []string) error {
	if len(words) != 2 || words[0] != "reclaim" {
		return fmt.Errorf("the guest asks for %q", words)
	}
	out, err := b.Ctl(ctx, "--json", "reclaim", words[1], "--wait", "25m")
	if err != nil {
		return err
	}
	return json.Unmarshal(out, &o.storm)
}

// counts are what arithmetic says.
type counts struct{ rounds, first, total int }

// mailboxes says how many mailboxes a driver uses for its answers, with a limit (0 is none), if firmware gives
// back so many pages a command and offers the rest again.
func mailboxes(pages, limit, firmware int) counts {
	var c counts
	for pages > 0 {
		ask := pages
		if limit > 0 {
			ask = min(ask, limit)
		}
		n := (ask + perMailbox - 1) / perMailbox
		if c.rounds == 0 {
			c.first = n
		}
		c.rounds++
		c.total += n
		pages -= min(ask, firmware)
	}
	return c
}

// check holds what was traced against arithmetic and against what the card counted.
func (o *outcome) check(pages int) error {
	want := mailboxes(pages, o.limit, takeLimit)
	total := 0
	for _, r := range o.rounds {
		total += r.Frees.N
	}
	switch {
	case o.storm.Returned != pages:
		return fmt.Errorf("the card got %d pages and gave back %d, want %d", o.storm.Hoarded, o.storm.Returned, pages)
	case len(o.rounds) != want.rounds || o.storm.Takes != want.rounds:
		return fmt.Errorf("%d rounds traced and %d commands counted by the card, want %d", len(o.rounds), o.storm.Takes, want.rounds)
	case o.rounds[0].Frees.N != want.first || total != want.total:
		return fmt.Errorf("%d mailboxes freed after the first command and %d after all, want %d and %d", o.rounds[0].Frees.N, total, want.first, want.total)
	}
	return nil
}
