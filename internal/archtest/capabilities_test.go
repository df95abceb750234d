package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"cxkit/drivertest"
)

// TestCapabilitiesNameTestsThatExist: every case, test and line of a guest's script that docs/capabilities.md names is
// there.
func TestCapabilitiesNameTestsThatExist(t *testing.T) {
	const root = "../.."
	data, err := os.ReadFile(filepath.Join(root, "docs/capabilities.md"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range append(drivertest.All(), drivertest.Virtual()...) {
		names = append(names, c.Name)
	}
	cases, lines, problems := missingCapabilities(root, string(data), names)
	for _, p := range problems {
		t.Error(p)
	}
	if cases < 100 || lines < 30 {
		t.Errorf("%d tests and %d lines of scripts are named: was the table read?", cases, lines)
	}
}

func TestMissingCapabilitiesAreFound(t *testing.T) {
	for row, want := range map[string]string{
		"| a | b | `Sends` | | 4 |":                                 "no case",
		"| a | b | `Sent*` | | 4 |":                                 "no case",
		"| a | b | `device.TestNothing` | | 4 |":                    "no test",
		"| a | b | `nowhere.TestNothing` | | 4 |":                   "no test",
		"| a | b | | `acceptance.sh` `no such thing` | 4 |":         "no such thing",
		"| a | b | | `nowhere.sh` `x` | 4 |":                        "nowhere.sh",
		"| a | b | | `promisc on` | 4 |":                            "no script",
		"| a | b | | Linux | 4 |":                                   "nothing",
		"| a | b | `go test -run TestX ./device` |":                 "no test TestX",
		"| a | b | `SendsOneFrame`, `SendsO*` | | 4 |":              "",
		"| a | b | | `acceptance.sh` `promisc on`, `pair_up` | 4 |": "",
	} {
		_, _, problems := missingCapabilities("../..", row, []string{"SendsOneFrame"})
		if got := strings.Join(problems, "\n"); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", row, got, want)
		}
	}
}

var (
	codeSpan = regexp.MustCompile("`([^`]+)`")
	longTest = regexp.MustCompile(`go test -run (\w+) \./([\w/]+)`)
)

// missingCapabilities reads the tables of capabilities, which have five columns, and those of deeds, which have three,
// and says what they name that is not there.
func missingCapabilities(root, doc string, names []string) (cases, lines int, problems []string) {
	bad := func(row, what string) { problems = append(problems, what+": "+row) }
	for _, row := range strings.Split(doc, "\n") {
		cells := strings.Split(strings.Trim(row, "| "), "|")
		if !strings.HasPrefix(row, "|") || strings.HasPrefix(row, "|---") || len(cells) < 3 {
			continue
		}
		tests, linux := cells[1], ""
		if len(cells) == 5 {
			tests, linux = cells[2], cells[3]
		}
		named := 0
		if run := longTest.FindStringSubmatch(row); run != nil {
			named++
			cases++
			if !hasTest(filepath.Join(root, run[2]), run[1]) {
				bad(row, "no test "+run[1])
			}
		}
		for _, span := range codeSpan.FindAllStringSubmatch(tests, -1) {
			named++
			cases++
			if pkg, test, ok := strings.Cut(span[1], ".Test"); ok {
				if !hasTest(filepath.Join(root, pkg), "Test"+test) {
					bad(row, "no test "+span[1])
				}
			} else if !hasCase(names, span[1]) {
				bad(row, "no case "+span[1])
			}
		}
		script := ""
		for _, span := range codeSpan.FindAllStringSubmatch(linux, -1) {
			named++
			lines++
			if strings.HasSuffix(span[1], ".sh") {
				data, err := os.ReadFile(filepath.Join(root, "internal/vmtest/testdata", span[1]))
				if err != nil {
					bad(row, err.Error())
				}
				script = string(data)
			} else if script == "" {
				bad(row, "no script in front of "+span[1])
			} else if !strings.Contains(script, span[1]) {
				bad(row, "the script has no "+span[1])
			}
		}
		if header := strings.Contains(row, "tested by") || strings.Contains(row, "against"); named == 0 && !header {
			bad(row, "nothing is named")
		}
	}
	return cases, lines, problems
}

// hasCase tells whether a name is a case's, or its beginning where it ends with a star.
func hasCase(names []string, want string) bool {
	prefix, any := strings.CutSuffix(want, "*")
	for _, name := range names {
		if name == want || any && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// hasTest looks for a test in a package.
func hasTest(dir, name string) bool {
	files, _ := filepath.Glob(filepath.Join(dir, "*_test.go"))
	for _, file := range files {
		if data, err := os.ReadFile(file); err == nil && strings.Contains(string(data), "\nfunc "+name+"(") {
			return true
		}
	}
	return false
}
