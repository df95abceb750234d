package device

import (
	"bytes"
	"slices"
	"testing"

	"cxkit/prm"
)

// embeddedBench is a card with a processor of its own, whose function is that of dataBench, and the host's
// physical function, which has been plugged in.
type embeddedBench struct {
	*switchBench
	host *bench
}

func newEmbeddedBench(t testing.TB, vfs int) *embeddedBench {
	t.Helper()
	b := &embeddedBench{switchBench: newBareSwitch(t, Config{Profile: "bf2", VFs: vfs})}
	b.host = b.attachOther(b.card.HostPF(0))
	return b
}

// functions is what the card's processor is told of the host.
func (b *embeddedBench) functions() (out prm.QueryESWFunctionsOut) {
	b.Helper()
	b.must(&prm.QueryESWFunctionsIn{}, &out)
	return out
}

// hostVFs makes the host's driver enable n virtual functions.
func (b *embeddedBench) hostVFs(host *dataBench, n int) {
	b.Helper()
	for i := range n {
		host.must(&prm.EnableHCAIn{FunctionID: uint16(i + 1)}, &prm.EnableHCAOut{})
	}
	(&switchBench{dataBench: host}).setVFs(n)
	b.serve()
}

func TestTheCardsProcessorLetsTheHostStart(t *testing.T) {
	b := newEmbeddedBench(t, 2)
	state := func(v *bench) prm.InitSegState { return prm.InitSegState(v.regs.Load32(regInitializing)) }
	if s := state(b.bench); !s.EmbeddedCPU() || s.Initializing() {
		t.Errorf("the processor's function shows %#x", uint32(s))
	}
	if s := state(b.host); s.EmbeddedCPU() || !s.Initializing() {
		t.Errorf("the host's function shows %#x before it is enabled", uint32(s))
	}
	want := prm.QueryESWFunctionsOut{HostPFDisabled: true, HostTotalVFs: 2, HostPCIBus: 8, HostPCIFunction: 1}
	if got := b.functions(); !equalFunctions(got, want) {
		t.Errorf("the host is %+v, want %+v", got, want)
	}
	// Linux asks for the capabilities of both by other_function, and of itself by its vport.
	for id, vhca := range map[uint16]uint16{0: 1, 1: 2, 2: 3, ecpfVport: 0} {
		var out prm.QueryHCACapOut
		b.must(&prm.QueryHCACapIn{OpMod: prm.CapOpMod(prm.CapGroupGeneral, prm.CapMax), OtherFunction: true, FunctionID: id}, &out)
		var g prm.CapGeneral
		g.Get(out.Capability[:])
		if g.VHCAID != vhca || g.ESwitchManager != (id == ecpfVport) {
			t.Errorf("function %#x: vhca_id %d, manager %v", id, g.VHCAID, g.ESwitchManager)
		}
	}

	b.must(&prm.EnableHCAIn{}, &prm.EnableHCAOut{})
	b.refused(&prm.EnableHCAIn{FunctionID: 1}, &prm.EnableHCAOut{}, prm.StatusBadParameter, synFunctionID) // the host's to enable
	b.serve()
	b.clock.advance(b.card.config.BootTime)
	if state(b.host).Initializing() {
		t.Fatal("the host's function does not start")
	}
	host := b.run(b.host)
	if n, m := host.function().memory.Len(), host.function().appetite; n < m.Boot+m.Init {
		t.Errorf("firmware holds %d pages for the host's function, want %d", n, m.Boot+m.Init)
	}
	host.refused(&prm.QueryESWFunctionsIn{}, &prm.QueryESWFunctionsOut{}, prm.StatusBadOperation, synNotManager)
	host.refused(&prm.QueryVportStateIn{OtherVport: true, VportNumber: ecpfVport}, &prm.QueryVportStateOut{}, prm.StatusBadParameter, synOtherVport)

	b.hostVFs(host, 2)
	if !slices.Contains(b.events, prm.EventESWFunctionsChanged) {
		t.Errorf("events %v", b.events)
	}
	want.HostNumOfVFs, want.HostPFDisabled = 2, false
	if got := b.functions(); !equalFunctions(got, want) {
		t.Errorf("the host is %+v, want %+v", got, want)
	}
	for i := range 2 {
		v := b.open(i + 1)
		if n := v.function().memory.Len(); n < vfBoot+vfInit {
			t.Errorf("firmware holds %d pages for virtual function %d", n, i+1)
		}
	}

	// The end of the host's function is the end of its virtual ones.
	b.must(&prm.DisableHCAIn{}, &prm.DisableHCAOut{})
	b.serve()
	for i, f := range b.card.functions[1:] {
		if f.memory.Len() != 0 || f.sw.enabled {
			t.Errorf("function %d: %d pages, enabled %v", i+1, f.memory.Len(), f.sw.enabled)
		}
	}
}

func equalFunctions(a, b prm.QueryESWFunctionsOut) bool {
	x, y := make([]byte, a.Len()), make([]byte, b.Len())
	a.Put(x)
	b.Put(y)
	return bytes.Equal(x, y)
}

func TestTheCardsProcessorSwitchesFramesOfTheHost(t *testing.T) {
	b := newEmbeddedBench(t, 2)
	b.must(&prm.EnableHCAIn{}, &prm.EnableHCAOut{})
	b.serve()
	b.clock.advance(b.card.config.BootTime)
	host := b.run(b.host)
	b.hostVFs(host, 2)
	one, two := b.open(1), b.open(2)

	// As Linux's switchdev mode: what no rule takes goes to the manager; what its queues send, to their vports.
	table, group := b.fdb(prm.MatchMiscParameters, prm.MatchParam{Misc: prm.MatchMisc{SourcePort: 0xffff}})
	from := func(n uint16) prm.MatchParam { return prm.MatchParam{Misc: prm.MatchMisc{SourcePort: n}} }
	b.entry(table, group, 0, from(1), prm.FlowContext{}, toVport(ecpfVport))
	b.entry(table, group, 1, from(ecpfVport), prm.FlowContext{}, toVport(2))
	b.entry(table, group, 2, from(2), prm.FlowContext{}, toVport(pfVport))
	b.entry(table, group, 3, from(pfVport), prm.FlowContext{}, toVport(1))

	drivers := []*dataBench{b.dataBench, two, host, one}
	var rx []*testRQ
	var tx []*testSQ
	for _, d := range drivers {
		q := d.receiver(5, 256, keepTags)
		q.post(8)
		rx, tx = append(rx, q), append(tx, d.sender(5))
	}
	for i, d := range drivers {
		frame := frameTo(vportMAC(1), vportMAC(2), byte(i))
		tx[i].sends(frame)
		for k := range drivers {
			got := len(rx[k].cq.take())
			if want := map[bool]int{true: 1}[k == (i+1)%len(drivers)]; got != want {
				t.Errorf("function %d sent: %d has received %d frames, want %d", d.index, drivers[k].index, got, want)
			}
		}
	}
}

// TestTheHostOutlivesNothingOfTheCardsProcessor resets the processor's function under a host that runs.
func TestTheHostOutlivesNothingOfTheCardsProcessor(t *testing.T) {
	b := newEmbeddedBench(t, 1)
	b.must(&prm.EnableHCAIn{}, &prm.EnableHCAOut{})
	b.serve()
	b.clock.advance(b.card.config.BootTime)
	b.hostVFs(b.run(b.host), 1)
	b.open(1)
	if err := b.fn.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, f := range b.card.functions {
		if f.memory.Len() != 0 || i > 0 && f.sw.enabled {
			t.Errorf("function %d: %d pages", i, f.memory.Len())
		}
	}
	if v := b.card.Function(b.card.VF(0, 1)).ReadConfig(0, 4); v != 0x101e15b3 {
		t.Errorf("the host's bus shows %#x in the virtual function's place", v)
	}
}
