package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// row is a case on all kinds of cards.
type row struct {
	test, name string
	on         map[string]result
}

// rows are the cases, test after test, in the order in which they ran first.
func (o *outcome) rows() []row {
	at := make(map[[2]string]int)
	var all []row
	for _, r := range o.results {
		key := [2]string{r.test, r.name}
		i, ok := at[key]
		if !ok {
			i = len(all)
			at[key] = i
			all = append(all, row{r.test, r.name, make(map[string]result)})
		}
		all[i].on[r.kind] = r
	}
	tests := make(map[string]int)
	for i, r := range all {
		if _, ok := tests[r.test]; !ok {
			tests[r.test] = i
		}
	}
	slices.SortStableFunc(all, func(a, b row) int { return tests[a.test] - tests[b.test] })
	return all
}

// count counts the cases of a kind that ended so.
func (o *outcome) count(kind string, v verdict) int {
	n := 0
	for _, r := range o.results {
		if r.kind == kind && r.verdict == v {
			n++
		}
	}
	return n
}

// others tells whether a case fails on every other kind that gets as far in it as the ConnectX; there must be one. Where
// the ConnectX fails at a check of the test's, a card on which the test breaks off before, for want of what it tests,
// is no excuse, and neither is one that skips it.
func (o *outcome) others(r row) bool {
	n := 0
	for kind, other := range r.on {
		if kind == model {
			continue
		}
		switch other.verdict {
		case pass:
			return false
		case fail:
			if other.checked() || !r.on[model].checked() {
				n++
			}
		}
	}
	return n > 0
}

// judge is an error if the ConnectX does worse than it may.
func (o *outcome) judge() error {
	var bad []string
	bad = append(bad, o.trouble...)
	for _, r := range o.rows() {
		if own := r.on[model]; own.verdict == fail && !o.others(r) {
			bad = append(bad, fmt.Sprintf("%s %s fails: %s", r.test, r.name, own.why))
		}
	}
	for _, line := range o.dmesg {
		if line.kind == model {
			bad = append(bad, "dmesg, "+line.String())
		}
	}
	own := o.count(model, pass)
	for _, kind := range o.kinds {
		if n := o.count(kind, pass); n > own {
			bad = append(bad, fmt.Sprintf("%d cases pass, on %s %d", own, kind, n))
		}
	}
	if len(o.results) == 0 {
		bad = append(bad, "no test ran")
	}
	if len(bad) == 0 {
		return nil
	}
	return errors.New(strings.Join(bad, "\n"))
}

// summary prints how many passed, and what did not on the ConnectX.
func (o *outcome) summary(w io.Writer) {
	fmt.Fprintln(w)
	for _, kind := range o.kinds {
		fmt.Fprintf(w, "%-12s pass %d, fail %d, skip %d\n", kind, o.count(kind, pass), o.count(kind, fail), o.count(kind, skip))
	}
	for _, r := range o.results {
		if r.kind == model && r.verdict != pass {
			fmt.Fprintf(w, "%s %s %s: %s\n", r.verdict, r.test, r.name, r.why)
		}
	}
	for _, line := range o.dmesg {
		fmt.Fprintln(w, "dmesg,", line)
	}
}

// mark is the line of a document behind which tables come.
const mark = "<!-- results -->"

// rewrite puts the tables into a document, in place of those there.
func (o *outcome) rewrite(name string) error {
	old, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	text, _, ok := strings.Cut(string(old), mark+"\n")
	if !ok {
		return fmt.Errorf("%s: no line %s", name, mark)
	}
	b := bytes.NewBufferString(text + mark + "\n\n")
	o.document(b)
	return os.WriteFile(name, b.Bytes(), 0o644)
}

// document writes the table for people.
func (o *outcome) document(w io.Writer) {
	fmt.Fprintf(w, "| kind of card | pass | fail | skip |\n|---|---|---|---|\n")
	for _, kind := range o.kinds {
		fmt.Fprintf(w, "| %s | %d | %d | %d |\n", kind, o.count(kind, pass), o.count(kind, fail), o.count(kind, skip))
	}
	fmt.Fprintf(w, "\n| test | case |")
	for _, kind := range o.kinds {
		fmt.Fprintf(w, " %s |", kind)
	}
	fmt.Fprintf(w, " why not, on the ConnectX |\n|---|---|%s---|\n", strings.Repeat("---|", len(o.kinds)))
	last := ""
	for _, r := range o.rows() {
		test := strings.TrimPrefix(r.test, "drivers/net/")
		if test == last {
			test = ""
		} else {
			last = test
		}
		fmt.Fprintf(w, "| %s | %s |", test, escape(r.name))
		for _, kind := range o.kinds {
			fmt.Fprintf(w, " %s |", cmp.Or(r.on[kind].verdict, "-"))
		}
		fmt.Fprintf(w, " %s |\n", escape(r.on[model].why))
	}
	if len(o.starts) > 0 {
		fmt.Fprintf(w, "\nA start of `ethtool` in the guest, beside the card named, in milliseconds (the mean of five):\n\n")
		fmt.Fprintf(w, "| | %s |\n|---|%s\n", strings.Join(o.kinds, " | "), strings.Repeat("---|", len(o.kinds)))
		idle, busy := "| idle |", "| beside 16 streams of iperf3 |"
		for _, kind := range o.kinds {
			idle += fmt.Sprintf(" %d |", o.starts[kind].idle)
			busy += fmt.Sprintf(" %d |", o.starts[kind].busy)
		}
		fmt.Fprintln(w, idle+"\n"+busy)
	}
	if len(o.dmesg) > 0 {
		fmt.Fprintf(w, "\nThe kernel's complaints while tests ran:\n\n")
		for _, line := range o.dmesg {
			fmt.Fprintf(w, "    %s\n", line)
		}
	}
}

func escape(s string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`).Replace(s)
}
