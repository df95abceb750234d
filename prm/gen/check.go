package main

import (
	"fmt"
	"go/token"
	"sort"

	"cxkit/prm/spec"
)

// check reports the first mistake in the tables.
func (m *model) check() error {
	ops, names, ids := map[uint16]string{}, map[string]bool{}, map[uint16]string{}
	for _, f := range m.files {
		for _, e := range f.enums {
			if err := checkEnum(e); err != nil {
				return fmt.Errorf("%s: enum %s: %w", f.name, e.Name, err)
			}
		}
		for _, c := range f.commands {
			if prev, used := ops[c.Op]; used {
				return fmt.Errorf("%s: command %s: opcode %#x is %s", f.name, c.Name, c.Op, prev)
			}
			if names[c.Name] {
				return fmt.Errorf("%s: command %s: name used twice", f.name, c.Name)
			}
			ops[c.Op], names[c.Name] = c.Name, true
		}
		for _, r := range f.registers {
			if prev, used := ids[r.ID]; used {
				return fmt.Errorf("%s: register %s: id %#x is %s", f.name, r.Name, r.ID, prev)
			}
			ids[r.ID] = r.Name
		}
		for _, l := range f.layouts {
			if err := m.checkLayout(l); err != nil {
				return fmt.Errorf("%s: %s: %w", f.name, l.Name, err)
			}
		}
	}
	return nil
}

func checkEnum(e spec.Enum) error {
	if e.Size != 1 && e.Size != 2 && e.Size != 4 && e.Size != 8 {
		return fmt.Errorf("size %d", e.Size)
	}
	names, values := map[string]bool{}, map[uint64]string{}
	for _, c := range e.Values {
		if !token.IsIdentifier(c.Name) || names[c.Name] {
			return fmt.Errorf("%s: bad or repeated name", c.Name)
		}
		if prev, used := values[c.Value]; used {
			return fmt.Errorf("%s: value %#x is %s", c.Name, c.Value, prev)
		}
		if e.Size < 8 && c.Value>>(8*e.Size) != 0 {
			return fmt.Errorf("%s: value %#x does not fit", c.Name, c.Value)
		}
		names[c.Name], values[c.Value] = true, c.Name
	}
	return nil
}

func (m *model) checkLayout(l *layout) error {
	if !token.IsIdentifier(l.Name) || l.Size <= 0 || l.Size%2 != 0 {
		return fmt.Errorf("bad name or size %d", l.Size)
	}
	type span struct {
		start, end int
		name       string
	}
	var spans []span
	names := map[string]bool{}
	for _, f := range l.Fields {
		if !token.IsIdentifier(f.Name) || names[f.Name] {
			return fmt.Errorf("%s: bad or repeated name", f.Name)
		}
		names[f.Name] = true
		if err := m.checkField(f); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		start, end := m.extent(f)
		if end > l.Size*8 {
			return fmt.Errorf("%s: ends at byte %#x, outside the structure of %#x bytes", f.Name, (end+7)/8, l.Size)
		}
		if f.Kind == spec.Alias {
			if l.Form == spec.Value && hostOf(m, l, f) == nil {
				return fmt.Errorf("%s: alias of bits no single field names", f.Name)
			}
			continue
		}
		spans = append(spans, span{start, end, f.Name})
	}
	sort.SliceStable(spans, func(i, j int) bool { return spans[i].start < spans[j].start })
	for i := 1; i < len(spans); i++ {
		if spans[i].start < spans[i-1].end {
			return fmt.Errorf("%s overlaps %s", spans[i].name, spans[i-1].name)
		}
	}
	for _, d := range l.Dwords {
		if d.Off%4 != 0 || d.Off < 0 || d.Off+4 > l.Size {
			return fmt.Errorf("dword %s: bad offset %#x", d.Name, d.Off)
		}
	}
	return m.checkTail(l, names)
}

func (m *model) checkField(f spec.Field) error {
	if f.Off < 0 {
		return fmt.Errorf("offset %d", f.Off)
	}
	switch f.Kind {
	case spec.Bits, spec.Alias:
		if f.Lo < 0 || f.Hi < f.Lo || f.Hi > 63 {
			return fmt.Errorf("bits %d..%d are in the wrong order", f.Hi, f.Lo)
		}
		if f.Off%4 != 0 {
			return fmt.Errorf("offset %#x is not that of a dword", f.Off)
		}
		if f.Signed && (f.Hi != 31 || f.Lo != 0) {
			return fmt.Errorf("only a whole dword can be signed")
		}
		if f.Hi > 31 && f.Lo != 0 {
			return fmt.Errorf("bits %d..%d: a quadword field must be whole", f.Hi, f.Lo)
		}
	case spec.Blob:
		if f.Size <= 0 {
			return fmt.Errorf("size %d", f.Size)
		}
	case spec.Array:
		if f.Count <= 0 || (f.Size != 2 && f.Size != 4 && f.Size != 8) {
			return fmt.Errorf("%d words of %d bytes", f.Count, f.Size)
		}
	case spec.Embed:
		n := m.layouts[f.Layout]
		if n == nil {
			return fmt.Errorf("no structure %q", f.Layout)
		}
		if n.Tail != nil || f.Count <= 0 {
			return fmt.Errorf("%d of %s: cannot be nested", f.Count, f.Layout)
		}
	default:
		return fmt.Errorf("kind %d", f.Kind)
	}
	if f.Enum == "" || f.Enum == "Opcode" || f.Enum == "RegisterID" {
		return nil
	}
	e := m.enums[f.Enum]
	if e == nil {
		return fmt.Errorf("no enum %q", f.Enum)
	}
	if w := f.Hi - f.Lo + 1; w > 8*e.Size {
		return fmt.Errorf("%d bits do not fit %s", w, f.Enum)
	}
	return nil
}

func (m *model) checkTail(l *layout, names map[string]bool) error {
	t := l.Tail
	if t == nil {
		return nil
	}
	if t.Off != l.Size {
		return fmt.Errorf("tail %s at %#x does not follow the structure of %#x bytes", t.Name, t.Off, l.Size)
	}
	if t.Layout != "" && m.layouts[t.Layout] == nil {
		return fmt.Errorf("tail %s: no structure %q", t.Name, t.Layout)
	}
	if t.Layout == "" && !t.Hand && t.Size != 1 && t.Size != 2 && t.Size != 4 && t.Size != 8 {
		return fmt.Errorf("tail %s: elements of %d bytes", t.Name, t.Size)
	}
	if t.Count != "" && !names[t.Count] {
		return fmt.Errorf("tail %s: no field %s", t.Name, t.Count)
	}
	return nil
}

// hostOf is the Bits or Blob field that holds all bits of alias f.
func hostOf(m *model, l *layout, f spec.Field) *spec.Field {
	start, end := m.extent(f)
	for i := range l.Fields {
		h := &l.Fields[i]
		if h.Kind != spec.Bits && h.Kind != spec.Blob {
			continue
		}
		if hs, he := m.extent(*h); hs <= start && end <= he {
			return h
		}
	}
	return nil
}
