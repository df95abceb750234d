package main

import (
	"fmt"
	"strings"

	"cxkit/prm/spec"
)

// writer collects Go source. The generator formats the whole afterwards.
type writer struct{ strings.Builder }

func (w *writer) p(format string, args ...any) { fmt.Fprintf(&w.Builder, format+"\n", args...) }

// goType is the Go type of a field of a value structure.
func goType(f spec.Field) string {
	switch f.Kind {
	case spec.Blob:
		return fmt.Sprintf("[%d]byte", f.Size)
	case spec.Array:
		return fmt.Sprintf("[%d]uint%d", f.Count, 8*f.Size)
	case spec.Embed:
		if f.Count > 1 {
			return fmt.Sprintf("[%d]%s", f.Count, f.Layout)
		}
		return f.Layout
	}
	width := f.Hi - f.Lo + 1
	switch {
	case f.Enum != "" && !f.Plain:
		return f.Enum
	case f.Signed:
		return "int32"
	case width == 1:
		return "bool"
	case width <= 8:
		return "uint8"
	case width <= 16:
		return "uint16"
	case width <= 32:
		return "uint32"
	}
	return "uint64"
}

func tailType(t *spec.Tail) string {
	if t.Layout != "" {
		return "[]" + t.Layout
	}
	if t.Size == 1 {
		return "[]byte"
	}
	return fmt.Sprintf("[]uint%d", 8*t.Size)
}

// typeBits is the width of the Go type of a Bits field, 1 for bool.
func (m *model) typeBits(f spec.Field) int {
	switch {
	case f.Plain:
	case f.Enum == "Opcode" || f.Enum == "RegisterID":
		return 16
	case f.Enum != "":
		return 8 * m.enums[f.Enum].Size
	}
	switch w := f.Hi - f.Lo + 1; {
	case w == 1:
		return 1
	case w <= 8:
		return 8
	case w <= 16:
		return 16
	case w <= 32:
		return 32
	}
	return 64
}

func (m *model) writeValue(w *writer, l *layout) {
	w.p("// %sSize is the encoded length of %s%s.", l.Name, l.Name, map[bool]string{true: " without its list", false: ""}[l.Tail != nil])
	w.p("const %sSize = %#x\n", l.Name, l.Size)
	m.writeStruct(w, l)
	m.writeLen(w, l)
	m.writePut(w, l)
	m.writePanicWide(w, l)
	m.writeGet(w, l)
	if l.Patch {
		w.p("// Patch writes the named fields into b and leaves every other bit of b as it is.")
		w.p("func (s *%s) Patch(b []byte) {", l.Name)
		w.p("var t [%sSize]byte", l.Name)
		w.p("s.Put(t[:])")
		w.p("patch(b, t[:], named%s)", l.Name)
		w.p("}\n")
		w.p("const named%s = %s\n", l.Name, m.maskLiteral(l))
	}
	m.writeAliases(w, l)
}

func (m *model) writeStruct(w *writer, l *layout) {
	switch {
	case l.op != nil:
		w.p("// %s is the input of %s(%#x).%s", l.Name, l.op.PRM, l.op.Op, sentence(l.op.Doc))
	case l.outOf != nil:
		w.p("// %s is the output of %s(%#x).", l.Name, l.outOf.PRM, l.outOf.Op)
	case l.PRM != "":
		w.p("// %s is %s of the PRM.%s", l.Name, l.PRM, sentence(l.Doc))
	default:
		w.p("// %s:%s", l.Name, sentence(l.Doc))
	}
	w.p("type %s struct {", l.Name)
	for _, f := range l.Fields {
		if f.Kind == spec.Alias || l.op != nil && f.Name == opcodeField {
			continue
		}
		w.p("%s %s // %s", f.Name, goType(f), strings.TrimSuffix(position(f)+": "+f.Doc, ": "))
	}
	if t := l.Tail; t != nil && !t.Hand {
		w.p("%s %s // %s", t.Name, tailType(t), strings.TrimSuffix(fmt.Sprintf("0x%02x..: %s", t.Off, t.Doc), ": "))
	} else if t != nil {
		w.p("%s // 0x%02x..", t.Name, t.Off)
	}
	w.p("}\n")
	if l.op != nil {
		w.p("// Opcode is %s.", l.op.PRM)
		w.p("func (*%s) Opcode() Opcode { return Op%s }\n", l.Name, l.op.Name)
	}
	if l.outOf != nil {
		w.p("// Result returns status and syndrome.")
		w.p("func (s *%s) Result() (Status, uint32) { return s.Status, s.Syndrome }\n", l.Name)
	}
}

func (m *model) writeLen(w *writer, l *layout) {
	w.p("// Len is the encoded length in bytes.")
	switch t := l.Tail; {
	case t == nil:
		w.p("func (*%s) Len() int { return %sSize }\n", l.Name, l.Name)
	case t.Hand:
		w.p("func (s *%s) Len() int { return %sSize + s.listLen(&s.%s) }\n", l.Name, l.Name, handOwner(l))
	default:
		w.p("func (s *%s) Len() int { return %sSize + %d*len(s.%s) }\n", l.Name, l.Name, m.elemSize(t), t.Name)
	}
}

// handOwner is the nested structure that describes a hand-coded list.
func handOwner(l *layout) string { return l.Fields[len(l.Fields)-1].Name }

func (m *model) elemSize(t *spec.Tail) int {
	if t.Layout != "" {
		return m.layouts[t.Layout].Size
	}
	return t.Size
}

func (m *model) writePut(w *writer, l *layout) {
	w.p("// Put encodes s into the first Len bytes of b, reserved bits as 0. It panics if a value is wider than its field")
	w.p("// or b is too short.")
	w.p("func (s *%s) Put(b []byte) {", l.Name)
	w.p("if len(b) < %sSize { panicShort(%q, %sSize, len(b)) }", l.Name, l.Name, l.Name)
	if conds := m.wideConds(l); len(conds) > 0 {
		w.p("if %s { s.panicWide() }", strings.Join(conds, " ||\n"))
	}
	w.p("h := (*[%sSize]byte)(b)", l.Name)
	if m.namedBits(l) < 8*l.Size {
		w.p("clear(h[:])")
	}
	for _, g := range groupDwords(l) {
		w.p("%s", g.store(l))
	}
	for _, f := range l.Fields {
		switch f.Kind {
		case spec.Bits:
			if f.Hi > 31 {
				w.p("binary.BigEndian.PutUint64(h[%#x:], s.%s)", f.Off, f.Name)
			}
		case spec.Blob:
			w.p("copy(h[%#x:%#x], s.%s[:])", f.Off, f.Off+f.Size, f.Name)
		case spec.Array:
			w.p("for i, v := range s.%s { binary.BigEndian.PutUint%d(h[%#x+%d*i:], v) }", f.Name, 8*f.Size, f.Off, f.Size)
		case spec.Embed:
			size := m.layouts[f.Layout].Size
			if f.Count == 1 {
				w.p("s.%s.Put(h[%#x:%#x])", f.Name, f.Off, f.Off+size)
			} else {
				w.p("for i := range s.%s { s.%s[i].Put(h[%#x+%#x*i:]) }", f.Name, f.Name, f.Off, size)
			}
		}
	}
	m.writePutTail(w, l)
	w.p("}\n")
}

func (m *model) writePutTail(w *writer, l *layout) {
	t := l.Tail
	if t == nil {
		return
	}
	w.p("if n := s.Len(); len(b) < n { panicShort(%q, n, len(b)) }", l.Name)
	w.p("t := b[%sSize:]", l.Name)
	switch {
	case t.Hand:
		w.p("s.putList(&s.%s, t)", handOwner(l))
	case t.Layout != "":
		w.p("for i := range s.%s { s.%s[i].Put(t[%#x*i:]) }", t.Name, t.Name, m.elemSize(t))
	case t.Size == 1:
		w.p("copy(t, s.%s)", t.Name)
	default:
		w.p("for i, v := range s.%s { binary.BigEndian.PutUint%d(t[%d*i:], v) }", t.Name, 8*t.Size, t.Size)
	}
}

// wideConds are the conditions under which a value does not fit its field.
func (m *model) wideConds(l *layout) []string {
	var conds []string
	for _, f := range l.Fields {
		if f.Kind == spec.Bits && f.Name != opcodeField || f.Kind == spec.Bits && l.op == nil {
			if width := f.Hi - f.Lo + 1; width < m.typeBits(f) {
				conds = append(conds, fmt.Sprintf("s.%s>>%d != 0", f.Name, width))
			}
		}
	}
	return conds
}

func (m *model) writePanicWide(w *writer, l *layout) {
	if len(m.wideConds(l)) == 0 {
		return
	}
	w.p("func (s *%s) panicWide() {", l.Name)
	for _, f := range l.Fields {
		if f.Kind != spec.Bits || l.op != nil && f.Name == opcodeField {
			continue
		}
		if width := f.Hi - f.Lo + 1; width < m.typeBits(f) {
			w.p("checkWidth(%q, uint64(s.%s), %d)", l.Name+"."+f.Name, f.Name, width)
		}
	}
	w.p("}\n")
}

func (m *model) writeGet(w *writer, l *layout) {
	w.p("// Get decodes b. What b is too short for reads as 0.")
	w.p("func (s *%s) Get(b []byte) {", l.Name)
	w.p("if len(b) < %sSize { var z [%sSize]byte; copy(z[:], b); b = z[:] }", l.Name, l.Name)
	w.p("h := (*[%sSize]byte)(b)", l.Name)
	for _, g := range groupDwords(l) {
		fields := g.fields
		if l.op != nil && g.off == 0 {
			fields = fields[1:]
		}
		if len(fields) == 1 {
			f := fields[0]
			w.p("s.%s = %s", f.Name, extract(f, g.load(l)))
			continue
		}
		w.p("d%02x := %s", g.off, g.load(l))
		for _, f := range fields {
			w.p("s.%s = %s", f.Name, extract(f, fmt.Sprintf("d%02x", g.off)))
		}
	}
	for _, f := range l.Fields {
		switch f.Kind {
		case spec.Bits:
			if f.Hi > 31 {
				w.p("s.%s = binary.BigEndian.Uint64(h[%#x:])", f.Name, f.Off)
			}
		case spec.Blob:
			w.p("copy(s.%s[:], h[%#x:%#x])", f.Name, f.Off, f.Off+f.Size)
		case spec.Array:
			w.p("for i := range s.%s { s.%s[i] = binary.BigEndian.Uint%d(h[%#x+%d*i:]) }", f.Name, f.Name, 8*f.Size, f.Off, f.Size)
		case spec.Embed:
			size := m.layouts[f.Layout].Size
			if f.Count == 1 {
				w.p("s.%s.Get(h[%#x:%#x])", f.Name, f.Off, f.Off+size)
			} else {
				w.p("for i := range s.%s { s.%s[i].Get(h[%#x+%#x*i:]) }", f.Name, f.Name, f.Off, size)
			}
		}
	}
	m.writeGetTail(w, l)
	w.p("}\n")
}

func (m *model) writeGetTail(w *writer, l *layout) {
	t := l.Tail
	if t == nil {
		return
	}
	w.p("t := b[%sSize:]", l.Name)
	if t.Hand {
		w.p("s.getList(&s.%s, t)", handOwner(l))
		return
	}
	count := fmt.Sprintf("len(t)/%d", m.elemSize(t))
	if m.elemSize(t) == 1 {
		count = "len(t)"
	}
	if t.Count != "" {
		count = fmt.Sprintf("int(min(uint64(%s), uint64(s.%s)))", count, t.Count)
	}
	w.p("s.%s = resize(s.%s, %s)", t.Name, t.Name, count)
	switch {
	case t.Layout != "":
		w.p("for i := range s.%s { s.%s[i].Get(t[%#x*i:]) }", t.Name, t.Name, m.elemSize(t))
	case t.Size == 1:
		w.p("copy(s.%s, t)", t.Name)
	default:
		w.p("for i := range s.%s { s.%s[i] = binary.BigEndian.Uint%d(t[%d*i:]) }", t.Name, t.Name, 8*t.Size, t.Size)
	}
}

// writeAliases renders second readings as methods, so that no bit is held twice.
func (m *model) writeAliases(w *writer, l *layout) {
	for _, f := range l.Fields {
		if f.Kind != spec.Alias {
			continue
		}
		h := hostOf(m, l, f)
		start, end := m.extent(f)
		hostStart, hostEnd := m.extent(*h)
		typ, width := goType(f), end-start
		w.p("// %s reads %s as %s.%s", f.Name, h.Name, f.PRM, sentence(f.Doc))
		if h.Kind == spec.Blob {
			off := (start - hostStart) / 8
			w.p("func (s *%s) %s() %s { return %s(binary.BigEndian.Uint%d(s.%s[%d:])) }\n", l.Name, f.Name, typ, typ, width, h.Name, off)
			w.p("// Set%s writes what %s reads.", f.Name, f.Name)
			w.p("func (s *%s) Set%s(v %s) { binary.BigEndian.PutUint%d(s.%s[%d:], uint%d(v)) }\n", l.Name, f.Name, typ, width, h.Name, off, width)
			continue
		}
		shift, host := hostEnd-end, goType(*h)
		if width == 1 && f.Enum == "" {
			w.p("func (s *%s) %s() bool { return s.%s>>%d&1 != 0 }\n", l.Name, f.Name, h.Name, shift)
			w.p("// Set%s writes what %s reads.", f.Name, f.Name)
			w.p("func (s *%s) Set%s(v bool) { s.%s = s.%s&^(1<<%d) | %s(bit(v))<<%d }\n", l.Name, f.Name, h.Name, h.Name, shift, host, shift)
			continue
		}
		mask := fmt.Sprintf("%#x", uint64(1)<<width-1)
		w.p("func (s *%s) %s() %s { return %s(s.%s >> %d & %s) }\n", l.Name, f.Name, typ, typ, h.Name, shift, mask)
		w.p("// Set%s writes what %s reads. It panics if v is wider than the field.", f.Name, f.Name)
		w.p("func (s *%s) Set%s(v %s) { checkWidth(%q, uint64(v), %d); s.%s = s.%s&^(%s<<%d) | %s(v)<<%d }\n",
			l.Name, f.Name, typ, l.Name+"."+f.Name, width, h.Name, h.Name, mask, shift, host, shift)
	}
}
