package ring

import (
	"bytes"
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"

	"cxkit/dma"
	"cxkit/pci"
)

// space is memory from bus address 0 on, with or without views.
type space struct {
	mem        []byte
	views      bool
	generation uint64
}

func (m *space) View(addr uint64, n int, _ pci.Access) []byte {
	if !m.views || addr > uint64(len(m.mem)) || uint64(n) > uint64(len(m.mem))-addr {
		return nil
	}
	return m.mem[addr : addr+uint64(n) : addr+uint64(n)]
}

func (m *space) ReadAt(p []byte, addr uint64) error {
	if addr+uint64(len(p)) > uint64(len(m.mem)) {
		return &pci.DMAError{Addr: addr, Len: len(p), Why: "unmapped"}
	}
	copy(p, m.mem[addr:])
	return nil
}

func (m *space) WriteAt(p []byte, addr uint64) error {
	if addr+uint64(len(p)) > uint64(len(m.mem)) {
		return &pci.DMAError{Addr: addr, Len: len(p), Why: "unmapped"}
	}
	copy(m.mem[addr:], p)
	return nil
}

func (m *space) Generation() uint64 { return m.generation }
func (m *space) Enter()             {}
func (m *space) Leave()             {}

func newSpace(t testing.TB, size int) *space {
	a, err := dma.New(size, dma.Heap)
	if err != nil {
		t.Fatal(err)
	}
	return &space{mem: a.Bytes(), views: true}
}

func TestPagesAgreeWithAFlatBuffer(t *testing.T) {
	mem := newSpace(t, 32<<12)
	rapid.Check(t, func(t *rapid.T) {
		mem.views = rapid.Bool().Draw(t, "views")
		order := rapid.Permutation([]uint64{3, 9, 1, 7, 30, 31}).Draw(t, "order")
		for i := range order {
			order[i] <<= 12
		}
		offset := 64 * rapid.IntRange(0, 63).Draw(t, "offset")
		p := New(order, 12, offset, pci.Read|pci.Write)
		size := len(order)<<12 - offset
		if !p.Fits(size) || p.Fits(size+1) || p.Fits(-1) {
			t.Fatal("Fits is wrong about the buffer's length")
		}
		at := rapid.IntRange(0, size).Draw(t, "at")
		data := rapid.SliceOfN(rapid.Byte(), 0, min(size-at, 9000)).Draw(t, "data")
		if err := p.Write(mem, at, data); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(data))
		if err := p.Read(mem, at, got); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("read back differs: %v", err)
		}
		for i, b := range data {
			if mem.mem[p.Bus(at+i)] != b {
				t.Fatalf("byte %d is not at its bus address", at+i)
			}
		}
		n := min(len(data), 64)
		if v := p.View(mem, at, n); v != nil && !bytes.Equal(v, data[:n]) {
			t.Fatal("view differs")
		} else if v == nil && mem.views && n > 0 && (offset+at)>>12 == (offset+at+n-1)>>12 {
			t.Fatal("no view inside a page")
		}
		if err := p.Read(mem, size-1, make([]byte, 2)); err == nil {
			t.Fatal("a read past the end succeeds")
		}
	})
}

func TestViewsEndWithTheirGeneration(t *testing.T) {
	mem := newSpace(t, 1<<12)
	p := New([]uint64{0}, 12, 0, pci.Write)
	if p.View(mem, 0, 64) == nil {
		t.Fatal("no view")
	}
	mem.views = false // unmapped ...
	mem.generation++  // ... and said so
	if p.View(mem, 0, 64) != nil {
		t.Error("the view of an unmapped page is still used")
	}
}

func TestPublishWritesTheWholeEntry(t *testing.T) {
	for _, views := range []bool{true, false} {
		mem := newSpace(t, 1<<12)
		mem.views = views
		p := New([]uint64{0}, 12, 0, pci.Write)
		entry := make([]byte, 64)
		for i := range 16 {
			binary.BigEndian.PutUint32(entry[4*i:], uint32(0x01020304*i))
		}
		if err := p.Publish(mem, 128, entry); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(mem.mem[128:192], entry) || mem.mem[127] != 0 || mem.mem[192] != 0 {
			t.Errorf("views %v: entry % x", views, mem.mem[128:192])
		}
		if err := New([]uint64{1 << 40}, 12, 0, pci.Write).Publish(mem, 0, entry); err == nil {
			t.Error("publishing to unmapped memory succeeds")
		}
	}
}
