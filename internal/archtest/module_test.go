package archtest

import (
	"go/format"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// copyTree copies the module without captures, binaries and history, and returns what it copied.
func copyTree(t *testing.T) (to string, files map[string]string) {
	t.Helper()
	to, files = t.TempDir(), map[string]string{}
	root := os.DirFS("../..")
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if d.Name() == ".git" || name == "testdata" {
				return fs.SkipDir
			}
			return os.MkdirAll(filepath.Join(to, name), 0o755)
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() || info.Size() > 4<<20 {
			return nil
		}
		b, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		files[name] = string(b)
		return os.WriteFile(filepath.Join(to, name), b, info.Mode().Perm())
	})
	if err != nil {
		t.Fatal(err)
	}
	return to, files
}

// run runs a command in dir and returns what it printed.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestRenamedModuleBuilds(t *testing.T) {
	dir, files := copyTree(t)
	old, err := ModulePath(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	run(t, dir, nil, "scripts/rename-module", "nic.example/cx5-kit/v2")
	if got, err := ModulePath(os.DirFS(dir)); err != nil || got != "nic.example/cx5-kit/v2" {
		t.Fatalf("module is %s, %v", got, err)
	}
	found, err := Check(os.DirFS(dir), Design())
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range found {
		t.Error(v)
	}
	run(t, dir, nil, "go", "build", "./...")

	// And back: nothing but the path may have changed.
	run(t, dir, nil, "scripts/rename-module", old)
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
		}
		if formatted, err := format.Source([]byte(want)); err == nil && strings.HasSuffix(name, ".go") {
			want = string(formatted)
		}
		if string(got) != want {
			t.Errorf("%s differs after the path was changed and changed back", name)
		}
	}
}

// Steps that run tests would run this one: only others are tried.
func TestCheckFails(t *testing.T) {
	dir, _ := copyTree(t)
	check := func(step string) (string, bool) {
		cmd := exec.CommandContext(t.Context(), "./check", step)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		return string(out), err == nil
	}
	change := func(name, old, now string) {
		path := filepath.Join(dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		changed := strings.Replace(string(text), old, now, 1)
		if changed == string(text) {
			t.Fatalf("%s holds no %q", name, old)
		}
		if err := os.WriteFile(path, []byte(changed), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	change("trace/log.go", "package trace\n", "package  trace\n")
	if out, ok := check("fmt"); ok || !strings.Contains(out, "trace/log.go") {
		t.Errorf("a file that gofmt would change passes:\n%s", out)
	}
	change("trace/log.go", "package  trace\n", "package trace\n")
	change("prm/zz_event.go", "// EventType", "// Eventtype")
	if out, ok := check("generate"); ok || !strings.Contains(out, "prm/zz_event.go") {
		t.Errorf("a generated file that was edited passes:\n%s", out)
	}
	if out, ok := check("nothing"); ok || !strings.Contains(out, "no step nothing") {
		t.Errorf("an unknown step passes:\n%s", out)
	}
}

// pathInText finds file and folder names in a document.
var pathInText = regexp.MustCompile("`([a-z][a-z0-9_./*-]*(?:/[a-z0-9_.*-]+)+|[a-z_]+\\.go)`")

func TestDocumentsNameFilesThatExist(t *testing.T) {
	for _, doc := range []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"} {
		text, err := os.ReadFile(filepath.Join("../..", doc))
		if err != nil {
			t.Fatal(err)
		}
		found := pathInText.FindAllSubmatch(text, -1)
		if len(found) == 0 {
			t.Errorf("%s names no file", doc)
		}
		for _, m := range found {
			name := string(m[1])
			if !strings.Contains(name, "/") {
				continue // a file of the folder named before it
			}
			if match, err := filepath.Glob(filepath.Join("../..", name)); err != nil || len(match) == 0 {
				t.Errorf("%s names %s, which is not there", doc, name)
			}
		}
	}
}

// secondModule is what another module needs to use this one, as the README shows it.
var secondModule = regexp.MustCompile("(?s)```\n(require .*?)```")

func TestSecondModuleUsesThisOneAsTheReadmeSays(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	lines := secondModule.FindSubmatch(readme)
	if lines == nil {
		t.Fatal("README.md shows no require and replace lines")
	}
	requires := strings.ReplaceAll(string(lines[1]), "../cxkit", root)
	module, err := ModulePath(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"go.mod": "module second\n\ngo 1.26.0\n\n" + requires,
		"go.sum": string(sum),
		"second_test.go": strings.ReplaceAll(`package second

import (
	"testing"

	"MODULE/driver"
	"MODULE/sim"
)

func TestNIC(t *testing.T) {
	nic, far := sim.New(t, sim.Driver(driver.Config{Queues: 2}))
	if nic.Queues() != 2 || !far.Link() {
		t.Fatalf("%d queues, link %v", nic.Queues(), far.Link())
	}
}
`, "MODULE", module),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(string(readme), "`go mod tidy`") {
		t.Error("README.md does not say that go mod tidy adds what this module requires")
	}
	run(t, dir, []string{"GOFLAGS=", "GOWORK=off"}, "go", "mod", "tidy")
	out := run(t, dir, []string{"GOFLAGS=", "GOWORK=off"}, "go", "test", "-v", "-count=1", ".")
	if !strings.Contains(out, "--- PASS: TestNIC") {
		t.Errorf("the second module's test did not run:\n%s", out)
	}
}
