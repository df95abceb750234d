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
func report(w io.Writer, releases []string, args string, rows []row) error {
	var table strings.Builder
	for _, v := range rows {
		mode := "legacy"
		if v.vfs > 0 {
			mode = fmt.Sprintf("switchdev, %d VFs", v.vfs)
		}
		fmt.Fprintf(&table, "| %s | %s | %d | %s | %s | %s | %.1f | %.1f s | %s |\n", mode, v.module, v.readers, study.Grouped(v.reads), study.Grouped(v.refreshes),
			study.Grouped(v.commands), float64(v.commands)/float64(v.refreshes), v.seconds, study.Grouped(v.counted))
	}
	t, err := template.New("report").Parse(page)
	if err != nil {
		return err
	}
	return t.Execute(w, map[string]any{
		"Table": strings.TrimSpace(table.String()), "Releases": "- kernel: " + strings.Join(releases, "\n- kernel: "), "Args": args,
		"Host": fmt.Sprintf("%d CPUs, %s", runtime.NumCPU(), runtime.Version()),
	})
}

const page = `# What readers of counters cost, in Linux

Each reading of /proc/net/dev has Linux's own mlx5 driver queue a refresh of the interface's counters, unless one waits
already. "net/mlx5: Cut workqueue traffic of firmware commands and stats" keeps refreshes 200 ms apart. Two cases: one
physical function in legacy mode, and Linux as the card's own processor in switchdev mode (profile bf2), with the uplink
and the representors of a host's virtual functions:

    go run ./examples/kernel/stats {{.Args}}

{{.Releases}}
- edit: [stats-interval.sed](../../examples/kernel/edits/stats-interval.sed), ours. Only en_main.c is compiled anew, by
  Debian's compiler; all else is Debian's module. The time of the last refresh lies in a table, as a field
  of the interface would change every file.
- one emulated processor (QEMU, TCG). This machine: {{.Host}}, shared with other work.

| mode | mlx5_core | readers | reads | refreshes | commands | commands a refresh | time | both runs and before, by the card |
|---|---|---|---|---|---|---|---|---|
{{.Table}}

| the thread (ConnectX-4 Lx, switchdev, 8 VFs, one reader, 13 s) | before | after |
|---|---|---|
| commands | 13.4k | 1.8k |
| ratio | | 7.4 |

Commands are counted by the driver's own table (debugfs, commands/*/n) and by kprobes on mlx5_cmd_do, refreshes by a hist
trigger on workqueue_queue_work, all interfaces together. The card counts what it answers to this function by its own
trace: commands that read counters (ACCESS_REG, QUERY_Q_COUNTER, QUERY_VPORT_COUNTER), from the guest's boot to the end
of its second run, in the last column. The run fails if the driver's table has another number of any of the three, if
table and kprobes disagree, or if refreshes of an interface come closer than 200 ms with the edit.

What it shows: without the interval commands follow the readings until a refresh waits at each of them; with
it they are five rounds a second at most, however many read.

What can't be compared: the number of commands. The thread's are 27 to 28 a round; here a round is as many
refreshes as /proc/net/dev shows interfaces, up or not. Its reader's rate is not known: 37 a second fits its figures, and an emulated, shared
processor does not keep up with it: without the edit there is less to save, so that ratios are below the thread's. Its
virtual functions are those of Linux's own physical function; here they are a host's, as QEMU hides SR-IOV from a guest.
`
