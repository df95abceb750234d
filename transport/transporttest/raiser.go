package transporttest

import (
	"testing"

	"cxkit/pci"
)

// Raiser returns a function that has the card behind f raise a vector, and waits for it: what benchmarks
// of interrupts measure.
func Raiser(t testing.TB, f pci.Function) (raise func()) {
	w, err := f.Window(0)
	if err != nil {
		t.Fatal(err)
	}
	w.Store32(regNotify, 1)
	return func() {
		w.Store32(regCommand, cmdNothing)
		if err := f.Wait(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}
}
