package prm

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"testing"
)

// value is what every generated struct can do.
type value interface {
	Len() int
	Put([]byte)
	Get([]byte)
}

// values calls f for every value structure.
func values(t *testing.T, f func(t *testing.T, l *Layout)) {
	for _, name := range LayoutNames() {
		if l := LayoutByName(name); !l.View {
			t.Run(name, func(t *testing.T) { f(t, l) })
		}
	}
}

// fieldImage is a buffer of size bytes with only the bits of f set.
func fieldImage(size int, f Field) []byte {
	b := make([]byte, size)
	switch f.Kind {
	case KindBits, KindAlias:
		if f.Hi > 31 {
			binary.BigEndian.PutUint64(b[f.Off:], ^uint64(0))
			break
		}
		var d [4]byte
		binary.BigEndian.PutUint32(d[:], uint32((uint64(1)<<(f.Hi-f.Lo+1)-1)<<f.Lo))
		copy(b[f.Off:], d[:]) // the structure may end inside the dword
	case KindBytes, KindWords:
		for i := range f.Size * f.Count {
			b[f.Off+i] = 0xff
		}
	case KindStruct:
		n := LayoutByName(f.Layout)
		for i := range f.Count {
			for j, m := range namedMask(n) {
				b[f.Off+i*n.Size+j] |= m
			}
		}
	}
	return b
}

// namedMask is the set of bits a structure names, worked out from its table alone.
func namedMask(l *Layout) []byte {
	mask := make([]byte, l.Size)
	for _, f := range l.Fields {
		for i, b := range fieldImage(l.Size, f) {
			mask[i] |= b
		}
	}
	return mask
}

// setOnes sets a Go value to all ones of the field's width.
func setOnes(v reflect.Value, width int) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32:
		v.SetInt(-1)
	case reflect.Array:
		for i := range v.Len() {
			setOnes(v.Index(i), 8*int(v.Index(i).Type().Size()))
		}
	case reflect.Struct:
		n := LayoutByName(v.Type().Name())
		v.Addr().Interface().(value).Get(bytes.Repeat([]byte{0xff}, n.Size))
	default:
		v.SetUint(1<<(width-1)<<1 - 1)
	}
}

func setField(v value, f Field) {
	s := reflect.ValueOf(v)
	if f.Kind == KindAlias {
		arg := reflect.New(s.MethodByName(f.Name).Type().Out(0)).Elem()
		setOnes(arg, f.Hi-f.Lo+1)
		s.MethodByName("Set" + f.Name).Call([]reflect.Value{arg})
		return
	}
	setOnes(s.Elem().FieldByName(f.Name), f.Hi-f.Lo+1)
}

// isOpcode tells the one field of an input that Put writes by itself.
func isOpcode(f Field) bool { return f.Enum == "Opcode" }

// emptyImage is what the structure's zero value encodes to: zeros, and the opcode of a command.
func emptyImage(name string) []byte {
	b := make([]byte, LayoutByName(name).Size)
	if c, ok := newValue(name).(interface{ Opcode() Opcode }); ok {
		binary.BigEndian.PutUint16(b, uint16(c.Opcode()))
	}
	return b
}

func TestEachFieldAloneSetsItsBitsAndNoOther(t *testing.T) {
	values(t, func(t *testing.T, l *Layout) {
		for _, f := range l.Fields {
			if isOpcode(f) {
				continue
			}
			in := newValue(l.Name)
			setField(in, f)
			want := emptyImage(l.Name)
			for i, b := range fieldImage(l.Size, f) {
				want[i] |= b
			}
			got := bytes.Repeat([]byte{0xAA}, l.Size)
			in.Put(got)
			if !bytes.Equal(got, want) {
				t.Errorf("%s at %#x[%d:%d]:\ngot  %x\nwant %x", f.Name, f.Off, f.Hi, f.Lo, got, want)
			}
			out := newValue(l.Name)
			out.Get(got)
			if l.Tail == nil && !reflect.DeepEqual(in, out) {
				t.Errorf("%s: read back %+v, wrote %+v", f.Name, out, in)
			}
		}
	})
}

func TestPutRefusesAValueWiderThanItsField(t *testing.T) {
	values(t, func(t *testing.T, l *Layout) {
		for _, f := range l.Fields {
			v := reflect.ValueOf(newValue(l.Name))
			if f.Kind != KindBits || isOpcode(f) {
				continue
			}
			x := v.Elem().FieldByName(f.Name)
			width := f.Hi - f.Lo + 1
			if x.Kind() == reflect.Bool || width == 8*int(x.Type().Size()) {
				continue
			}
			x.SetUint(1 << width)
			if !panics(func() { v.Interface().(value).Put(make([]byte, l.Size)) }) {
				t.Errorf("%s takes %#x, which is wider than %d bits", f.Name, uint64(1)<<width, width)
			}
		}
	})
}

func TestPutRefusesAShortBuffer(t *testing.T) {
	values(t, func(t *testing.T, l *Layout) {
		if !panics(func() { newValue(l.Name).Put(make([]byte, l.Size-1)) }) {
			t.Errorf("Put takes a buffer of %d bytes, %d needed", l.Size-1, l.Size)
		}
	})
}

func panics(f func()) (yes bool) {
	defer func() { yes = recover() != nil }()
	f()
	return false
}

func TestGetReadsWhatIsMissingAsZero(t *testing.T) {
	values(t, func(t *testing.T, l *Layout) {
		full := bytes.Repeat([]byte{0xff}, l.Size)
		for n := range l.Size + 1 {
			if n > 64 && n%61 != 0 && n != l.Size {
				continue
			}
			cut, padded := newValue(l.Name), newValue(l.Name)
			cut.Get(full[:n])
			image := make([]byte, l.Size)
			copy(image, full[:n])
			padded.Get(image)
			if !reflect.DeepEqual(cut, padded) {
				t.Fatalf("%d bytes: got %+v, want %+v", n, cut, padded)
			}
		}
	})
}

func TestPutAfterGetKeepsNamedBitsAndClearsReserved(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	values(t, func(t *testing.T, l *Layout) {
		mask := namedMask(l)
		for range 20 {
			in := make([]byte, l.Size)
			for i := range in {
				in[i] = byte(rnd.Uint32())
			}
			v := newValue(l.Name)
			v.Get(in)
			out := make([]byte, v.Len())
			v.Put(out)
			want := make([]byte, l.Size)
			for i := range want {
				want[i] = in[i] & mask[i]
			}
			if c, ok := v.(interface{ Opcode() Opcode }); ok {
				binary.BigEndian.PutUint16(want, uint16(c.Opcode()))
			}
			if !bytes.Equal(out[:l.Size], want) {
				t.Fatalf("in   %x\ngot  %x\nwant %x", in, out, want)
			}
		}
	})
}

func TestPatchKeepsUnnamedBits(t *testing.T) {
	values(t, func(t *testing.T, l *Layout) {
		v := newValue(l.Name)
		p, ok := v.(interface{ Patch([]byte) })
		if !ok {
			t.Skip("no Patch")
		}
		got := bytes.Repeat([]byte{0xff}, l.Size)
		p.Patch(got)
		for i, m := range namedMask(l) {
			if got[i] != ^m {
				t.Fatalf("byte %#x: got %#x, want %#x", i, got[i], ^m)
			}
		}
	})
}

func TestListsAreEncodedAfterTheStructure(t *testing.T) {
	values(t, func(t *testing.T, l *Layout) {
		if l.Tail == nil || l.Tail.Size == 0 {
			t.Skip("no list")
		}
		const n = 5
		in := make([]byte, l.Size+n*l.Tail.Size)
		for i := range in {
			in[i] = 0xff
		}
		v := newValue(l.Name)
		v.Get(in)
		if c := reflect.ValueOf(v).Elem().FieldByName(l.Tail.Name).Len(); c != n {
			t.Fatalf("%d elements, want %d", c, n)
		}
		if v.Len() != len(in) {
			t.Fatalf("Len is %d, want %d", v.Len(), len(in))
		}
		out := make([]byte, len(in))
		v.Put(out)
		if !bytes.Equal(out[l.Size:], in[l.Size:]) {
			t.Fatalf("list: got %x", out[l.Size:])
		}
		if !panics(func() { v.Put(out[:len(out)-1]) }) {
			t.Error("Put takes a buffer too short for the list")
		}
	})
}
