package config

import (
	"testing"
)

func cx5() Identity {
	return Identity{
		Vendor: 0x15b3, Device: 0x1017, SubVendor: 0x15b3, SubDevice: 0x0080, BARSize: 32 << 20, Vectors: 64,
		VPD: []byte{0x82, 3, 0, 'c', 'x', '5', 0x78},
	}
}

// TestRealConnectX5 compares with the configuration space that lspci -xxxx shows of a ConnectX-5
// (reports.md, golden PCI test), after what a BIOS writes there.
func TestRealConnectX5(t *testing.T) {
	s := New(cx5())
	s.Write(0x04, 2, 0x0546)
	s.Write(0x10, 4, 0xf8000000)
	want := map[int][]byte{
		0x00: {0xb3, 0x15, 0x17, 0x10, 0x46, 0x05, 0x10, 0x00, 0x00, 0x00, 0x00, 0x02, 0x08, 0x00, 0x00, 0x00},
		0x10: {0x0c, 0x00, 0x00, 0xf8, 0x00, 0x00, 0x00, 0x00},
		0x2c: {0xb3, 0x15, 0x80, 0x00},
		0x34: {0x60},
		0x3c: {0xff, 0x01, 0x00, 0x00},
	}
	for off, bytes := range want {
		for i, b := range bytes {
			if got := s.Read(off+i, 1); got != uint32(b) {
				t.Errorf("byte %#x: %#02x, want %#02x", off+i, got, b)
			}
		}
	}
	type capability struct {
		off int
		id  uint32
	}
	var got []capability
	for off := int(s.Read(0x34, 1)); off != 0 && len(got) < 20; off = int(s.Read(off+1, 1)) {
		got = append(got, capability{off, s.Read(off, 1)})
	}
	for off := 0x100; off != 0 && len(got) < 20; off = int(s.Read(off, 4) >> 20) {
		got = append(got, capability{off, s.Read(off, 4) & 0xffff})
	}
	order := []capability{
		{0x60, 0x10}, {0x48, 0x03}, {0x9c, 0x11}, {0xc0, 0x09}, {0x40, 0x01},
		{0x100, 0x01}, {0x150, 0x0e}, {0x180, 0x10}, {0x1c0, 0x19},
	}
	if len(got) != len(order) {
		t.Fatalf("capabilities %x, want %x", got, order)
	}
	for i := range order {
		if got[i] != order[i] {
			t.Errorf("capability %d: %x, want %x", i, got[i], order[i])
		}
	}
	if n := s.Read(0x9c+2, 2) & 0x7ff; n != 63 {
		t.Errorf("MSI-X table size field %d, want 63", n)
	}
	if n := s.Read(0xc0+2, 1); n != 0x18 {
		t.Errorf("vendor capability length %#x, want 0x18", n)
	}
	if v := s.Read(0x40+2, 2) & 7; v != 3 {
		t.Errorf("power management version %d, want 3", v)
	}
}

func TestBARSizing(t *testing.T) {
	s := New(cx5())
	s.Write(0x10, 4, 0xffffffff)
	s.Write(0x14, 4, 0xffffffff)
	mask := uint64(s.Read(0x14, 4))<<32 | uint64(s.Read(0x10, 4))
	if size := ^(mask &^ 0xf) + 1; size != 32<<20 || mask&0xf != 0xc {
		t.Errorf("BAR0 reads %#x after writing ones: %d bytes, flags %#x", mask, size, mask&0xf)
	}
	for bar := 0x18; bar < 0x28; bar += 4 {
		s.Write(bar, 4, 0xffffffff)
		if v := s.Read(bar, 4); v != 0 {
			t.Errorf("BAR at %#x reads %#x", bar, v)
		}
	}
}

func TestReadOnlyFieldsStay(t *testing.T) {
	s := New(cx5())
	before := make([]uint32, size)
	for i := range before {
		before[i] = s.Read(i, 1)
	}
	for off := range size {
		if off != offExpress+9 {
			s.Write(off, 1, 0xff)
		}
	}
	s.Reset()
	for i := range before {
		if got := s.Read(i, 1); got != before[i] {
			t.Errorf("byte %#x is %#x after a reset, %#x before", i, got, before[i])
		}
	}
	for _, off := range []int{0, 2, 8, 0x0a, 0x2c, 0x34, offExpress, offMSIX, offMSIX + 4, 0x100, 0x180} {
		was := s.Read(off, 2)
		s.Write(off, 2, ^was)
		if got := s.Read(off, 2); got != was && off != offMSIX+4 {
			t.Errorf("field %#x changed from %#x to %#x", off, was, got)
		}
	}
}

func TestWritesHaveEffects(t *testing.T) {
	s := New(cx5())
	if s.BusMaster() {
		t.Error("bus master at power-on")
	}
	if e := s.Write(4, 2, 0x0006); !e.Master || e.Reset || !s.BusMaster() {
		t.Errorf("bus master switched on: %+v, %v", e, s.BusMaster())
	}
	if e := s.Write(offPM+4, 2, 3); !e.Master || s.BusMaster() {
		t.Errorf("D3hot: %+v, bus master %v", e, s.BusMaster())
	}
	s.Write(offPM+4, 2, 0)
	for _, c := range []struct {
		off, n int
		v      uint32
		reset  bool
	}{
		{offExpress + 8, 2, 0x8000, true}, {offExpress + 8, 4, 0x8000, true}, {offExpress + 9, 1, 0x80, true},
		{offExpress + 8, 2, 0x7fff, false}, {offExpress + 8, 1, 0x80, false}, {offExpress + 10, 2, 0x8000, false},
	} {
		if e := s.Write(c.off, c.n, c.v); e.Reset != c.reset {
			t.Errorf("write %#x of %d bytes at %#x: reset %v", c.v, c.n, c.off, e.Reset)
		}
	}
	if s.Read(offExpress+8, 2)&0x8000 != 0 {
		t.Error("the reset bit reads as one")
	}
}

func TestVitalProductDataIsReadThroughItsWindow(t *testing.T) {
	s := New(cx5())
	var got []byte
	for at := uint32(0); at < 8; at += 4 {
		s.Write(offVPD+2, 2, at)
		if s.Read(offVPD+2, 2)&0x8000 == 0 {
			t.Fatal("the read does not end")
		}
		v := s.Read(offVPD+4, 4)
		got = append(got, byte(v), byte(v>>8), byte(v>>16), byte(v>>24))
	}
	if string(got[:7]) != string(cx5().VPD) {
		t.Errorf("VPD reads % x", got)
	}
}

func TestVendorSemaphoreHasOneHolder(t *testing.T) {
	s := New(cx5())
	first, second := s.Read(offVendor+8, 4), s.Read(offVendor+8, 4)
	if first == second || first == 0 {
		t.Fatalf("tickets %d and %d", first, second)
	}
	s.Write(offVendor+0xc, 4, first)
	s.Write(offVendor+0xc, 4, second)
	if got := s.Read(offVendor+0xc, 4); got != first {
		t.Errorf("semaphore holds %d, want %d", got, first)
	}
	s.Write(offVendor+0xc, 4, 0)
	s.Write(offVendor+0xc, 4, second)
	if got := s.Read(offVendor+0xc, 4); got != second {
		t.Errorf("semaphore holds %d after a release, want %d", got, second)
	}
}

// What Linux does before it asks for a reset of firmware (lib/pci_vsc.c, mlx5_vsc_sem_set_space).
func TestSemaphoreOfTheResetHasOneHolder(t *testing.T) {
	s := New(cx5())
	lock := func(ticket uint32) (holder uint32) {
		t.Helper()
		s.Write(offVendor+0x4, 4, 0xa)
		if s.Read(offVendor+0x4, 4)>>29 == 0 {
			t.Fatal("there is no space of semaphores")
		}
		s.Write(offVendor+0x14, 4, ticket)
		s.Write(offVendor+0x10, 4, 1<<31|0x20)
		if s.Read(offVendor+0x10, 4)>>31 != 0 {
			t.Fatal("the write is not done")
		}
		s.Write(offVendor+0x10, 4, 0x20)
		if s.Read(offVendor+0x10, 4)>>31 != 1 {
			t.Fatal("the read is not done")
		}
		return s.Read(offVendor+0x14, 4)
	}
	for _, step := range []struct{ ticket, holder uint32 }{{7, 7}, {8, 7}, {0, 0}, {8, 8}} {
		if got := lock(step.ticket); got != step.holder {
			t.Errorf("ticket %d: %d holds it, want %d", step.ticket, got, step.holder)
		}
	}
	s.Write(offVendor+0x4, 4, 0x7)
	if v := s.Read(offVendor+0x4, 4); v>>29 != 0 {
		t.Errorf("another space: control reads %#x", v)
	}
	s.Write(offVendor+0x10, 4, 0x20)
	if s.Read(offVendor+0x10, 4)>>31 != 0 || s.Read(offVendor+0x14, 4) != 0 {
		t.Error("another space can be read")
	}
}

func FuzzSpace(f *testing.F) {
	f.Add([]byte{0x60, 0, 2, 0x80, 0, 0x48, 0, 4, 1, 2})
	f.Fuzz(func(t *testing.T, b []byte) {
		s := New(cx5())
		for ; len(b) >= 5; b = b[5:] {
			off, n := int(b[0])|int(b[1])<<8-64, int(b[2]&7)
			s.Write(off, n, uint32(b[3])<<24|uint32(b[4]))
			s.Read(off, n)
		}
		if s.Read(0, 4) != 0x101715b3 {
			t.Errorf("identity reads %#x", s.Read(0, 4))
		}
	})
}
