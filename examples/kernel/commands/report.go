package main

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"text/template"
	"time"

	"cxkit/examples/kernel/study"
)

// report writes the report, in Markdown.
func report(w io.Writer, kernel string, loops, rounds int, outcomes []outcome) error {
	var table strings.Builder
	for _, o := range outcomes {
		n, sum := o.timed()
		p50, err := o.quantile(0.5)
		if err != nil {
			return err
		}
		p99, err := o.quantile(0.99)
		if err != nil {
			return err
		}
		fmt.Fprintf(&table, "| %s | %s | %s | %d / %d | %v | %v | %v | %.1f s |\n", o.module, study.Grouped(o.items), study.Grouped(o.commands),
			o.failed, o.warnings, study.Round3(sum/time.Duration(n)), study.Round3(p50), study.Round3(p99), o.seconds)
	}
	t, err := template.New("report").Parse(page)
	if err != nil {
		return err
	}
	return t.Execute(w, map[string]any{
		"Loops": loops, "Rounds": rounds, "Table": strings.TrimSpace(table.String()), "Release": outcomes[0].release,
		"Args": fmt.Sprintf("-kernel %s -loops %d -rounds %d", kernel, loops, rounds),
		"Host": fmt.Sprintf("%d CPUs, %s", runtime.NumCPU(), runtime.Version()),
	})
}

const page = `# Commands in the caller's context, in Linux

Linux's own mlx5 driver queues each firmware command that somebody waits for on an ordered workqueue, and a worker hands
it to the card. "net/mlx5: Cut workqueue traffic of firmware commands and stats" has the caller do that; only commands
with a callback stay on the queue. {{.Loops}} loops of ` + "`ethtool -S`" + ` on one physical function, {{.Rounds}} rounds each:

    go run ./examples/kernel/commands {{.Args}}

- kernel: {{.Release}}
- edit: [commands-in-caller.sed](../../examples/kernel/edits/commands-in-caller.sed), one line, ours. Only cmd.c is
  compiled anew, by Debian's compiler; all else is Debian's module.
- one emulated processor (QEMU, TCG). This machine: {{.Host}}, shared with other work.

| mlx5_core | mlx5_cmd work items | commands | failed / warnings | mean of a command | half below | 99 % below | time of the loops |
|---|---|---|---|---|---|---|---|
{{.Table}}

| the thread (ConnectX-4 Lx, firmware 14.32) | before | after |
|---|---|---|
| mlx5_cmd work items, 32 loops of ` + "`ethtool -S`" + ` | 46.7k | 0 |
| failed commands / warnings | | 0 / 0 |

Work items are counted by a hist trigger on workqueue_queue_work, by queue and function; commands by the driver's own
table (debugfs, commands/*/n) and by kprobes on mlx5_cmd_do, which also time them, from call to return, in powers of
two of a nanosecond. The run fails if the three disagree, if a work item is left with the edit, or if Debian's module
has not one for each command.

What it shows: work items go from one a command to none; the commands stay.

What can't be compared: how many there are, as the thread does not say how long its loops ran. Latencies and
times: firmware's is the model's, an emulated processor and its neighbours do the rest, and probing each command has its
own price. Contention of the workqueue's lock: Debian's kernel has no lock_stat, and one processor no contention.
`
