package addrspace

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"cxkit/pci"
)

const rw = pci.Read | pci.Write

// naive is the reference: a list that is searched from the start.
type naive []Mapping

func (n naive) view(addr uint64, size int, access pci.Access) []byte {
	for _, m := range n {
		if addr >= m.Bus && addr-m.Bus < m.Size && uint64(size) <= m.Size-(addr-m.Bus) && m.Access&access == access {
			return m.Bytes[addr-m.Bus:][:size]
		}
	}
	return nil
}

func TestRandomMapsLookUpAsAListDoes(t *testing.T) {
	for seed := range uint64(3) {
		rng := rand.New(rand.NewPCG(seed, 0))
		s := New(Config{})
		var ref naive
		steps := 1500
		for step := range steps {
			switch {
			case rng.IntN(100) < 60: // map
				m := Mapping{Bus: rng.Uint64N(4096) << 12, Size: (1 + rng.Uint64N(4)) << 12, Access: []pci.Access{rw, pci.Read, rw}[rng.IntN(3)]}
				if rng.IntN(50) == 0 {
					m.Size = bigSize
				}
				m.Bytes = make([]byte, m.Size)
				overlap := false
				for _, r := range ref {
					overlap = overlap || r.Bus < m.Bus+m.Size && m.Bus < r.Bus+r.Size
				}
				err := s.Map(m)
				if overlap != errors.Is(err, ErrOverlap) || (err == nil) == overlap {
					t.Fatalf("seed %d step %d: map %#x+%#x: %v, overlap %v", seed, step, m.Bus, m.Size, err, overlap)
				}
				if !overlap {
					ref = append(ref, m)
				}
			case rng.IntN(100) < 70: // unmap a range
				first := rng.Uint64N(4100) << 12
				last := first + (1+rng.Uint64N(32))<<12 - 1
				var left naive
				var want uint64
				cut := false
				for _, r := range ref {
					end := r.Bus + r.Size - 1
					switch {
					case r.Bus >= first && end <= last:
						want += r.Size
					case end >= first && r.Bus <= last:
						cut = true
					default:
						left = append(left, r)
					}
				}
				gen := s.Generation()
				got, err := s.Unmap(first, last)
				if cut {
					if !errors.Is(err, ErrCut) || s.Generation() != gen {
						t.Fatalf("seed %d step %d: unmap %#x..%#x: %v, want ErrCut", seed, step, first, last, err)
					}
					continue
				}
				if err != nil || got != want || (s.Generation() != gen) != (want > 0) {
					t.Fatalf("seed %d step %d: unmap %#x..%#x: %d bytes, %v, want %d", seed, step, first, last, got, err, want)
				}
				ref = left
			}
			if s.Len() != len(ref) {
				t.Fatalf("seed %d step %d: %d mappings, want %d", seed, step, s.Len(), len(ref))
			}
			for range 8 {
				addr, n, access := rng.Uint64N(4200<<12), rng.IntN(6000), []pci.Access{pci.Read, pci.Write, rw}[rng.IntN(3)]
				got, want := s.View(addr, n, access), ref.view(addr, n, access)
				if (got == nil) != (want == nil) || len(got) != len(want) || n > 0 && got != nil && &got[0] != &want[0] {
					t.Fatalf("seed %d step %d: view %#x+%d access %d: %d bytes, want %d", seed, step, addr, n, access, len(got), len(want))
				}
				if cap(got) != len(got) {
					t.Fatalf("a view can be grown: len %d, cap %d", len(got), cap(got))
				}
			}
		}
	}
}

func TestRangesThatWrapAreRefused(t *testing.T) {
	s := New(Config{})
	for _, m := range []Mapping{{Bus: 0x1000}, {Bus: math.MaxUint64, Size: 2}, {Bus: 1, Size: math.MaxUint64 + 0}, {Bus: 1 << 63, Size: 1<<63 + 1}} {
		if m.Bus+m.Size-1 >= m.Bus && m.Size != 0 {
			continue
		}
		if err := s.Map(m); !errors.Is(err, ErrRange) {
			t.Errorf("map %#x+%#x: %v, want ErrRange", m.Bus, m.Size, err)
		}
	}
	if _, err := s.Unmap(5, 4); !errors.Is(err, ErrRange) {
		t.Errorf("unmap of 5..4: %v", err)
	}
}

func TestMappingsReachTheEndOfTheSpace(t *testing.T) {
	s := New(Config{})
	top := Mapping{Bus: math.MaxUint64 - 0xfff, Size: 0x1000, Bytes: make([]byte, 0x1000), Access: rw}
	low := Mapping{Bus: 0, Size: 0x1000, Bytes: make([]byte, 0x1000), Access: rw}
	for _, m := range []Mapping{top, low} {
		if err := s.Map(m); err != nil {
			t.Fatal(err)
		}
	}
	if v := s.View(math.MaxUint64, 1, pci.Write); len(v) != 1 {
		t.Error("the last byte can't be reached")
	}
	if v := s.View(math.MaxUint64, 2, pci.Write); v != nil {
		t.Error("a view wraps around the end")
	}
	var e *pci.DMAError
	if err := s.ReadAt(make([]byte, 2), math.MaxUint64); !errors.As(err, &e) || e.Why != "wraps" {
		t.Errorf("read across the end: %v", err)
	}
	if n, err := s.Unmap(1, math.MaxUint64); !errors.Is(err, ErrCut) {
		t.Errorf("unmap from 1: %d, %v, want ErrCut of the low page", n, err)
	}
	if n, err := s.Unmap(0x1000, math.MaxUint64); n != 0x1000 || err != nil {
		t.Errorf("unmap up to 2^64: %#x, %v", n, err)
	}
	if s.Len() != 1 {
		t.Errorf("%d mappings, want the low page", s.Len())
	}
}

func TestCopiesCrossMappings(t *testing.T) {
	mem := make([]byte, 0x3000)
	msgs := &bus{mem: make([]byte, 0x1000), at: 0x11000}
	s := New(Config{Messages: msgs})
	s.Map(Mapping{Bus: 0x10000, Size: 0x1000, Bytes: mem[:0x1000], Access: rw})
	s.Map(Mapping{Bus: 0x11000, Size: 0x1000, Access: rw}) // by messages
	s.Map(Mapping{Bus: 0x12000, Size: 0x1000, Bytes: mem[0x2000:], Access: rw})
	s.Map(Mapping{Bus: 0x13000, Size: 0x1000, Bytes: make([]byte, 0x1000), Access: pci.Read})
	want := make([]byte, 0x1200)
	for i := range want {
		want[i] = byte(i*7 + 1)
	}
	if err := s.WriteAt(want, 0x10f00); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if err := s.ReadAt(got, 0x10f00); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("read back something else than was written")
	}
	if !bytes.Equal(msgs.mem, want[0x100:0x1100]) {
		t.Error("the middle did not go by messages")
	}
	for _, c := range []struct {
		why   string
		err   error
		wants string
	}{
		{"write into read-only memory", s.WriteAt(make([]byte, 0x200), 0x12f00), "read only"},
		{"write behind the last mapping", s.WriteAt(make([]byte, 0x200), 0x13f00), "read only"},
		{"read behind the last mapping", s.ReadAt(make([]byte, 0x200), 0x13f00), "unmapped"},
		{"read of nothing", s.ReadAt(make([]byte, 1), 0x5000), "unmapped"},
	} {
		var e *pci.DMAError
		if !errors.As(c.err, &e) || e.Why != c.wants {
			t.Errorf("%s: %v, want %s", c.why, c.err, c.wants)
		}
	}
	if s.View(0x10f00, 0x200, rw) != nil {
		t.Error("a view straddles two mappings")
	}
	if s.View(0x11000, 4, rw) != nil {
		t.Error("a view of what has no memory here")
	}
}

// bus is memory behind messages.
type bus struct {
	mem []byte
	at  uint64
}

func (b *bus) ReadDMA(p []byte, addr uint64) error  { copy(p, b.mem[addr-b.at:]); return nil }
func (b *bus) WriteDMA(p []byte, addr uint64) error { copy(b.mem[addr-b.at:], p); return nil }

func TestUnmapWaitsForTheStepAndReleasesAfter(t *testing.T) {
	s := New(Config{})
	released := make(chan struct{})
	s.Map(Mapping{Bus: 0, Size: 0x1000, Bytes: make([]byte, 0x1000), Access: rw, Release: func() { close(released) }})
	s.Enter()
	if _, ok, _ := s.TryUnmap(0, 0xfff); ok {
		t.Fatal("unmapped during a step")
	}
	var wg sync.WaitGroup
	wg.Go(func() { s.Unmap(0, 0xfff) })
	for range 100 {
		runtime.Gosched()
		if s.View(0, 16, rw) == nil {
			t.Fatal("mapping went away during a step")
		}
	}
	select {
	case <-released:
		t.Fatal("released during a step")
	default:
	}
	s.Leave()
	wg.Wait()
	<-released
	if s.View(0, 16, rw) != nil {
		t.Error("still mapped")
	}
}

func TestMapsAreBounded(t *testing.T) {
	s := New(Config{MaxMaps: 10})
	for i := range uint64(10) {
		if err := s.Map(Mapping{Bus: i << 13, Size: 0x1000}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Map(Mapping{Bus: 1 << 40, Size: 0x1000}); !errors.Is(err, ErrFull) {
		t.Errorf("the eleventh: %v, want ErrFull", err)
	}
}

func TestLookUpAllocatesNothing(t *testing.T) {
	s := filled(512)
	var p [64]byte
	if n := testing.AllocsPerRun(200, func() {
		s.Enter()
		s.View(300<<13, 64, pci.Write)
		s.ReadAt(p[:], 400<<13)
		s.Leave()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestAllocatorNeverGivesAPlaceTwice(t *testing.T) {
	var a Allocator
	end := uint64(0)
	for _, size := range []int{4096, 4096, 2 << 20, 4096, 1 << 30} {
		bus, err := a.Take(size)
		if err != nil {
			t.Fatal(err)
		}
		if bus < 1<<32 || bus <= end || bus%4096 != 0 || size >= wide && bus%wide != 0 {
			t.Errorf("%d bytes at %#x after %#x", size, bus, end)
		}
		end = bus + uint64(size)
	}
	a.next = maxBus - 4096
	if _, err := a.Take(8192); err == nil {
		t.Error("a place beyond the space")
	}
}

// filled has n mappings of a page with gaps between.
func filled(n int) *Space {
	s := New(Config{})
	for i := range uint64(n) {
		if err := s.Map(Mapping{Bus: i << 13, Size: 0x1000, Bytes: make([]byte, 0x1000), Access: rw}); err != nil {
			panic(err)
		}
	}
	return s
}

func BenchmarkView(b *testing.B) {
	for _, n := range []int{1, 64, 512, 4096} {
		b.Run(fmt.Sprintf("regions=%d", n), func(b *testing.B) {
			s := filled(n)
			rng := rand.New(rand.NewPCG(1, 2))
			addrs := make([]uint64, 4096)
			for i := range addrs {
				addrs[i] = rng.Uint64N(uint64(n))<<13 + rng.Uint64N(4000)
			}
			i := 0
			for b.Loop() {
				if s.View(addrs[i&4095], 64, rw) == nil {
					b.Fatal("unmapped")
				}
				i++
			}
		})
	}
}

func BenchmarkMapAndUnmapOfAPageAmong16384(b *testing.B) {
	s := filled(16384)
	page := make([]byte, 4096)
	for b.Loop() {
		s.Map(Mapping{Bus: 5<<13 + 4096, Size: 4096, Bytes: page, Access: rw})
		s.Unmap(5<<13+4096, 5<<13+8191)
	}
}
