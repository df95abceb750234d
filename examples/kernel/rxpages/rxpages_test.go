package main

import (
	"encoding/json"
	"strings"
	"testing"

	"cxkit/examples/kernel/study"
)

// made are the results of a guest that received a capture of ten frames twice.
func made() study.Results {
	return study.Results{
		"hist /tmp/taken": json.RawMessage(`[{"Key":"common_type: 1500","Hits":12}]`), "hist /tmp/fresh": json.RawMessage(`[{"Key":"common_type: 1400","Hits":8}]`),
		"counters": json.RawMessage(`{"rx_packets":20,"rx_packets_phy":20,"":0}`), "warnings": json.RawMessage("0"),
		"merged": json.RawMessage("[[2,1,3],[3,2,1]]"),
	}
}

func TestPagesOfMergedPacketsAreReported(t *testing.T) {
	v := row{kernel: "6.12", striding: true}
	if err := v.read(made(), 2); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := report(&b, []string{"6.12.1"}, "-times 2", []row{v}, []pool{{"halves", "30.5454", "44", "99.40222"}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| 6.12, striding | 4 | 9 | 2.25 | 1.25 | 0 | none | 0 |", "| 6.12, striding | 20 | 12 | 8 | 0.60 | has none |", "| halves | 30.55 | 44 | 99.4 |",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, b.String())
		}
	}
}

func TestResultsThatDisagreeFailTheRun(t *testing.T) {
	for name, change := range map[string][2]string{
		"a lost packet":            {"counters", `{"rx_packets":18,"rx_packets_phy":20}`},
		"no whole capture":         {"counters", `{"rx_packets":19,"rx_packets_phy":19}`},
		"a warning":                {"warnings", "1"},
		"no fresh page":            {"hist /tmp/fresh", "[]"},
		"more pages than segments": {"merged", "[[2,3,1]]"},
		"more segments than came":  {"merged", "[[2,1,11]]"},
		"nothing merged":           {"merged", "[]"},
	} {
		r := made()
		r[change[0]] = json.RawMessage(change[1])
		v := row{kernel: "6.12"}
		if err := v.read(r, 2); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestTheExperimentsTableIsRead(t *testing.T) {
	p, err := column("page KiB,pages a packet,most,recycled %\n4,30.5,44,99\n")
	if err != nil || p.pages != "30.5" || p.most != "44" || p.recycled != "99" {
		t.Errorf("got %+v %v", p, err)
	}
	for _, bad := range []string{"", "a\n1\n", "pages a packet,most\n1,2\n"} {
		if _, err := column(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}
