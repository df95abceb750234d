package main

import (
	"strings"
	"testing"
	"time"

	"cxkit/examples/kernel/ftrace"
	"cxkit/examples/kernel/study"
)

// The figures of the thread (net/mlx5: Reclaim max 50K pages at once) and what follows from them.
func TestMailboxesAreTheThreads(t *testing.T) {
	for _, c := range []struct {
		pages, limit int
		want         counts
	}{
		{1_300_000, 0, counts{26, 20_313, 274_229}},
		{1_300_000, takeLimit, counts{26, 782, 26 * 782}},
		{100_000, 0, counts{2, 1563, 1563 + 782}},
		{100, takeLimit, counts{1, 2, 2}},
		{0, 0, counts{}},
	} {
		if got := mailboxes(c.pages, c.limit, takeLimit); got != c.want {
			t.Errorf("%d pages, limit %d: %+v, want %+v", c.pages, c.limit, got, c.want)
		}
	}
}

// made is an outcome as a guest of 128 pages would have it.
func made() outcome {
	r := study.Round{Took: time.Millisecond}
	r.Frees.Add(1500)
	r.Frees.Add(700)
	return outcome{
		variant: variant{kernel: "6.12", module: "edited", patch: "examples/kernel/edits/reclaim-no-limit.sed"},
		release: "6.12.1", rounds: []study.Round{r}, storm: storm{Hoarded: 128, Returned: 128, Takes: 1},
	}
}

func TestCountsThatDisagreeFailTheRun(t *testing.T) {
	for name, spoil := range map[string]func(*outcome){
		"pages kept":        func(o *outcome) { o.storm.Returned-- },
		"a command more":    func(o *outcome) { o.storm.Takes++ },
		"a round not seen":  func(o *outcome) { o.rounds = nil },
		"a mailbox more":    func(o *outcome) { o.rounds[0].Frees.Add(1) },
		"a mailbox missing": func(o *outcome) { o.rounds[0].Frees = ftrace.Histogram{N: 1} },
	} {
		o := made()
		if err := o.check(128); err != nil {
			t.Fatal(err)
		}
		if spoil(&o); o.check(128) == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestReportHasBothColumnsBesideTheThreads(t *testing.T) {
	var b strings.Builder
	if err := report(&b, 128, []outcome{made(), made()}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"-pages 128 -kernels 6.12\n", "| 512 | 287 | 346 | 1 | 1 |", "| 1024 | 1332 | 435 | 1 | 1 |", "| total | 19675 | 782 | 2 | 2 |", "changed by [reclaim-no-limit.sed]"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, b.String())
		}
	}
}
