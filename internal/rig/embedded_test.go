package rig_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"cxkit/device"
	"cxkit/dma"
	"cxkit/driver"
	"cxkit/internal/rig"
	"cxkit/transport/inproc"
)

// The function of a card's own processor opens as any; virtual functions are not its to enable, and the driver says so.
func TestTheFunctionOfACardsProcessorHasNoVirtualFunctionsToEnable(t *testing.T) {
	r, err := rig.New(rig.Config{Device: device.Config{Profile: "bf2", VFs: 2, Seed: 1}, Transport: inproc.Config{Kind: dma.Heap}})
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
	t.Cleanup(func() { f.Close() })
	nic, err := driver.Open(t.Context(), f, driver.Config{CheckBuffers: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := nic.Close(ctx); err != nil {
			t.Error(err)
		}
		if b := r.Card.Books().Functions[0]; !b.Clean() {
			t.Errorf("the function is not clean: %+v", b)
		}
	})
	var unsupported *driver.UnsupportedError
	if err := nic.EnableVFs(t.Context(), 1); !errors.As(err, &unsupported) {
		t.Errorf("enable virtual functions: %v", err)
	}
	if _, err := nic.SetMode(t.Context(), driver.Switchdev); !errors.As(err, &unsupported) {
		t.Errorf("set the mode: %v", err)
	}
	if m, err := nic.Mode(t.Context()); err != nil || m != driver.Legacy {
		t.Errorf("the mode is %v, %v", m, err)
	}
	if n := nic.TotalVFs(); n != 0 {
		t.Errorf("it has %d virtual functions", n)
	}
}
