package fwpages_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"cxkit/device"
	"cxkit/dma"
	"cxkit/driver/internal/hca"
	"cxkit/internal/rig"
	"cxkit/transport/inproc"
)

// loaded is a driver on a card of this process whose firmware hoards pages.
func loaded(b *testing.B, pages int) (*rig.Rig, *hca.HCA, func()) {
	b.Helper()
	r, err := rig.New(rig.Config{Transport: inproc.Config{Kind: dma.Private}})
	if err != nil {
		b.Fatal(err)
	}
	f, err := r.Function(0)
	if err != nil {
		b.Fatal(err)
	}
	h, err := hca.Up(b.Context(), hca.Config{Function: f, Queues: 1, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	before := h.Pages.Books().Out
	if err := r.Card.HoardPages(0, device.PageFunction{}, pages); err != nil {
		b.Fatal(err)
	}
	until(b, func() bool { return h.Pages.Books().Given >= uint64(before+pages) })
	return r, h, func() {
		if err := h.Down(b.Context()); err != nil {
			b.Error(err)
		}
		if err := f.Close(); err != nil {
			b.Error(err)
		}
		if err := r.Close(); err != nil {
			b.Error(err)
		}
	}
}

func until(b *testing.B, done func() bool) {
	b.Helper()
	for begin := time.Now(); !done(); time.Sleep(200 * time.Microsecond) {
		if time.Since(begin) > time.Minute {
			b.Fatal("nothing moves")
		}
	}
}

// BenchmarkReclaim is firmware that gives 1.3 million pages back, in 26 rounds: driver, card and everything
// between them.
func BenchmarkReclaim(b *testing.B) {
	const pages = 1_300_000
	for b.Loop() {
		b.StopTimer()
		r, h, end := loaded(b, pages)
		b.StartTimer()
		if err := r.Card.ReturnPages(0, device.PageFunction{}, pages); err != nil {
			b.Fatal(err)
		}
		until(b, func() bool { return h.Pages.Books().Returned >= pages })
		b.StopTimer()
		end()
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/pages, "ns/page")
}

// BenchmarkTeardown is the end of a driver whose firmware has so many pages.
func BenchmarkTeardown(b *testing.B) {
	for _, pages := range []int{10_000, 8_000_000} {
		b.Run(fmt.Sprint(pages), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				_, _, end := loaded(b, pages)
				b.StartTimer()
				end()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(pages), "ns/page")
		})
	}
}
