package vfio

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"cxkit/dma"
)

// machines are the windows of an Intel, an AMD (with the range of HyperTransport left out) and one of 32 bits.
func machines() [][]window {
	return [][]window{
		{{0, 0xfedfffff}, {0xfef00000, 1<<39 - 1}},
		{{0, 0xfedfffff}, {0xfef00000, 0xfcffffffff}, {0x10000000000, math.MaxUint64}},
		{{0, 0x7fffffff}},
	}
}

func TestAddressesStayInWindowsAndApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		windows := rapid.SampledFrom(machines()).Draw(t, "machine")
		granule := rapid.SampledFrom([]uint64{0, 4096, 65536}).Draw(t, "granule")
		a, err := newAddresses(windows, granule)
		if err != nil {
			t.Fatal(err)
		}
		open := map[uint64]uint64{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(open) > 0 && rapid.IntRange(0, 2).Draw(t, "what") == 0 {
				for bus := range open {
					a.give(bus)
					delete(open, bus)
					break
				}
				continue
			}
			size := rapid.SampledFrom([]int{1, 4096, 4097, 1 << 20, 2 << 20, 3<<20 + 5, 1 << 29, 1 << 30}).Draw(t, "size")
			bus, err := a.take(size)
			if err != nil {
				continue // 32 bits are soon full
			}
			n := a.length(size)
			inside := false
			for _, w := range windows {
				inside = inside || bus >= w.first && bus+n-1 <= w.last
			}
			if !inside || bus == 0 || bus%max(granule, dma.PageSize) != 0 || n >= hugePage && bus%hugePage != 0 {
				t.Fatalf("%d bytes at %#x", size, bus)
			}
			for o, m := range open {
				if bus < o+m+dma.PageSize && o < bus+n+dma.PageSize {
					t.Fatalf("%#x+%#x is not apart from %#x+%#x", bus, n, o, m)
				}
			}
			open[bus] = n
		}
	})
}

func TestAddressesAreUsedAgainOnlyAfterAllOthers(t *testing.T) {
	a, err := newAddresses([]window{{0, 64<<20 - 1}}, 4096)
	if err != nil {
		t.Fatal(err)
	}
	first, err := a.take(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	a.give(first)
	seen := 0
	for {
		bus, err := a.take(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		if bus == first {
			break
		}
		seen++
		a.give(bus)
	}
	if seen < 50 {
		t.Errorf("used again after %d others, want all of 60", seen)
	}
}

func TestAddressesPrefer64Bits(t *testing.T) {
	a, err := newAddresses(machines()[0], 4096)
	if err != nil {
		t.Fatal(err)
	}
	if bus, err := a.take(1); err != nil || bus < preferredBus {
		t.Errorf("%#x, %v: want 4 GiB or more", bus, err)
	}
}

func TestWindowsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, w := range [][]window{nil, {{0, 100}}, {{5, 4}}, {{1 << 30, 1 << 31}, {1 << 31, 1 << 32}}} {
		if _, err := newAddresses(w, 4096); err == nil {
			t.Errorf("%#x was taken", w)
		}
	}
	if _, err := newAddresses(machines()[0], 12345); err == nil {
		t.Error("pages of 12345 bytes were taken")
	}
}
