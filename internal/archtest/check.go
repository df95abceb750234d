package archtest

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Violation is a place that breaks a rule.
type Violation struct {
	File string
	Line int
	Rule string // a short name: import, module, unsafe, cgo, init, global, folder, path
	Text string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", v.File, v.Line, v.Rule, v.Text)
}

// tree is the source of one module.
type tree struct {
	module  string
	rules   Rules
	set     *token.FileSet
	folders map[string][]source
	found   []Violation
}

// source is one parsed file.
type source struct {
	name      string
	test      bool
	generated bool
	ast       *ast.File
}

// Check parses the Go files of the module whose root is fsys, and returns what breaks the rules, sorted.
func Check(fsys fs.FS, rules Rules) ([]Violation, error) {
	module, err := ModulePath(fsys)
	if err != nil {
		return nil, err
	}
	t := &tree{module: module, rules: rules, set: token.NewFileSet(), folders: map[string][]source{}}
	if err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error { return t.visit(fsys, name, d, err) }); err != nil {
		return nil, err
	}
	for folder, files := range t.folders {
		for _, f := range files {
			t.checkFile(folder, f)
		}
		t.checkState(folder, files)
	}
	slices.SortFunc(t.found, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Text, b.Text))
	})
	return t.found, nil
}

// ModulePath reads the module's path from go.mod.
func ModulePath(fsys fs.FS) (string, error) {
	b, err := fs.ReadFile(fsys, "go.mod")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if p, ok := strings.CutPrefix(strings.TrimSpace(line), "module "); ok {
			return strings.Trim(strings.TrimSpace(p), `"`), nil
		}
	}
	return "", errors.New("go.mod has no module line")
}

func (t *tree) visit(fsys fs.FS, name string, d fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	if d.IsDir() {
		base := path.Base(name)
		if name != "." && (base == "testdata" || base == "vendor" || base[0] == '.' || base[0] == '_') {
			return fs.SkipDir
		}
		if _, err := fs.Stat(fsys, path.Join(name, "go.mod")); err == nil && name != "." {
			return fs.SkipDir // a module of its own has rules of its own
		}
		return nil
	}
	if path.Ext(name) != ".go" {
		return nil
	}
	text, err := fs.ReadFile(fsys, name)
	if err != nil {
		return err
	}
	file, err := parser.ParseFile(t.set, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	folder := path.Dir(name)
	t.folders[folder] = append(t.folders[folder], source{
		name: name, test: strings.HasSuffix(name, "_test.go"), generated: ast.IsGenerated(file), ast: file,
	})
	return nil
}

func (t *tree) report(pos token.Pos, rule, format string, args ...any) {
	p := t.set.Position(pos)
	t.found = append(t.found, Violation{File: p.Filename, Line: p.Line, Rule: rule, Text: fmt.Sprintf(format, args...)})
}

// under tells whether folder is root or below it.
func under(folder, root string) bool {
	return root == "" || folder == root || strings.HasPrefix(folder, root+"/")
}

// row finds the row with the longest folder that holds folder.
func (t *tree) row(folder string) *ImportRow {
	var best *ImportRow
	length := -1
	for i := range t.rules.Imports {
		for _, root := range t.rules.Imports[i].Folders {
			if under(folder, root) && len(root) > length {
				best, length = &t.rules.Imports[i], len(root)
			}
		}
	}
	return best
}

// allows tells whether the row lets its folders import folder.
func (r *ImportRow) allows(folder string) bool {
	holds := func(root string) bool { return under(folder, root) }
	return !slices.ContainsFunc(r.Never, holds) &&
		(r.Any || slices.ContainsFunc(r.Folders, holds) || slices.ContainsFunc(r.May, holds))
}

func (t *tree) checkFile(folder string, f source) {
	row := t.row(folder)
	if row == nil {
		t.report(f.ast.Package, "folder", "%s has no row in the import rules", folder)
	}
	for _, spec := range f.ast.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser has checked it
		}
		switch inside, ok := strings.CutPrefix(p, t.module+"/"); {
		case p == "C":
			t.report(spec.Pos(), "cgo", "cgo is not used here")
		case p == "unsafe":
			t.checkUnsafe(spec.Pos(), folder, f)
		case ok:
			if t.folders[inside] == nil {
				t.report(spec.Pos(), "path", "%s is no package of module %s", p, t.module)
			} else if !f.test && row != nil && !row.allows(inside) {
				t.report(spec.Pos(), "import", "%s may not import %s", folder, inside)
			}
		case !standard(p):
			t.checkModule(spec.Pos(), folder, f, p)
		}
	}
}

func (t *tree) checkUnsafe(pos token.Pos, folder string, f source) {
	allowed := slices.ContainsFunc(t.rules.Unsafe, func(root string) bool { return under(folder, root) })
	name := strings.TrimSuffix(strings.TrimSuffix(f.name, ".go"), "_test")
	if !allowed || !strings.HasSuffix(name, "_unsafe") {
		t.report(pos, "unsafe", "unsafe belongs in *_unsafe.go and *_unsafe_test.go under %s", strings.Join(t.rules.Unsafe, ", "))
	}
}

func (t *tree) checkModule(pos token.Pos, folder string, f source, p string) {
	if first, _, _ := strings.Cut(p, "/"); !strings.Contains(first, ".") {
		t.report(pos, "path", "%s is no package of module %s", p, t.module)
		return
	}
	for _, row := range t.rules.Modules {
		if row.Tests && !f.test || !under(folder, row.Folder) {
			continue
		}
		if slices.ContainsFunc(row.Modules, func(m string) bool { return under(p, m) }) {
			return
		}
	}
	t.report(pos, "module", "%s may not import %s", folder, p)
}

// standard tells whether p is of the standard library, by its first word: our own path has no dot
// either, so a missing dot does not say it.
func standard(p string) bool {
	first, _, _ := strings.Cut(p, "/")
	return slices.Contains(standardRoots(), first)
}

func standardRoots() []string {
	return strings.Fields(`archive arena bufio bytes cmp compress container context crypto database debug embed encoding errors
		expvar flag fmt go hash html image index io iter log maps math mime net os path plugin reflect regexp runtime slices
		sort strconv strings structs sync syscall testing text time unicode unique weak`)
}
