package main

import (
	"fmt"
	"sort"
	"strings"

	"cxkit/prm/spec"
)

// writeTable renders the layouts of a file as data, for printing and tests.
func (m *model) writeTable(w *writer, f file) {
	if len(f.layouts) == 0 {
		return
	}
	w.p("var %s = [...]Layout{", tableVar(f))
	for _, l := range f.layouts {
		w.p("{Name: %q, PRM: %q, Size: %#x, View: %v, Fields: []Field{", l.Name, l.PRM, l.Size, l.Form == spec.View)
		for _, x := range l.Fields {
			w.p("{%s},", tableField(x))
		}
		if t := l.Tail; t != nil {
			size := t.Size
			if !t.Hand {
				size = m.elemSize(t)
			}
			w.p("}, Tail: &Tail{Name: %q, PRM: %q, Size: %d, Layout: %q, Count: %q}},", t.Name, t.PRM, size, t.Layout, t.Count)
		} else {
			w.p("}},")
		}
	}
	w.p("}\n")
}

func tableField(f spec.Field) string {
	kind := [...]string{"KindBits", "KindBytes", "KindWords", "KindStruct", "KindAlias"}[f.Kind]
	s := fmt.Sprintf("Name: %q, PRM: %q, Kind: %s, Off: %#x", f.Name, f.PRM, kind, f.Off)
	switch f.Kind {
	case spec.Bits, spec.Alias:
		s += fmt.Sprintf(", Hi: %d, Lo: %d", f.Hi, f.Lo)
	case spec.Blob:
		s += fmt.Sprintf(", Size: %d, Count: 1", f.Size)
	case spec.Array:
		s += fmt.Sprintf(", Size: %d, Count: %d", f.Size, f.Count)
	case spec.Embed:
		s += fmt.Sprintf(", Count: %d, Layout: %q", f.Count, f.Layout)
	}
	if f.Enum != "" {
		s += fmt.Sprintf(", Enum: %q", f.Enum)
	}
	if f.Signed {
		s += ", Signed: true"
	}
	return s
}

func tableVar(f file) string {
	var s strings.Builder
	s.WriteString("layouts")
	for part := range strings.SplitSeq(f.name, "_") {
		s.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return s.String()
}

// writeIndex renders the lookups: structures by name, commands by opcode, registers by id, enum texts.
func (m *model) writeIndex(w *writer) {
	m.writeOpcodes(w)
	m.writeLayoutIndex(w)
	m.writeCommandIndex(w)
	m.writeRegisterIndex(w)
	m.writeEnumIndex(w)
}

func (m *model) commands() []*command {
	var all []*command
	for _, f := range m.files {
		all = append(all, f.commands...)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Op < all[j].Op })
	return all
}

func (m *model) writeOpcodes(w *writer) {
	w.p("// Command opcodes.")
	w.p("const (")
	for _, c := range m.commands() {
		w.p("Op%s Opcode = 0x%03x", c.Name, c.Op)
	}
	w.p(")\n")
	w.p("func opcodeName(op Opcode) string {")
	w.p("switch op {")
	for _, c := range m.commands() {
		w.p("case Op%s: return %q", c.Name, c.PRM)
	}
	w.p("}")
	w.p("return \"\"")
	w.p("}\n")
}

func (m *model) writeLayoutIndex(w *writer) {
	w.p("func layoutByName(name string) *Layout {")
	w.p("switch name {")
	for _, f := range m.files {
		for i, l := range f.layouts {
			w.p("case %q: return &%s[%d]", l.Name, tableVar(f), i)
		}
	}
	w.p("}")
	w.p("return nil")
	w.p("}\n")
	var names []string
	for _, l := range m.sorted() {
		names = append(names, l.Name)
	}
	w.p("const layoutNames = %q\n", strings.Join(names, " "))
}

func (m *model) tableRef(l *layout) string {
	if l == nil {
		return "nil"
	}
	for _, f := range m.files {
		for i, x := range f.layouts {
			if x == l {
				return fmt.Sprintf("&%s[%d]", tableVar(f), i)
			}
		}
	}
	return "nil"
}

func (m *model) writeCommandIndex(w *writer) {
	w.p("var commandTable = [...]Command{")
	for _, c := range m.commands() {
		w.p("{Op: Op%s, Name: %q, In: %s, Out: %s},", c.Name, c.PRM, m.tableRef(c.in), m.tableRef(c.out))
	}
	w.p("}\n")
	w.p("// namedInput is the mask of the named bits of a command's input, trailing zero bytes cut off, and the input's size.")
	w.p("func namedInput(op Opcode) (mask string, size int) {")
	w.p("switch op {")
	for _, c := range m.commands() {
		if c.in != nil {
			w.p("case Op%s: return %s, %sSize", c.Name, m.maskLiteral(c.in), c.in.Name)
		}
	}
	w.p("}")
	w.p("return \"\", 0")
	w.p("}\n")
}

func (m *model) writeRegisterIndex(w *writer) {
	var all []spec.Register
	for _, f := range m.files {
		all = append(all, f.registers...)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].ID < all[j].ID })
	w.p("// Registers reached by ACCESS_REG.")
	w.p("const (")
	for _, r := range all {
		w.p("RegID%s RegisterID = %#04x", r.Name, r.ID)
	}
	w.p(")\n")
	w.p("var registerTable = [...]Register{")
	for _, r := range all {
		ref := "nil"
		if r.Layout != nil {
			ref = m.tableRef(m.layouts[r.Layout.Name])
		}
		w.p("{ID: RegID%s, Name: %q, Layout: %s},", r.Name, r.Name, ref)
	}
	w.p("}\n")
}

func (m *model) writeEnumIndex(w *writer) {
	w.p("// EnumText is the text of value v of the enum named by Field.Enum. ok is false if the value has no name of its own.")
	w.p("func EnumText(enum string, v uint64) (text string, ok bool) {")
	w.p("switch enum {")
	w.p("case \"Opcode\": return Opcode(v).String(), opcodeName(Opcode(v)) != \"\"")
	w.p("case \"RegisterID\": return RegisterID(v).String(), registerByID(RegisterID(v)) != nil")
	for _, f := range m.files {
		for _, e := range f.enums {
			if e.Mask {
				w.p("case %q: return %s(v).String(), v != 0", e.Name, e.Name)
			} else {
				w.p("case %q: return %s(v).String(), known%s(%s(v))", e.Name, e.Name, e.Name, e.Name)
			}
		}
	}
	w.p("}")
	w.p("return \"\", false")
	w.p("}\n")
}

func writeEnum(w *writer, e spec.Enum) {
	w.p("// %s:%s", e.Name, sentence(e.Doc))
	w.p("type %s uint%d\n", e.Name, 8*e.Size)
	w.p("const (")
	for _, c := range e.Values {
		w.p("%s %s = %#x", c.Name, e.Name, c.Value)
	}
	w.p(")\n")
	w.p("// String is the value's text, and its number if it has none.")
	w.p("func (v %s) String() string {", e.Name)
	if e.Mask {
		w.p("return maskText(uint64(v), []maskBit{")
		for _, c := range e.Values {
			w.p("{%#x, %q},", c.Value, c.Text)
		}
		w.p("})")
		w.p("}\n")
		return
	}
	w.p("switch v {")
	for _, c := range e.Values {
		w.p("case %s: return %q", c.Name, c.Text)
	}
	w.p("}")
	w.p("return numberText(%q, uint64(v))", e.Name)
	w.p("}\n")
	w.p("func known%s(v %s) bool {", e.Name, e.Name)
	w.p("switch v {")
	var names []string
	for _, c := range e.Values {
		names = append(names, c.Name)
	}
	w.p("case %s: return true", strings.Join(names, ",\n"))
	w.p("}")
	w.p("return false")
	w.p("}\n")
}

// writeTypes renders constructors by name, which only the tests of package prm need.
func (m *model) writeTypes(w *writer) {
	w.p("func newValue(name string) value {")
	w.p("switch name {")
	for _, l := range m.sorted() {
		if l.Form == spec.Value {
			w.p("case %q: return new(%s)", l.Name, l.Name)
		}
	}
	w.p("}")
	w.p("return nil")
	w.p("}\n")
	w.p("// newView returns a pointer to a view over b.")
	w.p("func newView(name string, b []byte) any {")
	w.p("switch name {")
	for _, l := range m.sorted() {
		if l.Form == spec.View {
			w.p("case %q: return (*%s)(b)", l.Name, l.Name)
		}
	}
	w.p("}")
	w.p("return nil")
	w.p("}\n")
}

func (m *model) sorted() []*layout {
	var all []*layout
	for _, l := range m.layouts {
		all = append(all, l)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Name < all[j].Name })
	return all
}
