package inproc_test

import (
	"testing"

	"cxkit/dma"
	"cxkit/pci"
	"cxkit/transport/inproc"
	"cxkit/transport/transporttest"
)

func open(kind dma.Kind) func(t testing.TB) pci.Function {
	return func(t testing.TB) pci.Function {
		f, err := inproc.Open(transporttest.NewCard(), inproc.Config{Kind: kind})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
}

// The race detector sees this memory.
func TestHeapFunction(t *testing.T) {
	transporttest.Run(t, transporttest.Options{Open: open(dma.Heap), Kinds: kindsAfter(dma.Heap), MSIXTable: true})
}

func TestPrivateFunction(t *testing.T) {
	transporttest.Run(t, transporttest.Options{Open: open(dma.Auto), Kinds: kindsAfter(dma.Private), MSIXTable: true})
}

func TestSharedFunction(t *testing.T) {
	if _, err := dma.New(1, dma.Shared); err != nil {
		t.Skipf("this system has no shared arenas: %v", err)
	}
	transporttest.Run(t, transporttest.Options{Open: open(dma.Shared), Kinds: kindsAfter(dma.Shared), MSIXTable: true})
}

// kindsAfter is all kinds whose memory this process can touch, first the one that the suite is to use most.
func kindsAfter(first dma.Kind) []dma.Kind {
	kinds := []dma.Kind{first}
	for _, k := range []dma.Kind{dma.Heap, dma.Private, dma.Shared, dma.Reserved} {
		if k == first {
			continue
		}
		if a, err := dma.New(1, k); err == nil && a.Bytes() != nil {
			kinds = append(kinds, k)
			a.Close()
		}
	}
	return kinds
}
