//go:build !race

package rig_test

import (
	"testing"

	"cxkit/device"
	"cxkit/device/wire"
	"cxkit/dma"
	"cxkit/drivertest"
	"cxkit/internal/rig"
	"cxkit/internal/rig/rigtest"
	"cxkit/transport/inproc"
)

// TestNICThatRingsByMemory: the suite where doorbells are stores to memory that the engine looks at. Not under the
// race detector: it does not see that memory, so it takes what is ordered by it for races.
func TestNICThatRingsByMemory(t *testing.T) {
	drivertest.Run(t, func(t *testing.T, o drivertest.Options) *drivertest.Bench {
		return rigtest.Bench(t, rig.Config{
			Device:    device.Config{MapDoorbells: true, Profile: o.Card},
			Transport: inproc.Config{Kind: dma.Shared},
			Cable:     wire.CableOptions{Lossy: o.Lossy},
		})
	})
}
