package cfgspace

import (
	"testing"

	"cxkit/pci"
)

// flat is an endpoint whose configuration space is plain memory.
type flat struct {
	pci.Endpoint
	bytes [Size]byte
	sizes []int
}

func (f *flat) ReadConfig(off, size int) (v uint32) {
	for i := range size {
		v |= uint32(f.bytes[off+i]) << (8 * i)
	}
	return v
}

func (f *flat) WriteConfig(off, size int, v uint32) {
	f.sizes = append(f.sizes, size)
	for i := range size {
		f.bytes[off+i] = byte(v >> (8 * i))
	}
}

func TestCapabilityListsThatLoopEnd(t *testing.T) {
	f := &flat{}
	f.bytes[capPointer] = 0x40
	f.bytes[0x40], f.bytes[0x41] = 1, 0x48
	f.bytes[0x48], f.bytes[0x49] = 2, 0x40
	s := New(f)
	if s.express != 0 || s.msix != 0 {
		t.Errorf("found capabilities at %#x and %#x", s.express, s.msix)
	}
	if e, err := s.Write(9, []byte{0x80}); err != nil || e.Reset {
		t.Errorf("a write at 9: %+v, %v", e, err)
	}
}

func TestWritesAreCutIntoAlignedUnits(t *testing.T) {
	f := &flat{}
	s := New(f)
	if _, err := s.Write(0x101, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	want := []int{1, 2, 4, 2, 1}
	if len(f.sizes) != len(want) {
		t.Fatalf("units %v, want %v", f.sizes, want)
	}
	for i := range want {
		if f.sizes[i] != want[i] {
			t.Fatalf("units %v, want %v", f.sizes, want)
		}
	}
}

func TestResetsNeedACapabilityThatAllowsThem(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		f := &flat{}
		f.bytes[capPointer], f.bytes[0x40] = 0x40, capExpress
		if allowed {
			f.bytes[0x47] = 0x10
		}
		e, err := New(f).Write(0x46, []byte{0, f.bytes[0x47], 0, 0x80})
		if err != nil || e.Reset != allowed {
			t.Errorf("allowed %v: %+v, %v", allowed, e, err)
		}
	}
}
