package device

import (
	"testing"

	"cxkit/device/internal/packet"
	"cxkit/prm"
)

// legacyBench is a switch with n virtual functions in legacy mode as Linux builds it: vport i has address
// vportMAC(i), broadcast goes to all and to the uplink.
type legacyBench struct {
	*switchBench
	table, group uint32
	next         uint32
	rx           []*testRQ // by vport
	tx           []*testSQ
}

var broadcast = [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

func newLegacyBench(t testing.TB, n int) *legacyBench {
	t.Helper()
	b := &legacyBench{switchBench: newSwitchBench(t, n)}
	b.table, b.group = b.fdb(prm.MatchOuterHeaders, prm.MatchParam{Outer: prm.MatchLayer24{DMAC: broadcast}})
	all := []prm.Destination{toVport(uplinkVport)}
	for i := range n + 1 {
		b.address(vportMAC(i), toVport(uint16(i)))
		all = append(all, toVport(uint16(i)))
		q := b.driver(i).receiver(5, 256, keepTags)
		q.post(32)
		b.rx, b.tx = append(b.rx, q), append(b.tx, b.driver(i).sender(5))
	}
	b.address(broadcast, all...)
	return b
}

// driver is that of vport i.
func (b *switchBench) driver(i int) *dataBench {
	if i == 0 {
		return b.dataBench
	}
	return b.vfs[i-1]
}

// address makes an entry for a destination address.
func (b *legacyBench) address(mac [6]byte, to ...prm.Destination) {
	b.Helper()
	b.entry(b.table, b.group, b.next, prm.MatchParam{Outer: prm.MatchLayer24{DMAC: mac}}, prm.FlowContext{}, to...)
	b.next++
}

// counters reads the counters of a vport as its manager does.
func (b *switchBench) counters(vport uint16) prm.QueryVportCounterOut {
	b.Helper()
	var out prm.QueryVportCounterOut
	b.must(&prm.QueryVportCounterIn{OtherVport: true, VportNumber: vport}, &out)
	return out
}

func TestLegacySwitchForwardsByAddress(t *testing.T) {
	b := newLegacyBench(t, 3)
	// Between vports, in both directions, and not to the wire.
	for from := range 4 {
		for to := range 4 {
			if from == to {
				continue
			}
			f := frameTo(vportMAC(to), vportMAC(from), byte(from<<4|to))
			b.tx[from].sends(f)
			for i, q := range b.rx {
				if i == to {
					q.expect("frame for me", f)
				} else {
					q.expect("frame for another")
				}
			}
		}
	}
	b.sendsExactly()
	// From the wire.
	f := frameTo(vportMAC(2), vportMAC(77), 1)
	b.receive(f, frameTo(vportMAC(99), vportMAC(77), 2))
	for i, q := range b.rx {
		if i == 2 {
			q.expect("frame from the wire", f)
		} else {
			q.expect("frame from the wire for another")
		}
	}
	// To the wire: addresses that are nobody's here.
	f = frameTo(vportMAC(99), vportMAC(1), 3)
	b.tx[1].sends(f)
	b.sendsExactly(f)
	// Broadcast reaches all but its sender.
	f = frameTo(broadcast, vportMAC(1), 4)
	b.tx[1].sends(f)
	b.sendsExactly(f)
	for i, q := range b.rx {
		if i == 1 {
			q.expect("own broadcast")
		} else {
			q.expect("broadcast", f)
		}
	}
	f = frameTo(broadcast, vportMAC(77), 5)
	b.receive(f)
	for _, q := range b.rx {
		q.expect("broadcast from the wire", f)
	}
	b.sendsExactly()

	if c := b.counters(2); c.ReceivedEthUnicast.Packets != 4 || c.ReceivedEthBroadcast.Packets != 2 || c.TransmittedEthUnicast.Packets != 3 {
		t.Errorf("counters of vport 2: %+v", c)
	}
	if c := b.counters(uplinkVport); c.ReceivedEthUnicast.Packets != 2 || c.ReceivedEthBroadcast.Packets != 1 || c.TransmittedEthUnicast.Packets != 1 || c.TransmittedEthBroadcast.Packets != 1 {
		t.Errorf("counters of the uplink: %+v", c)
	}
}

func TestWithoutTablesTheUplinkIsTheManagers(t *testing.T) {
	b := newSwitchBench(t, 1)
	mine, his := b.receiver(5, 256), b.vfs[0].receiver(5, 256)
	mine.post(8)
	his.post(8)
	f := frameTo(vportMAC(1), vportMAC(77), 1)
	b.receive(f)
	mine.expect("from the wire", f)
	his.expect("from the wire")
	out := frameTo(vportMAC(0), vportMAC(1), 1)
	b.vfs[0].sender(4).sends(out)
	b.sendsExactly(out)
	mine.expect("from a virtual function")
}

func TestVSTTagsAndStrips(t *testing.T) {
	b := newLegacyBench(t, 2)
	vst := func(vport, vid uint16, pcp uint8, insert uint8) {
		in := prm.ModifyESWVportContextIn{OtherVport: true, VportNumber: vport, FieldSelectVportCVLANInsert: true, FieldSelectVportCVLANStrip: true}
		in.ESWVportContext = prm.ESWVportContext{VportCVLANStrip: insert != 0, VportCVLANInsert: insert, CVLANID: vid, CVLANPCP: pcp}
		b.must(&in, &prm.ModifyESWVportContextOut{})
		var out prm.QueryESWVportContextOut
		b.must(&prm.QueryESWVportContextIn{OtherVport: true, VportNumber: vport}, &out)
		if out.ESWVportContext != in.ESWVportContext {
			t.Errorf("context %+v, want %+v", out.ESWVportContext, in.ESWVportContext)
		}
	}
	tagged := func(f []byte, tags ...uint32) []byte { return packet.Retag(nil, f, 0, tags) }
	vst(1, 100, 3, cvlanInsertAlways)
	f := frameTo(vportMAC(99), vportMAC(1), 1)
	b.tx[1].sends(f)
	b.sendsExactly(tagged(f, 0x81000000|3<<13|100))
	b.tx[1].sends(tagged(f, 0x81000005))
	b.sendsExactly(tagged(f, 0x81000005, 0x81000000|3<<13|100))
	in := frameTo(vportMAC(1), vportMAC(77), 2)
	b.receive(tagged(in, 0x81000000|100))
	b.rx[1].expect("a frame with its tag taken away", in)
	// Between two of one VLAN no tag is seen; to one without VST it is.
	vst(2, 100, 0, cvlanInsertAlways)
	f = frameTo(vportMAC(2), vportMAC(1), 3)
	b.tx[1].sends(f)
	b.rx[2].expect("a frame of the VLAN", f)
	f = frameTo(vportMAC(0), vportMAC(1), 4)
	b.tx[1].sends(f)
	b.rx[0].expect("a frame of a VLAN", tagged(f, 0x81000000|3<<13|100))
	vst(1, 100, 0, cvlanInsertUntagged)
	f = tagged(frameTo(vportMAC(99), vportMAC(1), 5), 0x81000007)
	b.tx[1].sends(f)
	b.sendsExactly(f)
	vst(1, 0, 0, 0)
	f = frameTo(vportMAC(99), vportMAC(1), 6)
	b.tx[1].sends(f)
	b.sendsExactly(f)
}

func TestACLsCheckWhatAVportSendsAndGets(t *testing.T) {
	b := newLegacyBench(t, 2)
	// Spoof check as Linux makes it: the own address, untagged; the rest is dropped and counted.
	mask := prm.MatchParam{Outer: prm.MatchLayer24{SMAC: broadcast}}
	table, group := b.switchBench.table(prm.FlowTableESWIngressACL, 1, prm.MatchOuterHeaders, mask)
	own := prm.MatchParam{Outer: prm.MatchLayer24{SMAC: vportMAC(1)}}
	b.must(b.entryIn(prm.FlowTableESWIngressACL, 1, table, group, 0, own, prm.FlowContext{Action: prm.FlowActionAllow}), &prm.SetFlowTableEntryOut{})
	var counter prm.AllocFlowCounterOut
	b.must(&prm.AllocFlowCounterIn{}, &counter)
	var rest prm.CreateFlowTableOut
	b.must(&prm.CreateFlowTableIn{TableType: prm.FlowTableESWIngressACL, OtherVport: true, VportNumber: 1,
		FlowTableContext: prm.FlowTableContext{LogSize: 1, Level: 1}}, &rest)
	var any prm.CreateFlowGroupOut
	b.must(&prm.CreateFlowGroupIn{TableType: prm.FlowTableESWIngressACL, OtherVport: true, VportNumber: 1, TableID: rest.TableID, EndFlowIndex: 1}, &any)
	drop := b.entryIn(prm.FlowTableESWIngressACL, 1, rest.TableID, any.GroupID, 0, prm.MatchParam{},
		prm.FlowContext{Action: prm.FlowActionDrop | prm.FlowActionCount, FlowCounterListSize: 1})
	drop.Counters = []uint32{counter.FlowCounterID}
	b.must(drop, &prm.SetFlowTableEntryOut{})
	b.must(&prm.ModifyFlowTableIn{TableType: prm.FlowTableESWIngressACL, OtherVport: true, VportNumber: 1, TableID: table, ModifyFieldSelect: 1,
		FlowTableContext: prm.FlowTableContext{TableMissAction: prm.TableMissForward, TableMissID: rest.TableID}}, &prm.ModifyFlowTableOut{})

	honest, spoofed := frameTo(vportMAC(0), vportMAC(1), 1), frameTo(vportMAC(0), vportMAC(2), 2)
	b.tx[1].sends(honest)
	b.tx[1].sends(spoofed)
	b.rx[0].expect("frames of vport 1", honest)
	var out prm.QueryFlowCounterOut
	out.FlowStatistics = make([]prm.TrafficCounter, 1)
	b.must(&prm.QueryFlowCounterIn{FlowCounterID: counter.FlowCounterID}, &out)
	if out.FlowStatistics[0].Packets != 1 {
		t.Errorf("%d frames were counted as spoofed, want 1", out.FlowStatistics[0].Packets)
	}
	b.tx[2].sends(spoofed)
	b.rx[0].expect("frames of vport 2, which has no ACL", spoofed)

	// An egress ACL that drops everything.
	et, eg := b.switchBench.table(prm.FlowTableESWEgressACL, 2, 0, prm.MatchParam{})
	b.must(b.entryIn(prm.FlowTableESWEgressACL, 2, et, eg, 0, prm.MatchParam{}, prm.FlowContext{Action: prm.FlowActionDrop}), &prm.SetFlowTableEntryOut{})
	b.tx[0].sends(frameTo(vportMAC(2), vportMAC(0), 3))
	b.rx[2].expect("a frame that the egress ACL drops")
	b.must(&prm.DeleteFlowTableEntryIn{TableType: prm.FlowTableESWEgressACL, OtherVport: true, VportNumber: 2, TableID: et}, &prm.DeleteFlowTableEntryOut{})
	f := frameTo(vportMAC(2), vportMAC(0), 4)
	b.tx[0].sends(f)
	b.rx[2].expect("a frame that the egress ACL misses", f)
}

func TestSwitchdevRulesForwardDropCountAndTag(t *testing.T) {
	b := newSwitchBench(t, 2)
	mask := prm.MatchParam{Outer: prm.MatchLayer24{DMAC: broadcast}, Misc: prm.MatchMisc{SourcePort: 0xffff, SourceSQN: 0xffffff}}
	slow, reps := b.fdb(prm.MatchOuterHeaders|prm.MatchMiscParameters, mask)
	_ = reps
	var fast prm.CreateFlowTableOut
	b.must(&prm.CreateFlowTableIn{TableType: prm.FlowTableFDB, FlowTableContext: prm.FlowTableContext{LogSize: 4, Level: 1}}, &fast)
	_ = slow
	rx, tx := []*testRQ{}, []*testSQ{}
	for i := range 3 {
		q := b.driver(i).receiver(5, 256, keepTags)
		q.post(32)
		rx, tx = append(rx, q), append(tx, b.driver(i).sender(5))
	}
	// Rules on the source vport, misses to the manager, the manager's queues to vports.
	source := func(n uint16) prm.MatchParam { return prm.MatchParam{Misc: prm.MatchMisc{SourcePort: n}} }
	b.must(&prm.SetFlowTableRootIn{OpMod: rootDisconnect, TableType: prm.FlowTableFDB}, &prm.SetFlowTableRootOut{})
	table, group := b.fdb(prm.MatchMiscParameters, source(0xffff))
	miss, any := b.level(2, 0, prm.MatchParam{})
	b.entry(miss, any, 0, prm.MatchParam{}, prm.FlowContext{}, toVport(0))
	b.missTo(table, miss)

	f := frameTo(vportMAC(99), vportMAC(1), 1)
	tx[1].sends(f)
	b.receive(f)
	rx[0].expect("what missed", f, f)
	b.sendsExactly()

	// A representor sends: frames of the queue go to the vport.
	rep, repGroup := b.level(1, prm.MatchMiscParameters, prm.MatchParam{Misc: prm.MatchMisc{SourceSQN: 0xffffff, SourcePort: 0xffff}})
	b.entry(rep, repGroup, 0, prm.MatchParam{Misc: prm.MatchMisc{SourceSQN: tx[0].n}}, prm.FlowContext{}, toVport(2))
	b.missTo(rep, miss)
	b.missTo(table, rep)
	tx[0].sends(f)
	rx[2].expect("what the representor sent", f)
	rx[0].expect("what the representor sent")

	// vport 1 to vport 2 with a tag pushed and counted, mirrored to the uplink as it is.
	var counter prm.AllocFlowCounterOut
	b.must(&prm.AllocFlowCounterIn{}, &counter)
	in := b.entryIn(prm.FlowTableFDB, 0, table, group, 0, source(1), prm.FlowContext{
		Action: prm.FlowActionPushVLAN | prm.FlowActionCount, FlowCounterListSize: 1, PushVLAN: prm.VLANTag{EthType: 0x8100, Prio: 2, VID: 7},
	}, toVport(2))
	in.Counters = []uint32{counter.FlowCounterID}
	b.must(in, &prm.SetFlowTableEntryOut{})
	tx[1].sends(f)
	rx[2].expect("the frame with a tag", packet.Retag(nil, f, 0, []uint32{0x81000000 | 2<<13 | 7}))
	out := prm.QueryFlowCounterOut{FlowStatistics: make([]prm.TrafficCounter, 1)}
	b.must(&prm.QueryFlowCounterIn{FlowCounterID: counter.FlowCounterID}, &out)
	if s := out.FlowStatistics[0]; s.Packets != 1 || s.Octets != 60 {
		t.Errorf("the rule counted %+v", s)
	}
	// Pop on the way back, to two places.
	tagged := packet.Retag(nil, frameTo(vportMAC(1), vportMAC(2), 2), 0, []uint32{0x81000007})
	b.entry(table, group, 1, source(2), prm.FlowContext{Action: prm.FlowActionPopVLAN}, toVport(1), toVport(uplinkVport))
	tx[2].sends(tagged)
	rx[1].expect("the frame without its tag", frameTo(vportMAC(1), vportMAC(2), 2))
	b.sendsExactly(frameTo(vportMAC(1), vportMAC(2), 2))
	// Drop what the uplink brings.
	b.entry(table, group, 2, source(uplinkVport), prm.FlowContext{Action: prm.FlowActionDrop})
	b.receive(f)
	for _, q := range rx {
		q.expect("a dropped frame")
	}
	// The manager's receive tables can tell where a frame came from.
	b.must(&prm.DeleteFlowTableEntryIn{TableType: prm.FlowTableFDB, TableID: table, FlowIndex: 0}, &prm.DeleteFlowTableEntryOut{})
	rt, rg := b.newTable(0, 4, prm.MatchMiscParameters, source(0xffff))
	other := b.newRQ(b.newCQ(5), 5, 256)
	other.state(prm.QueueStateRST, prm.QueueStateRDY)
	other.post(8)
	b.rule(rt, rg, 0, source(1), 5, toTIR(b.newTIR(other)))
	b.must(&prm.SetFlowTableRootIn{TableID: rt}, &prm.SetFlowTableRootOut{})
	tx[1].sends(f)
	other.expect("a miss of vport 1", f)
	rx[0].expect("a miss of vport 1")
}

// level makes an FDB table of a level with one group.
func (b *switchBench) level(level uint8, enable prm.MatchCriteria, mask prm.MatchParam) (table, group uint32) {
	b.Helper()
	var t prm.CreateFlowTableOut
	b.must(&prm.CreateFlowTableIn{TableType: prm.FlowTableFDB, FlowTableContext: prm.FlowTableContext{LogSize: 4, Level: level}}, &t)
	var g prm.CreateFlowGroupOut
	b.must(&prm.CreateFlowGroupIn{TableType: prm.FlowTableFDB, TableID: t.TableID, EndFlowIndex: 15, MatchCriteriaEnable: enable, MatchCriteria: mask}, &g)
	return t.TableID, g.GroupID
}

// missTo sends what a table misses to another.
func (b *switchBench) missTo(table, to uint32) {
	b.Helper()
	b.must(&prm.ModifyFlowTableIn{TableType: prm.FlowTableFDB, TableID: table, ModifyFieldSelect: 1,
		FlowTableContext: prm.FlowTableContext{TableMissAction: prm.TableMissForward, TableMissID: to}}, &prm.ModifyFlowTableOut{})
}

func TestManagersLearnWhatVirtualFunctionsWantToReceive(t *testing.T) {
	b := newSwitchBench(t, 2)
	b.changed = nil
	arm := prm.ModifyNICVportContextIn{OtherVport: true, VportNumber: 2, FieldSelectChangeEvent: true}
	arm.NICVportContext.ArmChangeEvent, arm.NICVportContext.EventOnUCAddressChange = true, true
	b.must(&arm, &prm.ModifyNICVportContextOut{})
	list := func(macs ...uint64) {
		in := prm.ModifyNICVportContextIn{FieldSelectAddressesList: true, AddressList: macs}
		in.NICVportContext.AllowedListSize = uint16(len(macs))
		b.vfs[1].must(&in, &prm.ModifyNICVportContextOut{})
		b.serve()
	}
	list(0x020000000002)
	list(0x020000000002, 0x020000000003)
	if len(b.changed) != 1 || b.changed[0] != 2 {
		t.Errorf("changes of vports %v, want one of 2", b.changed)
	}
	out := prm.QueryNICVportContextOut{AddressList: make([]uint64, 2)}
	b.must(&prm.QueryNICVportContextIn{OtherVport: true, VportNumber: 2}, &out)
	if out.NICVportContext.AllowedListSize != 2 || out.AddressList[1] != 0x020000000003 {
		t.Errorf("the manager reads %+v", out)
	}
	// A reset empties the list, and says so.
	b.must(&arm, &prm.ModifyNICVportContextOut{})
	b.changed = nil
	b.vfs[1].fn.Reset(t.Context())
	b.serve()
	if len(b.changed) != 1 {
		t.Errorf("a reset made changes of vports %v, want one of 2", b.changed)
	}
	// The address that the manager gives stays.
	set := prm.ModifyNICVportContextIn{OtherVport: true, VportNumber: 2, FieldSelectPermanentAddress: true}
	set.NICVportContext.PermanentAddress = vportMAC(42)
	b.must(&set, &prm.ModifyNICVportContextOut{})
	b.clock.advance(b.card.config.BootTime)
	b.vfs[1].fn.Close()
	v := b.open(2)
	v.must(&prm.QueryNICVportContextIn{}, &out)
	if out.NICVportContext.PermanentAddress != vportMAC(42) {
		t.Errorf("the virtual function has address %x", out.NICVportContext.PermanentAddress)
	}
}

func TestLinkOfAVirtualFunctionIsItsManagersChoice(t *testing.T) {
	b := newLegacyBench(t, 1)
	v := b.vfs[0]
	state := func(want bool) {
		t.Helper()
		var out prm.QueryVportStateOut
		v.must(&prm.QueryVportStateIn{}, &out)
		if (out.State == prm.VportUp) != want {
			t.Errorf("link up is %v, want %v", out.State == prm.VportUp, want)
		}
	}
	admin := func(a prm.VportAdminState) {
		b.must(&prm.ModifyVportStateIn{OpMod: uint16(prm.VportStateESwitch), OtherVport: true, VportNumber: 1, AdminState: a}, &prm.ModifyVportStateOut{})
	}
	f := frameTo(vportMAC(1), vportMAC(0), 1)
	state(true)
	admin(prm.VportAdminDown)
	state(false)
	v.must(&prm.ModifyVportStateIn{AdminState: prm.VportAdminUp}, &prm.ModifyVportStateOut{})
	state(false) // not the virtual function's
	b.tx[0].sends(f)
	b.tx[1].sends(frameTo(vportMAC(0), vportMAC(1), 1))
	b.rx[0].expect("from a vport that is down")
	b.rx[1].expect("to a vport that is down")
	b.port.down = true
	b.settle()
	admin(prm.VportAdminAuto)
	state(false)
	admin(prm.VportAdminUp)
	state(true)
	b.rx[1].post(1)
	b.tx[1].sends(frameTo(vportMAC(1), vportMAC(1), 9)) // own: not looped back
	b.rx[1].expect("own frame")
}

func TestRateOfAVportIsBounded(t *testing.T) {
	b := newLegacyBench(t, 1)
	var el prm.CreateSchedulingElementOut
	b.must(&prm.CreateSchedulingElementIn{SchedulingHierarchy: prm.SchedulingESwitch, ElementType: prm.SchedulingVport, ElementAttributes: 1, MaxAverageBW: 8}, &el)
	q := b.vfs[0].sender(8)
	f := make([]byte, 1000)
	copy(f, frameTo(vportMAC(99), vportMAC(1), 1))
	at := q.b.place(f)
	for range 200 {
		q.put(prm.WQESend, prm.CompletionAlways, eth{segs: []any{at}}.bytes(q.b))
	}
	q.bell()
	b.settle()
	early := len(b.port.tx)
	if early == 200 {
		t.Fatal("the rate is not bounded")
	}
	b.clock.advance(50_000_000) // 50 ms at 1 MB/s
	b.settle()
	if n := len(b.port.tx) - early; n > 64 {
		t.Errorf("%d frames in 50 ms at 1 frame a millisecond", n)
	}
	for range 20 {
		b.clock.advance(50_000_000)
		b.settle()
	}
	if n := len(b.port.tx); n != 200 {
		t.Errorf("%d frames were sent at last", n)
	}
	b.must(&prm.DestroySchedulingElementIn{SchedulingHierarchy: prm.SchedulingESwitch, SchedulingElementID: el.SchedulingElementID}, &prm.DestroySchedulingElementOut{})
}
