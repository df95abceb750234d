// Command rxpages counts the pages of received packets in Linux: on how many a packet lies that GRO merged, and how
// many were taken anew, with striding receive queues and without:
//
//	go run ./examples/kernel/rxpages                docs/lab/linux-rxpages.md
//
// It plays a capture into a guest's card, and to cxkit's own driver in the experiment rxpages.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"cxkit/examples/kernel/ftrace"
	"cxkit/examples/kernel/study"
)

//go:embed guest.sh
var script string

// row is what one kernel did with one kind of receive queue.
type row struct {
	kernel       string
	striding     bool
	taken, fresh int
	counters     map[string]int
	merged       [][3]int // segments, pages, packets; nil if not counted
}

func main() {
	file := flag.String("capture", "testdata/captures/iperf.pcapng", "pcapng file that is received")
	times := flag.Int("times", 20, "how often")
	out := flag.String("out", "", "file for the report; standard output if empty")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *file, *times, *out); err != nil {
		fmt.Fprintln(os.Stderr, "rxpages:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, file string, times int, out string) (err error) {
	if times < 1 || times > 100 {
		return fmt.Errorf("-times %d: want 1 to 100", times)
	}
	b, err := study.Open(ctx, os.Stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	dir, err := os.MkdirTemp("", "cxkit-rxpages-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	own, err := ours(ctx, b, file, dir)
	if err != nil {
		return err
	}
	// Sections of pcapng files follow one another.
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	played := filepath.Join(dir, "played.pcapng")
	if err := os.WriteFile(played, bytes.Repeat(data, times), 0o600); err != nil {
		return err
	}
	var (
		rows     []row
		releases []string
	)
	for _, kernel := range []string{"6.12", "6.1"} {
		var release string
		for _, striding := range []bool{true, false} {
			fmt.Fprintf(os.Stderr, "kernel %s, striding %v\n", kernel, striding)
			v := row{kernel: kernel, striding: striding}
			r, err := boot(ctx, b, v, played, filepath.Join(dir, "socket"))
			if err == nil {
				err = errors.Join(v.read(r, times), r.Get("kernel", &release))
			}
			if err != nil {
				return fmt.Errorf("kernel %s, striding %v: %w", kernel, striding, err)
			}
			rows = append(rows, v)
		}
		releases = append(releases, release)
	}
	return study.Report(out, func(w io.Writer) error {
		return report(w, releases, fmt.Sprintf("-capture %s -times %d", file, times), rows, own)
	})
}

// boot runs a guest on a card that receives a capture once the guest asks for it: until then its link is down.
func boot(ctx context.Context, b *study.Bench, v row, played, socket string) (r study.Results, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	serve := b.Cxkit(ctx, "serve", "--socket", socket, "--port", "pcap:"+played)
	ready, err := serve.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := serve.Start(); err != nil {
		return nil, err
	}
	defer func() {
		cancel()
		io.Copy(io.Discard, ready)
		serve.Wait() // what it says of its interruption says nothing of the guest
	}()
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		return nil, fmt.Errorf("cxkit serve: %w", err)
	}
	go io.Copy(io.Discard, ready)
	if _, err := b.Ctl(ctx, "link", "down"); err != nil {
		return nil, err
	}
	flag, probe := "off", "no"
	if v.striding {
		flag = "on"
	}
	if v.probed() {
		probe = "yes"
	}
	return b.Run(ctx, study.Guest{
		Kernel: v.kernel, Script: fmt.Sprintf("striding=%s probe=%s\n%s", flag, probe, script),
		Flags: []string{"--limit", "8m", "--socket", socket},
		Host: func(ctx context.Context, words []string) error {
			_, err := b.Ctl(ctx, "link", "up")
			return err
		},
	})
}

// probed says whether merged packets are counted: it takes probes that know the kernel's types, from 6.6 on.
func (v row) probed() bool { return v.kernel != "6.1" }

// read takes a row out of a guest's results.
func (v *row) read(r study.Results, times int) error {
	var (
		taken, fresh []ftrace.Entry
		warnings     int
	)
	err := errors.Join(r.Get("hist /tmp/taken", &taken), r.Get("hist /tmp/fresh", &fresh), r.Get("counters", &v.counters), r.Get("warnings", &warnings))
	if v.probed() {
		err = errors.Join(err, r.Get("merged", &v.merged))
	}
	if err != nil {
		return err
	}
	for _, e := range taken {
		v.taken += int(e.Hits)
	}
	for _, e := range fresh {
		v.fresh += int(e.Hits)
	}
	if warnings > 0 {
		return fmt.Errorf("the kernel warned %d times", warnings)
	}
	return v.check(times)
}

// check holds counts against one another: all that was played was received, and merged packets have no more segments
// than came, and no more pages than segments.
func (v *row) check(times int) error {
	packets := v.counters["rx_packets"]
	if packets == 0 || packets%times != 0 || packets != v.counters["rx_packets_phy"] {
		return fmt.Errorf("%d packets of %d were received: want all, %d times as many as the capture has", packets, v.counters["rx_packets_phy"], times)
	}
	if v.fresh == 0 || v.taken == 0 {
		return fmt.Errorf("%d pages taken, %d of them fresh", v.taken, v.fresh)
	}
	segments := 0
	for _, m := range v.merged {
		if m[1] < 1 || m[1] > m[0] {
			return fmt.Errorf("packets of %d segments on %d pages", m[0], m[1])
		}
		segments += m[0] * m[2]
	}
	if v.probed() && (segments == 0 || segments > packets) {
		return fmt.Errorf("%d segments were merged of %d packets", segments, packets)
	}
	return nil
}

// pages sums up merged packets of so many segments, or all of 0.
func (v *row) pages(of int) (packets, segments, pages, most int) {
	for _, m := range v.merged {
		if of == 0 || m[0] == of {
			packets += m[2]
			segments += m[0] * m[2]
			pages += m[1] * m[2]
			most = max(most, m[1])
		}
	}
	return packets, segments, pages, most
}

// pool is what the experiment said of a layout of cxkit's own.
type pool struct {
	name, pages, most, recycled string
}

// ours has cxkit's own driver receive the capture.
func ours(ctx context.Context, b *study.Bench, file, dir string) (list []pool, err error) {
	for _, layout := range []string{"halves", "flip"} {
		folder := filepath.Join(dir, layout)
		cmd := b.Cxkit(ctx, "lab", "run", "rxpages", "--seed", "1009", "--set", "capture="+file, "--set", "page=4", "--set", "ring=1024",
			"--set", "layout="+layout, "--set", "table=2", "--out", folder)
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("lab run rxpages: %w\n%s", err, out)
		}
		text, err := os.ReadFile(filepath.Join(folder, "after.csv"))
		if err != nil {
			return nil, err
		}
		p, err := column(string(text))
		if err != nil {
			return nil, err
		}
		p.name = layout
		list = append(list, p)
	}
	return list, nil
}

// column reads a table of one row.
func column(text string) (p pool, err error) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) != 2 {
		return p, fmt.Errorf("lab run rxpages: %d lines in its table, want 2", len(lines))
	}
	names, values := strings.Split(lines[0], ","), strings.Split(lines[1], ",")
	for i, name := range names {
		if i >= len(values) {
			break
		}
		switch name {
		case "pages a packet":
			p.pages = values[i]
		case "most":
			p.most = values[i]
		case "recycled %":
			p.recycled = values[i]
		}
	}
	if p.pages == "" || p.most == "" || p.recycled == "" {
		return p, fmt.Errorf("lab run rxpages: columns %q", lines[0])
	}
	return p, nil
}

// cache are counters of mlx5's own page cache, which 6.1 has.
func (v *row) cache() string {
	reused, ok := v.counters["rx_cache_reuse"]
	if !ok {
		return "has none"
	}
	return fmt.Sprintf("%s, %s full, %s empty, %s busy", study.Grouped(reused), study.Grouped(v.counters["rx_cache_full"]),
		study.Grouped(v.counters["rx_cache_empty"]), study.Grouped(v.counters["rx_cache_busy"]))
}
