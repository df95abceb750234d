//go:build linux

package vfio

import (
	"encoding/binary"
	"testing"
)

func TestCapabilitiesAreFoundInTheirList(t *testing.T) {
	info := words(0, 0, 0, 0, 0, 0) // 24 bytes
	info = append(info, words(capAvailable|1<<16, 40, 65535, 0)...)
	info = append(info, words(capRanges|1<<16, 0, 1, 0, 0x1000, 0, 0xffffffff, 0)...)
	c, ok := capability(info, 24, capRanges)
	if !ok {
		t.Fatal("not found")
	}
	if p := pairs(c, 16, le32(c, 8)); len(p) != 1 || p[0] != [2]uint64{0x1000, 0xffffffff} {
		t.Errorf("%#x", p)
	}
	if _, ok := capability(info, 24, 99); ok {
		t.Error("found what is not there")
	}
	binary.LittleEndian.PutUint32(info[44:], 24) // a loop
	if _, ok := capability(info, 24, 99); ok {
		t.Error("found in a loop")
	}
}

// What the kernel answers is read without trust.
func FuzzCapability(f *testing.F) {
	f.Add(append(words(0, 0, 0, 0, 0, 0), words(capRanges|1<<16, 0, 1, 0, 0x1000, 0, 0xffffffff, 0)...), uint32(24), uint16(capRanges))
	f.Add(words(capRanges, 8, 1<<31, 0), uint32(0), uint16(1))
	f.Fuzz(func(t *testing.T, b []byte, first uint32, id uint16) {
		c, ok := capability(b, first, id)
		if !ok {
			return
		}
		if len(c) < 16 {
			return
		}
		var windows []window
		for _, p := range pairs(c, 16, le32(c, 8)) {
			windows = append(windows, window{p[0], p[1]})
		}
		a, err := newAddresses(windows, 4096)
		if err != nil {
			return
		}
		for range 3 {
			bus, err := a.take(4097)
			if err != nil {
				return
			}
			inside := false
			for _, w := range windows {
				inside = inside || bus >= w.first && bus+8191 <= w.last
			}
			if !inside || bus == 0 {
				t.Fatalf("%#x of %#x", bus, windows)
			}
		}
	})
}
