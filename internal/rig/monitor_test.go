package rig_test

import (
	"testing"

	"cxkit/device"
	"cxkit/dma"
	"cxkit/driver"
	"cxkit/drivertest"
	"cxkit/internal/rig"
	"cxkit/internal/rig/rigtest"
	"cxkit/transport/inproc"
)

// On a card that announces changes of counters readers cost no command, and a frame that is lost is seen by
// them without anybody asking the card.
func TestMonitoredCountersCostReadersNothing(t *testing.T) {
	bench := func(t *testing.T, _ drivertest.Options) *drivertest.Bench {
		return rigtest.Bench(t, rig.Config{Device: device.Config{Profile: "cx6dx"}, Transport: inproc.Config{Kind: dma.Heap}})
	}
	drivertest.RunOne(t, bench, drivertest.Test{Run: func(e *drivertest.Env) {
		e.OnlyArrives(drivertest.Frame(e.NIC.MAC(), 60, 1))
		e.Until("the driver's own counters are read", func() bool { return e.NIC.QuickStats().Get("rx_packets") == 1 })
		for round := uint64(1); round <= 3; round++ {
			before := e.NIC.CommandStats().Issued
			for range 1000 {
				e.NIC.QuickStats()
			}
			if n := e.NIC.CommandStats().Issued - before; n != 0 {
				e.Errorf("round %d: %d commands for 1000 readings", round, n)
			}
			e.OnlyArrives(drivertest.Frame(e.NIC.MAC(), 60, 2), drivertest.Frame(e.NIC.MAC(), 3000, 1)) // too long
			e.Until("the lost frame is seen", func() bool { return e.NIC.QuickStats().Link().RxLength == round })
			e.Until("what was asked for is answered", func() bool {
				n := e.NIC.CommandStats()
				return n.InFlight == 0 && n.Issued >= before+4 // arm, and three of a refresh
			})
		}
	}})
	// What is not asked for, a card without monitored counters is asked by command.
	old := func(t *testing.T, _ drivertest.Options) *drivertest.Bench {
		return rigtest.Bench(t, rig.Config{Device: device.Config{Profile: "cx5"}, Transport: inproc.Config{Kind: dma.Heap}})
	}
	drivertest.RunOne(t, old, drivertest.Test{Config: driver.Config{}, Run: func(e *drivertest.Env) {
		before := e.NIC.CommandStats().Issued
		e.Until("quick readings ask", func() bool { e.NIC.QuickStats(); return e.NIC.CommandStats().Issued > before })
	}})
}
