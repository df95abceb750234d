package main

import (
	"fmt"
	"strings"

	"cxkit/prm/spec"
)

func (m *model) writeView(w *writer, l *layout) {
	w.p("// %sSize is the length of %s.", l.Name, l.Name)
	w.p("const %sSize = %#x\n", l.Name, l.Size)
	w.p("// %s is read and written in place.%s", l.Name, sentence(l.Doc))
	w.p("type %s [%sSize]byte\n", l.Name, l.Name)
	if l.Offsets {
		w.p("// Byte offsets of the fields of %s.", l.Name)
		w.p("const (")
		for _, f := range l.Fields {
			w.p("%s%sOff = %#x", l.Name, f.Name, f.Off)
		}
		w.p(")\n")
	}
	for _, f := range l.Fields {
		m.writeGetter(w, l, f)
		if !ownDword(l, f) {
			m.writeSetter(w, l, f)
		}
	}
	for _, d := range l.Dwords {
		m.writeDword(w, l, d)
	}
}

// ownDword tells whether f lies in a dword that holds the ownership bit.
func ownDword(l *layout, f spec.Field) bool {
	for _, d := range l.Dwords {
		if d.Own && f.Kind != spec.Embed && f.Off/4 == d.Off/4 {
			return true
		}
	}
	return false
}

func describe(f spec.Field) string {
	return strings.TrimSuffix(position(f)+": "+f.Doc, ": ")
}

func (m *model) writeGetter(w *writer, l *layout, f spec.Field) {
	w.p("// %s is %s", f.Name, describe(f))
	head := fmt.Sprintf("func (v *%s) %s()", l.Name, f.Name)
	switch f.Kind {
	case spec.Blob:
		w.p("%s *[%d]byte { return (*[%d]byte)(v[%#x:%#x]) }\n", head, f.Size, f.Size, f.Off, f.Off+f.Size)
	case spec.Embed:
		n := m.layouts[f.Layout]
		w.p("%s *%s { return (*%s)(v[%#x:%#x]) }\n", head, n.Name, n.Name, f.Off, f.Off+n.Size)
	case spec.Array:
		w.p("%s (a [%d]uint%d) { for i := range a { a[i] = binary.BigEndian.Uint%d(v[%#x+%d*i:]) }; return a }\n", head, f.Count, 8*f.Size, 8*f.Size, f.Off, f.Size)
	default:
		t, width := goType(f), f.Hi-f.Lo+1
		switch {
		case f.Hi > 31:
			w.p("%s uint64 { return binary.BigEndian.Uint64(v[%#x:]) }\n", head, f.Off)
		case width == 8 && f.Lo%8 == 0:
			w.p("%s %s { return %s }\n", head, t, conv(t, "uint8", fmt.Sprintf("v[%#x]", f.Off+3-f.Lo/8)))
		case width == 16 && f.Lo%8 == 0:
			w.p("%s %s { return %s }\n", head, t, conv(t, "uint16", fmt.Sprintf("binary.BigEndian.Uint16(v[%#x:])", f.Off+2-f.Lo/8)))
		case f.Lo/8 == f.Hi/8:
			b := f
			b.Hi, b.Lo = f.Hi%8, f.Lo%8
			w.p("%s %s { return %s }\n", head, t, extractByte(b, fmt.Sprintf("v[%#x]", f.Off+3-f.Lo/8)))
		default:
			w.p("%s %s { return %s }\n", head, t, extract(f, fmt.Sprintf("binary.BigEndian.Uint32(v[%#x:])", f.Off)))
		}
	}
}

func conv(typ, have, expr string) string {
	if typ == have {
		return expr
	}
	return typ + "(" + expr + ")"
}

func extractByte(f spec.Field, b string) string {
	if f.Lo > 0 {
		b = fmt.Sprintf("%s>>%d", b, f.Lo)
	}
	t, width := goType(f), f.Hi-f.Lo+1
	if t == "bool" {
		return b + "&1 != 0"
	}
	if f.Hi < 7 {
		b = fmt.Sprintf("%s&%#x", b, 1<<width-1)
	}
	return conv(t, "uint8", b)
}

func (m *model) writeSetter(w *writer, l *layout, f spec.Field) {
	if f.Kind != spec.Bits && f.Kind != spec.Alias {
		return // blobs and nested views are written through the pointer the getter returns
	}
	t, width := goType(f), f.Hi-f.Lo+1
	w.p("// Set%s sets %s.", f.Name, f.Name)
	w.p("func (v *%s) Set%s(x %s) {", l.Name, f.Name, t)
	if width < m.typeBits(f) {
		w.p("if x>>%d != 0 { panic(%q) }", width, fmt.Sprintf("prm: %s.%s: value wider than %d bits", l.Name, f.Name, width))
	}
	switch {
	case f.Hi > 31:
		w.p("binary.BigEndian.PutUint64(v[%#x:], x)", f.Off)
	case width == 32:
		w.p("binary.BigEndian.PutUint32(v[%#x:], %s)", f.Off, conv("uint32", t, "x"))
	case width == 16 && f.Lo%8 == 0:
		w.p("binary.BigEndian.PutUint16(v[%#x:], %s)", f.Off+2-f.Lo/8, conv("uint16", t, "x"))
	case width == 8 && f.Lo%8 == 0:
		w.p("v[%#x] = %s", f.Off+3-f.Lo/8, conv("uint8", t, "x"))
	case f.Lo/8 == f.Hi/8:
		i, lo := f.Off+3-f.Lo/8, f.Lo%8
		x := conv("uint8", t, "x")
		if t == "bool" {
			x = "uint8(bit(x))"
		}
		w.p("v[%#x] = v[%#x]&^%#x | %s<<%d", i, i, (1<<width-1)<<lo, x, lo)
	default:
		mask := (uint64(1)<<width - 1) << f.Lo
		w.p("binary.BigEndian.PutUint32(v[%#x:], binary.BigEndian.Uint32(v[%#x:])&^%#x | %s)", f.Off, f.Off, mask, insert(f, "x"))
	}
	w.p("}\n")
}

// writeDword renders what a single load or store of a whole dword needs.
func (m *model) writeDword(w *writer, l *layout, d spec.Dword) {
	var fields []spec.Field
	for _, g := range groupDwords(l) {
		if g.off == d.Off {
			fields = g.fields
		}
	}
	name := l.Name + d.Name
	w.p("// %sOff is the byte offset of the dword %s.", name, name)
	w.p("const %sOff = %#x\n", name, d.Off)
	w.p("// %s is the value of that dword, as one load returns it.", name)
	w.p("type %s uint32\n", name)
	var params, terms []string
	for _, f := range fields {
		w.p("// %s is bits %d..%d", f.Name, f.Hi, f.Lo)
		w.p("func (d %s) %s() %s { return %s }\n", name, f.Name, goType(f), extract(f, "uint32(d)"))
		arg := strings.ToLower(f.Name)
		if arg == "type" {
			arg = "typ"
		}
		params = append(params, arg+" "+goType(f))
		terms = append(terms, insert(f, arg))
	}
	w.p("// %sDword composes the dword, for one store. It panics if a value is wider than its field.", name)
	w.p("func %sDword(%s) uint32 {", name, strings.Join(params, ", "))
	for _, f := range fields {
		if width := f.Hi - f.Lo + 1; width < m.typeBits(f) {
			arg, _, _ := strings.Cut(params[indexOf(fields, f.Name)], " ")
			w.p("if %s>>%d != 0 { panic(%q) }", arg, width, fmt.Sprintf("prm: %s.%s: value wider than %d bits", l.Name, f.Name, width))
		}
	}
	w.p("return %s", strings.Join(terms, " | "))
	w.p("}\n")
}

func indexOf(fields []spec.Field, name string) int {
	for i, f := range fields {
		if f.Name == name {
			return i
		}
	}
	return -1
}
