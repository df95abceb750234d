package device

import (
	"encoding/binary"

	"cxkit/device/internal/command"
	"cxkit/device/internal/steer"
	"cxkit/prm"
)

// Commands on flow tables, groups, entries and counters (reference 01 §7).

// flowDomain finds the tables of a type, and checks whose they are.
func (f *function) flowDomain(t prm.FlowTableType, other bool, vport uint16) (*steer.Domain, command.Result) {
	p, r := f.vportOf(other, vport)
	if !r.OK() {
		return nil, r
	}
	own := p.function == f
	switch {
	case t == prm.FlowTableNICRX && own:
		return f.rx, r
	case t == prm.FlowTableNICTX && own:
		return f.tx, r
	case t == prm.FlowTableFDB && own && f.manages():
		return f.sw.esw.fdb, r
	case t == prm.FlowTableESWIngressACL && f.manages(), t == prm.FlowTableESWEgressACL && f.manages() && p.function != nil:
		return p.acl(steer.Type(t)), r
	}
	return nil, refuse(prm.StatusBadParameter, synFlowTableType, "table_type %v is not this function's to have", t)
}

// flowTable finds a table.
func (f *function) flowTable(t prm.FlowTableType, id uint32, other bool, vport uint16) (*steer.Table, command.Result) {
	d, r := f.flowDomain(t, other, vport)
	if !r.OK() {
		return nil, r
	}
	table := d.Table(id)
	if table == nil {
		return nil, refuse(prm.StatusBadResource, synNoFlowTable, "no flow table %#x of type %v", id, t)
	}
	return table, command.Result{}
}

// Values of SET_FLOW_TABLE_ROOT's op_mod.
const (
	rootSet        = 0
	rootDisconnect = 1
)

func (f *function) setFlowTableRoot(c *command.Call) command.Result {
	var in prm.SetFlowTableRootIn
	in.Get(c.In)
	if in.TableOfOtherVport || in.TableVportNumber != 0 || in.UnderlayQPN != 0 || in.TableESwitchOwnerVHCAIDValid {
		return refuse(prm.StatusBadParameter, synFlowFeature, "a root of another vport, QP or card")
	}
	switch c.OpMod {
	case rootSet:
		t, r := f.flowTable(in.TableType, in.TableID, in.OtherVport, in.VportNumber)
		if !r.OK() {
			return r
		}
		t.Domain().SetRoot(t)
	case rootDisconnect:
		d, r := f.flowDomain(in.TableType, in.OtherVport, in.VportNumber)
		if !r.OK() {
			return r
		}
		d.SetRoot(nil)
	default:
		return fault(prm.StatusBadOperation, synOpMod)
	}
	return command.Result{}
}

func (f *function) createFlowTable(c *command.Call) command.Result {
	var in prm.CreateFlowTableIn
	in.Get(c.In)
	if c.OpMod != 0 {
		return fault(prm.StatusBadOperation, synOpMod) // 1 is LAG demux
	}
	d, r := f.flowDomain(in.TableType, in.OtherVport, in.VportNumber)
	if !r.OK() {
		return r
	}
	ctx := &in.FlowTableContext
	// Linux's tables for bridges are to hold entries that reformat, whether the card can or not (esw/bridge.c).
	if ctx.ReformatEn && in.TableType != prm.FlowTableFDB || ctx.DecapEn || ctx.SWOwner || ctx.TerminationTable || ctx.RTCValid {
		return refuse(prm.StatusBadParameter, synFlowFeature, "the table asks for a feature without a capability")
	}
	t, r := d.CreateTable(steer.TableConfig{
		Level: int(ctx.Level), LogSize: int(ctx.LogSize), MissAction: int(ctx.TableMissAction), MissID: ctx.TableMissID,
	})
	if !r.OK() {
		return r
	}
	c.Reply(&prm.CreateFlowTableOut{TableID: t.ID()})
	return command.Result{}
}

// Bits of MODIFY_FLOW_TABLE's modify_field_select.
const modifyMissTable = 1 << 0

func (f *function) modifyFlowTable(c *command.Call) command.Result {
	var in prm.ModifyFlowTableIn
	in.Get(c.In)
	t, r := f.flowTable(in.TableType, in.TableID, in.OtherVport, in.VportNumber)
	if !r.OK() {
		return r
	}
	if in.ModifyFieldSelect&^modifyMissTable != 0 {
		return refuse(prm.StatusBadParameter, synModifyBits, "modify_field_select %#x", in.ModifyFieldSelect)
	}
	if in.ModifyFieldSelect&modifyMissTable == 0 {
		return command.Result{}
	}
	ctx := &in.FlowTableContext
	return t.Domain().SetMiss(t, int(ctx.TableMissAction), ctx.TableMissID)
}

func (f *function) queryFlowTable(c *command.Call) command.Result {
	var in prm.QueryFlowTableIn
	in.Get(c.In)
	t, r := f.flowTable(in.TableType, in.TableID, false, 0)
	if !r.OK() {
		return r
	}
	config := t.Config()
	c.Reply(&prm.QueryFlowTableOut{FlowTableContext: prm.FlowTableContext{
		TableMissAction: prm.TableMissAction(config.MissAction), Level: uint8(config.Level),
		LogSize: uint8(config.LogSize), TableMissID: config.MissID,
	}})
	return command.Result{}
}

func (f *function) destroyFlowTable(c *command.Call) command.Result {
	var in prm.DestroyFlowTableIn
	in.Get(c.In)
	t, r := f.flowTable(in.TableType, in.TableID, in.OtherVport, in.VportNumber)
	if !r.OK() {
		return r
	}
	return t.Domain().DestroyTable(t)
}

// matchOff is where match_criteria and match_value begin in their commands.
const (
	criteriaOff   = 0x40
	matchValueOff = 0x80
)

func (f *function) createFlowGroup(c *command.Call) command.Result {
	var in prm.CreateFlowGroupIn
	in.Get(c.In)
	t, r := f.flowTable(in.TableType, in.TableID, in.OtherVport, in.VportNumber)
	if !r.OK() {
		return r
	}
	if in.GroupType != 0 || in.SourceESwitchOwnerVHCAIDValid || in.MatchDefinerID != 0 {
		return refuse(prm.StatusBadParameter, synFlowFeature, "the group asks for a feature without a capability")
	}
	config := steer.GroupConfig{Start: in.StartFlowIndex, End: in.EndFlowIndex}
	config.Criteria.Enable = uint8(in.MatchCriteriaEnable)
	copy(config.Criteria.Mask[:], c.In[criteriaOff:])
	g, r := t.CreateGroup(config)
	if !r.OK() {
		return r
	}
	c.Reply(&prm.CreateFlowGroupOut{GroupID: g.ID()})
	return command.Result{}
}

// flowGroup finds a group.
func (f *function) flowGroup(t *steer.Table, id uint32) (*steer.Group, command.Result) {
	g := t.Group(id)
	if g == nil {
		return nil, refuse(prm.StatusBadResource, synNoFlowGroup, "no group %#x in flow table %#x", id, t.ID())
	}
	return g, command.Result{}
}

func (f *function) queryFlowGroup(c *command.Call) command.Result {
	var in prm.QueryFlowGroupIn
	in.Get(c.In)
	t, r := f.flowTable(in.TableType, in.TableID, false, 0)
	if !r.OK() {
		return r
	}
	g, r := f.flowGroup(t, in.GroupID)
	if !r.OK() {
		return r
	}
	config := g.Config()
	out := prm.QueryFlowGroupOut{
		StartFlowIndex: config.Start, EndFlowIndex: config.End, MatchCriteriaEnable: prm.MatchCriteria(config.Criteria.Enable),
	}
	out.MatchCriteria.Get(config.Criteria.Mask[:])
	c.Reply(&out)
	return command.Result{}
}

func (f *function) destroyFlowGroup(c *command.Call) command.Result {
	var in prm.DestroyFlowGroupIn
	in.Get(c.In)
	t, r := f.flowTable(in.TableType, in.TableID, in.OtherVport, in.VportNumber)
	if !r.OK() {
		return r
	}
	g, r := f.flowGroup(t, in.GroupID)
	if !r.OK() {
		return r
	}
	return t.DestroyGroup(g)
}

// Values of SET_FLOW_TABLE_ENTRY's op_mod.
const (
	entryNew    = 0
	entryModify = 1
)

func (f *function) setFlowTableEntry(c *command.Call) command.Result {
	var in prm.SetFlowTableEntryIn
	in.Get(c.In)
	t, r := f.flowTable(in.TableType, in.TableID, in.OtherVport, in.VportNumber)
	if !r.OK() {
		return r
	}
	ctx := &in.FlowContext
	if in.IgnoreFlowLevel || ctx.ExtendedDestination || ctx.UplinkHairpinEn {
		return refuse(prm.StatusBadParameter, synFlowFeature, "the entry asks for a feature without a capability")
	}
	config := steer.EntryConfig{Index: in.FlowIndex, Group: ctx.GroupID, Action: uint16(ctx.Action), Tag: ctx.FlowTag,
		Source: steer.Source(ctx.FlowSource)}
	config.Value = steer.NewValue(c.In[matchValueOff:])
	for i, tag := range [...]*prm.VLANTag{&ctx.PushVLAN, &ctx.PushVLAN2} {
		config.VLANs[i] = tagWord(tag)
	}
	if config.Dests, r = f.destinations(t.Domain(), &in); !r.OK() {
		return r
	}
	if config.Counters, r = f.flowCounters(&in); !r.OK() {
		return r
	}
	if config.Header, r = f.modifyHeader(ctx); !r.OK() {
		return r
	}
	switch c.OpMod {
	case entryNew:
		return t.SetEntry(config)
	case entryModify:
		return t.ModifyEntry(in.ModifyEnableMask, config)
	}
	return fault(prm.StatusBadOperation, synOpMod)
}

// tagWord is a VLAN tag as it is in a frame.
func tagWord(t *prm.VLANTag) uint32 {
	b := make([]byte, prm.VLANTagSize)
	t.Put(b)
	return binary.BigEndian.Uint32(b)
}

// destinations finds what an entry's list names.
func (f *function) destinations(d *steer.Domain, in *prm.SetFlowTableEntryIn) ([]steer.Dest, command.Result) {
	want := int(in.FlowContext.DestinationListSize)
	if want > 1<<logMaxVports {
		return nil, refuse(prm.StatusLimitExceeded, synFlowList, "%d destinations: at most %d", want, 1<<logMaxVports)
	}
	if want != len(in.Destinations) {
		return nil, refuse(prm.StatusBadInputLength, synFlowList, "%d destinations of %d", len(in.Destinations), want)
	}
	dests := make([]steer.Dest, want)
	for i := range dests {
		to := &in.Destinations[i]
		// Linux names the owner of a vport's e-switch even where there is one only.
		if to.DestinationESwitchOwnerVHCAIDValid && to.DestinationESwitchOwnerVHCAID != f.caps.General.VHCAID || to.PacketReformat {
			return nil, refuse(prm.StatusBadParameter, synDestination, "destination %d is of another card, or reformats", i)
		}
		switch to.DestinationType {
		case prm.DestinationFlowTable:
			if dests[i].Table = d.Table(to.DestinationID); dests[i].Table == nil {
				return nil, refuse(prm.StatusBadResource, synNoFlowTable, "destination %d: no flow table %#x", i, to.DestinationID)
			}
		case prm.DestinationTIR:
			if dests[i].TIR, _ = f.tirs.Get(to.DestinationID); dests[i].TIR == nil {
				return nil, refuse(prm.StatusBadResource, synNoTIR, "destination %d: no TIR %#x", i, to.DestinationID)
			}
		case prm.DestinationVport, prm.DestinationUplink:
			if !f.manages() {
				return nil, refuse(prm.StatusBadParameter, synDestination, "destination %d has type %v", i, to.DestinationType)
			}
			id := to.DestinationID
			if to.DestinationType == prm.DestinationUplink {
				id = uplinkVport
			}
			var p *switchPort
			if id <= uplinkVport {
				p = f.sw.esw.find(uint16(id))
			}
			if p == nil {
				return nil, refuse(prm.StatusBadResource, synVportNumber, "destination %d: no vport %#x", i, id)
			}
			dests[i].Vport = &p.Vport
		default:
			return nil, refuse(prm.StatusBadParameter, synDestination, "destination %d has type %v", i, to.DestinationType)
		}
	}
	return dests, command.Result{}
}

// flowCounters finds the counters an entry's list names.
func (f *function) flowCounters(in *prm.SetFlowTableEntryIn) ([]*steer.Counter, command.Result) {
	if want := int(in.FlowContext.FlowCounterListSize); want != len(in.Counters) {
		return nil, refuse(prm.StatusBadInputLength, synFlowList, "%d counters of %d", len(in.Counters), want)
	}
	var counters []*steer.Counter
	for _, id := range in.Counters {
		n, ok := f.flowCounter(id)
		if !ok {
			return nil, refuse(prm.StatusBadResource, synNoFlowCounter, "no flow counter %#x", id)
		}
		counters = append(counters, n)
	}
	return counters, command.Result{}
}

func (f *function) queryFlowTableEntry(c *command.Call) command.Result {
	var in prm.QueryFlowTableEntryIn
	in.Get(c.In)
	t, r := f.flowTable(in.TableType, in.TableID, false, 0)
	if !r.OK() {
		return r
	}
	e := t.Entry(in.FlowIndex)
	if e == nil {
		return refuse(prm.StatusBadResource, synNoFlowEntry, "no entry %d in flow table %#x", in.FlowIndex, in.TableID)
	}
	config := e.Config()
	var out prm.QueryFlowTableEntryOut
	ctx := &out.FlowContext
	ctx.GroupID, ctx.FlowTag, ctx.Action = config.Group, config.Tag, prm.FlowAction(config.Action)
	ctx.MatchValue.Get(config.Value.Bytes())
	for i, tag := range [...]*prm.VLANTag{&ctx.PushVLAN, &ctx.PushVLAN2} {
		tag.Get(binary.BigEndian.AppendUint32(nil, config.VLANs[i]))
	}
	ctx.DestinationListSize, ctx.FlowCounterListSize = uint32(len(config.Dests)), uint32(len(config.Counters))
	for _, to := range config.Dests {
		d := prm.DestFormat{DestinationType: prm.DestinationFlowTable}
		switch {
		case to.TIR != nil:
			d.DestinationType, d.DestinationID = prm.DestinationTIR, to.TIR.Number
		case to.Vport != nil:
			d.DestinationType, d.DestinationID = prm.DestinationVport, uint32(to.Vport.Number)
		default:
			d.DestinationID = to.Table.ID()
		}
		out.Destinations = append(out.Destinations, prm.Destination{DestFormat: d})
	}
	for _, n := range config.Counters {
		out.Counters = append(out.Counters, n.Number)
	}
	c.Reply(&out)
	return command.Result{}
}

func (f *function) deleteFlowTableEntry(c *command.Call) command.Result {
	var in prm.DeleteFlowTableEntryIn
	in.Get(c.In)
	t, r := f.flowTable(in.TableType, in.TableID, in.OtherVport, in.VportNumber)
	if !r.OK() {
		return r
	}
	return t.DeleteEntry(in.FlowIndex)
}
