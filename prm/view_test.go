package prm

import (
	"bytes"
	"reflect"
	"testing"
)

// views calls f for every view.
func views(t *testing.T, f func(t *testing.T, l *Layout)) {
	for _, name := range LayoutNames() {
		if l := LayoutByName(name); l.View {
			t.Run(name, func(t *testing.T) { f(t, l) })
		}
	}
}

func TestEachGetterReadsItsBitsAndNoOther(t *testing.T) {
	views(t, func(t *testing.T, l *Layout) {
		for _, f := range l.Fields {
			image := fieldImage(l.Size, f)
			if f.Kind == KindStruct {
				continue
			}
			got := reflect.ValueOf(newView(l.Name, image)).MethodByName(f.Name).Call(nil)[0]
			if got.Kind() == reflect.Pointer {
				got = got.Elem()
			}
			want := reflect.New(got.Type()).Elem()
			setOnes(want, f.Hi-f.Lo+1)
			if !reflect.DeepEqual(got.Interface(), want.Interface()) {
				t.Errorf("%s: got %v, want %v", f.Name, got, want)
			}
			for i := range image {
				image[i] = ^image[i]
			}
			got = reflect.ValueOf(newView(l.Name, image)).MethodByName(f.Name).Call(nil)[0]
			if got.Kind() == reflect.Pointer {
				got = got.Elem()
			}
			if !got.IsZero() {
				t.Errorf("%s reads %v with all other bits set", f.Name, got)
			}
		}
	})
}

func TestEachSetterWritesItsBitsAndNoOther(t *testing.T) {
	views(t, func(t *testing.T, l *Layout) {
		for _, f := range l.Fields {
			b := make([]byte, l.Size)
			set := reflect.ValueOf(newView(l.Name, b)).MethodByName("Set" + f.Name)
			if !set.IsValid() {
				continue
			}
			ones := reflect.New(set.Type().In(0)).Elem()
			setOnes(ones, f.Hi-f.Lo+1)
			set.Call([]reflect.Value{ones})
			want := fieldImage(l.Size, f)
			if !bytes.Equal(b, want) {
				t.Errorf("%s: all ones into zeros: got %x, want %x", f.Name, b, want)
			}
			for i := range b {
				b[i] = 0xff
			}
			set.Call([]reflect.Value{reflect.Zero(set.Type().In(0))})
			for i := range b {
				if b[i] != ^want[i] {
					t.Errorf("%s: zero into ones: byte %#x is %#x, want %#x", f.Name, i, b[i], ^want[i])
				}
			}
		}
	})
}

func TestOwnershipDwordsHaveNoSetters(t *testing.T) {
	own := map[string]int{"CQE": CQEOwnOff, "ErrorCQE": ErrorCQEOwnOff, "SigErrCQE": SigErrCQEOwnOff, "EQE": EQEOwnOff, "CmdEntry": CmdEntryStatusOff}
	for name, off := range own {
		l := LayoutByName(name)
		view := reflect.ValueOf(newView(name, make([]byte, l.Size)))
		seen := 0
		for _, f := range l.Fields {
			inside := f.Kind != KindStruct && f.Off/4 == off/4
			if !inside {
				continue
			}
			seen++
			if view.MethodByName("Set" + f.Name).IsValid() {
				t.Errorf("%s.Set%s writes the ownership dword", name, f.Name)
			}
		}
		if seen == 0 {
			t.Errorf("%s: no field at %#x", name, off)
		}
	}
}

func TestDwordsComposeWhatTheGettersRead(t *testing.T) {
	var b [CQESize]byte
	be := func(off int, v uint32) {
		b[off], b[off+1], b[off+2], b[off+3] = byte(v>>24), byte(v>>16), byte(v>>8), byte(v)
	}
	d := CQEOwnDword(0x1234, 0x56, CQEResponderError, CQEFormatInline64, true, true)
	if d != 0x123456eb {
		t.Errorf("CQEOwnDword: got %#x", d)
	}
	be(CQEOwnOff, d)
	c := (*CQE)(b[:])
	if c.WQECounter() != 0x1234 || c.Signature() != 0x56 || c.Opcode() != CQEResponderError || c.Format() != CQEFormatInline64 || !c.SE() || !c.Owner() {
		t.Errorf("CQE reads %#x %#x %v %v %v %v", c.WQECounter(), c.Signature(), c.Opcode(), c.Format(), c.SE(), c.Owner())
	}
	if o := CQEOwn(d); o.WQECounter() != 0x1234 || o.Opcode() != CQEResponderError || !o.Owner() {
		t.Errorf("CQEOwn reads %#x %v %v", o.WQECounter(), o.Opcode(), o.Owner())
	}
	if d := EQEOwnDword(0, true); d != 1 {
		t.Errorf("EQEOwnDword: got %#x", d)
	}
	if d := CmdEntryStatusDword(0x3f, 0xc5, DeliveryBadType, true); d != 0x3fc50021 {
		t.Errorf("CmdEntryStatusDword: got %#x", d)
	}
	if d := CQDoorbellArmDword(3, true, 0xabcdef); d != 0x31abcdef {
		t.Errorf("CQDoorbellArmDword: got %#x", d)
	}
	if d := EQDoorbellArmDword(0x12, 0x345678); d != 0x12345678 {
		t.Errorf("EQDoorbellArmDword: got %#x", d)
	}
	if !panics(func() { CQEOwnDword(0, 0, 16, 0, false, false) }) {
		t.Error("CQEOwnDword takes an opcode of 5 bits")
	}
}

func TestWaysToSeeTheSameBits(t *testing.T) {
	var m MatchLayer24
	m.SetSrcIPv4(0xc0a80001)
	if want := [16]byte{12: 192, 13: 168, 15: 1}; m.SrcIPv6 != want || m.SrcIPv4() != 0xc0a80001 {
		t.Errorf("SrcIPv6 %x, SrcIPv4 %#x", m.SrcIPv6, m.SrcIPv4())
	}
	g := MatchMisc{GREKey: 0x11223344}
	g.SetGREKeyLo(0x55)
	if g.GREKey != 0x11223355 || g.GREKeyHi() != 0x112233 {
		t.Errorf("GREKey %#x, hi %#x", g.GREKey, g.GREKeyHi())
	}
	var k MKeyContext
	k.SetAccessMode(MKeyAccessMEMIC)
	if k.AccessMode4_2 != 1 || k.AccessMode1_0 != 1 || k.AccessMode() != MKeyAccessMEMIC {
		t.Errorf("access mode %d %d", k.AccessMode4_2, k.AccessMode1_0)
	}
}
