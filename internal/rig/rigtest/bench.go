// Package rigtest makes benches of package drivertest on rigs. Only tests use it.
package rigtest

import (
	"testing"

	"cxkit/dma"
	"cxkit/drivertest"
	"cxkit/internal/rig"
)

// Bench makes a rig for one test, with a cable in its port, and ends it with the test.
func Bench(t *testing.T, c rig.Config) *drivertest.Bench {
	t.Helper()
	r, err := rig.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	f, err := r.Function(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return &drivertest.Bench{
		Function: f,
		Far:      r.Far,
		Books:    func() (drivertest.CardBooks, error) { return Books(r, 0), nil },
		Plain:    c.Transport.Kind == dma.Heap,
	}
}

// Books reads what firmware holds of function i.
func Books(r *rig.Rig, i int) drivertest.CardBooks {
	b := r.Card.Books().Functions[i]
	return drivertest.CardBooks{Pages: b.Pages, Objects: b.Objects, Commands: b.Running}
}
