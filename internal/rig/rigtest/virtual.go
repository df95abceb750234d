package rigtest

import (
	"context"
	"testing"
	"time"

	"cxkit/dma"
	"cxkit/driver"
	"cxkit/drivertest"
	"cxkit/internal/rig"
)

// VirtualBench is Bench with a virtual function under test. Rules of its manager join it with the wire, both
// ways and for all frames, so that the far end of the wire is the virtual function's.
func VirtualBench(t *testing.T, c rig.Config) *drivertest.Bench {
	t.Helper()
	c.Device.VFs = 1
	r, err := rig.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	pf, err := r.Function(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pf.Close() })
	manager, err := driver.Open(t.Context(), pf, driver.Config{MTU: driver.MaxMTU, CheckBuffers: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := manager.Close(ctx); err != nil {
			t.Errorf("close the manager: %v", err)
		}
	})
	if err := join(t.Context(), manager); err != nil {
		t.Fatal(err)
	}
	n := r.Card.VF(0, 1)
	f, err := r.Function(n)
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
		Books: func() (drivertest.CardBooks, error) {
			b := Books(r, n)
			b.Pages = 0 // its manager's
			return b, nil
		},
		Plain: c.Transport.Kind == dma.Heap,
	}
}

// join enables one virtual function and gives it the wire.
func join(ctx context.Context, manager *driver.NIC) error {
	if _, err := manager.SetMode(ctx, driver.Switchdev); err != nil {
		return err
	}
	if err := manager.EnableVFs(ctx, 1); err != nil {
		return err
	}
	if err := manager.SetVF(ctx, 1, driver.VFConfig{MAC: driver.MAC{0x02, 0x42, 0xa1, 0, 8, 1}}); err != nil {
		return err
	}
	for from, to := range map[driver.Vport]driver.Vport{1: driver.Uplink, driver.Uplink: 1} {
		if _, err := manager.AddSwitchRule(ctx, driver.SwitchMatch{From: &from}, driver.SwitchAction{To: []driver.Vport{to}}); err != nil {
			return err
		}
	}
	return nil
}
