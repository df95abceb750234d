package device

import (
	"encoding/binary"

	"cxkit/device/internal/command"
	"cxkit/prm"
)

// Sizes of the address lists, as capabilities give them.
const (
	logMaxUCList   = 7
	logMaxMCList   = 11
	logMaxVLANList = 12
)

// firstMTU is the vport MTU after INIT_HCA: 1500 with room for the Ethernet header, two tags or FCS as
// Linux counts it (22 bytes).
const firstMTU = 1522

// vport is a function's place on the card's switch: its addresses and what it wants to receive. The
// engine owns it.
type vport struct {
	permanent [6]byte
	context   prm.NICVportContext // what the driver has set; list fields are not used
	lists     [3][]uint64         // as given: unicast, multicast, VLAN
	addresses map[uint64]struct{} // unicast and multicast together
	admin     prm.VportAdminState
	l2        map[uint32]prm.SetL2TableEntryIn
	wol       uint8
}

// resetVport brings the function's vport to power-on, but for what a manager has set.
func (f *function) resetVport() {
	v := &f.vport
	listed := len(v.lists[0])+len(v.lists[1]) > 0 || v.context.PromiscAll || v.context.PromiscMC || v.context.PromiscUC
	if !f.isWard() {
		*v = vport{permanent: f.factoryMAC(), admin: prm.VportAdminAuto}
	}
	v.reset(f)
	if listed && f.isWard() {
		f.changed(v.context.EventOnUCAddressChange || v.context.EventOnMCAddressChange || v.context.EventOnPromiscChange)
	}
}

// factoryMAC is the address that a function has before anybody has set one; virtual functions have none.
func (f *function) factoryMAC() (mac [6]byte) {
	if !f.isVF() {
		mac = f.card.config.MAC
		mac[5] += byte(f.index)
	}
	return mac
}

// forgetManager forgets what a manager has set.
func (f *function) forgetManager() {
	v := &f.vport
	v.permanent, v.admin = f.factoryMAC(), prm.VportAdminAuto
	v.context.ArmChangeEvent = false
	if v.addresses != nil {
		v.index()
	}
}

// reset forgets what the driver has set, as INIT_HCA does. What a manager has set stays: the permanent
// address, the state of the link, and which changes it wants to be told.
func (v *vport) reset(f *function) {
	permanent, admin, was := v.permanent, v.admin, v.context
	guid := uint64(permanent[0])<<56 | uint64(permanent[1])<<48 | uint64(permanent[2])<<40 | 0x0300<<24 |
		uint64(permanent[3])<<16 | uint64(permanent[4])<<8 | uint64(permanent[5])
	*v = vport{permanent: permanent, admin: admin, addresses: make(map[uint64]struct{}), l2: make(map[uint32]prm.SetL2TableEntryIn)}
	if f.isWard() {
		c := &v.context
		c.ArmChangeEvent, c.EventOnMTU, c.EventOnPromiscChange = was.ArmChangeEvent, was.EventOnMTU, was.EventOnPromiscChange
		c.EventOnVLANChange, c.EventOnMCAddressChange = was.EventOnVLANChange, was.EventOnMCAddressChange
		c.EventOnUCAddressChange = was.EventOnUCAddressChange
	}
	v.context.MTU = firstMTU
	if f.card.profile.features.inlineVport {
		v.context.MinWQEInlineMode = prm.InlineModeL2
	}
	v.context.NodeGUID, v.context.PortGUID = guid, guid
	v.context.SystemImageGUID = guid &^ 0xff
	v.index()
}

// index gathers all addresses.
func (v *vport) index() {
	clear(v.addresses)
	v.addresses[macKey(v.permanent[:])] = struct{}{}
	for _, list := range v.lists[:2] {
		for _, a := range list {
			v.addresses[a] = struct{}{}
		}
	}
}

// macKey makes an integer of an address.
func macKey(a []byte) uint64 {
	return uint64(binary.BigEndian.Uint16(a))<<32 | uint64(binary.BigEndian.Uint32(a[2:]))
}

// owns reports whether a unicast address is one of the vport's, or a multicast address one it has asked
// for.
func (v *vport) owns(dst []byte) bool {
	_, ok := v.addresses[macKey(dst)]
	return ok
}

// accepts reports whether a frame for dst, which has at least 6 bytes, gets past the address filter.
func (v *vport) accepts(dst []byte) bool {
	c := &v.context
	if c.PromiscAll {
		return true
	}
	if dst[0]&1 == 0 {
		return c.PromiscUC || v.owns(dst)
	}
	if c.PromiscMC || dst[0]&dst[1]&dst[2]&dst[3]&dst[4]&dst[5] == 0xff {
		return true
	}
	return v.owns(dst)
}

// up reports whether the function's vport passes frames: one with a manager does without a link, too, if that
// wants so.
func (f *function) up() bool { return f.upWith(f.port.up()) }

func (f *function) upWith(link bool) bool {
	if f.isWard() && f.vport.admin == prm.VportAdminUp {
		return true
	}
	return link && f.vport.admin != prm.VportAdminDown
}

// portEvent tells the driver that the link went up or down.
func (f *function) portEvent(up bool) {
	sub := prm.PortSubTypeDown
	if up {
		sub = prm.PortSubTypeActive
	}
	f.print.Info("link", "up", up)
	if f.port.settings.noPortEvents && !f.isWard() {
		return
	}
	f.events.Post(prm.EventPortChange, uint8(sub), func(e []byte) { e[0x28] = 1 << 4 })
}

// changed tells everybody about a change that one of the change events is for. what selects it in the
// context's event bits.
func (f *function) changed(wanted bool) {
	f.vportChanged()
	if c := &f.vport.context; wanted && c.ArmChangeEvent {
		c.ArmChangeEvent = false // one event an arm
		f.vportEvent()
	}
}

// vportEvent tells the manager of the vport that its context has changed.
func (f *function) vportEvent() {
	to, event := f, prm.NICVportChangeEvent{}
	if f.sw != nil {
		to, event.VportNum = f.sw.esw.manager, f.sw.Number
		to.enter()
	}
	to.events.Post(prm.EventNICVportChange, 0, func(e []byte) { event.Put(e[0x20:]) })
}

// vportHandlers are the commands on vports and their counters.
func (f *function) vportHandlers() command.Table {
	const initialised = command.Initialised
	return command.Table{
		prm.OpQueryVportState:       {Handle: f.queryVportState, Phase: initialised, MinOut: 16},
		prm.OpModifyVportState:      {Handle: f.modifyVportState, Phase: initialised},
		prm.OpQueryNICVportContext:  {Handle: f.queryNICVport, Phase: initialised},
		prm.OpModifyNICVportContext: {Handle: f.modifyNICVport, Phase: initialised, MinIn: prm.ModifyNICVportContextInSize},
		prm.OpSetL2TableEntry:       {Handle: f.setL2Entry, Phase: initialised, MinIn: prm.SetL2TableEntryInSize},
		prm.OpQueryL2TableEntry:     {Handle: f.queryL2Entry, Phase: initialised, MinIn: prm.QueryL2TableEntryInSize},
		prm.OpDeleteL2TableEntry:    {Handle: f.deleteL2Entry, Phase: initialised, MinIn: prm.DeleteL2TableEntryInSize},
		prm.OpSetWOLROL:             {Handle: f.setWOL, Phase: initialised},
		prm.OpQueryWOLROL:           {Handle: f.queryWOL, Phase: initialised},
	}
}

func (f *function) queryVportState(c *command.Call) command.Result {
	var in prm.QueryVportStateIn
	in.Get(c.In)
	p, r := f.vportOf(in.OtherVport, in.VportNumber)
	if !r.OK() {
		return r
	}
	out := prm.QueryVportStateOut{AdminState: prm.VportAdminUp}
	link := f.port.up()
	if p.function != nil {
		out.AdminState = p.function.vport.admin
	}
	switch prm.VportStateOpMod(c.OpMod) {
	case prm.VportStateNIC, prm.VportStateESwitch:
		if p.function != nil {
			link = p.function.up()
		}
	case prm.VportStateUplink:
	default:
		return fault(prm.StatusBadOperation, synOpMod)
	}
	if link {
		out.State = prm.VportUp
	}
	c.Reply(&out)
	return command.Result{}
}

func (f *function) modifyVportState(c *command.Call) command.Result {
	var in prm.ModifyVportStateIn
	in.Get(c.In)
	g, r := f.functionVport(in.OtherVport, in.VportNumber)
	if !r.OK() {
		return r
	}
	if c.OpMod > uint16(prm.VportStateUplink) {
		return fault(prm.StatusBadOperation, synOpMod)
	}
	if in.AdminState > prm.VportAdminAuto {
		return fault(prm.StatusBadParameter, synAdminState)
	}
	if f.isWard() {
		return command.Result{} // its manager's choice stands
	}
	was := g.up()
	g.vport.admin = in.AdminState
	if up := g.up(); up != was {
		g.enter()
		g.portEvent(up)
		g.linkChanged(up)
	}
	return command.Result{}
}

func (f *function) queryNICVport(c *command.Call) command.Result {
	var in prm.QueryNICVportContextIn
	in.Get(c.In)
	g, r := f.functionVport(in.OtherVport, in.VportNumber)
	if !r.OK() {
		return r
	}
	if in.AllowedListType > prm.AllowedListVLAN {
		return fault(prm.StatusBadParameter, synListType)
	}
	out := prm.QueryNICVportContextOut{NICVportContext: g.vport.context}
	ctx := &out.NICVportContext
	ctx.PermanentAddress = g.vport.permanent
	ctx.AllowedListType = in.AllowedListType
	out.AddressList = g.vport.lists[in.AllowedListType]
	ctx.AllowedListSize = uint16(len(out.AddressList))
	c.Reply(&out)
	return command.Result{}
}

func (f *function) modifyNICVport(c *command.Call) command.Result {
	var in prm.ModifyNICVportContextIn
	in.Get(c.In)
	g, r := f.functionVport(in.OtherVport, in.VportNumber)
	if !r.OK() {
		return r
	}
	// All checks come before the first change.
	if r := g.checkNICVport(&in, f); !r.OK() {
		return r
	}
	set, ctx := &in.NICVportContext, &g.vport.context
	if in.FieldSelectChangeEvent {
		ctx.ArmChangeEvent = set.ArmChangeEvent
		ctx.EventOnMTU = set.EventOnMTU
		ctx.EventOnPromiscChange = set.EventOnPromiscChange
		ctx.EventOnVLANChange = set.EventOnVLANChange
		ctx.EventOnMCAddressChange = set.EventOnMCAddressChange
		ctx.EventOnUCAddressChange = set.EventOnUCAddressChange
	}
	if in.FieldSelectNodeGUID {
		ctx.NodeGUID = set.NodeGUID
	}
	if in.FieldSelectPortGUID {
		ctx.PortGUID = set.PortGUID
	}
	if in.FieldSelectRoCEEn {
		// Kept and told, without effect: the card has no RDMA. rdma-core sets it on each Ethernet port, whatever
		// the capability says.
		ctx.RoCEEn = set.RoCEEn
	}
	if in.FieldSelectMinInline {
		ctx.MinWQEInlineMode = set.MinWQEInlineMode
	}
	if in.FieldSelectDisableUCLocalLB {
		ctx.DisableUCLocalLB = set.DisableUCLocalLB
		g.changed(false)
	}
	if in.FieldSelectDisableMCLocalLB {
		ctx.DisableMCLocalLB = set.DisableMCLocalLB
		g.changed(false)
	}
	if in.FieldSelectMTU {
		ctx.MTU = set.MTU
		g.changed(ctx.EventOnMTU)
	}
	if in.FieldSelectPromisc {
		ctx.PromiscUC, ctx.PromiscMC, ctx.PromiscAll = set.PromiscUC, set.PromiscMC, set.PromiscAll
		g.changed(ctx.EventOnPromiscChange)
	}
	if in.FieldSelectPermanentAddress {
		g.vport.permanent = set.PermanentAddress
		g.vport.index()
		g.changed(ctx.EventOnUCAddressChange)
	}
	if in.FieldSelectAddressesList {
		list := make([]uint64, set.AllowedListSize)
		for i := range list {
			list[i] = in.AddressList[i] & (1<<48 - 1)
			if set.AllowedListType == prm.AllowedListVLAN {
				list[i] = in.AddressList[i]
			}
		}
		g.vport.lists[set.AllowedListType] = list
		g.vport.index()
		g.changed([]bool{ctx.EventOnUCAddressChange, ctx.EventOnMCAddressChange, ctx.EventOnVLANChange}[set.AllowedListType])
	}
	return command.Result{}
}

// checkNICVport checks what driver wants to set of f's vport: its own driver's, or its manager's.
func (f *function) checkNICVport(in *prm.ModifyNICVportContextIn, driver *function) command.Result {
	set := &in.NICVportContext
	if in.FieldSelectAffiliation || (in.FieldSelectNodeGUID || in.FieldSelectPortGUID) && !driver.manages() {
		return fault(prm.StatusBadParameter, synFieldSelect) // needs capabilities this function does not have
	}
	if driver.isVF() && in.FieldSelectPermanentAddress || driver.isWard() && in.FieldSelectChangeEvent {
		return fault(prm.StatusBadParameter, synFieldSelect) // the manager's
	}
	if in.FieldSelectMinInline && set.MinWQEInlineMode > prm.InlineModeTCPUDP {
		return fault(prm.StatusBadParameter, synInlineMode)
	}
	if in.FieldSelectMTU && (set.MTU == 0 || int(set.MTU) > f.port.maxMTU) {
		return fault(prm.StatusBadParameter, synMTU)
	}
	// A virtual function whose address is zero chooses one itself.
	if in.FieldSelectPermanentAddress && (set.PermanentAddress[0]&1 != 0 || set.PermanentAddress == [6]byte{} && !f.isVF()) {
		return fault(prm.StatusBadParameter, synListAddress)
	}
	if !in.FieldSelectAddressesList {
		return command.Result{}
	}
	if set.AllowedListType > prm.AllowedListVLAN {
		return fault(prm.StatusBadParameter, synListType)
	}
	limit := [...]int{1 << f.caps.General.LogMaxCurrentUCList, 1 << f.caps.General.LogMaxCurrentMCList,
		1 << f.caps.General.LogMaxVLANList}[set.AllowedListType]
	n := int(set.AllowedListSize)
	if n > limit {
		return fault(prm.StatusLimitExceeded, synListSize)
	}
	if n > len(in.AddressList) {
		return fault(prm.StatusBadInputLength, synListSize)
	}
	for _, a := range in.AddressList[:n] {
		group := a>>40&1 != 0
		switch set.AllowedListType {
		case prm.AllowedListUC:
			if group || a&(1<<48-1) == 0 {
				return fault(prm.StatusBadParameter, synListAddress)
			}
		case prm.AllowedListMC:
			if !group {
				return fault(prm.StatusBadParameter, synListAddress)
			}
		}
	}
	return command.Result{}
}

func (f *function) setL2Entry(c *command.Call) command.Result {
	var in prm.SetL2TableEntryIn
	in.Get(c.In)
	if f.isWard() {
		return fault(prm.StatusBadParameter, synNotManager)
	}
	if in.TableIndex >= 1<<f.caps.General.LogMaxL2Table {
		return fault(prm.StatusBadIndex, synL2Index)
	}
	f.vport.l2[in.TableIndex] = in
	return command.Result{}
}

func (f *function) queryL2Entry(c *command.Call) command.Result {
	var in prm.QueryL2TableEntryIn
	in.Get(c.In)
	e, ok := f.vport.l2[in.TableIndex]
	if !ok {
		return fault(prm.StatusBadIndex, synL2Index)
	}
	c.Reply(&prm.QueryL2TableEntryOut{VLANValid: e.VLANValid, VLAN: e.VLAN, MACAddress: e.MACAddress})
	return command.Result{}
}

func (f *function) deleteL2Entry(c *command.Call) command.Result {
	var in prm.DeleteL2TableEntryIn
	in.Get(c.In)
	if _, ok := f.vport.l2[in.TableIndex]; !ok {
		return fault(prm.StatusBadIndex, synL2Index)
	}
	delete(f.vport.l2, in.TableIndex)
	return command.Result{}
}

// wolMagic is the only wake-on-LAN mode of the card (reference 01 §8, SET_WOL_ROL).
const wolMagic = 0x40

func (f *function) setWOL(c *command.Call) command.Result {
	var in prm.SetWOLROLIn
	in.Get(c.In)
	if in.ROLModeValid && in.ROLMode != 0 || in.WOLModeValid && in.WOLMode&^wolMagic != 0 {
		return fault(prm.StatusBadParameter, synWOLMode)
	}
	if in.WOLModeValid {
		f.vport.wol = in.WOLMode
	}
	return command.Result{}
}

func (f *function) queryWOL(c *command.Call) command.Result {
	c.Reply(&prm.QueryWOLROLOut{WOLMode: f.vport.wol})
	return command.Result{}
}
