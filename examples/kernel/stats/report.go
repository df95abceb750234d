package main

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"text/template"

	"cxkit/examples/kernel/study"
)

// report writes the report, in Markdown.
func report(w io.Writer, release, args string, rows []row) error {
	var table strings.Builder
	for _, v := range rows {
		fmt.Fprintf(&table, "| %s | %d | %s | %s | %s | %.1f | %.1f s |\n", v.module, v.readers, study.Grouped(v.reads), study.Grouped(v.refreshes),
			study.Grouped(v.commands), float64(v.commands)/float64(v.refreshes), v.seconds)
	}
	t, err := template.New("report").Parse(page)
	if err != nil {
		return err
	}
	return t.Execute(w, map[string]any{
		"Table": strings.TrimSpace(table.String()), "Release": release, "Args": args,
		"Host": fmt.Sprintf("%d CPUs, %s", runtime.NumCPU(), runtime.Version()),
	})
}

const page = `# What readers of counters cost, in Linux

Each reading of /proc/net/dev has Linux's own mlx5 driver queue a refresh of the interface's counters, unless one waits
already. "net/mlx5: Cut workqueue traffic of firmware commands and stats" keeps refreshes 200 ms apart. One physical
function in legacy mode:

    go run ./examples/kernel/stats {{.Args}}

- kernel: {{.Release}}
- edit: [stats-interval.sed](../../examples/kernel/edits/stats-interval.sed), ours. Only en_main.c is compiled anew, by
  Debian's compiler; all else is Debian's module. The time of the last refresh lies in a table, as a field
  of the interface would change every file.
- one emulated processor (QEMU, TCG). This machine: {{.Host}}, shared with other work.

| mlx5_core | readers | reads | refreshes | commands | commands a refresh | time |
|---|---|---|---|---|---|---|
{{.Table}}

| the thread (ConnectX-4 Lx, switchdev, 8 VFs, one reader, 13 s) | before | after |
|---|---|---|
| commands | 13.4k | 1.8k |
| ratio | | 7.4 |

Commands are counted by the driver's own table (debugfs, commands/*/n) and by kprobes on mlx5_cmd_do; the run fails if
they disagree, or if refreshes come closer than 200 ms with the edit. Refreshes are counted by a hist trigger on
workqueue_queue_work.

What it shows: without the interval commands follow the readings until a refresh waits at each of them; with
it they are five rounds a second at most, however many read.

What can't be compared: the number of commands. The thread's are those of 8 virtual functions and their representors, 27
to 28 a round; here one function's. Its reader's rate is not known: 37 a second fits its figures. Switchdev
mode with virtual functions of a host is not measured here.
`
