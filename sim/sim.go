package sim

import (
	"context"
	"testing"
	"time"

	"cxkit/device"
	"cxkit/device/wire"
	"cxkit/dma"
	"cxkit/driver"
	"cxkit/internal/rig"
	"cxkit/transport/inproc"
)

// Option changes what New makes.
type Option func(*options)

type options struct {
	rig    rig.Config
	driver driver.Config
}

// Driver opens the NIC with c instead of the zero Config.
func Driver(c driver.Config) Option { return func(o *options) { o.driver = c } }

// Lossy makes the wire drop frames the NIC has no buffer for, as a wire without flow control does. By
// default the far end waits.
func Lossy() Option { return func(o *options) { o.rig.Cable.Lossy = true } }

// Seed makes the card's random choices repeatable; by default it is 1.
func Seed(seed uint64) Option { return func(o *options) { o.rig.Device.Seed = seed } }

// New returns an open NIC and the far end of its wire: what far sends the NIC receives, and the other
// way round. Both end with the test. Memory is Go heap, so that the race detector sees every access, and the
// NIC panics when a packet is used after its release or released twice; in benchmarks it does not look.
func New(t testing.TB, opts ...Option) (nic *driver.NIC, far *wire.End) {
	t.Helper()
	o := options{rig: rig.Config{
		Device:    device.Config{Seed: 1},
		Transport: inproc.Config{Kind: dma.Heap},
	}}
	for _, opt := range opts {
		opt(&o)
	}
	r, err := rig.New(o.rig)
	if err != nil {
		t.Fatalf("sim: %v", err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("sim: %v", err)
		}
	})
	f, err := r.Function(0)
	if err != nil {
		t.Fatalf("sim: %v", err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Errorf("sim: %v", err)
		}
	})
	if _, measured := t.(*testing.B); !measured {
		o.driver.CheckBuffers = true
	}
	nic, err = driver.Open(t.Context(), f, o.driver)
	if err != nil {
		t.Fatalf("sim: %v", err)
	}
	t.Cleanup(func() {
		// The test's own context has ended by now.
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		if err := nic.Close(ctx); err != nil {
			t.Errorf("sim: %v", err)
		}
	})
	return nic, r.Far
}

// closeTimeout bounds the end of a test's NIC.
const closeTimeout = 10 * time.Second
