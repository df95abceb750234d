package dma

import (
	"bytes"
	"math"
	"runtime"
	"sync"
	"testing"
)

func TestWordsAreBigEndian(t *testing.T) {
	a, err := New(1, Heap)
	if err != nil {
		t.Fatal(err)
	}
	b := a.Bytes()
	StoreBE32(b, 8, 0x01020304)
	if want := []byte{0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0}; !bytes.Equal(b[4:16], want) {
		t.Errorf("bytes around the word: % x, want % x", b[4:16], want)
	}
	if got := LoadBE32(b, 8); got != 0x01020304 {
		t.Errorf("loaded %#x, want 0x01020304", got)
	}
}

func TestWordsStayInsideTheirSlice(t *testing.T) {
	a, err := New(1, Heap)
	if err != nil {
		t.Fatal(err)
	}
	b := a.Bytes()[:16]
	for _, off := range []int{16, 13, 14, 15, -4, math.MaxInt, math.MaxInt - 3, math.MinInt} {
		mustPanic(t, "load outside", func() { LoadBE32(b, off) })
		mustPanic(t, "store outside", func() { StoreBE32(b, off, 1) })
	}
	mustPanic(t, "load of nothing", func() { LoadBE32(nil, 0) })
}

// Under -race this fails when the words stop ordering the plain accesses around them.
func TestWordsHandBodiesOver(t *testing.T) {
	a, err := New(PageSize, Heap)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	ring, there, back := a.Bytes()[64:], a.Bytes()[0:4], a.Bytes()[4:8]
	const rounds = 1000
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := uint32(1); i <= rounds; i++ {
			for j := range 32 {
				ring[j] = byte(i)
			}
			StoreBE32(there, 0, i) // partner: the load below
			for LoadBE32(back, 0) != i {
				runtime.Gosched()
			}
		}
	})
	for i := uint32(1); i <= rounds; i++ {
		for LoadBE32(there, 0) != i {
			runtime.Gosched()
		}
		for j := range 32 {
			if ring[j] != byte(i) {
				t.Errorf("round %d: byte %d is %d", i, j, ring[j])
			}
		}
		StoreBE32(back, 0, i)
	}
	wg.Wait()
}

func TestWordsAllocateNothing(t *testing.T) {
	a, err := New(1, Heap)
	if err != nil {
		t.Fatal(err)
	}
	b := a.Bytes()
	if n := testing.AllocsPerRun(100, func() { StoreBE32(b, 0, LoadBE32(b, 0)+1) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
