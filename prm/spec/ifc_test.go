package spec

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The kernel's header is compared, never committed: MLX5_IFC=<linux>/include/linux/mlx5/mlx5_ifc.h go test ./prm/spec

// ifcField is a member of a structure of mlx5_ifc.h, in bits from its start.
type ifcField struct{ start, end int }

type ifcStruct struct {
	size   int
	order  []string
	fields map[string]ifcField
}

// ifcParser reads the subset of C that mlx5_ifc.h is written in.
type ifcParser struct {
	tok     []string
	pos     int
	structs map[string]*ifcStruct
	numbers map[string]int
}

func (p *ifcParser) next() string {
	if p.pos >= len(p.tok) {
		return ""
	}
	p.pos++
	return p.tok[p.pos-1]
}

func (p *ifcParser) peek() string {
	if p.pos >= len(p.tok) {
		return ""
	}
	return p.tok[p.pos]
}

func parseIFC(text string) map[string]*ifcStruct {
	text = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`).ReplaceAllString(text, "")
	p := &ifcParser{structs: map[string]*ifcStruct{}, numbers: map[string]int{}}
	for _, m := range regexp.MustCompile(`(?m)^#define\s+(\w+)\s+\(?(\w+)\)?\s*$|(\w+)\s*=\s*(0x[0-9a-fA-F]+|\d+),`).FindAllStringSubmatch(text, -1) {
		if v, err := strconv.ParseInt(m[2]+m[4], 0, 64); err == nil {
			p.numbers[m[1]+m[3]] = int(v)
		}
	}
	for _, m := range regexp.MustCompile(`#define\s+(\w+)\s+\((\w+)\s*\+\\?\s*(\w+)\)`).FindAllStringSubmatch(text, -1) {
		p.numbers[m[1]] = p.numbers[m[2]] + p.numbers[m[3]]
	}
	text = regexp.MustCompile(`(?m)^#.*$`).ReplaceAllString(text, "")
	p.tok = regexp.MustCompile(`\w+|[^\s\w]`).FindAllString(text, -1)
	for p.pos < len(p.tok) {
		kind := p.next()
		name := p.peek()
		if (kind != "struct" && kind != "union") || !strings.HasPrefix(name, "mlx5_ifc_") || p.pos+1 >= len(p.tok) || p.tok[p.pos+1] != "{" {
			continue
		}
		p.pos += 2
		p.structs[strings.TrimSuffix(strings.TrimPrefix(name, "mlx5_ifc_"), "_bits")] = p.body(kind == "union")
	}
	return p.structs
}

// body parses members up to the closing brace.
func (p *ifcParser) body(union bool) *ifcStruct {
	s := &ifcStruct{fields: map[string]ifcField{}}
	at := 0
	for p.peek() != "}" && p.peek() != "" {
		if p.peek() == "DECLARE_FLEX_ARRAY" {
			for p.next() != ";" && p.peek() != "" {
			}
			continue
		}
		var sub *ifcStruct
		unit := 1
		switch kind := p.next(); kind {
		case "struct", "union":
			if p.peek() == "{" {
				p.next()
				sub = p.body(kind == "union")
			} else {
				sub = p.structs[strings.TrimSuffix(strings.TrimPrefix(p.next(), "mlx5_ifc_"), "_bits")]
			}
			if sub == nil {
				sub = &ifcStruct{}
			}
			unit = sub.size
		}
		name := ""
		if p.peek() != ";" && p.peek() != "[" {
			name = p.next()
		}
		count := 1
		for p.peek() == "[" {
			p.next()
			count *= p.dimension()
		}
		for p.peek() != ";" && p.peek() != "" {
			p.next()
		}
		p.next()
		size := unit * count
		prefix := ""
		if name != "" {
			s.fields[name] = ifcField{at, at + size}
			s.order = append(s.order, name)
			prefix = name + "."
		}
		if sub != nil {
			for _, n := range sub.order {
				f := sub.fields[n]
				s.fields[prefix+n] = ifcField{at + f.start, at + f.end}
				s.order = append(s.order, prefix+n)
			}
		}
		if union {
			s.size = max(s.size, size)
		} else {
			at += size
			s.size = at
		}
	}
	p.next()
	return s
}

func (p *ifcParser) dimension() int {
	n := 0
	for p.peek() != "]" && p.peek() != "" {
		t := p.next()
		if v, err := strconv.ParseInt(t, 0, 64); err == nil {
			n += int(v)
		} else if v, ok := p.numbers[t]; ok {
			n += v
		}
	}
	p.next()
	return n
}

// find locates a row of ours in the header: as the two halves of an address or counter, or by name.
func (s *ifcStruct) find(prm string) (ifcField, bool) {
	for _, halves := range [][2]string{{"_47_16", "_15_0"}, {"_47_32", "_31_0"}, {".mac_addr_47_32", ".mac_addr_31_0"}, {"_high", "_low"}, {"_h", "_l"}} {
		hi, ok1 := s.fields[prm+halves[0]]
		lo, ok2 := s.fields[prm+halves[1]]
		if ok1 && ok2 {
			return ifcField{hi.start, lo.end}, true
		}
	}
	f, ok := s.fields[prm]
	return f, ok
}

// allLayouts returns every table by name.
func allLayouts() (all []Layout, sizes map[string]int) {
	sizes = map[string]int{}
	for _, f := range Files() {
		for _, c := range f.Commands {
			if c.In != nil {
				all = append(all, *c.In)
			}
			if c.Out != nil {
				all = append(all, *c.Out)
			}
		}
		for _, r := range f.Registers {
			if r.Layout != nil {
				all = append(all, *r.Layout)
			}
		}
		all = append(all, f.Layouts...)
	}
	for _, l := range all {
		sizes[l.Name] = l.Size
	}
	return all, sizes
}

func (f Field) extent(sizes map[string]int) ifcField {
	start := f.Off * 8
	switch f.Kind {
	case Blob:
		return ifcField{start, start + 8*f.Size}
	case Array:
		return ifcField{start, start + 8*f.Size*f.Count}
	case Embed:
		return ifcField{start, start + 8*f.Count*sizes[f.Layout]}
	}
	unit := 32
	if f.Hi > 31 {
		unit = 64
	}
	return ifcField{start + unit - 1 - f.Hi, start + unit - f.Lo}
}

func TestFieldsAreWhereTheKernelHeaderHasThem(t *testing.T) {
	path := os.Getenv("MLX5_IFC")
	if path == "" {
		t.Skip("MLX5_IFC is not set")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	structs := parseIFC(string(text))
	all, sizes := allLayouts()
	compared, missing := 0, 0
	for _, l := range all {
		if l.PRM == "" || l.Form == View && l.PRM != "initial_seg" && l.PRM != "health_buffer" {
			continue
		}
		s := structs[l.PRM]
		if s == nil {
			t.Logf("%s: header has no %s", l.Name, l.PRM)
			continue
		}
		if !l.Patch && l.Form == Value && s.size != 8*l.Size {
			t.Logf("%s: %#x bytes, header %#x", l.Name, l.Size, s.size/8)
		}
		seen := map[int]bool{} // bits our table names
		for _, f := range l.Fields {
			got := f.extent(sizes)
			for b := got.start; b < got.end; b++ {
				seen[b] = true
			}
			want, ok := s.find(f.PRM)
			switch {
			case !ok:
				missing++
				t.Logf("%s.%s: header's %s has no %s", l.Name, f.Name, l.PRM, f.PRM)
			case got != want && elsewhere(l.Name+"."+f.Name) == want.String():
				t.Logf("%s.%s: %s here, %s in this header", l.Name, f.Name, got, want)
			case got != want:
				t.Errorf("%s.%s: bits %s, header's %s.%s has %s", l.Name, f.Name, got, l.PRM, f.PRM, want)
			default:
				compared++
			}
		}
		if os.Getenv("MLX5_IFC_UNNAMED") != "" {
			logUnnamed(t, l, s, seen)
		}
	}
	t.Logf("%d fields are where the header has them, %d are not in it", compared, missing)
	if compared < 2000 {
		t.Errorf("only %d fields compared: the header was not understood", compared)
	}
}

// elsewhere is where a header may have a field that we, knowingly, have in another place.
func elsewhere(field string) string {
	switch field {
	case "InitSeg.NICInterface":
		return "0x14.22..0x14.23" // the header declares 2 bits, Linux health.c reads and writes 3
	case "MKeyContext.LogPageSize":
		return "0x38.27..0x38.31" // 6.1: 5 bits
	case "RegPPCNT.PrioTC":
		return "0x4.29..0x4.31" // 6.1: 3 bits
	case "CapGeneral.SHAMPO":
		return "0x14.26..0x14.26" // 6.1
	case "CapGeneral.RelaxedOrderingRead":
		return "0x1c.9..0x1c.9" // 6.1
	}
	return ""
}

// logUnnamed lists what the header names and the tables do not.
func logUnnamed(t *testing.T, l Layout, s *ifcStruct, seen map[int]bool) {
	for _, n := range s.order {
		f := s.fields[n]
		if strings.Contains(n, "reserved_at") || strings.Contains(n, "opcode") && f.start == 0 || f.end > 8*l.Size || f.start == f.end {
			continue
		}
		free := true
		for b := f.start; b < f.end; b++ {
			free = free && !seen[b]
		}
		if free && n != "uid" && n != "op_mod" && n != "status" && n != "syndrome" {
			t.Logf("%s: unnamed %s %s", l.Name, n, f)
		}
	}
}

func (f ifcField) String() string {
	return fmt.Sprintf("%#x.%d..%#x.%d", f.start/32*4, f.start%32, (f.end-1)/32*4, (f.end-1)%32)
}
