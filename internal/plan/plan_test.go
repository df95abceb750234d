package plan

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"cxkit/device/fault"
	"cxkit/prm"
)

const example = `
about = "an example"
seed = 7

[latency]
other = "100us"
MANAGE_PAGES = { min = "1ms", max = "5ms" }
create_cq = { mean = "1ms", deviation = "200us" }
ACCESS_REG = { median = "300us", p99 = "20ms" }

[[fault]]
kind = "lost-eqe"
name = "events of queues"
opcode = ["CREATE_CQ", 0x904, "create_rq(0x908)"]
function = 1
slot = [3, 4]
after = "1s"
for = "1m"
skip = 2
times = 9
probability = 0.25

[[fault]]
kind = "bad-status"
status = "no resources"
syndrome = 0x1f3c11

[[fault]]
kind = "health"
[fault.health]
assert_var = [0x0521945b, 1]
synd = 8
ext_synd = 0x8f7a
rfr = true
`

func TestPlanIsRead(t *testing.T) {
	p, err := Parse("x.toml", []byte(example), 1)
	if err != nil {
		t.Fatal(err)
	}
	const us, ms = time.Microsecond, time.Millisecond
	want := fault.Plan{
		Seed: 7,
		Faults: []fault.Fault{
			{
				Kind: fault.LostEQE, Name: "events of queues", Opcodes: []prm.Opcode{prm.OpCreateCQ, prm.OpCreateSQ, prm.OpCreateRQ},
				Functions: []int{1}, Slots: []int{3, 4}, After: time.Second, For: time.Minute, Skip: 2, Times: 9, Probability: 0.25,
			},
			{Kind: fault.BadStatus, Status: prm.StatusNoResources, Syndrome: 0x1f3c11},
			{Kind: fault.Health, Health: &fault.HealthBuffer{AssertVar: [6]uint32{0x0521945b, 1}, Syndrome: 8, ExtSyndrome: 0x8f7a, ResetRequest: true}},
		},
		Latency: map[prm.Opcode]fault.Latency{
			prm.OpManagePages: {Min: ms, Max: 5 * ms}, prm.OpCreateCQ: {Mean: ms, Deviation: 200 * us}, prm.OpAccessReg: {Median: 300 * us, P99: 20 * ms},
		},
		Other: &fault.Latency{Min: 100 * us},
	}
	if !reflect.DeepEqual(p, want) {
		t.Errorf("got  %+v\nwant %+v", p, want)
	}
	if p, err := Parse("x.toml", []byte("about = \"nothing\"\n"), 5); err != nil || p.Seed != 5 || !p.Empty() {
		t.Errorf("an empty plan: %+v, %v", p, err)
	}
}

func TestMistakesAreNamedWithTheirLine(t *testing.T) {
	for text, want := range map[string]string{
		"[[fault]]\nkind = \"late\"\ndelay = \"1ms\"\nspeed = 3\n": "x.toml:4:1: no key fault.speed",
		"[[faults]]\n":                                                "x.toml:1:3: no key faults",
		"seed = \"x\"\n":                                              "x.toml:1:",
		"seed = 1\n[[fault]]\nkind = \n":                              "x.toml:3:",
		"[[fault]]\nkind = \"late\"\ndelay = \"fast\"\n":              "x.toml:3:",
		"\n\n[[fault]]\nkind = \"late\"\n":                            "x.toml:3: fault 1: late: delay is missing",
		"[[fault]]\nkind = \"ghost\"\n[[fault]]\nkind = \"spook\"\n":  `x.toml:3: fault 2: kind "spook"`,
		"[[fault]]\nkind = \"no-answer\"\nopcode = \"CREATE_QC\"\n":   `opcode "CREATE_QC": no such name`,
		"[[fault]]\nkind = \"no-answer\"\nopcode = [1, \"opcode\"]\n": `opcode "opcode": no such name`,
		"[[fault]]\nkind = \"no-answer\"\nopcode = 0x10000\n":         "opcode 65536: want 0 to 65535",
		"[[fault]]\nkind = \"no-answer\"\nslot = \"one\"\n":           "slot one: want a number",
		"[[fault]]\nkind = \"no-answer\"\nslot = -1\n":                "slot -1",
		"[[fault]]\nkind = \"no-answer\"\nslot = 1.5\n":               "slot 1.5: want a number",
		"[[fault]]\nkind = \"late\"\ndelay = 5\n":                     `x.toml:3: delay "5": want a time, as "1.5ms"`,
		"[[fault]]\nkind = \"storm\"\npages = \"x\"\n":                "x.toml:3:9: fault.pages: want a number",
		"seed = \"y\"\n": "x.toml:1:8: seed: want a number",
		"[[fault]]\nkind = \"no-answer\"\ndelay = \"1s\"\n":                                  "delay has no meaning for this kind",
		"[[fault]]\nkind = \"ghost\"\nprobability = nan\n":                                   "probability NaN",
		"[[fault]]\nkind = \"health\"\n[fault.health]\nseverity = 1\n":                       "syndrome 0 is no failure",
		"[[fault]]\nkind = \"health\"\n[fault.health]\nsynd = 300\n":                         "x.toml:4:",
		"[[fault]]\nkind = \"health\"\n[fault.health]\nsyndrome = 300\n":                     "x.toml:4:1: no key fault.health.syndrome",
		"[latency]\nCREATE_QC = \"1ms\"\n":                                                   "latency of CREATE_QC: no such command",
		"[latency]\nNOP = 5\n":                                                               "latency of NOP: 5: want a duration",
		"[latency]\nNOP = \"soon\"\n":                                                        "latency of NOP",
		"[latency]\nNOP = { min = \"2ms\", max = \"1ms\" }\n":                                "is no range",
		"[latency]\nNOP = { min = \"2ms\", most = \"1ms\" }\n":                               "no key most",
		"[latency]\nNOP = { min = 2 }\n":                                                     "no key min with a value like 2",
		"[[fault]]\nkind = \"module\"\nmodule_status = \"error\"\nmodule_error = \"warm\"\n": `module_error "warm": no such name`,
		strings.Repeat("#", maxSize+1):                                                       "longer than",
	} {
		_, err := Parse("x.toml", []byte(text), 1)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: %v, want %q", text, err, want)
		}
	}
}

func TestAllMistakesAreReported(t *testing.T) {
	_, err := Parse("x", []byte("[[fault]]\nkind=\"late\"\n[[fault]]\nkind=\"x\"\n[latency]\nfoo=\"1s\"\n"), 1)
	for _, want := range []string{"x:1:", "x:3:", "foo"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
}

func TestPlanOfArguments(t *testing.T) {
	for _, c := range []struct {
		kind string
		args []string
		want fault.Fault
	}{
		{"ghost", nil, fault.Fault{Kind: fault.Ghost}},
		{"late", []string{"opcode=CREATE_CQ,CREATE_SQ", "delay=50ms", "times=1", "probability=0.5", "slot=0x3"},
			fault.Fault{Kind: fault.Late, Opcodes: []prm.Opcode{prm.OpCreateCQ, prm.OpCreateSQ}, Delay: 50 * time.Millisecond, Times: 1, Probability: 0.5, Slots: []int{3}}},
		{"health", []string{"synd=0x8", "severity=1", "assert_var=1", "name=hot"},
			fault.Fault{Kind: fault.Health, Name: "hot", Health: &fault.HealthBuffer{Syndrome: 8, Severity: 1, AssertVar: [6]uint32{1}}}},
		{"unplug", []string{"for=6s", "no_link=true"}, fault.Fault{Kind: fault.Unplug, For: 6 * time.Second, NoLink: true}},
		{"lost-eqe", []string{"event=completion", "queue=7"}, fault.Fault{Kind: fault.LostEQE, Events: []prm.EventType{prm.EventCompletion}, Queues: []uint32{7}}},
		{"module", []string{"module_status=error", "module_error=high temperature"}, fault.Fault{Kind: fault.Module, ModuleStatus: prm.ModuleError, ModuleError: 6}},
		{"storm", []string{"pages=120000", "after=1s"}, fault.Fault{Kind: fault.Storm, Pages: 120_000, After: time.Second}},
		{"port-errors", []string{"what=pcs-symbol", "count=40"}, fault.Fault{Kind: fault.PortErrors, What: fault.UncorrectedSymbol, Count: 40}},
		{"bad-delivery", []string{"delivery=token error"}, fault.Fault{Kind: fault.BadDelivery, Delivery: prm.DeliveryTokenError}},
	} {
		text, err := FromArguments(c.kind, c.args)
		if err != nil {
			t.Errorf("%s %v: %v", c.kind, c.args, err)
			continue
		}
		p, err := Parse("arguments", []byte(text), 1)
		if err != nil || len(p.Faults) != 1 || !reflect.DeepEqual(p.Faults[0], c.want) {
			t.Errorf("%s %v: %+v, %v\n%s", c.kind, c.args, p.Faults, err, text)
		}
	}
	for _, bad := range [][]string{{"spook"}, {"late", "delay"}, {"late", "=3"}, {"late", "de lay=3"}, {"late", "a\n[[fault]]=3"}} {
		if text, err := FromArguments(bad[0], bad[1:]); err == nil {
			t.Errorf("%q became %q", bad, text)
		}
	}
	// What is wrong is named first; what is missing is said when nothing else is wrong.
	for _, c := range []struct{ args, want string }{
		{"late opcode=X", `late: opcode "X": no such name: want a command's name as CREATE_CQ, or a number`},
		{"late", "late: delay is missing"},
		{"late delay=5 opcode=X", `late: delay "5": want a time, as "1.5ms" or "2s"`},
		{"late delay=soon", `late: delay: want a time, as "1.5ms" or "2s"`},
		{"late speed=3", "late: no key speed"},
		{"late delay=-1s", "late: delay -1s is negative"},
		{"late delay=1s slot=99", "late: slot 99: want 0 to 31"},
		{"late delay=1s delay=2s", "late: key delay is already defined"},
		{"hang delay=1s", "hang: delay has no meaning for this kind; it is for [late ghost late-cqe]"},
		{"storm pages=x", "storm: pages: want a number"},
		{"unplug no_link=maybe", "unplug: no_link: want true or false"},
		{"health synd=x", "health: synd: want a number from 0 to 255"},
		{"bad-status status=foo opcode=Y", `bad-status: opcode "Y": no such name: want a command's name as CREATE_CQ, or a number; ` +
			`status "foo": no such name: want a name as "no resources", or a number`},
		{"port-errors", `port-errors: what "": want one of [crc alignment symbol fragments jabbers pcs-symbol corrected-bits]; ` +
			"port-errors: count 0: want 1 to 1000000000"},
	} {
		f := strings.Fields(c.args)
		if _, err := FromArguments(f[0], f[1:]); err == nil || err.Error() != c.want {
			t.Errorf("%s:\n got %v\nwant %s", c.args, err, c.want)
		}
	}
	// A value can't break out of its string.
	text, err := FromArguments("late", []string{"name=x\"\nkind = \"ghost", "delay=1s"})
	if err != nil {
		t.Fatal(err)
	}
	if p, err := Parse("arguments", []byte(text), 1); err != nil || p.Faults[0].Kind != fault.Late {
		t.Errorf("%+v, %v", p, err)
	}
}

// docs is where the example plans are.
const docs = "../../docs/faults"

func TestExamplePlansAreGood(t *testing.T) {
	files, err := filepath.Glob(docs + "/*.toml")
	if err != nil || len(files) < len(fault.Kinds()) {
		t.Fatalf("%d example plans, %v; want one for each kind at least", len(files), err)
	}
	kinds := map[fault.Kind]bool{}
	for _, path := range files {
		p, err := Load(path, 1)
		if err != nil {
			t.Error(err)
		}
		if text, _ := os.ReadFile(path); !strings.HasPrefix(string(text), "about = \"") {
			t.Errorf("%s does not begin with what it is about", path)
		}
		for _, f := range p.Faults {
			kinds[f.Kind] = true
		}
	}
	for _, k := range fault.Kinds() {
		if !kinds[k] {
			t.Errorf("no example of %s", k)
		}
	}
}

func TestDocumentationNamesEveryKindAndKey(t *testing.T) {
	text, err := os.ReadFile(docs + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, k := range fault.Kinds() {
		words = append(words, string(k))
	}
	for _, of := range []reflect.Type{reflect.TypeFor[entry](), reflect.TypeFor[health](), reflect.TypeFor[file]()} {
		for i := range of.NumField() {
			words = append(words, of.Field(i).Tag.Get("toml"))
		}
	}
	for _, w := range words {
		if !strings.Contains(string(text), "`"+w+"`") {
			t.Errorf("README.md does not say what %s is", w)
		}
	}
}

func TestLoadOfAFileThatIsNotThere(t *testing.T) {
	if _, err := Load(filepath.Join(t.TempDir(), "x.toml"), 1); err == nil || !strings.Contains(err.Error(), "x.toml") {
		t.Errorf("got %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(example))
	f.Add([]byte("[[fault]]\nkind = \"late\"\ndelay = \"1ms\"\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := Parse("fuzz", text, 1)
		if err == nil && p.Check() != nil {
			t.Errorf("a plan that is not good was taken: %v", p.Check())
		}
	})
}
