package main

import (
	"strings"
	"testing"
)

func TestAFailureIsExcusedOnlyByCardsThatGetAsFar(t *testing.T) {
	const slow, broken = "Check failed 0.5 >= 0.2", "KeyError: 'rss-hash-key'"
	on := func(v verdict, why string) result { return result{"igb", "hw/a.py", "case", v, why} }
	for name, c := range map[string]struct {
		own    string
		others []result
		bad    string
	}{
		"alone":                    {slow, nil, "case fails"},
		"a rival fails alike":      {slow, []result{on(fail, "Check failed 0.9 >= 0.2"), on(fail, broken), on(skip, "no queues")}, ""},
		"a rival passes":           {slow, []result{on(fail, slow), on(pass, "")}, "case fails"},
		"rivals do not get there":  {slow, []result{on(fail, broken), on(skip, "no queues")}, "case fails"},
		"it breaks off everywhere": {broken, []result{on(fail, broken), on(fail, slow)}, ""},
		"it breaks off here":       {broken, []result{on(skip, "no queues")}, "case fails"},
	} {
		t.Run(name, func(t *testing.T) {
			o := outcome{kinds: []string{model}, results: []result{{model, "hw/a.py", "case", fail, c.own}}}
			for i, r := range c.others {
				r.kind = string(rune('a' + i))
				o.kinds, o.results = append(o.kinds, r.kind), append(o.results, r)
				// As many others pass here as there: what is counted in sum is another matter.
				o.results = append(o.results, result{model, "hw/b.py", r.kind, pass, ""})
			}
			err := o.judge()
			if (err == nil) != (c.bad == "") || err != nil && !strings.Contains(err.Error(), c.bad) {
				t.Errorf("%v, want %q", err, c.bad)
			}
		})
	}
}

func TestCommandFailsForWhatTheRunSays(t *testing.T) {
	fine := result{model, "hw/a.py", "case", pass, ""}
	for name, c := range map[string]struct {
		o   outcome
		bad string
	}{
		"fine":              {outcome{kinds: []string{model}, results: []result{fine}}, ""},
		"nothing":           {outcome{kinds: []string{model}}, "no test ran"},
		"a complaint":       {outcome{kinds: []string{model}, results: []result{fine}, dmesg: []complaint{{model, "hw/a.py", "it failed"}}}, "dmesg, "},
		"another complains": {outcome{kinds: []string{model}, results: []result{fine}, dmesg: []complaint{{"igb", "hw/a.py", "it failed"}}}, ""},
		"no link":           {outcome{kinds: []string{model}, results: []result{fine}, trouble: []string{"no link"}}, "no link"},
		"more pass on igb":  {outcome{kinds: []string{model, "igb"}, results: []result{fine, {"igb", "hw/a.py", "a", pass, ""}, {"igb", "hw/a.py", "b", pass, ""}}}, "on igb 2"},
		"as many do on igb": {outcome{kinds: []string{model, "igb"}, results: []result{fine, {"igb", "hw/a.py", "a", pass, ""}}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.o.judge()
			if (err == nil) != (c.bad == "") || err != nil && !strings.Contains(err.Error(), c.bad) {
				t.Errorf("%v, want %q", err, c.bad)
			}
		})
	}
}

func TestCasesOfATestStayTogether(t *testing.T) {
	o := outcome{kinds: []string{model, "igb"}, results: []result{
		{model, "a.sh", "one", pass, ""}, {model, "b.sh", "one", pass, ""},
		{"igb", "a.sh", "one", fail, ""}, {"igb", "a.sh", "two", skip, ""}, {"igb", "b.sh", "one", pass, ""},
	}}
	var b strings.Builder
	o.document(&b)
	want := "| a.sh | one | pass | fail |  |\n|  | two | - | skip |  |\n| b.sh | one | pass | pass |  |\n"
	if !strings.Contains(b.String(), want) {
		t.Errorf("table\n%s\nwant in it\n%s", b.String(), want)
	}
}
