package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"
	"testing/fstest"
)

// NICs in tests check their buffers: a free one is poisoned, a wrong move panics. Only functions named
// Unchecked, benchmarks, and those listed here, open one without.
func TestNICsInTestsCheckTheirBuffers(t *testing.T) {
	opens, found, err := unchecked(os.DirFS("../.."), map[string]bool{
		"internal/vmtest/inguest/guest_test.go: speed": true, // measures
		"driver/fuzz_test.go: drive":                   true, // its card writes into free buffers
	})
	if err != nil {
		t.Fatal(err)
	}
	if opens < 20 {
		t.Errorf("only %d calls of driver.Open in tests were found", opens)
	}
	for _, v := range found {
		t.Errorf("%s opens a NIC without CheckBuffers", v)
	}
}

// The rule finds what it is for, and lets be what it is not for.
func TestUncheckedBuffersAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		file, text string
		want       int
	}{
		"no checks":            {"a/a_test.go", `func F() { driver.Open(x, f, driver.Config{}) }`, 1},
		"literal":              {"a/a_test.go", `func F() { driver.Open(x, f, driver.Config{CheckBuffers: true}) }`, 0},
		"literal beside":       {"a/a_test.go", `func F() { c.CheckBuffers = true; driver.Open(x, f, driver.Config{}) }`, 1},
		"switched off":         {"a/a_test.go", `func F() { c.CheckBuffers = false; driver.Open(x, f, c) }`, 1},
		"variable":             {"a/a_test.go", `func F() { c.CheckBuffers = true; driver.Open(x, f, c) }`, 0},
		"other variable":       {"a/a_test.go", `func F() { d.CheckBuffers = true; driver.Open(x, f, c) }`, 1},
		"from a function":      {"a/a_test.go", `func F() { c := config(); driver.Open(x, f, c) }; func config() any { return driver.Config{CheckBuffers: true} }`, 0},
		"from another":         {"a/a_test.go", `func F() { c := config(); driver.Open(x, f, c) }; func config() any { return driver.Config{} }`, 1},
		"called in place":      {"a/a_test.go", `func F() { driver.Open(x, f, config()) }; func config() any { return driver.Config{CheckBuffers: true} }`, 0},
		"measured":             {"a/a_test.go", `func BenchmarkF() { driver.Open(x, f, driver.Config{}) }`, 0},
		"named so":             {"a/a_test.go", `func openUnchecked() { driver.Open(x, f, c) }`, 0},
		"the driver's own":     {"driver/a_test.go", `func F() { Open(x, f, c); inproc.Open(x, y) }`, 1},
		"helpers of tests":     {"drivertest/a.go", `func F() { driver.Open(x, f, driver.Config{}) }`, 1},
		"not a test":           {"cmd/cxkit/a.go", `func F() { driver.Open(x, f, driver.Config{}) }`, 0},
		"listed by the caller": {"a/a_test.go", `func listed() { driver.Open(x, f, driver.Config{}) }`, 0},
	} {
		_, found, err := unchecked(fstest.MapFS{c.file: {Data: []byte("package p\n" + c.text)}}, map[string]bool{"a/a_test.go: listed": true})
		if err != nil || len(found) != c.want {
			t.Errorf("%s: found %v, %v; want %d", name, found, err, c.want)
		}
	}
}

// unchecked lists the functions of tests, as file: name, that open a NIC whose configuration does not say
// CheckBuffers: true, and how many open one at all.
func unchecked(fsys fs.FS, measured map[string]bool) (opens int, found []string, err error) {
	type function struct {
		file string
		decl *ast.FuncDecl
	}
	folders := map[string][]function{}
	err = fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); name != "." && (base[0] == '.' || base == "testdata") {
				return fs.SkipDir
			}
			return nil
		}
		folder := path.Dir(name)
		helps := folder == "drivertest" || folder == "sim" || folder == "internal/rig/rigtest"
		if !strings.HasSuffix(name, "_test.go") && !(helps && strings.HasSuffix(name, ".go")) {
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				folders[folder] = append(folders[folder], function{name, f})
			}
		}
		return nil
	})
	for folder, functions := range folders {
		makers := map[string]bool{} // functions that say it in a literal
		for _, f := range functions {
			makers[f.decl.Name.Name] = makers[f.decl.Name.Name] || literal(f.decl.Body)
		}
		for _, f := range functions {
			name := f.decl.Name.Name
			for _, config := range configs(f.decl.Body, folder == "driver") {
				opens++
				exempt := strings.HasPrefix(name, "Benchmark") || strings.Contains(name, "Unchecked") || measured[f.file+": "+name]
				if !exempt && !checks(config, f.decl.Body, makers) {
					found = append(found, f.file+": "+name)
				}
			}
		}
	}
	return opens, found, err
}

// configs are the last arguments of the calls of driver.Open, within the driver of Open.
func configs(body ast.Node, own bool) (list []ast.Expr) {
	ast.Inspect(body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 3 {
			return true
		}
		switch f := call.Fun.(type) {
		case *ast.Ident:
			ok = own && f.Name == "Open"
		case *ast.SelectorExpr:
			x, named := f.X.(*ast.Ident)
			ok = named && x.Name == "driver" && f.Sel.Name == "Open"
		default:
			ok = false
		}
		if ok {
			list = append(list, call.Args[2])
		}
		return true
	})
	return list
}

// checks tells whether a configuration has the checks on: as a literal, by a maker, or as a variable that
// the function gets from these or sets.
func checks(config ast.Expr, body ast.Node, makers map[string]bool) (ok bool) {
	said := func(e ast.Expr) bool {
		if call, is := e.(*ast.CallExpr); is {
			f, named := call.Fun.(*ast.Ident)
			return named && makers[f.Name]
		}
		_, is := e.(*ast.CompositeLit)
		return is && literal(e)
	}
	if said(config) {
		return true
	}
	name := dotted(config)
	ast.Inspect(body, func(n ast.Node) bool {
		a, is := n.(*ast.AssignStmt)
		if !is || len(a.Lhs) != len(a.Rhs) {
			return true
		}
		for i, to := range a.Lhs {
			if name == "" {
				break
			}
			switch dotted(to) {
			case name:
				ok = ok || said(a.Rhs[i])
			case name + ".CheckBuffers":
				ok = ok || isTrue(a.Rhs[i])
			}
		}
		return true
	})
	return ok
}

// dotted is the text of a name or a chain of selectors, "" of anything else.
func dotted(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		if x := dotted(e.X); x != "" {
			return x + "." + e.Sel.Name
		}
	}
	return ""
}

func isTrue(e ast.Expr) bool {
	i, ok := e.(*ast.Ident)
	return ok && i.Name == "true"
}

// literal tells whether CheckBuffers: true is in there.
func literal(n ast.Node) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		if kv, ok := n.(*ast.KeyValueExpr); ok {
			k, named := kv.Key.(*ast.Ident)
			found = found || named && k.Name == "CheckBuffers" && isTrue(kv.Value)
		}
		return true
	})
	return found
}
