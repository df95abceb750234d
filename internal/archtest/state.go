package archtest

import (
	"errors"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// checkState reports init functions and package-level variables that hold state. A variable is taken
// for a constant table if it has an initial value that can't be shared state, and nobody in the package
// assigns to it, to a part of it, or takes its address. The address of a generated table may be taken:
// its package hands tables out to be read. That is as far as syntax goes: a table handed to a function
// that writes to it is not found.
func (t *tree) checkState(folder string, files []source) {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	var parsed []*ast.File
	for _, f := range files {
		if !f.test {
			parsed = append(parsed, f.ast)
		}
	}
	// Imports are not resolved and files of all systems are taken together: errors are expected, the
	// scopes that tell a package's variable from a local one of the same name are right all the same.
	conf := types.Config{Importer: noImports{}, Error: func(error) {}, FakeImportC: true}
	pkg, _ := conf.Check(folder, t.set, parsed, info)
	generated := map[string]bool{}
	for _, f := range files {
		generated[f.name] = f.generated
	}
	for _, f := range files {
		if f.test || f.generated {
			continue
		}
		for _, decl := range f.ast.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.Name == "init" {
					t.report(d.Pos(), "init", "no init functions: say it where it is used")
				}
			case *ast.GenDecl:
				if d.Tok == token.VAR {
					t.checkVars(d)
				}
			}
		}
		if pkg != nil {
			t.checkWrites(f.ast, pkg, info, generated)
		}
	}
}

type noImports struct{}

func (noImports) Import(string) (*types.Package, error) { return nil, errors.New("not resolved") }

// checkVars looks at what variables are made of.
func (t *tree) checkVars(d *ast.GenDecl) {
	for _, spec := range d.Specs {
		v, ok := spec.(*ast.ValueSpec)
		if !ok {
			continue
		}
		for i, name := range v.Names {
			switch {
			case name.Name == "_" || embedded(d.Doc) || embedded(v.Doc):
			case len(v.Values) == 0:
				t.report(name.Pos(), "global", "variable %s has no value: it can only be state", name.Name)
			case i < len(v.Values) && stateful(v.Values[i]):
				t.report(name.Pos(), "global", "variable %s is shared state", name.Name)
			}
		}
	}
}

// embedded tells whether a go:embed directive fills the variable.
func embedded(doc *ast.CommentGroup) bool {
	return doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool {
		return strings.HasPrefix(c.Text, "//go:embed ")
	})
}

// makers are the calls whose result nobody can change.
func makers() []string {
	return []string{"errors.New", "fmt.Errorf", "regexp.MustCompile", "crc32.MakeTable", "time.Unix", "strings.NewReplacer"}
}

// stateful tells whether an initial value is something that can be changed through the variable: a
// pointer, a channel, a map to fill, a lock, or what a call returns that is not known to be constant.
func stateful(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.UnaryExpr:
		return e.Op == token.AND || stateful(e.X)
	case *ast.ParenExpr:
		return stateful(e.X)
	case *ast.BinaryExpr:
		return stateful(e.X) || stateful(e.Y)
	case *ast.CompositeLit:
		if strings.HasPrefix(types.ExprString(e.Type), "sync.") || strings.HasPrefix(types.ExprString(e.Type), "atomic.") {
			return true
		}
		for _, el := range e.Elts {
			if kv, ok := el.(*ast.KeyValueExpr); ok {
				el = kv.Value
			}
			if lit, ok := el.(*ast.CompositeLit); (!ok || lit.Type != nil) && stateful(el) {
				return true
			}
		}
		return false
	case *ast.CallExpr:
		fun := types.ExprString(e.Fun)
		if slices.Contains(makers(), fun) {
			return false
		}
		if len(e.Args) == 1 && conversion(fun) {
			return stateful(e.Args[0])
		}
		return true
	}
	return false
}

// conversion tells whether fun is a basic type, so that a call of it is a conversion.
func conversion(fun string) bool {
	obj := types.Universe.Lookup(fun)
	_, ok := obj.(*types.TypeName)
	return ok || fun == "[]byte"
}

// checkWrites reports assignments to, and addresses taken of, package-level variables.
func (t *tree) checkWrites(f *ast.File, pkg *types.Package, info *types.Info, generated map[string]bool) {
	global := func(e ast.Expr) *ast.Ident {
		id := root(e)
		if id == nil {
			return nil
		}
		if v, ok := info.Uses[id].(*types.Var); !ok || v.Parent() != pkg.Scope() {
			return nil
		}
		return id
	}
	report := func(e ast.Expr, what string) {
		if id := global(e); id != nil {
			t.report(e.Pos(), "global", "%s package-level variable %s", what, id.Name)
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, e := range n.Lhs {
				report(e, "assigns to")
			}
		case *ast.IncDecStmt:
			report(n.X, "assigns to")
		case *ast.RangeStmt:
			if n.Tok == token.ASSIGN {
				report(n.Key, "assigns to")
				report(n.Value, "assigns to")
			}
		case *ast.UnaryExpr:
			if id := global(n.X); n.Op == token.AND && id != nil && !generated[t.set.Position(info.Uses[id].Pos()).Filename] {
				report(n.X, "takes the address of")
			}
		case *ast.CallExpr:
			if fun, ok := n.Fun.(*ast.Ident); ok && len(n.Args) > 0 && (fun.Name == "delete" || fun.Name == "clear" || fun.Name == "copy") {
				report(n.Args[0], "changes")
			}
		}
		return true
	})
}

// root is the variable that an assignable expression is a part of.
func root(e ast.Expr) *ast.Ident {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x
		case *ast.IndexExpr:
			e = x.X
		case *ast.SelectorExpr:
			e = x.X
		case *ast.SliceExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return nil
		}
	}
}
