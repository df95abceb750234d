package main

import (
	"strings"
	"testing"
	"time"

	"cxkit/examples/kernel/ftrace"
)

// Rows as Linux 6.12 printed them in a guest of ours.
const work = `{ workqueue: events                                            , function: [ffffffff86d4d3e0] vmstat_shepherd                               } hitcount:          2
{ workqueue: mlx5_cmd_0000:01:00.0                             , function: [ffffffffc03b9e80] cmd_work_handler [mlx5_core]                  } hitcount:         28
`

const latency = `{ lat: ~ 2^21 } hitcount:          1  lat:    1590912
{ lat: ~ 2^17 } hitcount:          2  lat:     237245
{ lat: ~ 2^19 } hitcount:          7  lat:    2449468
{ lat: ~ 2^18 } hitcount:         18  lat:    3780625
`

func rows(t *testing.T, table string) []ftrace.Entry {
	t.Helper()
	entries, dropped, err := ftrace.Trigger(strings.NewReader(table))
	if err != nil || dropped != 0 {
		t.Fatal(dropped, err)
	}
	return entries
}

// made is what a guest with Debian's module counted.
func made(t *testing.T) outcome {
	return outcome{module: "Debian's", commands: 28, items: items(rows(t, work)), latency: rows(t, latency)}
}

func TestWorkItemsOfCommandsAreCounted(t *testing.T) {
	o := made(t)
	n, sum := o.timed()
	if o.items != 28 || n != 28 || sum != 8058250 {
		t.Errorf("%d work items, %d commands timed in %v; want 28, 28 and 8.05825 ms", o.items, n, sum)
	}
	for share, want := range map[float64]time.Duration{0.05: 1 << 17, 0.5: 1 << 18, 0.95: 1 << 19, 1: 1 << 21} {
		if got, err := o.quantile(share); got != want || err != nil {
			t.Errorf("%v of the commands end within %v, want %v (%v)", share, got, want, err)
		}
	}
}

func TestCountsThatDisagreeFailTheRun(t *testing.T) {
	for name, spoil := range map[string]func(*outcome){
		"a failure":            func(o *outcome) { o.failed = 1 },
		"a warning":            func(o *outcome) { o.warnings = 1 },
		"a command not timed":  func(o *outcome) { o.commands++ },
		"a work item missing":  func(o *outcome) { o.items-- },
		"the edit has no work": func(o *outcome) { o.module = "edited" },
		"fewer than reads":     func(o *outcome) { o.commands, o.latency, o.items = 0, nil, 0 },
	} {
		o := made(t)
		if err := o.check(1); err != nil {
			t.Fatal(err)
		}
		if spoil(&o); o.check(1) == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestReportHasBothColumnsBesideTheThreads(t *testing.T) {
	var b strings.Builder
	before, after := made(t), made(t)
	after.module, after.items = "edited", 0
	if err := report(&b, "6.12", 32, 20, []outcome{before, after}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| Debian's | 28 | 28 | 0 / 0 |", "| edited | 0 | 28 | 0 / 0 |", "46.7k | 0", "-kernel 6.12 -loops 32 -rounds 20\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, b.String())
		}
	}
}
