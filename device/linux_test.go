package device

import (
	"bytes"
	"testing"

	"cxkit/prm"
)

// What Linux's driver needs beside the manual, each as it was met when mlx5_core of 6.1 and 6.12 drove the
// card in a guest (internal/vmtest).

// TestAQueueThatDropsNeedsNoProtectionDomain: mlx5e's drop RQ leaves its protection domain at 0.
func TestAQueueThatDropsNeedsNoProtectionDomain(t *testing.T) {
	b := newDataBench(t)
	cq := b.newCQ(0)
	rq := b.newRQ(cq, 0, 16, func(in *prm.CreateRQIn) { in.Context.WQ.PD = 0 })
	rq.state(prm.QueueStateRST, prm.QueueStateRDY)
	b.all(b.newTIR(rq))
	b.promiscuous(true)
	b.receive(testFrame(60, 1))
	if n := b.completions(cq); n != 0 {
		t.Errorf("%d completions of a queue without buffers", n)
	}
}

// TestTablesAreDeepEnoughForLinux: with the flow table capabilities of this card, 6.12 puts its last table
// at level 66.
func TestTablesAreDeepEnoughForLinux(t *testing.T) {
	const anchor = 66
	b := newDataBench(t)
	if got := b.function().caps.Flow.FlowTablePropertiesNICReceive.MaxFTLevel; got < anchor {
		t.Errorf("max_ft_level is %d, want at least %d", got, anchor)
	}
	b.newTable(anchor, 0, 0, prm.MatchParam{})
}

// TestACopperCableHasNoTemperature: 6.12's hwmon asks for the sensor of the module and takes 0 for "none";
// an error ends up in the kernel's log.
func TestACopperCableHasNoTemperature(t *testing.T) {
	b := newBench(t, Config{})
	b.bringUp()
	r := prm.RegMTMP{SensorIndex: 64}
	b.reg(prm.AccessRegRead, prm.RegIDMTMP, &r)
	if r.Temperature != 0 || r.SensorIndex != 64 {
		t.Errorf("the module's sensor: %+v", r)
	}
	r = prm.RegMTMP{}
	b.reg(prm.AccessRegRead, prm.RegIDMTMP, &r)
	if r.Temperature == 0 {
		t.Errorf("the card's own sensor: %+v", r)
	}
	for _, n := range []uint16{1, 63, 65} {
		image := make([]byte, prm.RegMTMPSize)
		(&prm.RegMTMP{SensorIndex: n}).Put(image)
		out := prm.AccessRegOut{RegisterData: make([]byte, prm.RegMTMPSize)}
		b.refused(&prm.AccessRegIn{OpMod: uint16(prm.AccessRegRead), RegisterID: prm.RegIDMTMP, RegisterData: image}, &out,
			prm.StatusBadParameter, synRegisterValue)
	}
}

// TestAModulesMemoryIsReadByOlderDrivers: 6.1's MCIA is 64 bytes long, 6.12's 144.
func TestAModulesMemoryIsReadByOlderDrivers(t *testing.T) {
	b := newBench(t, Config{})
	b.bringUp()
	if _, err := b.card.Plug(0, &testPort{room: -1}); err != nil {
		t.Fatal(err)
	}
	read := func(size int) []byte {
		image := make([]byte, prm.RegMCIASize)
		(&prm.RegMCIA{I2CDeviceAddress: 0x50, Size: 48}).Put(image)
		out := prm.AccessRegOut{RegisterData: make([]byte, size)}
		b.must(&prm.AccessRegIn{OpMod: uint16(prm.AccessRegRead), RegisterID: prm.RegIDMCIA, RegisterData: image[:size]}, &out)
		return out.RegisterData
	}
	if old, now := read(64), read(prm.RegMCIASize); !bytes.Equal(old, now[:64]) || old[16] == 0 {
		t.Errorf("a short register reads\n%x, a long one\n%x", old, now)
	}
	out := prm.AccessRegOut{RegisterData: make([]byte, 60)}
	b.refused(&prm.AccessRegIn{OpMod: uint16(prm.AccessRegRead), RegisterID: prm.RegIDMCIA, RegisterData: make([]byte, 60)}, &out,
		prm.StatusBadInputLength, synRegisterLength)
}
