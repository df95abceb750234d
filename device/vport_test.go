package device

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"cxkit/prm"
)

// reg reads a register, or writes it and returns what it is then.
func (b *bench) reg(op prm.AccessRegOpMod, id prm.RegisterID, r interface {
	Len() int
	Put([]byte)
	Get([]byte)
}) {
	b.Helper()
	image := make([]byte, r.Len())
	r.Put(image)
	out := prm.AccessRegOut{RegisterData: make([]byte, r.Len())}
	b.must(&prm.AccessRegIn{OpMod: uint16(op), RegisterID: id, RegisterData: image}, &out)
	r.Get(out.RegisterData)
}

func (b *bench) linkUp() (vport, paos bool) {
	b.Helper()
	var state prm.QueryVportStateOut
	b.must(&prm.QueryVportStateIn{}, &state)
	r := prm.RegPAOS{LocalPort: 1}
	b.reg(prm.AccessRegRead, prm.RegIDPAOS, &r)
	return state.State == prm.VportUp, r.OperStatus == prm.PortOperUp
}

func TestLinkFollowsCarrierAndAdminState(t *testing.T) {
	b := newBench(t, Config{})
	b.bringUp()
	e := b.newEQ(b.allocUAR(), 8, 0, prm.EventPortChange, prm.EventPortModule)
	expect := func(what string, up bool, events ...prm.PortSubType) {
		t.Helper()
		b.settle()
		if v, p := b.linkUp(); v != up || p != up {
			t.Errorf("%s: vport up %v, port up %v, want %v", what, v, p, up)
		}
		var got []prm.PortSubType
		for x := e.next(); x != nil; x = e.next() {
			if x.EventType() == prm.EventPortChange {
				if x[0x28] != 1<<4 {
					t.Errorf("%s: event for port %d", what, x[0x28]>>4)
				}
				got = append(got, prm.PortSubType(x.EventSubType()))
			}
		}
		if len(got) != len(events) || len(got) > 0 && got[0] != events[0] {
			t.Errorf("%s: port events %v, want %v", what, got, events)
		}
		e.update()
	}
	admin := func(s prm.PortAdminStatus) {
		b.reg(prm.AccessRegWrite, prm.RegIDPAOS, &prm.RegPAOS{LocalPort: 1, AdminStatus: s, ASE: true})
	}
	wire := &testPort{room: -1}
	expect("nothing plugged in", false)
	if _, err := b.card.Plug(0, wire); err != nil {
		t.Fatal(err)
	}
	expect("plugged in", true, prm.PortSubTypeActive)
	admin(prm.PortAdminDown)
	expect("switched off", false, prm.PortSubTypeDown)
	wire.down = true
	expect("carrier lost while off", false)
	admin(prm.PortAdminUp)
	expect("switched on without carrier", false)
	wire.down = false
	expect("carrier back", true, prm.PortSubTypeActive)
	b.must(&prm.ModifyVportStateIn{AdminState: prm.VportAdminDown}, &prm.ModifyVportStateOut{})
	var state prm.QueryVportStateOut
	b.must(&prm.QueryVportStateIn{}, &state)
	if state.State != prm.VportDown || state.AdminState != prm.VportAdminDown {
		t.Errorf("vport %+v", state)
	}
	b.must(&prm.ModifyVportStateIn{AdminState: prm.VportAdminAuto}, &prm.ModifyVportStateOut{})
	for x := e.next(); x != nil; x = e.next() {
	}
	if old, err := b.card.Plug(0, nil); err != nil || old != wire {
		t.Errorf("unplugging returned %v, %v", old, err)
	}
	expect("unplugged", false, prm.PortSubTypeDown)
	image := prm.RegPPCNT{LocalPort: 1, Grp: prm.PPCNTGroupPhysical}
	b.reg(prm.AccessRegRead, prm.RegIDPPCNT, &image)
	if n := binary.BigEndian.Uint32(image.CounterSet[0xc0:]); n != 2 {
		t.Errorf("link_down_events %d, want 2", n)
	}
}

func TestModuleEventsAndMemory(t *testing.T) {
	b := newBench(t, Config{})
	b.bringUp()
	e := b.newEQ(b.allocUAR(), 8, 0, prm.EventPortModule)
	read := func() prm.RegMCIA {
		r := prm.RegMCIA{I2CDeviceAddress: 0x50, Size: 48}
		b.reg(prm.AccessRegRead, prm.RegIDMCIA, &r)
		return r
	}
	if r := read(); r.Status == 0 {
		t.Error("a module that is not there can be read")
	}
	if _, err := b.card.Plug(0, &testPort{}); err != nil {
		t.Fatal(err)
	}
	if x := e.next(); x == nil || x[0x21] != 0 || x[0x23] != byte(prm.ModulePlugged) {
		t.Errorf("plugged in: % x", x)
	}
	if r := read(); r.Status != 0 || r.Dwords[0] != 0x11 {
		t.Errorf("module: status %d, identifier %#x", r.Status, r.Dwords[0])
	}
	upper := prm.RegMCIA{I2CDeviceAddress: 0x50, Size: 48, DeviceAddress: 148}
	b.reg(prm.AccessRegRead, prm.RegIDMCIA, &upper)
	if !bytes.HasPrefix(upper.Dwords[:], []byte("cxkit   ")) {
		t.Errorf("vendor name %q", upper.Dwords[:16])
	}
	if _, err := b.card.Plug(0, nil); err != nil {
		t.Fatal(err)
	}
	if x := e.next(); x == nil || x[0x23] != byte(prm.ModuleUnplugged) {
		t.Errorf("taken out: % x", x)
	}
}

func TestPortMTU(t *testing.T) {
	b := newBench(t, Config{})
	b.bringUp()
	r := prm.RegPMTU{LocalPort: 1}
	b.reg(prm.AccessRegRead, prm.RegIDPMTU, &r)
	if r.MaxMTU != 10_000 || r.OperMTU != r.AdminMTU {
		t.Errorf("PMTU %+v", r)
	}
	r = prm.RegPMTU{LocalPort: 1, AdminMTU: 1522}
	b.reg(prm.AccessRegWrite, prm.RegIDPMTU, &r)
	if r.AdminMTU != 1522 || r.OperMTU != 1522 || r.MaxMTU != 10_000 {
		t.Errorf("PMTU after a write %+v", r)
	}
	for _, bad := range []uint16{0, 81, 10_001} {
		in := prm.AccessRegIn{RegisterID: prm.RegIDPMTU, RegisterData: make([]byte, prm.RegPMTUSize)}
		(&prm.RegPMTU{LocalPort: 1, AdminMTU: bad}).Put(in.RegisterData)
		b.refused(&in, &prm.AccessRegOut{RegisterData: make([]byte, 16)}, prm.StatusBadParameter, synRegisterValue)
	}
	mtu := prm.ModifyNICVportContextIn{FieldSelectMTU: true, NICVportContext: prm.NICVportContext{MTU: 9022}}
	b.must(&mtu, &prm.ModifyNICVportContextOut{})
	var out prm.QueryNICVportContextOut
	b.must(&prm.QueryNICVportContextIn{}, &out)
	if out.NICVportContext.MTU != 9022 {
		t.Errorf("vport MTU %d is not what was set", out.NICVportContext.MTU)
	}
}

func TestPortSpeed(t *testing.T) {
	b := newBench(t, Config{})
	b.bringUp()
	if _, err := b.card.Plug(0, &testPort{}); err != nil {
		t.Fatal(err)
	}
	read := func() prm.RegPTYS {
		r := prm.RegPTYS{LocalPort: 1, ProtoMask: 4}
		b.reg(prm.AccessRegRead, prm.RegIDPTYS, &r)
		return r
	}
	if r := read(); r.EthProtoOper != 1<<20 || r.DataRateOper != 1000 || r.EthProtoAdmin != r.EthProtoCapability {
		t.Errorf("100 Gbit/s: %+v", r)
	}
	b.reg(prm.AccessRegWrite, prm.RegIDPTYS, &prm.RegPTYS{LocalPort: 1, ProtoMask: 4, EthProtoAdmin: 1<<12 | 1<<27})
	if r := read(); r.EthProtoOper != 1<<27 || r.DataRateOper != 250 || r.EthProtoAdmin != 1<<12|1<<27 {
		t.Errorf("25 Gbit/s at most: %+v", r)
	}
	if _, err := b.card.Plug(0, nil); err != nil {
		t.Fatal(err)
	}
	if r := read(); r.EthProtoOper != 0 || r.DataRateOper != 0 {
		t.Errorf("link down: %+v", r)
	}
}

func TestAddressListsAreKeptAndFilter(t *testing.T) {
	b := newBench(t, Config{})
	b.bringUp()
	set := func(typ prm.AllowedListType, list ...uint64) {
		t.Helper()
		b.must(&prm.ModifyNICVportContextIn{FieldSelectAddressesList: true, AddressList: list,
			NICVportContext: prm.NICVportContext{AllowedListType: typ, AllowedListSize: uint16(len(list))}}, &prm.ModifyNICVportContextOut{})
		out := prm.QueryNICVportContextOut{AddressList: make([]uint64, len(list))}
		b.must(&prm.QueryNICVportContextIn{AllowedListType: typ}, &out)
		if int(out.NICVportContext.AllowedListSize) != len(list) {
			t.Fatalf("list %v has %d entries, want %d", typ, out.NICVportContext.AllowedListSize, len(list))
		}
		for i := range list {
			if out.AddressList[i] != list[i] {
				t.Errorf("list %v entry %d: %#x, want %#x", typ, i, out.AddressList[i], list[i])
			}
		}
	}
	set(prm.AllowedListUC, 0x020000000001, 0x020000000002)
	set(prm.AllowedListMC, 0x01005e000001)
	set(prm.AllowedListVLAN, 5<<32, 4094<<32)
	v := &b.function().vport
	mac := func(a uint64) []byte { return binary.BigEndian.AppendUint64(nil, a)[2:] }
	check := func(what string, want map[uint64]bool) {
		t.Helper()
		for a, ok := range want {
			if v.accepts(mac(a)) != ok {
				t.Errorf("%s: %012x accepted %v", what, a, !ok)
			}
		}
	}
	own := macKey(v.permanent[:])
	check("lists", map[uint64]bool{own: true, 0x020000000001: true, 0x020000000003: false, 0x01005e000001: true,
		0x01005e000002: false, 0xffffffffffff: true})
	promisc := func(c prm.NICVportContext) {
		b.must(&prm.ModifyNICVportContextIn{FieldSelectPromisc: true, NICVportContext: c}, &prm.ModifyNICVportContextOut{})
	}
	promisc(prm.NICVportContext{PromiscUC: true})
	check("all unicast", map[uint64]bool{0x020000000003: true, 0x01005e000002: false})
	promisc(prm.NICVportContext{PromiscMC: true})
	check("all multicast", map[uint64]bool{0x020000000003: false, 0x01005e000002: true})
	promisc(prm.NICVportContext{PromiscAll: true})
	check("everything", map[uint64]bool{0x020000000003: true, 0x01005e000002: true})
	promisc(prm.NICVportContext{})
	set(prm.AllowedListUC)
	check("emptied", map[uint64]bool{own: true, 0x020000000001: false})
}

func TestVportChangeEventIsOneShot(t *testing.T) {
	b := newBench(t, Config{})
	b.bringUp()
	e := b.newEQ(b.allocUAR(), 8, 0, prm.EventNICVportChange)
	mtu := func(n uint16) {
		b.must(&prm.ModifyNICVportContextIn{FieldSelectMTU: true, NICVportContext: prm.NICVportContext{MTU: n}}, &prm.ModifyNICVportContextOut{})
	}
	mtu(1600)
	if e.next() != nil {
		t.Fatal("an event without arming")
	}
	b.must(&prm.ModifyNICVportContextIn{FieldSelectChangeEvent: true, NICVportContext: prm.NICVportContext{ArmChangeEvent: true, EventOnMTU: true}}, &prm.ModifyNICVportContextOut{})
	b.must(&prm.ModifyNICVportContextIn{FieldSelectPromisc: true}, &prm.ModifyNICVportContextOut{})
	if e.next() != nil {
		t.Fatal("an event of a kind that was not asked for")
	}
	mtu(1700)
	mtu(1800)
	if e.next() == nil || e.next() != nil {
		t.Error("not exactly one event for two changes")
	}
}

func TestCapabilitiesAreSetWithinTheirMaximum(t *testing.T) {
	b := newBench(t, Config{})
	b.enable()
	get := func(mode prm.CapMode) (c prm.CapGeneral, raw [4096]byte) {
		var out prm.QueryHCACapOut
		b.must(&prm.QueryHCACapIn{OpMod: prm.CapOpMod(prm.CapGroupGeneral, mode)}, &out)
		c.Get(out.Capability[:])
		return c, out.Capability
	}
	c, current := get(prm.CapCurrent)
	// What a driver has to agree on is not in force before it has.
	agreed := c
	agreed.ReleaseAllPages = true
	raised := current
	agreed.Patch(raised[:])
	if _, highest := get(prm.CapMax); raised != highest {
		t.Error("current and maximum differ at the start in more than release_all_pages")
	}
	set := func(change func(*prm.CapGeneral, *[4096]byte)) (prm.Status, syndrome) {
		n, raw := c, current
		change(&n, &raw)
		n.Patch(raw[:])
		return b.exec(&prm.SetHCACapIn{OpMod: prm.CapOpMod(prm.CapGroupGeneral, 0), Capability: raw}, &prm.SetHCACapOut{})
	}
	// What Linux does on 4 KiB pages (reference 04 §2, step 10).
	if status, syn := set(func(n *prm.CapGeneral, _ *[4096]byte) {
		n.PKeyTableSize, n.LogMaxQP, n.CmdifChecksum, n.LogUARPageSz = 0, 17, 0, 0
	}); status != prm.StatusOK {
		t.Fatalf("Linux's edits: %v: %v", status, syn)
	}
	if n, _ := get(prm.CapCurrent); n.LogMaxQP != 17 {
		t.Errorf("log_max_qp is %d, want 17", n.LogMaxQP)
	}
	if n, _ := get(prm.CapMax); n.LogMaxQP != 18 {
		t.Errorf("the maximum of log_max_qp is %d, want 18", n.LogMaxQP)
	}
	if status, syn := set(func(n *prm.CapGeneral, _ *[4096]byte) { n.LogMaxQP = 19 }); status != prm.StatusBadParameter || syn != synCapTooLarge {
		t.Errorf("log_max_qp 19: %v: %v", status, syn)
	}
	if status, syn := set(func(n *prm.CapGeneral, _ *[4096]byte) { n.LogMaxCQ = 1 }); status != prm.StatusBadParameter || syn != synCapNotSettable {
		t.Errorf("log_max_cq: %v: %v", status, syn)
	}
	if status, syn := set(func(_ *prm.CapGeneral, raw *[4096]byte) { raw[0x900] = 1 }); status != prm.StatusBadParameter || syn != synCapNotSettable {
		t.Errorf("unnamed bit: %v: %v", status, syn)
	}
	if status, syn := set(func(n *prm.CapGeneral, _ *[4096]byte) { n.LogUARPageSz = 4 }); status != prm.StatusOK {
		t.Errorf("64 KiB pages: %v: %v", status, syn)
	}
	b.give(b.wanted(prm.QueryPagesInit))
	b.must(&prm.InitHCAIn{}, &prm.InitHCAOut{})
	uar := b.allocUAR()
	if uar != 1 {
		t.Errorf("first UAR of 64 KiB is %d", uar)
	}
	e := b.newEQ(uar, 4, 0, prm.EventCommandCompletion)
	b.must(&prm.NopIn{}, &prm.NopOut{})
	b.regs.Store32(uint64(uar)<<16+prm.UAREQArmOff, uint32(e.n)<<24)
	b.settle()
	if !b.raised(0) {
		t.Error("no doorbell in a page of 64 KiB")
	}
}

func TestAdvertisedRegistersExist(t *testing.T) {
	b := newBench(t, Config{})
	b.bringUp()
	pcam, mcam := prm.RegPCAM{}, prm.RegMCAM{}
	b.reg(prm.AccessRegRead, prm.RegIDPCAM, &pcam)
	b.reg(prm.AccessRegRead, prm.RegIDMCAM, &mcam)
	seen := 0
	for base, mask := range map[int]*[16]byte{0x5000: &pcam.PortAccessRegCapMask, 0x9000: &mcam.MngAccessRegCapMask} {
		for k := range 128 {
			if mask[15-k/8]>>(k%8)&1 == 0 {
				continue
			}
			seen++
			id := prm.RegisterID(base + k)
			r := prm.RegisterByID(id)
			in := prm.AccessRegIn{OpMod: 1, RegisterID: id, RegisterData: make([]byte, max(r.Layout.Size, 0x90))}
			in.RegisterData[1] = 1 // local_port of most
			if id == prm.RegIDPMAOS || id == prm.RegIDMCIA {
				in.RegisterData[1] = 0
			}
			if id == prm.RegIDMCIA {
				in.RegisterData[11] = 1
			}
			if id == prm.RegIDMPCNT || id == prm.RegIDMCQS {
				in.RegisterData[1] = 0
			}
			out := prm.AccessRegOut{RegisterData: make([]byte, len(in.RegisterData))}
			if status, syn := b.exec(&in, &out); status != prm.StatusOK {
				t.Errorf("register %v is advertised and refuses to be read: %v: %v", id, status, syn)
			}
		}
	}
	if seen < 15 {
		t.Errorf("only %d registers are advertised", seen)
	}
}

func TestFirmwareVersionByMCQI(t *testing.T) {
	b := newBench(t, Config{})
	b.bringUp()
	in := prm.AccessRegIn{OpMod: 1, RegisterID: prm.RegIDMCQI, RegisterData: make([]byte, prm.RegMCQISize)}
	(&prm.RegMCQI{InfoType: 1, DataSize: prm.MCQIVersionSize}).Put(in.RegisterData)
	out := prm.AccessRegOut{RegisterData: make([]byte, prm.RegMCQISize+prm.MCQIVersionSize)}
	b.must(&in, &out)
	r := prm.RegMCQI{}
	r.Get(out.RegisterData)
	var v prm.MCQIVersion
	v.Get(r.Data)
	if v.Version != 16<<24|35<<16|3006 || string(v.VersionString[:v.VersionStringLength]) != "16.35.3006" {
		t.Errorf("version %#x %q", v.Version, v.VersionString)
	}
}

func TestBeaconCountsDown(t *testing.T) {
	b := newBench(t, Config{})
	b.bringUp()
	b.reg(prm.AccessRegWrite, prm.RegIDMLCR, &prm.RegMLCR{LocalPort: 1, BeaconDuration: 10})
	b.clock.advance(3 * time.Second)
	r := prm.RegMLCR{LocalPort: 1}
	b.reg(prm.AccessRegRead, prm.RegIDMLCR, &r)
	if r.BeaconRemain != 7 {
		t.Errorf("%d seconds remain, want 7", r.BeaconRemain)
	}
}

func TestCountersOfAPortAreClearedForTheReaderOnly(t *testing.T) {
	b := newBench(t, Config{})
	b.bringUp()
	b.card.ports[0].counters.received(make([]byte, 60), 3)
	read := func(grp prm.PPCNTGroup, prio uint8, clr bool) [31]uint64 {
		r := prm.RegPPCNT{LocalPort: 1, Grp: grp, PrioTC: prio, Clr: clr}
		b.reg(prm.AccessRegRead, prm.RegIDPPCNT, &r)
		var w [31]uint64
		for i := range w {
			w[i] = binary.BigEndian.Uint64(r.CounterSet[8*i:])
		}
		return w
	}
	if w := read(prm.PPCNTGroup8023, 0, true); w[1] != 1 || w[5] != 64 {
		t.Errorf("802.3: %d frames, %d octets", w[1], w[5])
	}
	b.card.ports[0].counters.received(make([]byte, 1000), 3)
	if w := read(prm.PPCNTGroup8023, 0, false); w[1] != 1 || w[5] != 1004 {
		t.Errorf("802.3 after a clear: %d frames, %d octets", w[1], w[5])
	}
	if w := read(prm.PPCNTGroup2819, 0, false); w[2] != 2 || w[0x58/8] != 1 || w[0x78/8] != 1 {
		t.Errorf("2819 was not cleared: %v", w)
	}
	if w := read(prm.PPCNTGroupPerPriority, 3, false); w[4] != 2 {
		t.Errorf("priority 3: %v", w)
	}
	in := prm.AccessRegIn{OpMod: 1, RegisterID: prm.RegIDPPCNT, RegisterData: make([]byte, prm.RegPPCNTSize)}
	(&prm.RegPPCNT{LocalPort: 1, Grp: 0x3f}).Put(in.RegisterData)
	b.refused(&in, &prm.AccessRegOut{RegisterData: make([]byte, 16)}, prm.StatusBadParameter, synRegisterValue)
}
