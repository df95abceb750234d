package device

import (
	"bytes"
	"encoding/binary"
	"testing"

	"cxkit/dma"
	"cxkit/pci"
	"cxkit/prm"
)

func TestVirtualFunctionsAppearWhenTheHostEnablesThem(t *testing.T) {
	b := newBareSwitch(t, Config{VFs: 3})
	vendor := func(n int) uint32 { return b.card.Function(b.card.VF(0, n)).ReadConfig(0, 4) }
	var head [4]byte
	if err := b.fn.ReadConfig(0x180, head[:]); err != nil {
		t.Fatal(err)
	}
	if id := binary.LittleEndian.Uint16(head[:]); id != 0x0010 {
		t.Fatalf("capability %#x where SR-IOV should be", id)
	}
	for n := 1; n <= 3; n++ {
		if v := vendor(n); v != ^uint32(0) {
			t.Errorf("virtual function %d reads %#x before it is there", n, v)
		}
	}
	b.setVFs(2)
	for n, want := range map[int]uint32{1: 0x101815b3, 2: 0x101815b3, 3: ^uint32(0)} {
		if v := vendor(n); v != want {
			t.Errorf("virtual function %d reads %#x, want %#x", n, v, want)
		}
	}
	b.fn.WriteConfig(sriovNumVFs, []byte{3, 0}) // only while VF Enable is clear
	if v := vendor(3); v != ^uint32(0) {
		t.Error("NumVFs was changed with VF Enable set")
	}
	b.setVFs(0)
	if v := vendor(1); v != ^uint32(0) {
		t.Errorf("virtual function 1 reads %#x after it went", v)
	}
	if a := b.card.Function(b.card.VF(0, 3)).Info().Address; a != "0000:08:00.3" {
		t.Errorf("virtual function 3 is at %s", a)
	}
	b.setVFs(3)
	b.card.functions[0].Reset(pci.ResetFLR)
	if v := vendor(1); v != ^uint32(0) {
		t.Error("virtual functions outlive a reset of the physical function")
	}
}

func TestAVirtualFunctionStartsWhenItsManagerHasEnabledIt(t *testing.T) {
	b := newBareSwitch(t, Config{VFs: 2})
	b.setVFs(2)
	v := b.attachVF(1)
	initializing := func() bool { return v.regs.Load32(regInitializing)>>31 != 0 }
	if !initializing() {
		t.Error("firmware of a function that is not enabled is ready")
	}
	b.must(&prm.EnableHCAIn{FunctionID: 1}, &prm.EnableHCAOut{})
	b.refused(&prm.EnableHCAIn{FunctionID: 1}, &prm.EnableHCAOut{}, prm.StatusBadSystemState, synAlreadyEnabled)
	b.refused(&prm.EnableHCAIn{FunctionID: 3}, &prm.EnableHCAOut{}, prm.StatusBadParameter, synFunctionID)
	b.refused(&prm.DisableHCAIn{FunctionID: 2}, &prm.DisableHCAOut{}, prm.StatusBadSystemState, synNotEnabled)
	b.clock.advance(b.card.config.BootTime)
	if initializing() {
		t.Error("firmware of an enabled function is not ready")
	}
	v.startQueue()

	// INIT_HCA waits for pages that the manager has been asked for.
	v.must(&prm.EnableHCAIn{}, &prm.EnableHCAOut{})
	v.must(&prm.SetISSIIn{CurrentISSI: 1}, &prm.SetISSIOut{})
	in := make([]byte, prm.InitHCAInSize)
	(&prm.InitHCAIn{}).Put(in)
	v.post(0, in, 16)
	v.settle()
	if !v.owned(0) {
		t.Fatal("INIT_HCA ended without a page")
	}
	b.serve()
	v.settle()
	if v.owned(0) {
		t.Fatal("INIT_HCA waits though the pages are there")
	}
	if n := v.function().memory.Len(); n != vfBoot+vfInit {
		t.Errorf("firmware holds %d pages for the function, want %d", n, vfBoot+vfInit)
	}

	var caps prm.QueryHCACapOut
	b.must(&prm.QueryHCACapIn{OpMod: prm.CapOpMod(prm.CapGroupGeneral, prm.CapCurrent), OtherFunction: true, FunctionID: 1}, &caps)
	var g prm.CapGeneral
	g.Get(caps.Capability[:])
	if g.VportGroupManager || g.ESwitchManager || g.VHCAID != 1 {
		t.Errorf("capabilities of the virtual function: manager %v %v, vhca_id %d", g.VportGroupManager, g.ESwitchManager, g.VHCAID)
	}

	b.must(&prm.DisableHCAIn{FunctionID: 1}, &prm.DisableHCAOut{})
	b.serve()
	if n := v.function().memory.Len(); n != 0 {
		t.Errorf("%d pages are with firmware after DISABLE_HCA", n)
	}
	if !initializing() {
		t.Error("the function is ready after DISABLE_HCA")
	}
}

func TestObjectsOfAVirtualFunctionCostItsManagerPages(t *testing.T) {
	b := newSwitchBench(t, 1)
	v := b.vfs[0]
	v.function().appetite.Included = 0
	start := v.function().memory.Len()
	in := make([]byte, prm.AllocPDInSize)
	(&prm.AllocPDIn{}).Put(in)
	v.post(1, in, 16)
	v.settle()
	if !v.owned(1) {
		t.Fatal("an object was made without pages")
	}
	b.serve()
	v.settle()
	if v.owned(1) {
		t.Fatal("the command waits though pages were given")
	}
	if n := v.function().memory.Len(); n <= start {
		t.Errorf("firmware holds %d pages, as before", n)
	}
	// A page is lent to one of them.
	v2 := b.pageOf(v.function())
	if status, syn := b.exec(&prm.ManagePagesIn{OpMod: uint16(prm.PagesGive), InputNumEntries: 1, PAS: []uint64{v2}}, &prm.ManagePagesOut{}); syn != synPageTwice {
		t.Errorf("the page of another function was taken: %v %v", status, syn)
	}
}

// pageOf is a page that firmware holds for a function.
func (b *switchBench) pageOf(f *function) uint64 { return f.memory.Addresses()[0] }

// A hostile driver of a virtual function names what belongs to others.
func TestAVirtualFunctionReachesNothingOfOthers(t *testing.T) {
	b := newSwitchBench(t, 2)
	v, other := b.vfs[0], b.vfs[1]

	t.Run("vports", func(t *testing.T) {
		v.TB = t
		for _, n := range []uint16{0, 1, 2, uplinkVport} {
			v.refused(&prm.QueryNICVportContextIn{OtherVport: true, VportNumber: n}, &prm.QueryNICVportContextOut{}, prm.StatusBadParameter, synOtherVport)
			v.refused(&prm.ModifyNICVportContextIn{OtherVport: true, VportNumber: n, FieldSelectPromisc: true}, &prm.ModifyNICVportContextOut{},
				prm.StatusBadParameter, synOtherVport)
			v.refused(&prm.QueryVportCounterIn{OtherVport: true, VportNumber: n}, &prm.QueryVportCounterOut{}, prm.StatusBadParameter, synOtherVport)
			v.refused(&prm.QueryVportStateIn{OtherVport: true, VportNumber: n}, &prm.QueryVportStateOut{}, prm.StatusBadParameter, synOtherVport)
			v.refused(&prm.ModifyVportStateIn{OtherVport: true, VportNumber: n}, &prm.ModifyVportStateOut{}, prm.StatusBadParameter, synOtherVport)
			v.refused(&prm.QueryVNICEnvIn{OtherVport: true, VportNumber: n}, &prm.QueryVNICEnvOut{}, prm.StatusBadParameter, synOtherVport)
			v.refused(&prm.QueryESWVportContextIn{OtherVport: true, VportNumber: n}, &prm.QueryESWVportContextOut{}, prm.StatusBadOperation, synNotManager)
			v.refused(&prm.ModifyESWVportContextIn{OtherVport: true, VportNumber: n}, &prm.ModifyESWVportContextOut{}, prm.StatusBadOperation, synNotManager)
		}
		own := prm.ModifyNICVportContextIn{FieldSelectPermanentAddress: true}
		own.NICVportContext.PermanentAddress = vportMAC(9)
		v.refused(&own, &prm.ModifyNICVportContextOut{}, prm.StatusBadParameter, synFieldSelect)
		v.refused(&prm.SetL2TableEntryIn{}, &prm.SetL2TableEntryOut{}, prm.StatusBadParameter, synNotManager)
	})

	t.Run("tables of the e-switch", func(t *testing.T) {
		v.TB = t
		for _, typ := range []prm.FlowTableType{prm.FlowTableFDB, prm.FlowTableESWEgressACL, prm.FlowTableESWIngressACL} {
			v.refused(&prm.CreateFlowTableIn{TableType: typ}, &prm.CreateFlowTableOut{}, prm.StatusBadParameter, synFlowTableType)
			v.refused(&prm.CreateFlowTableIn{TableType: typ, OtherVport: true, VportNumber: 2}, &prm.CreateFlowTableOut{}, prm.StatusBadParameter, synOtherVport)
			v.refused(&prm.SetFlowTableRootIn{OpMod: rootDisconnect, TableType: typ}, &prm.SetFlowTableRootOut{}, prm.StatusBadParameter, synFlowTableType)
		}
		table, group := v.newTable(0, 4, 0, prm.MatchParam{})
		in := prm.SetFlowTableEntryIn{TableID: table, DestinationList: prm.DestinationList{Destinations: []prm.Destination{toVport(2)}}}
		in.FlowContext = prm.FlowContext{GroupID: group, Action: prm.FlowActionForward, DestinationListSize: 1}
		v.refused(&in, &prm.SetFlowTableEntryOut{}, prm.StatusBadParameter, synDestination)
	})

	t.Run("functions", func(t *testing.T) {
		v.TB = t
		for _, id := range []uint16{1, 2} {
			v.refused(&prm.EnableHCAIn{FunctionID: id}, &prm.EnableHCAOut{}, prm.StatusBadParameter, synFunctionID)
			v.refused(&prm.DisableHCAIn{FunctionID: id}, &prm.DisableHCAOut{}, prm.StatusBadParameter, synFunctionID)
			v.refused(&prm.QueryHCACapIn{OtherFunction: true, FunctionID: id}, &prm.QueryHCACapOut{}, prm.StatusBadParameter, synFunctionID)
			v.refused(&prm.QueryPagesIn{OpMod: uint16(prm.QueryPagesBoot), FunctionID: id}, &prm.QueryPagesOut{}, prm.StatusBadParameter, synFunctionID)
		}
		for _, id := range []uint16{0, 1, 2} {
			for _, op := range []prm.PagesOpMod{prm.PagesGive, prm.PagesTake, prm.PagesCantGive} {
				in := prm.ManagePagesIn{OpMod: uint16(op), FunctionID: id, InputNumEntries: 1}
				if op == prm.PagesGive {
					in.PAS = []uint64{1 << 40}
				}
				v.refused(&in, &prm.ManagePagesOut{PAS: make([]uint64, 1)}, prm.StatusBadParameter, synFunctionID)
			}
		}
	})

	t.Run("the e-switch's manager", func(t *testing.T) {
		v.TB = t
		v.refused(&prm.QueryESWFunctionsIn{}, &prm.QueryESWFunctionsOut{}, prm.StatusBadOperation, synNotManager)
		v.refused(&prm.CreateSchedulingElementIn{SchedulingHierarchy: prm.SchedulingESwitch, ElementType: prm.SchedulingVport, ElementAttributes: 2},
			&prm.CreateSchedulingElementOut{}, prm.StatusBadOperation, synNotManager)
		v.refused(&prm.AllocModifyHeaderContextIn{TableType: prm.FlowTableFDB, NumOfActions: 1, Actions: []uint64{setRegister(prm.FieldMetadataRegC0, 0, 8, 1)}},
			&prm.AllocModifyHeaderContextOut{}, prm.StatusBadParameter, synModifyHeader)
		arm := prm.ModifyNICVportContextIn{FieldSelectChangeEvent: true}
		v.refused(&arm, &prm.ModifyNICVportContextOut{}, prm.StatusBadParameter, synFieldSelect)
	})

	t.Run("memory", func(t *testing.T) {
		v.TB = t
		// Each function has bus addresses of its own; these are of the manager's memory alone.
		theirs := b.carve(4096, 4096)
		for v.function().mem.View(theirs.Bus, 4096, pci.Read) != nil {
			theirs = b.carve(256<<10, 4096)
		}
		copy(theirs.Bytes, frameTo(broadcast, vportMAC(0), 0x5a))
		before := bytes.Clone(theirs.Bytes)
		sent := len(b.port.tx)
		s := v.sender(4)
		s.put(prm.WQESend, prm.CompletionAlways, eth{segs: []any{dma.Region{Bus: theirs.Bus, Bytes: theirs.Bytes[:60]}}}.bytes(v))
		s.bell()
		v.settle()
		if len(b.port.tx) != sent {
			t.Error("a frame of another function's memory was sent")
		}
		q := v.receiver(4, 256)
		for i := range uint16(4) {
			segment(q.wqe(i), 256, v.key, theirs.Bus)
			q.posted++
		}
		q.ring0()
		table, group := b.fdb(0, prm.MatchParam{})
		b.entry(table, group, 0, prm.MatchParam{}, prm.FlowContext{}, toVport(1))
		b.receive(frameTo(broadcast, vportMAC(9), 1), frameTo(broadcast, vportMAC(9), 2))
		b.must(&prm.SetFlowTableRootIn{OpMod: rootDisconnect, TableType: prm.FlowTableFDB}, &prm.SetFlowTableRootOut{})
		if !bytes.Equal(theirs.Bytes, before) {
			t.Error("another function's memory was written")
		}
	})

	t.Run("the port", func(t *testing.T) {
		v.TB = t
		was := b.function().port.mtu()
		r := prm.RegPMTU{LocalPort: 1, AdminMTU: 2000}
		v.reg(prm.AccessRegWrite, prm.RegIDPMTU, &r) // Linux wants it to succeed
		p := prm.RegPAOS{LocalPort: 1, AdminStatus: prm.PortAdminDown, ASE: true}
		v.reg(prm.AccessRegWrite, prm.RegIDPAOS, &p)
		if b.function().port.mtu() != was || !b.function().port.adminUp {
			t.Error("a virtual function has changed the port")
		}
	})

	t.Run("numbers, keys and doorbells", func(t *testing.T) {
		v.TB = t
		// The same numbers mean other objects: what one makes or destroys the other does not see.
		q := other.receiver(4, 256)
		n := other.function().rqs.Len()
		for id := range uint32(64) {
			v.exec(&prm.DestroyRQIn{RQN: id}, &prm.DestroyRQOut{})
			v.exec(&prm.DestroyTIRIn{TIRN: id}, &prm.DestroyTIROut{})
			v.exec(&prm.DestroyMKeyIn{MKeyIndex: id}, &prm.DestroyMKeyOut{})
		}
		if other.function().rqs.Len() != n {
			t.Error("queues of another function were destroyed")
		}
		if other.function().keys.Get(other.key>>8) == nil {
			t.Error("a key of another function was destroyed")
		}
		// Doorbells at the other's numbers, in all pages of the BAR.
		s := other.sender(4)
		s.put(prm.WQESend, prm.CompletionAlways, eth{segs: []any{other.place(frameTo(vportMAC(2), vportMAC(2), 0))}}.bytes(other))
		before := len(b.port.tx)
		for page := uint64(0); page < vfBARSize; page += 4096 {
			v.regs.Store64(page+uarSend, uint64(s.n)<<8)
			v.regs.Store32(page+uarEQArm, uint32(other.comp.n)<<24)
		}
		v.settle()
		if len(b.port.tx) != before {
			t.Error("a doorbell of one function sent frames of another")
		}
		_ = q
	})
}

func TestResetOfAVirtualFunctionUnderTraffic(t *testing.T) {
	b := newSwitchBench(t, 2)
	table, group := b.fdb(prm.MatchMiscParameters, prm.MatchParam{Misc: prm.MatchMisc{SourcePort: 0xffff}})
	from1 := prm.MatchParam{Misc: prm.MatchMisc{SourcePort: 1}}
	b.entry(table, group, 0, from1, prm.FlowContext{}, toVport(2))
	from2 := prm.MatchParam{Misc: prm.MatchMisc{SourcePort: 2}}
	b.entry(table, group, 1, from2, prm.FlowContext{}, toVport(0))
	mine := b.receiver(7, 256)
	mine.post(128)
	for round := range 20 {
		s, q := b.vfs[0].sender(6), b.vfs[1].receiver(6, 256)
		q.post(64)
		back := b.vfs[1].sender(6)
		for i := range 32 {
			s.put(prm.WQESend, prm.CompletionAlways, eth{segs: []any{s.b.place(frameTo(vportMAC(2), vportMAC(1), byte(i)))}}.bytes(s.b))
			back.put(prm.WQESend, prm.CompletionAlways, eth{segs: []any{back.b.place(frameTo(vportMAC(0), vportMAC(2), byte(i)))}}.bytes(back.b))
		}
		s.bell()
		back.bell()
		// Part of the burst is under way.
		b.card.Step(8)
		victim := round & 1
		b.vfs[victim].fn.Reset(t.Context())
		if n := b.vfs[victim].function().objectCounts(); n[2]+n[3]+n[4] != 0 {
			t.Fatalf("objects after a reset: %v", n)
		}
		b.settle()
		b.serve()
		b.clock.advance(b.card.config.BootTime)
		b.vfs[1-victim].fn.Reset(t.Context())
		b.clock.advance(b.card.config.BootTime)
		for i := range b.vfs {
			b.vfs[i].fn.Close()
			b.vfs[i] = b.open(i + 1)
		}
		mine.cq.take()
		mine.post(64)
	}
	if n := b.vfs[0].function().memory.Len(); n != vfBoot+vfInit {
		t.Errorf("%d pages are with firmware after many resets, want %d", n, vfBoot+vfInit)
	}
}

func TestTeardownOfTheManagerEndsItsVirtualFunctions(t *testing.T) {
	b := newSwitchBench(t, 2)
	v := b.vfs[0]
	s := v.sender(4)
	b.must(&prm.TeardownHCAIn{}, &prm.TeardownHCAOut{})
	if v.regs.Load32(regInitializing)>>31 == 0 {
		t.Error("a virtual function is ready without its manager")
	}
	s.put(prm.WQESend, prm.CompletionAlways, eth{segs: []any{v.place(frameTo(vportMAC(2), vportMAC(1), 0))}}.bytes(v))
	s.bell()
	b.settle()
	if len(b.port.tx) != 0 {
		t.Error("a virtual function sends without its manager")
	}
	b.refused(&prm.DisableHCAIn{}, &prm.DisableHCAOut{}, prm.StatusBadResourceState, synPagesOut)
	for _, id := range []uint16{0, 1, 2} {
		for range 100 {
			out := prm.ManagePagesOut{PAS: make([]uint64, 512)}
			b.must(&prm.ManagePagesIn{OpMod: uint16(prm.PagesTake), FunctionID: id, InputNumEntries: 512}, &out)
			if out.OutputNumEntries == 0 {
				break
			}
		}
	}
	b.must(&prm.DisableHCAIn{}, &prm.DisableHCAOut{})
	for i := range 3 {
		if books := b.card.functions[i].books(); books.Pages != 0 || len(books.Objects) != 0 {
			t.Errorf("function %d: %+v", i, books)
		}
	}
}
