package transporttest

import (
	"bytes"
	"encoding/binary"
	"math"

	"cxkit/pci"
)

var configChecks = []check{
	{"ConfigHasTheIdentifiers", configHasTheIdentifiers},
	{"ConfigIsAccessedInEverySizeAndAlignment", configIsAccessedInEverySizeAndAlignment},
	{"ConfigKeepsReadOnlyBits", configKeepsReadOnlyBits},
	{"ConfigRefusesWhatIsOutside", configRefusesWhatIsOutside},
	{"ConfigStartsAFunctionLevelReset", configStartsAFunctionLevelReset},
}

func configHasTheIdentifiers(b *bench) {
	var p [4]byte
	if err := b.f.ReadConfig(0, p[:]); err != nil {
		b.Fatal(err)
	}
	vendor, device := binary.LittleEndian.Uint16(p[:]), binary.LittleEndian.Uint16(p[2:])
	info := b.f.Info()
	if vendor != vendorID || device != deviceID || info.Vendor != vendorID || info.Device != deviceID {
		b.Errorf("config %04x:%04x, info %04x:%04x, want %04x:%04x", vendor, device, info.Vendor, info.Device, vendorID, deviceID)
	}
	if want := [6]uint64{bar0Size, 0, bar2Size}; info.BARs != want {
		b.Errorf("BAR sizes %v, want %v", info.BARs, want)
	}
	if info.Vectors != Vectors {
		b.Errorf("%d vectors, want %d", info.Vectors, Vectors)
	}
	if info.Address == "" {
		b.Error("the function has no address")
	}
	if want := (pci.BARRange{BAR: 0, Off: msixTable, Len: Vectors * 16}); info.MSIXTable != want {
		b.Errorf("MSI-X table at %+v, want %+v", info.MSIXTable, want)
	}
	if want := (pci.BARRange{BAR: 0, Off: msixPBA, Len: 8}); info.MSIXPBA != want {
		b.Errorf("pending bits at %+v, want %+v", info.MSIXPBA, want)
	}
}

func configIsAccessedInEverySizeAndAlignment(b *bench) {
	want := make([]byte, vendorSize)
	for off := range 9 {
		for _, n := range []int{0, 1, 2, 3, 4, 5, 7, 8, 15, 31} {
			for i := range n {
				want[off+i] = byte(off*31 + n*7 + i)
			}
			if err := b.f.WriteConfig(vendorData+off, want[off:off+n]); err != nil {
				b.Fatalf("write %d bytes at %#x: %v", n, vendorData+off, err)
			}
			got := make([]byte, n)
			if err := b.f.ReadConfig(vendorData+off, got); err != nil || !bytes.Equal(got, want[off:off+n]) {
				b.Errorf("%d bytes at %#x: % x, %v, want % x", n, vendorData+off, got, err, want[off:off+n])
			}
		}
	}
	all := make([]byte, configSize)
	if err := b.f.ReadConfig(0, all); err != nil {
		b.Fatal(err)
	}
	if !bytes.Equal(all[vendorData:vendorData+vendorSize], want) {
		b.Errorf("in one read: % x, want % x", all[vendorData:vendorData+vendorSize], want)
	}
}

func configKeepsReadOnlyBits(b *bench) {
	if err := b.f.WriteConfig(0, []byte{0xff, 0xff, 0xff, 0xff}); err != nil {
		b.Fatal(err)
	}
	configHasTheIdentifiers(b)
}

func configRefusesWhatIsOutside(b *bench) {
	for _, c := range []struct{ off, n int }{{-1, 1}, {configSize, 1}, {configSize - 1, 2}, {0, configSize + 1},
		{math.MaxInt, 1}, {math.MaxInt, math.MaxInt16}, {math.MinInt, 1}, {configSize + 4, 0}} {
		p := make([]byte, c.n)
		if err := b.f.ReadConfig(c.off, p); err == nil {
			b.Errorf("read of %d bytes at %d succeeded", c.n, c.off)
		}
		if err := b.f.WriteConfig(c.off, p); err == nil {
			b.Errorf("write of %d bytes at %d succeeded", c.n, c.off)
		}
	}
}

func configStartsAFunctionLevelReset(b *bench) {
	b.reg.Store32(regScratch, 0x12345678)
	resets := b.reg.Load32(regResets)
	b.start(command{op: cmdRaise, source: 3, length: 1, notify: 0})
	b.wait(0) // vector 3 is raised and nobody waited for it
	if err := b.f.WriteConfig(offExpress+8, []byte{0x10, 0x80}); err != nil {
		b.Fatal(err)
	}
	if got := b.reg.Load32(regScratch); got != 0 {
		b.Errorf("scratch reads %#x after the reset, want 0", got)
	}
	if got := b.reg.Load32(regResets) - resets; got != 1 {
		b.Errorf("the card counts %d resets, want 1", got)
	}
	b.silent(3)
}
