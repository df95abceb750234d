// Command stats measures what readers of /proc/net/dev cost in firmware commands in Linux, with and without 200 ms
// between refreshes of an interface:
//
//	go run ./examples/kernel/stats                one reader and 32 for 13 s: docs/lab/linux-stats.md
//	go run ./examples/kernel/stats -vfs 0         without virtual functions and their representors
//
// It boots Debian's own mlx5_core and one that an edit changed, and fails if what was counted disagrees.
package main

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
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
	vfs              int // of the host, in switchdev mode; 0 is legacy mode
	interfaces       int // that are up
	shown            int // by /proc/net/dev, up or not
	readers          int
	reads            int
	commands, probed int // by the driver's table, by kprobes
	refreshes        int // of the interface, by the workqueue's trace event
	seconds          float64
	// counted are, of one run up to its end, the commands that readings cause: by the card, which agrees with the driver.
	counted int
}

func main() {
	readers := flag.Int("readers", 32, "readers, beside one")
	rate := flag.Int("rate", 37, "how often each reads in a second")
	seconds := flag.Int("seconds", 13, "for how long")
	vfs := flag.Int("vfs", 8, "virtual functions of the host in switchdev mode, beside legacy mode; 0 for none")
	out := flag.String("out", "", "file for the report; standard output if empty")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *readers, *rate, *seconds, *vfs, *out); err != nil {
		fmt.Fprintln(os.Stderr, "stats:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, readers, rate, seconds, vfs int, out string) (err error) {
	if readers < 2 || readers > 1000 || rate < 1 || rate > 1000 || seconds < 1 || seconds > 600 || vfs < 0 || vfs > 16 {
		return fmt.Errorf("-readers %d -rate %d -seconds %d -vfs %d: want 2 to 1,000, 1 to 1,000, 1 to 600, 0 to 16", readers, rate, seconds, vfs)
	}
	b, err := study.Open(ctx, os.Stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	modes := []int{0}
	if vfs > 0 {
		modes = append(modes, vfs)
	}
	var (
		rows     []row
		releases []string
	)
	for _, mode := range modes {
		for _, module := range []string{"Debian's", "edited"} {
			fmt.Fprintf(os.Stderr, "%s mlx5_core, %d virtual functions\n", module, mode)
			guest, release, err := measure(ctx, b, module, mode, readers, rate, seconds)
			if err != nil {
				return fmt.Errorf("%s mlx5_core, %d virtual functions: %w", module, mode, err)
			}
			rows = append(rows, guest...)
			if !slices.Contains(releases, release) {
				releases = append(releases, release)
			}
		}
	}
	return study.Report(out, func(w io.Writer) error {
		return report(w, releases, fmt.Sprintf("-readers %d -rate %d -seconds %d -vfs %d", readers, rate, seconds, vfs), rows)
	})
}

// measure boots one driver.
func measure(ctx context.Context, b *study.Bench, module string, vfs, readers, rate, seconds int) (rows []row, release string, err error) {
	dir, err := os.MkdirTemp("", "cxkit-stats-")
	if err != nil {
		return nil, "", err
	}
	defer os.RemoveAll(dir)
	seen := filepath.Join(dir, "trace")
	g := study.Guest{
		Kernel: "6.12", Script: fmt.Sprintf("readers=%d rate=%d seconds=%d vfs=%d\n%s", readers, rate, seconds, vfs, script),
		Flags: []string{"--limit", "25m", "--trace", seen},
	}
	if vfs > 0 {
		g.Kernel = "6.12-full"
		g.Flags = append(g.Flags, "--device", "sim:bf2", "--vfs", strconv.Itoa(vfs))
	}
	if module == "edited" {
		g.Patch = edit
	}
	r, err := b.Run(ctx, g)
	if err != nil {
		return nil, "", err
	}
	var warnings int
	if err := errors.Join(r.Get("warnings", &warnings), r.Get("kernel", &release)); err != nil {
		return nil, "", err
	}
	if warnings > 0 {
		return nil, "", fmt.Errorf("the kernel warned %d times", warnings)
	}
	f, err := os.Open(seen)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	card, err := answered(f)
	if err != nil {
		return nil, "", err
	}
	for _, n := range []int{1, readers} {
		v := row{module: module, vfs: vfs, readers: n}
		if err := v.read(r, card); err != nil {
			return nil, "", fmt.Errorf("%d readers: %w", n, err)
		}
		rows = append(rows, v)
	}
	return rows, release, nil
}

// guestFunction is the function that the guest has, in the card's trace; others are the host's.
const guestFunction = " device 0000:01:00.0: cmd["

// answered counts the commands that the card answered to the guest, by opcode, in the trace that the card wrote.
func answered(trace io.Reader) (map[string]int, error) {
	counts := map[string]int{}
	s := bufio.NewScanner(trace)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		_, command, ok := strings.Cut(s.Text(), "dump command data ")
		if !ok || !strings.Contains(s.Text(), guestFunction) || !strings.HasSuffix(command, " OUTPUT") {
			continue
		}
		name, _, _ := strings.Cut(command, "(")
		counts[name]++
	}
	return counts, s.Err()
}

// compare holds the driver's table against what the card counted, for the commands that read counters: the driver's
// end comes after the table, and they are no part of it.
func compare(table, card map[string]int) (sum int, err error) {
	for _, name := range []string{"ACCESS_REG", "QUERY_Q_COUNTER", "QUERY_VPORT_COUNTER"} {
		if table[name] != card[name] {
			return 0, fmt.Errorf("%s: the driver counted %d, the card %d", name, table[name], card[name])
		}
		sum += card[name]
	}
	return sum, nil
}

// read takes a row out of a guest's results.
func (v *row) read(r study.Results, card map[string]int) error {
	var (
		probed, work []ftrace.Entry
		table        map[string]int
	)
	err := errors.Join(r.Get("interfaces", &v.interfaces), r.Get("shown", &v.shown), r.Get("table", &table),
		r.Get(fmt.Sprintf("commands %d", v.readers), &v.commands), r.Get(fmt.Sprintf("reads %d", v.readers), &v.reads),
		r.Get(fmt.Sprintf("seconds %d", v.readers), &v.seconds),
		r.Get(fmt.Sprintf("hist /tmp/commands-%d", v.readers), &probed), r.Get(fmt.Sprintf("hist /tmp/work-%d", v.readers), &work))
	if err != nil {
		return err
	}
	if v.counted, err = compare(table, card); err != nil {
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
	case v.counted < v.commands || v.interfaces != max(1, v.vfs+1) || v.shown < v.interfaces:
		return fmt.Errorf("%d commands, of which the card counted %d in the whole run, on %d interfaces", v.commands, v.counted, v.interfaces)
	case v.refreshes < 1 || v.commands < v.refreshes:
		return fmt.Errorf("%d refreshes with %d commands", v.refreshes, v.commands)
	case v.module == "edited" && float64(v.refreshes) > (v.seconds*5+2)*float64(v.shown):
		return fmt.Errorf("%d refreshes in %.1f s: more than one of each of %d interfaces in 200 ms", v.refreshes, v.seconds, v.shown)
	}
	return nil
}
