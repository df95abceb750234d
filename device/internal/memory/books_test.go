package memory

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

func TestBooksAgreeWithMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := New(rapid.Uint64().Draw(t, "seed"))
		model := map[uint64]bool{}
		// Few distinct pages, so that duplicates and probe chains occur.
		span := rapid.SampledFrom([]uint64{50, 5000}).Draw(t, "span")
		for range rapid.IntRange(1, 3000).Draw(t, "steps") {
			if rapid.IntRange(0, 2).Draw(t, "what") > 0 {
				addr := rapid.Uint64Range(1, span).Draw(t, "page") << PageShift
				err := b.Give(addr)
				if model[addr] != errors.Is(err, ErrTwice) {
					t.Fatalf("Give(%#x): %v, held before: %v", addr, err, model[addr])
				}
				model[addr] = true
				continue
			}
			addr, ok := b.Take()
			if ok != (len(model) > 0) || ok && !model[addr] {
				t.Fatalf("Take: %#x, %v with %d pages", addr, ok, len(model))
			}
			delete(model, addr)
		}
		if b.Len() != len(model) {
			t.Fatalf("Len %d, want %d", b.Len(), len(model))
		}
		for addr := range model {
			if !b.Holds(addr) {
				t.Fatalf("page %#x is lost", addr)
			}
		}
	})
}

func TestBooksRefuseWhatIsNoPage(t *testing.T) {
	var b Books
	for _, addr := range []uint64{1, 0x1800, 4095} {
		if err := b.Give(addr); !errors.Is(err, ErrAddress) {
			t.Errorf("Give(%#x): %v", addr, err)
		}
	}
	if b.Len() != 0 {
		t.Errorf("%d pages held", b.Len())
	}
	if _, ok := b.Take(); ok {
		t.Error("a page came out of nothing")
	}
	if b.Holds(4096) {
		t.Error("a page is held that was never given")
	}
}

func BenchmarkGiveAndTake(b *testing.B) {
	for _, n := range []int{10_000, 1_000_000} {
		b.Run(map[int]string{10_000: "10k", 1_000_000: "1M"}[n], func(b *testing.B) {
			for b.Loop() {
				books := New(1)
				for i := range n {
					if err := books.Give(uint64(i+1) << PageShift); err != nil {
						b.Fatal(err)
					}
				}
				for range n {
					books.Take()
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/page")
		})
	}
}

// Behind an IOMMU addresses begin at 0, and rdma-core gives that page first.
func TestPageZeroIsAPage(t *testing.T) {
	var b Books
	if err := b.Give(0); err != nil {
		t.Fatal(err)
	}
	if err := b.Give(0); !errors.Is(err, ErrTwice) {
		t.Errorf("given again: %v", err)
	}
	if addr, ok := b.Take(); !ok || addr != 0 {
		t.Errorf("took %#x, %v", addr, ok)
	}
	if b.Holds(0) {
		t.Error("still held")
	}
}
