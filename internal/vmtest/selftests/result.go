package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// model is the driver of the card whose tests count.
const model = "mlx5_core"

// verdict is how a case ended.
type verdict string

const (
	pass verdict = "pass"
	fail verdict = "fail"
	skip verdict = "skip"
)

// result is a case of a test, on one kind of card.
type result struct {
	kind, test, name string
	verdict          verdict
	// why is what the test said of a case that did not pass.
	why string
}

// checked tells whether the test came to a check, which failed: tests in Python end by an exception otherwise.
func (r result) checked() bool {
	return r.verdict == fail && (!strings.HasSuffix(r.test, ".py") || strings.HasPrefix(r.why, checkFailed))
}

// checkFailed begins what a test in Python says of a check.
const checkFailed = "Check failed"

// starts is how long a program's start takes in the guest, in milliseconds: alone, and beside the streams of rss_ctx.py.
type starts struct{ idle, busy int }

// complaint is a line of the kernel's while a test ran.
type complaint struct{ kind, test, line string }

func (c complaint) String() string { return c.kind + " " + c.test + ": " + c.line }

// outcome is all that a guest said.
type outcome struct {
	kinds   []string          // in order
	drivers map[string]string // what ethtool -i says
	results []result
	dmesg   []complaint
	starts  map[string]starts
	trouble []string // of the run itself
}

var (
	// ktapLine is a case of a test in Python.
	ktapLine = regexp.MustCompile(`^(ok|not ok) \d+ (?:- )?(\S+)(?: # (\w+)(.*))?$`)
	// shellLine is a case of a test on net/forwarding/lib.sh.
	shellLine = regexp.MustCompile(`^(?:TEST|INFO): (.*?)\s+\[\s*(OK|FAIL|SKIP|XFAIL|XPASS)\s*\]$`)
)

// parse takes apart what selftests.sh prints.
func parse(text string) outcome {
	o := outcome{drivers: make(map[string]string), starts: make(map[string]starts)}
	var kind, test string
	var said []string // since the last case
	var ends ends
	var cases int
	var explains bool
	add := func(name string, v verdict, why string) {
		if why == "" && v != pass {
			why = reason(said)
		}
		o.results = append(o.results, result{kind, test, ends.name(name), v, strings.TrimSpace(why)})
		said, cases = nil, cases+1
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "@kind":
			name, driver, _ := strings.Cut(rest, " ")
			o.kinds, o.drivers[name] = append(o.kinds, name), driver
			ends = nil
		case "@starts":
			var name string
			var s starts
			if _, err := fmt.Sscan(rest, &name, &s.idle, &s.busy); err != nil {
				o.trouble = append(o.trouble, line)
			}
			o.starts[name] = s
		case "@problem":
			o.trouble = append(o.trouble, rest)
		case "@test":
			kind, test, _ = strings.Cut(rest, " ")
			said, cases = nil, 0
		case "@status":
			// A test without cases of its own is one; exit status 4 is the kernel's for a skip.
			status, err := strconv.Atoi(strings.Fields(rest + " -")[0])
			switch {
			case err != nil:
				o.trouble = append(o.trouble, line)
			case status == 124 || status == 137:
				add("(time)", fail, "not over after 15 minutes")
			case cases > 0:
			case status == 4:
				add("(whole)", skip, "")
			case status == 0:
				add("(whole)", pass, "")
			default:
				add("(whole)", fail, "")
			}
		case "@dmesg":
			o.dmesg = append(o.dmesg, complaint{kind, test, rest})
		case "@end":
			test = ""
		default:
			if test == "" {
				continue
			}
			if m := ktapLine.FindStringSubmatch(line); m != nil {
				name := strings.TrimPrefix(m[2], strings.TrimSuffix(test[strings.LastIndex(test, "/")+1:], ".py")+".")
				add(name, ktapVerdict(m[1] == "ok", m[3]), strings.TrimSpace(m[4]))
				continue
			}
			if m := shellLine.FindStringSubmatch(line); m != nil {
				v := map[string]verdict{"OK": pass, "FAIL": fail, "XPASS": pass}[m[2]]
				if v == "" || strings.HasPrefix(m[1], "SKIP: ") {
					v = skip
				}
				add(m[1], v, " ")
				explains = v != pass
				continue
			}
			// Shell tests say why on an indented line behind the case.
			if why, ok := strings.CutPrefix(line, "\t"); ok && explains {
				o.results[len(o.results)-1].why = strings.TrimSpace(why)
			}
			explains = false
			said = append(said, line)
		}
	}
	return o
}

// replace takes all that a later run says of its tests in place of what was there. It must have had the same kinds of
// cards: a test is compared on cards of one guest.
func (o *outcome) replace(later outcome) error {
	if !slices.Equal(o.kinds, later.kinds) {
		return fmt.Errorf("cards %v, before them %v", later.kinds, o.kinds)
	}
	again := make(map[string][]result)
	for _, r := range later.results {
		again[r.test] = append(again[r.test], r)
	}
	known := func(test string) bool { return again[test] != nil }
	o.results = slices.DeleteFunc(o.results, func(r result) bool { return known(r.test) })
	o.dmesg = slices.DeleteFunc(o.dmesg, func(c complaint) bool { return known(c.test) })
	o.results = append(o.results, later.results...)
	o.dmesg = append(o.dmesg, later.dmesg...)
	o.trouble = append(o.trouble, later.trouble...)
	if len(later.starts) > 0 {
		o.starts = later.starts
	}
	return nil
}

// ends are the interfaces of a kind of card in the order in which cases name them: the near one, the far one.
type ends []string

// interfaceName is one of the kernel's own.
var interfaceName = regexp.MustCompile(`\beth\d+\b`)

// name is a case's name as it is on all kinds of cards, whose interfaces have different ones.
func (e *ends) name(text string) string {
	return interfaceName.ReplaceAllStringFunc(text, func(name string) string {
		i := slices.Index(*e, name)
		if i < 0 {
			i = len(*e)
			*e = append(*e, name)
		}
		if i < 2 {
			return [...]string{"the near end", "the far end"}[i]
		}
		return name
	})
}

func ktapVerdict(ok bool, directive string) verdict {
	switch {
	case directive == "SKIP" || directive == "XFAIL" || directive == "TODO":
		return skip
	case ok:
		return pass
	}
	return fail
}

// reason picks of what a test said the line that explains its verdict best: the last exception or failed check.
func reason(said []string) string {
	signs := []string{"# " + checkFailed, "# Exception|", "SKIP", "rror"}
	for _, sign := range signs {
		for _, line := range slices.Backward(said) {
			if strings.Contains(line, sign) {
				return clean(line)
			}
		}
	}
	for _, line := range slices.Backward(said) {
		if strings.TrimSpace(strings.Trim(line, "#")) != "" {
			return clean(line)
		}
	}
	return ""
}

func clean(line string) string {
	line = strings.TrimSpace(strings.TrimLeft(line, "# "))
	line = strings.TrimPrefix(line, "Exception|")
	line = strings.TrimSpace(line)
	if len(line) > 200 {
		line = line[:200] + "..."
	}
	return line
}
