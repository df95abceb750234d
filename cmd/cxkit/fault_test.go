package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"cxkit/device/fault"
	"cxkit/internal/plan"
)

// faultRun is what a run with one of the plans in docs/faults says in its last line.
type faultRun struct {
	args string // beside the plan
	code int
	last string // the diagnosis but for its "closed cleanly"
	cut  string // the same when the user ends the run as the fault strikes; "": any that names the fault
}

const (
	play    = "--play one.pcap"
	reflect = "--play one.pcap --mode reflect"
	discard = "--port discard --duration 1s"
	soon    = " --command-timeout 2s"
	boot    = " --boot-timeout 300ms"

	silentCQ = `firmware silent: CREATE_CQ\(0x400\) had no answer after [0-9.]+m?s`
)

// faultRuns has every plan in docs/faults that breaks something.
func faultRuns() map[string]faultRun {
	const silent, gone, health = `firmware silent: .*CREATE_CQ\(0x400\).* had no answer.*`, "device gone: .*", "interface in error: health syndrome 0x1: .*"
	const interrupt = "interrupt lost: [0-9]+ commands? w(as|ere) complete, .*"
	const unlooked = "unseen by the driver: late-cqe struck once" // it looked for completions later than they came
	const eqe = "EQE lost: [0-9]+ commands? w(as|ere) complete without an event"
	return map[string]faultRun{
		// Firmware never answers, or not in time.
		"no-answer":     {play + soon, 1, silentCQ, silent},
		"late":          {play, 0, `slow firmware: CREATE_CQ\(0x400\) took up to [0-9.m]+s`, ""},
		"hang":          {play, 0, `slow firmware: CREATE_CQ\(0x400\) took up to [0-9.m]+s`, ""},
		"lost-doorbell": {play + soon, 1, silentCQ, silent},
		// It answers, and the word of it goes astray: the run goes on.
		"lost-eqe":              {play, 0, eqe, eqe},
		"wrong-slot":            {play, 0, eqe + "; ghost completion: 1 event .*", "EQE lost: .*ghost completion: 1 event .*"},
		"ghost":                 {play, 0, "ghost completion: [1-9][0-9]* events? named a slot .*", ""},
		"lost-interrupt":        {play, 0, interrupt, interrupt},
		"misdirected-interrupt": {play, 0, interrupt, interrupt},
		// The answer is wrong.
		"bad-token":     {play, 1, `bad answer: CREATE_CQ\(0x400\): .*token.*`, ""},
		"bad-signature": {play + " --signatures", 1, `bad answer: CREATE_CQ\(0x400\): .*signature.*`, ""},
		"bad-status":    {play, 1, `refused: CREATE_RQ\(0x908\): no resources, syndrome 0x1f3c11`, ""},
		"bad-delivery":  {play, 1, `not delivered: CREATE_CQ\(0x400\): token error`, ""},
		"half-output":   {play + " --signatures", 1, `bad answer: CREATE_CQ\(0x400\): .*signature.*`, ""},
		// The card fails.
		"health":     {play + soon, 1, health, health},
		"all-ones":   {play, 1, gone, gone},
		"removal":    {play, 1, gone, gone},
		"init-stuck": {play + boot, 1, "firmware never initialized", ""},
		// Packets: what is lost is told apart.
		"lost-send-doorbell": {reflect + soon, 0, "doorbell lost: 1 frame was posted and not sent", "doorbell lost: 1 frame was posted and not sent"},
		"lost-cqe":           {reflect + soon, 0, "CQE lost: 1 frame was sent without a completion", "CQE lost: 1 frame was sent without a completion"},
		"late-cqe":           {reflect, 0, "(CQE late: completions of sent frames were waited for [0-9.]+m?s|" + unlooked + ")", ""},
		// The rest of the card.
		"unplug":      {discard, 0, "link down", ""},
		"module":      {discard, 0, "module 0: Cable error, High Temperature", ""},
		"power":       {discard, 0, "insufficient power: the PCIe slot offers 27 W", ""},
		"storm":       {discard, 0, "page storm: firmware gave 60000 pages back", ""},
		"port-errors": {discard, 0, "bad line: rx_crc_errors_phy 3", ""},
		"pcie-errors": {discard, 0, "bad PCIe link: it recovered from errors 2 times", ""},
	}
}

// examples are the plans in docs/faults that break something.
func examples(t *testing.T) map[string]fault.Plan {
	t.Helper()
	paths, err := filepath.Glob("../../docs/faults/*.toml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no plans: %v", err)
	}
	all := make(map[string]fault.Plan)
	for _, path := range paths {
		p, err := plan.Load(path, 1)
		if err != nil {
			t.Error(err)
		}
		if len(p.Faults) != 0 {
			all[strings.TrimSuffix(filepath.Base(path), ".toml")] = p
		}
	}
	return all
}

// Every kind of fault has a sign by which the driver knows it, a plan in docs/faults, and a run with it.
func TestEveryKindOfFaultHasADiagnosis(t *testing.T) {
	plans := examples(t)
	shown := make(map[fault.Kind]bool)
	for name, p := range plans {
		if _, ok := faultRuns()[name]; !ok {
			t.Errorf("docs/faults/%s.toml: no test runs it", name)
		}
		for _, f := range p.Faults {
			shown[f.Kind] = true
		}
	}
	for _, k := range fault.Kinds() {
		if len(shownBy(k)) == 0 {
			t.Errorf("%s: no sign of it is known", k)
		}
		if !shown[k] {
			t.Errorf("%s: docs/faults has no plan with it", k)
		}
	}
}

// A run with a fault says in its last line what it was, and leaves nothing; so does one that the user ends in
// the middle of it, within seconds; and a fault that no driver can see, or that found nothing to break, is
// named all the same.
func TestRunsNameTheFault(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", shortDir(t))
	frame := filepath.Join(dir, "one.pcap")
	writeFrame(t, frame)
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	later := write("later.toml", "[[fault]]\nkind = \"late\"\nopcode = \"CREATE_CQ\"\ndelay = \"1h\"\n")
	several := write("several.toml", "[[fault]]\nkind = \"lost-eqe\"\nopcode = \"CREATE_CQ\"\ntimes = 1\n"+
		"[[fault]]\nkind = \"bad-signature\"\nname = \"signature\"\ntimes = 2\nopcode = \"CREATE_CQ\"\n"+
		"[[fault]]\nkind = \"unplug\"\nafter = \"1h\"\n")
	line := func(args, plan string) []string {
		return append(strings.Fields(strings.Replace("run -v "+args, "one.pcap", frame, 1)), "--fault", plan)
	}
	runs := newTogether(8)
	plans := examples(t)
	for name, run := range faultRuns() {
		path, kind := "../../docs/faults/"+name+".toml", plans[name].Faults[0].Kind
		runs.add(name, run.code, run.last, runFault{args: line(run.args, path)})
		args := strings.TrimSuffix(strings.TrimSuffix(run.args, soon), boot)
		want := run.cut
		if want == "" {
			var signs []string
			for _, s := range shownBy(kind) {
				signs = append(signs, regexp.QuoteMeta(string(s))+".*")
			}
			want = fmt.Sprintf("(%s|.*unseen by the driver: %s struck .*)", strings.Join(signs, "|"), kind)
		}
		runs.add(name+", interrupted", anyCode, want, runFault{args: line(args, path), interrupt: true})
	}
	for name, c := range map[string]struct {
		code             int
		args, plan, last string
	}{
		"no signatures":    {exitDone, play, "bad-signature", "unseen by the driver: bad-signature struck once"},
		"half an output":   {exitFailed, play, "half-output", `refused: CREATE_RQ\(0x908\): bad resource, .*; unseen by the driver: half-output struck once`},
		"nothing is sent":  {exitDone, play, "lost-cqe", "never struck: lost-cqe"},
		"no doorbell":      {exitDone, play, "lost-send-doorbell", "never struck: lost-doorbell"},
		"answers too late": {exitFailed, play + soon, later, silentCQ},
		"some of several":  {exitDone, play, several, "EQE lost: .*; unseen by the driver: signature struck 2 times; never struck: unplug"},
	} {
		path := c.plan
		if !filepath.IsAbs(path) {
			path = "../../docs/faults/" + path + ".toml"
		}
		runs.add(name, c.code, c.last, runFault{args: line(c.args, path)})
	}
	runs.check(t)
}

// anyCode is what a run that the user ended may exit with: it may have been done, or failed, before.
const anyCode = -1

// runFault is a command line to run in this process.
type runFault struct {
	args      []string
	interrupt bool // as soon as the card's log says that a fault strikes

	code int
	text string        // standard error
	took time.Duration // since the interrupt
}

// together runs command lines, some at a time: they wait more than they work.
type together struct {
	places chan struct{}
	wg     sync.WaitGroup
	all    []*togetherRun
}

type togetherRun struct {
	name string
	code int
	last *regexp.Regexp
	runFault
}

func newTogether(n int) *together { return &together{places: make(chan struct{}, n)} }

// add runs a command line and wants an exit code, and a diagnosis and a clean close in the last line.
func (g *together) add(name string, code int, last string, r runFault) {
	x := &togetherRun{name, code, regexp.MustCompile(`^cxkit: diagnosis: ` + last + `; closed cleanly$`), r}
	g.all = append(g.all, x)
	g.wg.Go(func() {
		g.places <- struct{}{}
		defer func() { <-g.places }()
		x.run()
	})
}

// check waits for all and compares.
func (g *together) check(t *testing.T) {
	g.wg.Wait()
	for _, x := range g.all {
		t.Run(x.name, func(t *testing.T) {
			lines := strings.Split(strings.TrimSuffix(x.text, "\n"), "\n")
			if last := lines[len(lines)-1]; !x.last.MatchString(last) {
				t.Errorf("last line %q, want %v", last, x.last)
			}
			ended := x.runFault.code == exitDone || x.runFault.code == exitFailed || x.runFault.code == exitInterrupted
			if x.runFault.code != x.code && (x.code != anyCode || !ended) {
				t.Errorf("exit code %d, want %d", x.runFault.code, x.code)
			}
			if x.took > 40*time.Second { // 3 s with the machine to itself
				t.Errorf("took %v after the interrupt", x.took)
			}
			if t.Failed() {
				t.Log(x.text)
			}
		})
	}
}

// run runs the command line.
func (r *runFault) run() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var struck time.Time
	watch := &faultWatch{struck: func() {
		if r.interrupt {
			struck = time.Now()
			cancel()
		}
	}}
	r.code = execute(&world{
		ctx: ctx, in: strings.NewReader(""), out: io.Discard, err: watch, args: r.args, errWidth: func() int { return 80 },
	})
	r.text = watch.text.String()
	if !struck.IsZero() {
		r.took = time.Since(struck)
	}
}

// faultWatch is standard error.
type faultWatch struct {
	struck func()

	mu   sync.Mutex // guards all below
	text bytes.Buffer
	once sync.Once
}

func (w *faultWatch) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(p)
	if bytes.Contains(p, []byte("msg=fault ")) {
		w.once.Do(w.struck)
	}
	return len(p), nil
}

// shortDir is a folder for sockets, whose paths are short.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cx")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// writeFrame writes a capture of one broadcast frame of 60 bytes.
func writeFrame(t *testing.T, path string) {
	t.Helper()
	le := binary.LittleEndian
	b := le.AppendUint32(nil, 0xa1b2c3d4)
	b = le.AppendUint32(b, 4<<16|2)
	b = append(b, make([]byte, 8)...)
	b = le.AppendUint32(b, 1<<16)
	b = le.AppendUint32(b, 1) // Ethernet
	b = append(b, make([]byte, 8)...)
	b = le.AppendUint32(b, 60)
	b = le.AppendUint32(b, 60)
	b = append(b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 9, 0x88, 0xb5)
	b = append(b, make([]byte, 46)...)
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}
