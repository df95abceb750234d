package main

import (
	"encoding/json"
	"strings"
	"testing"

	"cxkit/examples/kernel/study"
)

// made are the results of a guest with one reader.
func made() study.Results {
	return study.Results{
		"commands 1": json.RawMessage("12"), "reads 1": json.RawMessage("30"), "seconds 1": json.RawMessage("1.5"),
		"hist /tmp/commands-1": json.RawMessage(`[{"Key":"common_type: 1500","Hits":12}]`),
		"hist /tmp/work-1": json.RawMessage(`[{"Key":"function: [ffffffff86d4d3e0] vmstat_shepherd","Hits":2},
			{"Key":"function: [ffffffffc03b9e80] mlx5e_update_stats_work [mlx5_core]","Hits":4}]`),
	}
}

func TestRefreshesAreCounted(t *testing.T) {
	v := row{module: "edited", readers: 1}
	if err := v.read(made()); err != nil {
		t.Fatal(err)
	}
	if want := (row{module: "edited", readers: 1, reads: 30, commands: 12, probed: 12, refreshes: 4, seconds: 1.5}); v != want {
		t.Errorf("got %+v, want %+v", v, want)
	}
	var b strings.Builder
	if err := report(&b, "6.12.1", "-rate 37", []row{v}); err != nil {
		t.Fatal(err)
	}
	if want := "| edited | 1 | 30 | 4 | 12 | 3.0 | 1.5 s |"; !strings.Contains(b.String(), want) {
		t.Errorf("the report lacks %q:\n%s", want, b.String())
	}
}

func TestCountsThatDisagreeFailTheRun(t *testing.T) {
	for name, spoil := range map[string]func(*row){
		"a command not probed": func(v *row) { v.probed-- },
		"no refresh":           func(v *row) { v.refreshes = 0 },
		"too many refreshes":   func(v *row) { v.refreshes = 11 },
	} {
		v := row{module: "edited", commands: 12, probed: 12, refreshes: 4, seconds: 1.5}
		if err := v.check(); err != nil {
			t.Fatal(err)
		}
		if spoil(&v); v.check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if v := (row{module: "Debian's", readers: 2}); v.read(made()) == nil {
		t.Error("results of other readers: no error")
	}
}
