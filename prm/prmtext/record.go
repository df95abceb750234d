package prmtext

import (
	"fmt"
	"strconv"
	"strings"

	"cxkit/prm"
)

// Field is a decoded field, or a run of bits that no table names.
type Field struct {
	Path     string // PRM name with those of the structures around it: ctx.wq.log_wq_sz
	Off      int    // byte offset of the dword that holds it, in the message
	Rel      int    // the same in its own structure
	Hi, Lo   int    // bits; 31 is the first bit of the dword. 64-bit fields: 63, 0
	Value    uint64
	Bytes    []byte // a field of raw bytes: instead of Hi, Lo and Value
	Enum     string // name of its enum, if it has one
	Signed   bool
	Alias    bool // a second reading of bits that another field holds
	Reserved bool // no table names these bits, and they are not 0

	start int // first bit in the message
}

// Record is a decoded message.
type Record struct {
	Title  string
	Len    int // bytes
	Fields []Field
}

// Encode gives the bytes that were decoded.
func (r *Record) Encode() []byte {
	b := make([]byte, r.Len)
	for i := range r.Fields {
		switch f := &r.Fields[i]; {
		case f.Alias:
		case f.Bytes != nil:
			copy(b[f.Off:], f.Bytes)
		default:
			putBits(b, f.start, f.Hi-f.Lo+1, f.Value)
		}
	}
	return b
}

// Lookup returns the value of a field.
func (r *Record) Lookup(path string) (uint64, bool) {
	for i := range r.Fields {
		if r.Fields[i].Path == path {
			return r.Fields[i].Value, true
		}
	}
	return 0, false
}

// Reserved returns the fields no table names.
func (r *Record) Reserved() []Field {
	var out []Field
	for _, f := range r.Fields {
		if f.Reserved {
			out = append(out, f)
		}
	}
	return out
}

// Position prints a field's place as the PRM does: 0x1c[28:24].
func (f *Field) Position() string { return position(f, f.Off) }

func position(f *Field, off int) string {
	switch {
	case f.Bytes != nil:
		return fmt.Sprintf("%#02x..%#02x", off, off+len(f.Bytes)-1)
	case f.Hi == 31 && f.Lo == 0:
		return fmt.Sprintf("%#02x", off)
	case f.Hi > 31:
		return fmt.Sprintf("%#02x..%#02x", off, off+7)
	case f.Hi == f.Lo:
		return fmt.Sprintf("%#02x[%d]", off, f.Hi)
	}
	return fmt.Sprintf("%#02x[%d:%d]", off, f.Hi, f.Lo)
}

// ValueText prints a field's value: hexadecimal, decimal where it differs, and the name of an enum's value.
func (f *Field) ValueText() string {
	if f.Bytes != nil {
		return bytesText(f.Bytes)
	}
	s := "0x" + strconv.FormatUint(f.Value, 16)
	switch {
	case f.Signed:
		s += " (" + strconv.FormatInt(int64(int32(f.Value)), 10) + ")"
	case f.Value < 10:
		s = strconv.FormatUint(f.Value, 10)
	case f.Value < 1<<32:
		s += " (" + strconv.FormatUint(f.Value, 10) + ")"
	}
	if text, ok := prm.EnumText(f.Enum, f.Value); ok {
		s += " " + text
	}
	return s
}

// bytesText prints raw bytes as text if they are a NUL-padded string, else in hexadecimal.
func bytesText(b []byte) string {
	text := strings.TrimRight(string(b), "\x00")
	printable := len(text) >= 4
	for _, c := range []byte(text) {
		printable = printable && c >= ' ' && c <= '~'
	}
	if printable {
		return strconv.Quote(text)
	}
	if n := 32; len(b) > n {
		return fmt.Sprintf("%x... (%d bytes)", b[:n], len(b))
	}
	return fmt.Sprintf("%x", b)
}

func (f *Field) zero() bool {
	for _, c := range f.Bytes {
		if c != 0 {
			return false
		}
	}
	return f.Value == 0
}

// Options say what Text prints.
type Options struct {
	All     bool // fields that are 0 too
	MaxList int  // elements of a list to print; 0: 16, negative: all
}

// Text prints one field a line. Fields that are 0 are left out unless o asks for them.
func (r *Record) Text(o Options) string {
	if o.MaxList == 0 {
		o.MaxList = 16
	}
	var s strings.Builder
	s.WriteString(r.Title + "\n")
	skipped := 0
	for i := range r.Fields {
		f := &r.Fields[i]
		if !o.All && f.zero() {
			continue
		}
		if n := lastIndex(f.Path); o.MaxList > 0 && n >= o.MaxList {
			skipped++
			continue
		}
		if f.Reserved {
			fmt.Fprintf(&s, "  %s\n", f.ReservedText())
			continue
		}
		fmt.Fprintf(&s, "  %-14s %-32s %s\n", f.Position(), f.Path, f.ValueText())
	}
	if skipped > 0 {
		fmt.Fprintf(&s, "  ... %d more fields of lists\n", skipped)
	}
	return s.String()
}

// ReservedText prints an unnamed field: reserved 0x40[18]=1, the place being that in its own structure.
func (f *Field) ReservedText() string {
	owner := strings.TrimSuffix(strings.TrimSuffix(f.Path, "reserved"), ".")
	if owner != "" {
		owner = " in " + owner
	}
	if f.Bytes != nil {
		return fmt.Sprintf("reserved %s=%x%s", position(f, f.Rel), f.Bytes, owner)
	}
	if f.Hi == f.Lo {
		return fmt.Sprintf("reserved %s=%d%s", position(f, f.Rel), f.Value, owner)
	}
	return fmt.Sprintf("reserved %s=%#x%s", position(f, f.Rel), f.Value, owner)
}

// lastIndex is the index in the last name of a path that has one, as 7 in pas[7], or -1.
func lastIndex(path string) int {
	end := strings.LastIndexByte(path, ']')
	start := strings.LastIndexByte(path, '[')
	if end < 0 || start < 0 || start > end {
		return -1
	}
	n, err := strconv.Atoi(path[start+1 : end])
	if err != nil {
		return -1
	}
	return n
}
