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

// The suite on the kind of memory that the race detector sees; memory_test.go and process_linux_test.go have the
// others.
func TestNICOnHeapMemory(t *testing.T) { drivertest.Run(t, inprocess(dma.Heap)) }

// inprocess makes benches on the model in this process.
func inprocess(kind dma.Kind) drivertest.Maker {
	return func(t *testing.T, o drivertest.Options) *drivertest.Bench {
		return rigtest.Bench(t, rig.Config{
			Device:    device.Config{Profile: o.Card},
			Transport: inproc.Config{Kind: kind},
			Cable:     wire.CableOptions{Lossy: o.Lossy},
		})
	}
}
