package main

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"text/template"
	"time"

	"cxkit/examples/kernel/ftrace"
	"cxkit/examples/kernel/study"
)

// report writes the report, in Markdown.
func report(w io.Writer, pages int, outcomes []outcome) error {
	var table strings.Builder
	for _, o := range outcomes {
		first := o.rounds[0]
		all, sum := total(o.rounds)
		fmt.Fprintf(&table, "| %s | %s | %s | %s | %d | %s | %v | %v | %v | %v | %v | %d |\n",
			o.kernel, o.module, limitText(o.limit), study.Grouped(first.Frees.N), len(o.rounds), study.Grouped(all.N),
			study.Round3(first.Frees.Mean()), study.Round3(first.Frees.Sum), study.Round3(sum), study.Round3(o.storm.Took-o.storm.Filled), study.Round3(o.stall.Longest), o.stalls)
	}
	t, err := template.New("report").Parse(page)
	if err != nil {
		return err
	}
	return t.Execute(w, map[string]any{
		"Pages": study.Grouped(pages), "Table": strings.TrimSpace(table.String()), "Bins": bins(outcomes), "Kernels": kernels(outcomes),
		"Args": arguments(pages, outcomes), "Lend": lend(outcomes), "Host": fmt.Sprintf("%d CPUs, %s", runtime.NumCPU(), runtime.Version()),
		"Mailboxes": study.Grouped(mailboxes(pages, 0, takeLimit).first),
	})
}

// total adds rounds up.
func total(rounds []study.Round) (frees ftrace.Histogram, took time.Duration) {
	for _, r := range rounds {
		for i, n := range r.Frees.Bins {
			frees.Bins[i] += n
		}
		frees.N += r.Frees.N
		frees.Sum += r.Frees.Sum
		frees.Max = max(frees.Max, r.Frees.Max)
		took += r.Took
	}
	return frees, took
}

func limitText(limit int) string {
	if limit == 0 {
		return "none"
	}
	return study.Grouped(limit)
}

// Bins of the thread's histograms (net/mlx5: Reclaim max 50K pages at once, v3), by the bin's begin in ns.
func threadBins() (before, after map[int]int) {
	return map[int]int{9: 287, 10: 1332, 11: 656, 12: 2599, 13: 4755, 14: 7545, 15: 2501},
		map[int]int{9: 346, 10: 435, 13: 1}
}

// bins is the table of the frees after the first command, the thread's beside them.
func bins(outcomes []outcome) string {
	var b strings.Builder
	b.WriteString("| ns | the thread before | after |")
	rule := "|---|---|---|"
	for _, o := range outcomes {
		fmt.Fprintf(&b, " %s, limit %s |", o.kernel, limitText(o.limit))
		rule += "---|"
	}
	b.WriteString("\n" + rule + "\n")
	before, after := threadBins()
	low, high := 9, 15
	for _, o := range outcomes {
		for i, n := range o.rounds[0].Frees.Bins {
			if n > 0 {
				low, high = min(low, i), max(high, i)
			}
		}
	}
	for i := low; i <= high; i++ {
		fmt.Fprintf(&b, "| %d | %d | %d |", 1<<i, before[i], after[i])
		for _, o := range outcomes {
			fmt.Fprintf(&b, " %d |", o.rounds[0].Frees.Bins[i])
		}
		b.WriteByte('\n')
	}
	b.WriteString("| total | 19675 | 782 |")
	for _, o := range outcomes {
		fmt.Fprintf(&b, " %d |", o.rounds[0].Frees.N)
	}
	return b.String()
}

func kernels(outcomes []outcome) string {
	var b strings.Builder
	for _, o := range outcomes {
		edit := "as it is"
		if o.patch != "" {
			edit = "changed by [" + o.patch[strings.LastIndexByte(o.patch, '/')+1:] + "](../../" + o.patch + ")"
		}
		fmt.Fprintf(&b, "- limit %s: %s, mlx5_core %s\n", limitText(o.limit), o.release, edit)
	}
	return strings.TrimSpace(b.String())
}

func arguments(pages int, outcomes []outcome) string {
	var names []string
	for _, o := range outcomes {
		if len(names) == 0 || names[len(names)-1] != o.kernel {
			names = append(names, o.kernel)
		}
	}
	return fmt.Sprintf("-pages %d -kernels %s", pages, strings.Join(names, ","))
}

// lend says how long lending took.
func lend(outcomes []outcome) string {
	var all []string
	for _, o := range outcomes {
		all = append(all, study.Round3(o.storm.Filled).String())
	}
	return strings.Join(all, ", ")
}

const page = `# Bounded reclaim of firmware pages, in Linux

Firmware asks Linux's own mlx5 driver for {{.Pages}} pages and gives all of them back, 50,000 a command. Without a
limit ("net/mlx5: Reclaim max 50K pages at once", 501c3005f031) Linux makes room for an answer about all pages that
are offered, each time: {{.Mailboxes}} mailboxes for the first command, of which firmware fills 782 at most.

    go run ./examples/kernel/reclaim {{.Args}}

{{.Kernels}}

The edits are ours. Only pagealloc.c is compiled anew, by Debian's compiler; all else is Debian's module. The guest
has one processor and is not preemptible (preempt=none), as the thread's kernel; QEMU emulates it (TCG). Mailboxes and times are
the kernel's function_graph tracer's, which is on for reclaim_pages and dma_pool_free alone. The task that waits for
the processor sleeps a millisecond again and again. This machine: {{.Host}}, shared with other work.

| kernel | mlx5_core | limit | mailboxes of the first command | commands | mailboxes of all | mean of a free | frees of the first command | all of reclaim_pages | from first offer to last page | longest wait for the processor | RCU stalls in the log |
|---|---|---|---|---|---|---|---|---|---|---|---|
{{.Table}}

| the thread | before | after |
|---|---|---|
| mailboxes of a command | around 20K (19,675 in the histogram) | around 800 (782) |
| time of a free, most frequent | 16 to 32 us | 1 to 2 us |
| pages a command | what firmware offers | 50,000 |

The frees after the first command, in bins of powers of two:

{{.Bins}}

What it shows: mailboxes and commands, exactly; the run fails if the trace, the card's count and arithmetic disagree.
Linux 6.1 searches a list for each mailbox that it frees, and the shape of its histogram is the thread's. Since 6.4 a
free takes constant time, so that on 6.12 the limit saves mailboxes and not time for each.

Taking pages back has a part that the limit bounds but does not save: each page is looked up, unmapped and freed, one
after the other without a break. In a run with 300,000 pages on Debian's 6.12 a command took 170 to 290 ms, of which 7
to 22 ms were mlx5_cmd_do, that is mailboxes and firmware together (the same tracer, by hand). That part is most of what
is left of the longest wait on 6.12, with the limit and without.

What can't be compared: times. Guests ran one after the other under other loads, which changed by a factor of two and
more meanwhile. An emulated processor is some ten times slower than the thread's and this one is
shared; a traced free has 0.5 to 1.5 us of the tracer's in it, which is most of a short one's time. How
long firmware takes is the model's. Only ratios within a column of this page mean anything. Lending the pages took
{{.Lend}}.
`
