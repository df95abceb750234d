package hca_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"cxkit/device"
	"cxkit/dma"
	"cxkit/driver/internal/hca"
	"cxkit/internal/rig"
	"cxkit/pci"
	"cxkit/transport/inproc"
)

// onModel runs f with function 0 of a card in this process, and checks at its end that the card's books
// are empty.
func onModel(t *testing.T, c device.Config, f func(*rig.Rig, pci.Function)) {
	t.Helper()
	r, err := rig.New(rig.Config{Device: c, Transport: inproc.Config{Kind: dma.Heap}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	fn, err := r.Function(0)
	if err != nil {
		t.Fatal(err)
	}
	defer fn.Close()
	f(r, fn)
	b := r.Card.Books().Functions[0]
	if b.Pages != 0 || b.Running+b.Waiting != 0 {
		t.Errorf("the card's books: %+v", b)
	}
	for kind, n := range b.Objects {
		if n != 0 {
			t.Errorf("the card still has %d objects of kind %s", n, kind)
		}
	}
}

// sameBooks compares the books of driver and card.
func sameBooks(t *testing.T, r *rig.Rig, h *hca.HCA) {
	t.Helper()
	ours, theirs := h.Books(), r.Card.Books().Functions[0]
	if ours.Pages.Out != theirs.Pages {
		t.Errorf("driver says firmware has %d pages, the card says %d", ours.Pages.Out, theirs.Pages)
	}
	count := map[string]int{}
	for _, o := range ours.Objects {
		count[strings.ToLower(o.Kind.String())]++
	}
	for kind, n := range theirs.Objects {
		if count[kind] != n {
			t.Errorf("driver has %d objects of kind %s, the card %d", count[kind], kind, n)
		}
		delete(count, kind)
	}
	for kind, n := range count {
		t.Errorf("driver has %d objects of kind %s, the card does not know the kind", n, kind)
	}
}

func TestModelComesUpAndGoesDown(t *testing.T) {
	slow := device.Latency{Min: 100 * time.Microsecond, Max: 2 * time.Millisecond}
	for name, c := range map[string]device.Config{
		"as it is":      {},
		"slow":          {OtherLatency: slow},
		"one vector":    {Vectors: 1},
		"two vectors":   {Vectors: 2},
		"hungry":        {Memory: device.Memory{Boot: 6, Init: 12_868, Included: 8}},
		"asks by event": {Memory: device.Memory{Boot: -1, Init: -1, Included: 8}, OtherLatency: slow},
	} {
		t.Run(name, func(t *testing.T) {
			onModel(t, c, func(r *rig.Rig, f pci.Function) {
				for range 3 {
					h, err := hca.Up(t.Context(), hca.Config{
						Function: f, Queues: 4, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Version: "Linux,cxkit,1",
					})
					if err != nil {
						t.Fatal(err)
					}
					sameBooks(t, r, h)
					if err := h.Down(t.Context()); err != nil {
						t.Error(err)
					}
					n := h.Counters()
					if n.Refused+n.BadAnswers+n.BadDelivery+n.NoAnswer+n.LostEvents+n.LostInterrupts+n.SpuriousEvents != 0 {
						t.Errorf("counters: %+v", n)
					}
				}
			})
		})
	}
}

func BenchmarkUpAndDown(b *testing.B) {
	r, err := rig.New(rig.Config{Transport: inproc.Config{Kind: dma.Private}})
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	f, err := r.Function(0)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	for b.Loop() {
		h, err := hca.Up(b.Context(), hca.Config{Function: f, Queues: 4, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			b.Fatal(err)
		}
		if err := h.Down(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
