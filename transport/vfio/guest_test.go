//go:build linux

package vfio

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cxkit/dma"
)

// BenchmarkMapAGibibyte measures what the kernel takes to let a card reach 1 GiB of huge pages that are all there: in a
// guest, with the PCI address of a card in CXKIT_GUEST_NIC. internal/vmtest runs it.
func BenchmarkMapAGibibyte(b *testing.B) {
	address := os.Getenv("CXKIT_GUEST_NIC")
	if address == "" {
		b.Skip("it runs in a guest: go test -run XXX -bench MappingThroughVFIO ./internal/vmtest")
	}
	f, err := Open(b.Context(), address, Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	a, err := dma.New(1<<30, dma.Private)
	if err != nil {
		b.Fatal(err)
	}
	defer a.Close()
	if a.Backing() != "hugetlb" {
		b.Fatalf("the memory is of %q, want huge pages: raise nr_hugepages to 512", a.Backing())
	}
	mem := a.Bytes()
	for off := 0; off < len(mem); off += unix.Getpagesize() {
		mem[off] = 1
	}
	var in, out time.Duration
	for b.Loop() {
		began := time.Now()
		bus, err := f.space.place(mem)
		if err != nil {
			b.Fatal(err)
		}
		mapped := time.Now()
		if err := f.space.remove(bus, mem); err != nil {
			b.Fatal(err)
		}
		in, out = in+mapped.Sub(began), out+time.Since(mapped)
	}
	b.ReportMetric(float64(in.Milliseconds())/float64(b.N), "map-ms")
	b.ReportMetric(float64(out.Milliseconds())/float64(b.N), "unmap-ms")
}
