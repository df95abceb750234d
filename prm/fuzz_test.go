package prm

import (
	"bytes"
	"reflect"
	"testing"
)

// pick chooses a structure by a fuzzer's number.
func pick(n uint16, view bool) *Layout {
	var names []string
	for _, name := range LayoutNames() {
		if LayoutByName(name).View == view {
			names = append(names, name)
		}
	}
	return LayoutByName(names[int(n)%len(names)])
}

// Bytes from the other side are decoded without a panic, and what was decoded encodes to something that decodes alike.
func FuzzValueGet(f *testing.F) {
	for i := range uint16(64) {
		f.Add(i*7, bytes.Repeat([]byte{byte(i), 0xff}, int(i)*10))
	}
	f.Fuzz(func(t *testing.T, n uint16, data []byte) {
		l := pick(n, false)
		v := newValue(l.Name)
		v.Get(data)
		if v.Len() > l.Size+len(data) {
			t.Fatalf("%s: length %d of %d bytes", l.Name, v.Len(), len(data))
		}
		b := make([]byte, v.Len())
		v.Put(b)
		again := newValue(l.Name)
		again.Get(b)
		if !reflect.DeepEqual(v, again) && l.Tail == nil {
			t.Fatalf("%s: got %+v, want %+v", l.Name, again, v)
		}
		b2 := make([]byte, again.Len())
		again.Put(b2)
		if !bytes.Equal(b, b2) {
			t.Fatalf("%s: got %x, want %x", l.Name, b2, b)
		}
	})
}

// Getters of views take any bytes.
func FuzzViewGetters(f *testing.F) {
	for i := range uint16(32) {
		f.Add(i, bytes.Repeat([]byte{byte(i) * 37}, 64))
	}
	f.Fuzz(func(t *testing.T, n uint16, data []byte) {
		l := pick(n, true)
		b := make([]byte, l.Size)
		copy(b, data)
		v := reflect.ValueOf(newView(l.Name, b))
		for _, field := range l.Fields {
			v.MethodByName(field.Name).Call(nil)
		}
		for i := range v.NumMethod() {
			m := v.Type().Method(i)
			set := v.Method(i)
			if len(m.Name) > 3 && m.Name[:3] == "Set" && set.Type().NumIn() == 1 {
				set.Call([]reflect.Value{v.MethodByName(m.Name[3:]).Call(nil)[0]})
			}
		}
		want := make([]byte, l.Size)
		copy(want, data)
		if !bytes.Equal(b, want) {
			t.Fatalf("%s: writing back what was read changed %x to %x", l.Name, want, b)
		}
	})
}

func FuzzReservedInput(f *testing.F) {
	f.Add(uint16(OpCreateCQ), []byte{4, 0, 0, 0})
	f.Fuzz(func(t *testing.T, op uint16, in []byte) {
		if off, found := ReservedInput(Opcode(op), in); found && off >= len(in) {
			t.Fatalf("offset %d of %d bytes", off, len(in))
		}
		InputOpcode(in)
		OutputResult(in)
	})
}
