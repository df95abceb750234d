package main

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	"cxkit/prm/spec"
)

// dword is a dword with the Bits fields inside it, first bit first.
type dword struct {
	off    int
	fields []spec.Field
}

// groupDwords collects the Bits fields of at most 32 bits by dword. Aliases are left out.
func groupDwords(l *layout) []dword {
	byOff := map[int][]spec.Field{}
	for _, f := range l.Fields {
		if f.Kind == spec.Bits && f.Hi < 32 {
			byOff[f.Off] = append(byOff[f.Off], f)
		}
	}
	var out []dword
	for off, fields := range byOff {
		sort.SliceStable(fields, func(i, j int) bool { return fields[i].Hi > fields[j].Hi })
		out = append(out, dword{off, fields})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].off < out[j].off })
	return out
}

// puts are the operands whose OR is the dword's value.
func (d dword) puts(l *layout) []string {
	var out []string
	for _, f := range d.fields {
		value := "s." + f.Name
		if l.op != nil && f.Name == opcodeField {
			value = "Op" + l.op.Name
		}
		out = append(out, insert(f, value))
	}
	return out
}

// store and load are the accesses to the dword in the array h. A structure may end in the middle of its last dword.
func (d dword) store(l *layout) string {
	value := strings.Join(d.puts(l), " | ")
	if d.off+4 > l.Size {
		return fmt.Sprintf("binary.BigEndian.PutUint16(h[%#x:], uint16((%s)>>16))", d.off, value)
	}
	return fmt.Sprintf("binary.BigEndian.PutUint32(h[%#x:], %s)", d.off, value)
}

func (d dword) load(l *layout) string {
	if d.off+4 > l.Size {
		return fmt.Sprintf("uint32(binary.BigEndian.Uint16(h[%#x:]))<<16", d.off)
	}
	return fmt.Sprintf("binary.BigEndian.Uint32(h[%#x:])", d.off)
}

// insert is the expression that places value at the field's bits of a dword.
func insert(f spec.Field, value string) string {
	switch t := goType(f); t {
	case "bool":
		value = "bit(" + value + ")"
	case "uint32":
	default:
		value = "uint32(" + value + ")"
	}
	if f.Lo == 0 {
		return value
	}
	return fmt.Sprintf("%s<<%d", value, f.Lo)
}

// extract is the expression that reads the field from a dword.
func extract(f spec.Field, dword string) string {
	v := dword
	if f.Lo > 0 {
		v = fmt.Sprintf("%s>>%d", v, f.Lo)
	}
	t, width := goType(f), f.Hi-f.Lo+1
	if t == "bool" {
		return v + "&1 != 0"
	}
	if f.Hi < 31 && width != 8 && width != 16 || f.Enum != "" && !f.Plain && width < 32 && f.Hi < 31 {
		v = fmt.Sprintf("%s&%#x", v, uint32(1)<<width-1)
	}
	if t == "uint32" {
		return v
	}
	return t + "(" + v + ")"
}

// position prints a field's place as the PRM does.
func position(f spec.Field) string {
	switch {
	case f.Kind == spec.Blob:
		return fmt.Sprintf("0x%02x..0x%02x", f.Off, f.Off+f.Size-1)
	case f.Kind == spec.Array:
		return fmt.Sprintf("0x%02x..0x%02x", f.Off, f.Off+f.Size*f.Count-1)
	case f.Kind == spec.Embed:
		return fmt.Sprintf("0x%02x..", f.Off)
	case f.Hi == 31 && f.Lo == 0:
		return fmt.Sprintf("0x%02x", f.Off)
	case f.Hi > 31:
		return fmt.Sprintf("0x%02x..0x%02x", f.Off, f.Off+7)
	case f.Hi == f.Lo:
		return fmt.Sprintf("0x%02x[%d]", f.Off, f.Hi)
	}
	return fmt.Sprintf("0x%02x[%d:%d]", f.Off, f.Hi, f.Lo)
}

// sentence turns a table's remark into a sentence that follows another.
func sentence(doc string) string {
	if doc = strings.TrimSpace(doc); doc == "" {
		return ""
	}
	return " " + strings.ToUpper(doc[:1]) + strings.TrimSuffix(doc[1:], ".") + "."
}

// mask is the set of named bits of a structure, nested structures included.
func (m *model) mask(l *layout) []byte {
	out := make([]byte, l.Size)
	for _, f := range l.Fields {
		if f.Kind == spec.Embed {
			n := m.layouts[f.Layout]
			for i := range f.Count {
				copy(out[f.Off+i*n.Size:], m.mask(n))
			}
			continue
		}
		start, end := m.extent(f)
		for b := start; b < end; b++ {
			out[b/8] |= 0x80 >> (b % 8)
		}
	}
	return out
}

func (m *model) namedBits(l *layout) int {
	n := 0
	for _, b := range m.mask(l) {
		for ; b != 0; b &= b - 1 {
			n++
		}
	}
	return n
}

// maskLiteral is the mask as a Go string constant, trailing zero bytes cut off.
func (m *model) maskLiteral(l *layout) string {
	mask := m.mask(l)
	for len(mask) > 0 && mask[len(mask)-1] == 0 {
		mask = mask[:len(mask)-1]
	}
	if len(mask) == 0 {
		return `""`
	}
	var parts []string
	for i := 0; i < len(mask); {
		n := min(32, len(mask)-i)
		var s strings.Builder
		for _, b := range mask[i : i+n] {
			s.WriteString(`\x` + strconv.FormatUint(uint64(b)|0x100, 16)[1:])
		}
		parts = append(parts, `"`+s.String()+`"`)
		i += n
	}
	return strings.Join(parts, " +\n")
}
