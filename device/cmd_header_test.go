package device

import (
	"encoding/binary"
	"testing"

	"cxkit/prm"
)

// setRegister is a modify header action that sets length bits of a register.
func setRegister(field prm.ModifyField, offset, length uint8, data uint32) uint64 {
	b := make([]byte, actionBytes)
	(&prm.ModifyAction{ActionType: prm.ModifyActionSet, Field: field, Offset: offset, Length: length, Data: data}).Put(b)
	return binary.BigEndian.Uint64(b)
}

// header allocates a modify header context.
func (b *dataBench) header(typ prm.FlowTableType, actions ...uint64) uint32 {
	b.Helper()
	var out prm.AllocModifyHeaderContextOut
	b.must(&prm.AllocModifyHeaderContextIn{TableType: typ, NumOfActions: uint8(len(actions)), Actions: actions}, &out)
	return out.ModifyHeaderID
}

// TestVportsAreToldApartByMetadata builds what Linux does: ingress ACLs set the upper half of register C0, FDB
// matches it, and so do the manager's own tables when the register is passed to its vport.
func TestVportsAreToldApartByMetadata(t *testing.T) {
	b := newSwitchBench(t, 2)
	c0 := func(v uint32) prm.MatchParam { return prm.MatchParam{Misc2: prm.MatchMisc2{MetadataRegC0: v}} }
	tag := func(vport uint16) uint32 { return uint32(vport+5) << 16 }
	for _, n := range []uint16{1, 2, uplinkVport} {
		table, group := b.table(prm.FlowTableESWIngressACL, n, 0, prm.MatchParam{})
		id := b.header(prm.FlowTableESWIngressACL, setRegister(prm.FieldMetadataRegC0, 16, 16, tag(n)>>16))
		b.must(b.entryIn(prm.FlowTableESWIngressACL, n, table, group, 0, prm.MatchParam{},
			prm.FlowContext{Action: prm.FlowActionAllow | prm.FlowActionModifyHeader, ModifyHeaderID: id}), &prm.SetFlowTableEntryOut{})
		b.refused(&prm.DeallocModifyHeaderContextIn{ModifyHeaderID: id}, &prm.DeallocModifyHeaderContextOut{}, prm.StatusBadResourceState, synModifyHeader)
	}
	table, group := b.fdb(prm.MatchMiscParameters2, c0(0xffff0000))
	b.entry(table, group, 0, c0(tag(1)), prm.FlowContext{}, toVport(2))
	b.entry(table, group, 1, c0(tag(2)), prm.FlowContext{}, toVport(0))
	b.entry(table, group, 2, c0(tag(uplinkVport)), prm.FlowContext{}, toVport(0))

	var rx []*testRQ
	for i := range 3 {
		q := b.driver(i).receiver(5, 256, keepTags)
		q.post(16)
		rx = append(rx, q)
	}
	tx1, tx2 := b.vfs[0].sender(5), b.vfs[1].sender(5)
	f := frameTo(vportMAC(9), vportMAC(1), 1)
	tx1.sends(f)
	rx[2].expect("what vport 1 sent", f)
	tx2.sends(f)
	rx[0].expect("what vport 2 sent", f)
	b.receive(f)
	rx[0].expect("what came from the wire", f)

	// The manager's tables: the register is there when it is passed, and not before.
	rt, rg := b.newTable(0, 4, prm.MatchMiscParameters2, c0(0xffff0000))
	other := b.newRQ(b.newCQ(5), 5, 256, keepTags)
	other.state(prm.QueueStateRST, prm.QueueStateRDY)
	other.post(8)
	b.rule(rt, rg, 0, c0(tag(2)), 5, toTIR(b.newTIR(other)))
	b.must(&prm.SetFlowTableRootIn{TableID: rt}, &prm.SetFlowTableRootOut{})
	tx2.sends(f)
	other.expect("a frame of vport 2 before the register is passed")
	in := prm.ModifyESWVportContextIn{FieldSelectFDBToVportRegCID: true}
	in.ESWVportContext.FDBToVportRegCID = passedRegisters
	b.must(&in, &prm.ModifyESWVportContextOut{})
	tx2.sends(f)
	other.expect("a frame of vport 2", f)
	in.ESWVportContext.FDBToVportRegCID = 1 << 1
	b.refused(&in, &prm.ModifyESWVportContextOut{}, prm.StatusBadParameter, synVLANRule)
}

// TestFDBChangesMetadataOnTheWay: what an entry sets is seen by the tables it leads to, and by no other copy.
func TestFDBChangesMetadataOnTheWay(t *testing.T) {
	b := newSwitchBench(t, 2)
	c1 := func(v uint32) prm.MatchParam { return prm.MatchParam{Misc2: prm.MatchMisc2{MetadataRegC1: v}} }
	table, group := b.fdb(prm.MatchMiscParameters, prm.MatchParam{Misc: prm.MatchMisc{SourcePort: 0xffff}})
	marked, markedGroup := b.level(2, prm.MatchMiscParameters2, c1(0xff))
	b.entry(marked, markedGroup, 0, c1(7), prm.FlowContext{}, toVport(2))
	b.entry(marked, markedGroup, 1, c1(0), prm.FlowContext{}, toVport(0))
	first, firstGroup := b.level(1, 0, prm.MatchParam{})
	id := b.header(prm.FlowTableFDB, setRegister(prm.FieldMetadataRegC1, 0, 3, 7))
	toTable := func(n uint32) prm.Destination {
		return prm.Destination{DestFormat: prm.DestFormat{DestinationType: prm.DestinationFlowTable, DestinationID: n}}
	}
	b.entry(first, firstGroup, 0, prm.MatchParam{}, prm.FlowContext{Action: prm.FlowActionModifyHeader, ModifyHeaderID: id}, toTable(marked))
	b.entry(table, group, 0, prm.MatchParam{Misc: prm.MatchMisc{SourcePort: 1}}, prm.FlowContext{}, toTable(first), toTable(marked))

	var rx []*testRQ
	for i := range 3 {
		q := b.driver(i).receiver(5, 256, keepTags)
		q.post(16)
		rx = append(rx, q)
	}
	tx := b.vfs[0].sender(5)
	for i := range 3 { // from the tables, and from what is kept of them
		f := frameTo(vportMAC(9), vportMAC(1), byte(i))
		tx.sends(f)
		rx[2].expect("the copy that was marked", f)
		rx[0].expect("the copy that was not", f)
	}
}

// TestEntriesTakeFramesOfTheirSourceOnly: flow_source keeps frames of the wire from being sent back there.
func TestEntriesTakeFramesOfTheirSourceOnly(t *testing.T) {
	b := newSwitchBench(t, 1)
	dmac := prm.MatchParam{Outer: prm.MatchLayer24{DMAC: vportMAC(7)}}
	table, group := b.fdb(prm.MatchOuterHeaders, prm.MatchParam{Outer: prm.MatchLayer24{DMAC: broadcast}})
	const uplink, local = 1, 2
	b.entry(table, group, 0, dmac, prm.FlowContext{FlowSource: local}, toVport(uplinkVport))
	miss, any := b.level(1, 0, prm.MatchParam{})
	b.entry(miss, any, 0, prm.MatchParam{}, prm.FlowContext{FlowSource: uplink}, toVport(0))
	b.missTo(table, miss)
	rx := b.receiver(5, 256, keepTags)
	rx.post(8)
	tx := b.vfs[0].sender(5)
	for i := range 2 {
		f := frameTo(vportMAC(7), vportMAC(1), byte(i))
		tx.sends(f)
		b.sendsExactly(f)
		rx.expect("a frame of the virtual function")
		b.receive(f)
		rx.expect("a frame of the wire", f)
		b.sendsExactly()
	}
	in := b.entryIn(prm.FlowTableFDB, 0, table, group, 1, dmac, prm.FlowContext{FlowSource: 3}, toVport(0))
	if status, _ := b.exec(in, &prm.SetFlowTableEntryOut{}); status != prm.StatusBadParameter {
		t.Errorf("flow_source 3: %v", status)
	}
}

func TestModifyHeadersAreChecked(t *testing.T) {
	b := newSwitchBench(t, 1)
	for name, in := range map[string]prm.AllocModifyHeaderContextIn{
		"another field":  {TableType: prm.FlowTableFDB, NumOfActions: 1, Actions: []uint64{setRegister(prm.FieldIPTTL, 0, 8, 1)}},
		"another action": {TableType: prm.FlowTableFDB, NumOfActions: 1, Actions: []uint64{2<<60 | uint64(prm.FieldMetadataRegC0)<<48}},
		"past the end":   {TableType: prm.FlowTableFDB, NumOfActions: 1, Actions: []uint64{setRegister(prm.FieldMetadataRegC0, 20, 16, 1)}},
		"other tables":   {TableType: prm.FlowTableNICRX, NumOfActions: 1, Actions: []uint64{setRegister(prm.FieldMetadataRegC0, 0, 8, 1)}},
		"no action":      {TableType: prm.FlowTableFDB},
		"too many":       {TableType: prm.FlowTableFDB, NumOfActions: maxHeaderActions + 1, Actions: make([]uint64, maxHeaderActions+1)},
	} {
		t.Run(name, func(t *testing.T) {
			b.TB = t
			b.refused(&in, &prm.AllocModifyHeaderContextOut{}, prm.StatusBadParameter, synModifyHeader)
		})
	}
	b.TB = t
	b.refused(&prm.DeallocModifyHeaderContextIn{ModifyHeaderID: 5}, &prm.DeallocModifyHeaderContextOut{}, prm.StatusBadResource, synModifyHeader)
	acl := b.header(prm.FlowTableESWIngressACL, setRegister(prm.FieldMetadataRegC0, 0, 8, 1))
	table, group := b.fdb(0, prm.MatchParam{})
	for name, in := range map[string]*prm.SetFlowTableEntryIn{
		"of other tables": b.entryIn(prm.FlowTableFDB, 0, table, group, 0, prm.MatchParam{},
			prm.FlowContext{Action: prm.FlowActionModifyHeader, ModifyHeaderID: acl}, toVport(1)),
		"none": b.entryIn(prm.FlowTableFDB, 0, table, group, 0, prm.MatchParam{},
			prm.FlowContext{Action: prm.FlowActionModifyHeader, ModifyHeaderID: 99}, toVport(1)),
	} {
		if status, _ := b.exec(in, &prm.SetFlowTableEntryOut{}); status == prm.StatusOK {
			t.Errorf("an entry with a modify header, %s", name)
		}
	}
	b.must(&prm.DeallocModifyHeaderContextIn{ModifyHeaderID: acl}, &prm.DeallocModifyHeaderContextOut{})
	if n := b.function().headers.Len(); n != 0 {
		t.Errorf("%d modify headers are left", n)
	}
}
