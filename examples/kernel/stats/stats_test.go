package main

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"cxkit/examples/kernel/study"
)

// made are the results of a guest with one reader.
func made() study.Results {
	return study.Results{
		"interfaces": json.RawMessage("1"), "shown": json.RawMessage("1"), "table": json.RawMessage(`{"ACCESS_REG": 6, "QUERY_VPORT_COUNTER": 9, "CREATE_CQ": 7}`),
		"commands 1": json.RawMessage("12"), "reads 1": json.RawMessage("30"), "seconds 1": json.RawMessage("1.5"),
		"hist /tmp/commands-1": json.RawMessage(`[{"Key":"common_type: 1500","Hits":12}]`),
		"hist /tmp/work-1": json.RawMessage(`[{"Key":"function: [ffffffff86d4d3e0] vmstat_shepherd","Hits":2},
			{"Key":"function: [ffffffffc03b9e80] mlx5e_update_stats_work [mlx5_core]","Hits":4}]`),
	}
}

// seen is what the card counted.
var seen = map[string]int{"ACCESS_REG": 6, "QUERY_VPORT_COUNTER": 9, "CREATE_CQ": 8}

func TestCommandsOfTheGuestsFunctionAreCountedInTheCardsTrace(t *testing.T) {
	const trace = `# cxkit trace 1
[   12.221795178] device 0000:01:00.0: cmd[0]: dump command data ACCESS_REG(0x805) INPUT
cmd[0]: 000: 08050000 00000000 80000000 00000000
[   12.221834502] device 0000:01:00.0: cmd[0]: dump command data ACCESS_REG(0x805) OUTPUT
[   12.221834503] device 0000:01:00.1: cmd[0]: dump command data ACCESS_REG(0x805) OUTPUT
[   12.221834504] driver 0000:01:00.1: cmd[0]: dump command data ACCESS_REG(0x805) OUTPUT
[   12.221834505] device 0000:01:00.0: cmd[31]: dump command data QUERY_VPORT_COUNTER(0x770) OUTPUT
`
	got, err := answered(strings.NewReader(trace))
	if want := map[string]int{"ACCESS_REG": 1, "QUERY_VPORT_COUNTER": 1}; err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	v := row{module: "edited", readers: 1}
	if err := v.read(made(), map[string]int{"ACCESS_REG": 6, "QUERY_VPORT_COUNTER": 8}); err == nil {
		t.Error("a command that the card did not see: no error")
	}
}

func TestRefreshesAreCounted(t *testing.T) {
	v := row{module: "edited", readers: 1}
	if err := v.read(made(), seen); err != nil {
		t.Fatal(err)
	}
	if want := (row{module: "edited", interfaces: 1, shown: 1, readers: 1, reads: 30, commands: 12, probed: 12, refreshes: 4, seconds: 1.5, counted: 15}); v != want {
		t.Errorf("got %+v, want %+v", v, want)
	}
	var b strings.Builder
	if err := report(&b, []string{"6.12.1"}, "-rate 37", []row{v}); err != nil {
		t.Fatal(err)
	}
	if want := "| legacy | edited | 1 | 30 | 4 | 12 | 3.0 | 1.5 s | 15 |"; !strings.Contains(b.String(), want) {
		t.Errorf("the report lacks %q:\n%s", want, b.String())
	}
}

func TestCountsThatDisagreeFailTheRun(t *testing.T) {
	for name, spoil := range map[string]func(*row){
		"a command not probed": func(v *row) { v.probed-- },
		"no refresh":           func(v *row) { v.refreshes = 0 },
		"the card saw fewer":   func(v *row) { v.counted = 11 },
		"no representors":      func(v *row) { v.vfs = 8 },
		"too many refreshes":   func(v *row) { v.refreshes = 11 },
	} {
		v := row{module: "edited", commands: 12, probed: 12, refreshes: 4, seconds: 1.5, interfaces: 1, shown: 1, counted: 15}
		if err := v.check(); err != nil {
			t.Fatal(err)
		}
		if spoil(&v); v.check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if v := (row{module: "Debian's", readers: 2}); v.read(made(), seen) == nil {
		t.Error("results of other readers: no error")
	}
}
