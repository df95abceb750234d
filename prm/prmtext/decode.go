package prmtext

import (
	"fmt"

	"cxkit/prm"
)

// decoder walks tables over the bytes of one message.
type decoder struct {
	b      []byte
	fields []Field
	// overlay names the structure that a field of raw bytes holds, by the path of the field, or "".
	overlay func(path string) string
}

// structure decodes l at byte base. What l names beyond the end of the message is left out.
func (d *decoder) structure(l *prm.Layout, path string, base int) {
	end := min(base+l.Size, len(d.b))
	named := newBitset(end - base)
	for i := range l.Fields {
		d.field(&l.Fields[i], path, base, end, named)
	}
	d.unnamed(path, base, end, named)
}

func (d *decoder) field(f *prm.Field, path string, base, end int, named bitset) {
	start, n := extent(f)
	name := join(path, f.PRM)
	if base*8+start+n > end*8 {
		return // cut off: what is left of it is kept as unnamed bits
	}
	switch f.Kind {
	case prm.KindBits, prm.KindAlias:
		d.fields = append(d.fields, Field{
			Path: name, Off: base + f.Off, Rel: f.Off, Hi: f.Hi, Lo: f.Lo, start: base*8 + start,
			Value: getBits(d.b, base*8+start, n), Enum: f.Enum, Signed: f.Signed, Alias: f.Kind == prm.KindAlias,
		})
		if f.Kind == prm.KindAlias {
			return
		}
	case prm.KindBytes:
		d.raw(name, base+f.Off, f.Off, f.Size)
	case prm.KindWords:
		for i := range f.Count {
			d.word(fmt.Sprintf("%s[%d]", name, i), base+f.Off+i*f.Size, f.Off+i*f.Size, f.Size)
		}
	case prm.KindStruct:
		l := prm.LayoutByName(f.Layout)
		for i := range f.Count {
			sub := name
			if f.Count > 1 {
				sub = fmt.Sprintf("%s[%d]", name, i)
			}
			d.structure(l, sub, base+f.Off+i*l.Size)
		}
	}
	named.set(start, n)
}

// raw decodes a field of bytes: by the structure it holds, if that is known.
func (d *decoder) raw(name string, off, rel, size int) {
	if d.overlay != nil {
		if l := prm.LayoutByName(d.overlay(name)); l != nil {
			d.structure(l, name, off)
			if rest := off + l.Size; rest < off+size && l.Tail != nil && l.Tail.Size == 1 {
				d.raw(join(name, l.Tail.PRM), rest, l.Size, off+size-rest)
			} else if rest < off+size {
				d.unnamed(name, rest, off+size, newBitset(off+size-rest))
			}
			return
		}
	}
	if size > 0 {
		d.fields = append(d.fields, Field{Path: name, Off: off, Rel: rel, Bytes: clone(d.b[off : off+size])})
	}
}

// word decodes a big-endian number of size bytes.
func (d *decoder) word(name string, off, rel, size int) {
	f := Field{Path: name, Off: off &^ 3, Rel: rel &^ 3, Hi: 31, start: off * 8, Value: getBits(d.b, off*8, size*8)}
	switch {
	case size == 8:
		f.Off, f.Rel, f.Hi = off, rel, 63
	case size == 2 && off%4 == 0:
		f.Lo = 16
	case size == 2:
		f.Hi = 15
	}
	d.fields = append(d.fields, f)
}

// unnamed keeps the bits from base to end that are set and have no name: a whole unnamed dword as one field, other bits
// one by one.
func (d *decoder) unnamed(path string, base, end int, named bitset) {
	name := join(path, "reserved")
	for off := base; off < end; off += 4 {
		rel := off - base
		if off+4 > end { // the message ends inside the dword
			if !named.any(rel*8, (end-off)*8) && getBits(d.b, off*8, (end-off)*8) != 0 {
				d.fields = append(d.fields, Field{Path: name, Off: off, Rel: rel, Bytes: clone(d.b[off:end]), Reserved: true})
				return
			}
		} else if v := getBits(d.b, off*8, 32); v == 0 {
			continue
		} else if !named.any(rel*8, 32) {
			d.fields = append(d.fields, Field{Path: name, Off: off, Rel: rel, Hi: 31, start: off * 8, Value: v, Reserved: true})
			continue
		}
		for i := range min(32, (end-off)*8) {
			if !named.has(rel*8+i) && getBits(d.b, off*8+i, 1) != 0 {
				d.fields = append(d.fields, Field{Path: name, Off: off, Rel: rel, Hi: 31 - i, Lo: 31 - i, start: off*8 + i, Value: 1, Reserved: true})
			}
		}
	}
}

// list decodes what follows the fixed part of l.
func (d *decoder) list(l *prm.Layout) {
	at := l.Size
	if t := l.Tail; t != nil && at < len(d.b) {
		switch {
		case t.Size == 0:
			at = d.flowList(at)
		case t.Size == 1:
			d.raw(t.PRM, at, 0, len(d.b)-at)
			at = len(d.b)
		default:
			n := (len(d.b) - at) / t.Size
			if count, ok := d.value(countField(l)); ok {
				n = int(min(uint64(n), count))
			}
			for i := range n {
				name := fmt.Sprintf("%s[%d]", t.PRM, i)
				if t.Layout != "" {
					d.structure(prm.LayoutByName(t.Layout), name, at)
				} else {
					d.word(name, at, 0, t.Size)
				}
				at += t.Size
			}
		}
	}
	if at < len(d.b) {
		d.unnamed("", at, len(d.b), newBitset(len(d.b)-at))
		d.fixRel(at)
	}
}

// fixRel gives the unnamed fields from byte at on, which are in no structure, their place in the message.
func (d *decoder) fixRel(at int) {
	for i := range d.fields {
		if f := &d.fields[i]; f.Path == "reserved" && f.Off >= at {
			f.Rel = f.Off
		}
	}
}

// countField is the PRM name of the field that counts the list's elements.
func countField(l *prm.Layout) string {
	for i := range l.Fields {
		if l.Fields[i].Name == l.Tail.Count {
			return l.Fields[i].PRM
		}
	}
	return ""
}

// flowList decodes destinations and counters behind a flow context and returns where they end.
func (d *decoder) flowList(at int) int {
	size := 8
	if v, _ := d.value("flow_context.extended_destination"); v != 0 {
		size = 16
	}
	destinations, _ := d.value("flow_context.destination_list_size")
	counters, _ := d.value("flow_context.flow_counter_list_size")
	for i := uint64(0); i < destinations && at+size <= len(d.b); i++ {
		name := fmt.Sprintf("destination[%d]", i)
		d.structure(prm.LayoutByName("DestFormat"), name, at)
		if size == 16 {
			d.word(join(name, "packet_reformat_id"), at+8, 8, 4)
			d.unnamed(name, at+12, at+16, newBitset(4))
		}
		at += size
	}
	for i := uint64(0); i < counters && at+size <= len(d.b); i++ {
		name := fmt.Sprintf("flow_counter_list[%d]", i)
		d.word(join(name, "flow_counter_id"), at, 0, 4)
		d.unnamed(name, at+4, at+size, newBitset(size-4))
		at += size
	}
	return at
}

func (d *decoder) value(path string) (uint64, bool) {
	if path == "" {
		return 0, false
	}
	for i := range d.fields {
		if d.fields[i].Path == path {
			return d.fields[i].Value, true
		}
	}
	return 0, false
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func clone(b []byte) []byte { return append([]byte{}, b...) }

// bitset marks the named bits of a structure.
type bitset []uint64

func newBitset(bytes int) bitset { return make(bitset, (max(bytes, 0)*8+63)/64) }

func (s bitset) set(start, n int) {
	for i := start; i < start+n && i/64 < len(s); i++ {
		s[i/64] |= 1 << (i % 64)
	}
}

func (s bitset) has(i int) bool { return i/64 < len(s) && s[i/64]>>(i%64)&1 != 0 }

func (s bitset) any(start, n int) bool {
	for i := start; i < start+n; i++ {
		if s.has(i) {
			return true
		}
	}
	return false
}
