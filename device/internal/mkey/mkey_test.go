package mkey

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"cxkit/dma"
	"cxkit/pci"
	"cxkit/prm"
)

// flat is memory from bus address 0 on.
type flat []byte

func (m flat) View(addr uint64, n int, _ pci.Access) []byte {
	if addr > uint64(len(m)) || uint64(n) > uint64(len(m))-addr {
		return nil
	}
	return m[addr : addr+uint64(n) : addr+uint64(n)]
}

func (m flat) ReadAt(p []byte, addr uint64) error {
	v := m.View(addr, len(p), pci.Read)
	if v == nil {
		return &pci.DMAError{Addr: addr, Len: len(p), Why: "unmapped"}
	}
	copy(p, v)
	return nil
}

func (m flat) WriteAt(p []byte, addr uint64) error {
	v := m.View(addr, len(p), pci.Write)
	if v == nil {
		return &pci.DMAError{Addr: addr, Len: len(p), Why: "unmapped"}
	}
	copy(v, p)
	return nil
}

func (m flat) Generation() uint64 { return 0 }
func (m flat) Enter()             {}
func (m flat) Leave()             {}

var _ pci.Memory = flat(nil)

// context is a key that grants both accesses to any queue of PD 1.
func context(mode prm.MKeyAccessMode) prm.MKeyContext {
	c := prm.MKeyContext{LR: true, LW: true, QPN: prm.MKeyAnyQPN, PD: 1}
	c.SetAccessMode(mode)
	return c
}

func create(t *testing.T, table *Table, c prm.MKeyContext, entries ...uint64) uint32 {
	t.Helper()
	index, ok, err := table.Create(c, entries)
	if err != nil || !ok {
		t.Fatalf("create: %v, %v", ok, err)
	}
	return index<<8 | uint32(c.MKey7_0)
}

func TestChecksOfAKey(t *testing.T) {
	mem := make(flat, 1<<16)
	table := NewTable(100)
	u := User{PD: 1, QPN: 7}
	pa := context(prm.MKeyAccessPA)
	pa.Length64, pa.MKey7_0 = true, 0x42
	whole := create(t, table, pa)
	readOnly := pa
	readOnly.LW = false
	writeOnly := pa
	writeOnly.LR = false
	bound := pa
	bound.QPN = 8
	part := context(prm.MKeyAccessPA)
	part.StartAddr, part.Length = 0x1000, 0x800
	end := part
	end.StartAddr, end.Length = ^uint64(0)-15, 15
	free := context(prm.MKeyAccessMTT)
	free.Free, free.Length, free.TranslationsOctwordSize, free.LogPageSize = true, 4096, 1, 12
	for _, c := range []struct {
		name   string
		key    uint32
		addr   uint64
		n      int
		user   User
		access pci.Access
		err    error
		view   bool
	}{
		{"whole space", whole, 0x1000, 64, u, pci.Read, nil, true},
		{"unmapped", whole, 1 << 40, 64, u, pci.Read, nil, false},
		{"wrong variant", whole ^ 1, 0x1000, 64, u, pci.Read, ErrKey, false},
		{"no such index", 0x7fffff00, 0x1000, 64, u, pci.Read, ErrKey, false},
		{"terminator", prm.TerminateScatterLKey, 0x1000, 64, u, pci.Read, ErrKey, false},
		{"other PD", whole, 0x1000, 64, User{PD: 2}, pci.Read, ErrPD, false},
		{"read only read", create(t, table, readOnly), 0, 8, u, pci.Read, nil, true},
		{"read only written", create(t, table, readOnly), 0, 8, u, pci.Write, ErrRights, false},
		{"write only read", create(t, table, writeOnly), 0, 8, u, pci.Read, ErrRights, false},
		{"other queue", create(t, table, bound), 0, 8, u, pci.Read, ErrQueue, false},
		{"own queue", create(t, table, bound), 0, 8, User{PD: 1, QPN: 8}, pci.Read, nil, true},
		{"reserved, not allowed", Reserved, 0, 8, u, pci.Read, ErrReserved, false},
		{"reserved, allowed", Reserved, 0, 8, User{Reserved: true}, pci.Write, nil, true},
		{"first byte", create(t, table, part), 0x1000, 1, u, pci.Read, nil, true},
		{"last byte", create(t, table, part), 0x17ff, 1, u, pci.Read, nil, true},
		{"before", create(t, table, part), 0xfff, 1, u, pci.Read, ErrBounds, false},
		{"past the end", create(t, table, part), 0x17ff, 2, u, pci.Read, ErrBounds, false},
		{"behind", create(t, table, part), 0x1801, 0, u, pci.Read, ErrBounds, false},
		{"wraps", create(t, table, end), ^uint64(0), 2, u, pci.Read, ErrBounds, false},
		{"free", create(t, table, free, 0, 0), 0, 8, u, pci.Read, ErrFree, false},
	} {
		view, err := table.Resolve(mem, c.key, c.addr, c.n, c.user, c.access)
		if !errors.Is(err, c.err) || (view != nil) != c.view {
			t.Errorf("%s: view %v, %v; want view %v, %v", c.name, view != nil, err, c.view, c.err)
		}
	}
}

func TestBadContextsAreRefused(t *testing.T) {
	mtt := func(f func(*prm.MKeyContext)) prm.MKeyContext {
		c := context(prm.MKeyAccessMTT)
		c.Length, c.LogPageSize, c.TranslationsOctwordSize = 8192, 12, 1
		f(&c)
		return c
	}
	for name, c := range map[string]prm.MKeyContext{
		"memic":             context(prm.MKeyAccessMEMIC),
		"mtt without pages": mtt(func(c *prm.MKeyContext) { c.TranslationsOctwordSize = 0 }),
		"mtt too long":      mtt(func(c *prm.MKeyContext) { c.Length = 8193 }),
		"mtt offset start":  mtt(func(c *prm.MKeyContext) { c.StartAddr = 1 }),
		"mtt tiny pages":    mtt(func(c *prm.MKeyContext) { c.LogPageSize = 11 }),
		"mtt huge pages":    mtt(func(c *prm.MKeyContext) { c.LogPageSize = 63 }),
		"mtt length64":      mtt(func(c *prm.MKeyContext) { c.Length64 = true }),
		"mtt endless":       mtt(func(c *prm.MKeyContext) { c.Length = 1 << 63 }),
		"range wraps":       mtt(func(c *prm.MKeyContext) { c.StartAddr = ^uint64(0) }),
	} {
		if _, _, err := NewTable(1).Create(c, nil); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, _, err := NewTable(1).Create(mtt(func(*prm.MKeyContext) {}), make([]uint64, 3)); !errors.Is(err, ErrSize) {
		t.Errorf("more entries than room: %v", err)
	}
}

// TestTranslationAgreesWithABytewiseOne writes through keys of every mode and compares with what
// translating byte by byte says.
func TestTranslationAgreesWithABytewiseOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const pages = 16
		mem := make(flat, pages*4096)
		table := NewTable(100)
		u := User{PD: 1}
		order := rapid.Permutation([]uint64{1, 2, 3, 4, 5, 6, 7, 8}).Draw(t, "pages")
		mtt := context(prm.MKeyAccessMTT)
		mtt.StartAddr = rapid.Uint64Range(0, 3*4096).Draw(t, "start")
		mtt.LogPageSize, mtt.TranslationsOctwordSize = 12, 4
		mtt.Length = 8*4096 - mtt.StartAddr%4096
		var entries []uint64
		for _, p := range order {
			entries = append(entries, p*4096|prm.MTTRead|prm.MTTWrite)
		}
		index, _, err := table.Create(mtt, entries)
		if err != nil {
			t.Fatal(err)
		}
		base := index << 8
		byMTT := func(addr uint64) uint64 {
			off := addr - mtt.StartAddr/4096*4096
			return order[off/4096]*4096 + off%4096
		}

		klm := context(prm.MKeyAccessKLM)
		klm.StartAddr = 0x123456
		var list []uint64
		var where []uint64 // of each byte
		for range rapid.IntRange(1, 20).Draw(t, "entries") {
			n := rapid.Uint64Range(0, 3000).Draw(t, "bytes")
			at := mtt.StartAddr + rapid.Uint64Range(0, mtt.Length-n).Draw(t, "at")
			list = append(list, n<<32|uint64(base), at)
			for i := range n {
				where = append(where, byMTT(at+i))
			}
		}
		klm.Length, klm.TranslationsOctwordSize = uint64(len(where)), uint32(len(list)/2)
		kindex, _, err := table.Create(klm, list)
		if err != nil {
			t.Fatal(err)
		}

		key, start, length, where1 := base, mtt.StartAddr, int(mtt.Length), byMTT
		if rapid.Bool().Draw(t, "klm") {
			key, start, length = kindex<<8, klm.StartAddr, len(where)
			where1 = func(addr uint64) uint64 { return where[addr-klm.StartAddr] }
		}
		n := rapid.IntRange(0, min(length, 20000)).Draw(t, "n")
		addr := start + uint64(rapid.IntRange(0, length-n).Draw(t, "offset"))
		// Writing a KLM whose entries overlap is order dependent, so compare reads.
		for i := range mem {
			mem[i] = byte(i * 7 >> 3)
		}
		got := make([]byte, n)
		if err := table.Read(mem, got, key, addr, u); err != nil {
			t.Fatal(err)
		}
		want := make([]byte, n)
		for i := range want {
			want[i] = mem[where1(addr+uint64(i))]
		}
		if !bytes.Equal(got, want) {
			t.Fatal("read differs")
		}
		view, err := table.Resolve(mem, key, addr, n, u, pci.Read)
		if err != nil || view != nil && !bytes.Equal(view, want) {
			t.Fatalf("view differs: %v", err)
		}
		if err := table.Write(mem, want, key, addr, u); err != nil {
			t.Fatal(err)
		}
		if err := table.Read(mem, make([]byte, 1), key, start+uint64(length), u); !errors.Is(err, ErrBounds) {
			t.Fatalf("one past the end: %v", err)
		}
	})
}

func TestKeysOfKeysDoNotNest(t *testing.T) {
	table := NewTable(10)
	klm := context(prm.MKeyAccessKLM)
	klm.Length, klm.TranslationsOctwordSize = 64, 1
	// It refers to itself: the first key has the first index.
	key := create(t, table, klm, 64<<32|firstIndex<<8, 0)
	err := table.Read(make(flat, 4096), make([]byte, 8), key, 0, User{PD: 1})
	if !errors.Is(err, ErrDepth) {
		t.Errorf("a key that refers to itself: %v", err)
	}
}

func TestMTTAccessBits(t *testing.T) {
	table := NewTable(10)
	c := context(prm.MKeyAccessMTT)
	c.Length, c.LogPageSize, c.TranslationsOctwordSize = 8192, 12, 1
	key := create(t, table, c, 4096|prm.MTTRead, 8192|prm.MTTWrite)
	mem := make(flat, 1<<16)
	for _, k := range []struct {
		addr   uint64
		access pci.Access
		err    error
	}{{0, pci.Read, nil}, {0, pci.Write, ErrRights}, {4096, pci.Read, ErrRights}, {4096, pci.Write, nil}} {
		if _, err := table.Resolve(mem, key, k.addr, 8, User{PD: 1}, k.access); !errors.Is(err, k.err) {
			t.Errorf("access %d at %#x: %v, want %v", k.access, k.addr, err, k.err)
		}
	}
}

func TestResolveDoesNotAllocate(t *testing.T) {
	var mem pci.Memory = flat(dmaBytes(t))
	table := NewTable(10)
	pa := context(prm.MKeyAccessPA)
	pa.Length64 = true
	key := create(t, table, pa)
	if n := testing.AllocsPerRun(100, func() {
		table.Resolve(mem, key, 64, 1500, User{PD: 1}, pci.Write)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func dmaBytes(t testing.TB) []byte {
	a, err := dma.New(1<<16, dma.Heap)
	if err != nil {
		t.Fatal(err)
	}
	return a.Bytes()
}

func BenchmarkResolve(b *testing.B) {
	var mem pci.Memory = flat(dmaBytes(b))
	table := NewTable(10)
	pa := context(prm.MKeyAccessPA)
	pa.Length64 = true
	index, _, _ := table.Create(pa, nil)
	for b.Loop() {
		if v, err := table.Resolve(mem, index<<8, 64, 1500, User{PD: 1}, pci.Write); v == nil || err != nil {
			b.Fatal(err)
		}
	}
}

func TestTranslationsAreBounded(t *testing.T) {
	table := NewTable(100)
	c := context(prm.MKeyAccessKLM)
	c.TranslationsOctwordSize = maxWords
	first := create(t, table, c, make([]uint64, maxWords-1)...)
	if _, ok, err := table.Create(c, make([]uint64, 2)); ok || err != nil {
		t.Errorf("more translations than the bound: %v, %v", ok, err)
	}
	table.Destroy(first >> 8)
	if _, ok, err := table.Create(c, make([]uint64, 2)); !ok || err != nil {
		t.Errorf("after a key was destroyed: %v, %v", ok, err)
	}
}
