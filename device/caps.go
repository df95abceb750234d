package device

import (
	"bytes"

	"cxkit/device/internal/command"
	"cxkit/prm"
)

// capGroupSize is the size of a capability group's structure in its commands.
const capGroupSize = 4096

// capabilities are what a function can do: the current values decoded, and current and maximum of each
// group as the commands carry them.
type capabilities struct {
	General  prm.CapGeneral
	Ethernet prm.CapEthernetOffloads
	Flow     prm.CapFlowTable
	Switch   prm.CapESwitch
	FDB      prm.CapESwitchFlowTable
	QOS      prm.CapQOS

	groups map[prm.CapGroup]*capGroup
}

type capGroup struct{ max, current []byte }

// capStruct is one of prm's capability structures.
type capStruct interface {
	Len() int
	Put([]byte)
}

// caps makes the capabilities a function has at power-on. What is not implemented is not there.
func (p *profile) caps(f *function) capabilities {
	c := capabilities{groups: make(map[prm.CapGroup]*capGroup)}
	controlCaps(&c, f)
	queueCaps(&c)
	umemCaps(&c)
	steerCaps(&c, p)
	switchCaps(&c, f)
	p.limit(&c)
	c.add(prm.CapGroupGeneral, &c.General)
	// In force once a driver has set them.
	c.General.ReleaseAllPages, c.General.ICMMngFunctionIDMode = false, false
	c.General.CmdifChecksum = 0
	c.General.Patch(c.groups[prm.CapGroupGeneral].current)
	c.add(prm.CapGroupEthernetOffloads, &c.Ethernet)
	c.add(prm.CapGroupFlowTable, &c.Flow)
	if f.manages() {
		c.add(prm.CapGroupESwitch, &c.Switch)
		c.add(prm.CapGroupESwitchFlowTable, &c.FDB)
	}
	if c.General.QOS {
		c.add(prm.CapGroupQOS, &c.QOS)
	}
	return c
}

// add makes a group of a structure: current values equal the maximum.
func (c *capabilities) add(g prm.CapGroup, s capStruct) {
	b := make([]byte, capGroupSize)
	s.Put(b)
	c.groups[g] = &capGroup{max: b, current: bytes.Clone(b)}
}

// maxMKeys is how many memory keys there may be.
func (c *capabilities) maxMKeys() int { return 1<<c.General.LogMaxMKey - 1 }

// firstVHCAID is that of function 0 on a card whose firmware names functions by vhca_id: another number than
// its index, so that the two are not taken for each other.
const firstVHCAID = 0x20

// controlCaps are the capabilities that the control plane has.
func controlCaps(c *capabilities, f *function) {
	p := f.card.profile
	g := &c.General
	g.VHCAID = uint16(f.index)
	if f.card.config.Memory.VHCAIDs {
		g.VHCAID += firstVHCAID
		g.ICMMngFunctionIDMode = true
	}
	g.LogMaxEQSz = 22
	g.MaxNumEQs = uint16(p.maxEQs)
	g.LogMaxEQ = 7
	g.LogMaxMKey = p.logMaxMKey
	g.LogMaxPD = p.logMaxPD
	g.LogMaxTransportDomain = p.logMaxTD
	g.LogMaxKLMListSize = 16
	g.FixedBufferSize = true
	g.FastTeardown, g.ForceTeardown = true, true
	g.ReleaseAllPages = true
	g.NumPorts = 1
	g.PortType = prm.PortTypeEthernet
	g.VportCounters = true
	g.NICReceiveSteeringDiscard = true
	g.EthWQETooSmall = true
	g.MaxQPCnt = 255
	g.PortModuleEvent = true
	g.GeneralNotificationEvent = true
	if f.card.config.Signatures {
		g.CmdifChecksum = 3
	}
	g.PCAMReg, g.MCAMReg = true, true
	g.BeaconLED = true
	g.WOLG = true
	g.MaxTC = 8
	g.LogMaxQP = logMaxQP
	g.LogPgSz = 12
	g.UARSz = 5
	g.BF = true
	g.LogBFRegSize = uarBFLog + 1
	g.DriverVersion = true
	g.DeviceFrequencyMHz = p.frequencyKHz / 1000
	g.DeviceFrequencyKHz = p.frequencyKHz
	g.NumOfUARsPerPage = 1
	g.SWOwnerID = true
	g.LogMaxVLANList = logMaxVLANList
	g.LogMaxCurrentMCList = logMaxMCList
	g.LogMaxCurrentUCList = logMaxUCList
	g.DisableLocalLBUC, g.DisableLocalLBMC = true, true
}

func (f *function) queryHCACap(c *command.Call) command.Result {
	var in prm.QueryHCACapIn
	in.Get(c.In)
	g := f
	switch {
	case in.ECVFFunction:
		return fault(prm.StatusBadParameter, synFunctionID)
	case in.OtherFunction:
		if g = f.capsOf(in.FunctionID); g == nil {
			return fault(prm.StatusBadParameter, synFunctionID)
		}
	case in.FunctionID != 0:
		return fault(prm.StatusBadParameter, synFunctionID)
	}
	id, mode := prm.SplitCapOpMod(c.OpMod)
	group := g.caps.groups[id]
	if group == nil {
		return fault(prm.StatusBadParameter, synCapGroup)
	}
	src := group.max
	if mode == prm.CapCurrent {
		src = group.current
	}
	if len(c.Out) > 16 {
		copy(c.Out[16:], src)
	}
	return command.Result{}
}

// capsOf finds another function whose capabilities f's driver may ask for, by the number of its vport: those
// that it manages, and its own. nil: there is none.
func (f *function) capsOf(id uint16) *function {
	vfs := f.virtuals()
	switch {
	case f.manages():
		if p := f.sw.esw.find(id); p != nil {
			return p.function
		}
	case id > 0 && int(id) <= len(vfs):
		return vfs[id-1].function
	}
	return nil
}

func (f *function) setHCACap(c *command.Call) command.Result {
	var in prm.SetHCACapIn
	in.Get(c.In)
	if in.OtherFunction || in.ECVFFunction || in.FunctionID != 0 {
		return fault(prm.StatusBadParameter, synFunctionID)
	}
	if f.phase != command.Enabled {
		return fault(prm.StatusBadSystemState, synCapAfterInit)
	}
	id, mode := prm.SplitCapOpMod(c.OpMod)
	group := f.caps.groups[id]
	if group == nil || mode != 0 {
		return fault(prm.StatusBadParameter, synCapGroup)
	}
	if r := group.check(id, in.Capability[:]); !r.OK() {
		return r
	}
	copy(group.current, in.Capability[:])
	switch id {
	case prm.CapGroupGeneral:
		f.caps.General.Get(group.current)
		f.setUARPages(uint8(f.caps.General.LogUARPageSz))
	case prm.CapGroupEthernetOffloads:
		f.caps.Ethernet.Get(group.current)
	case prm.CapGroupFlowTable:
		f.caps.Flow.Get(group.current)
	}
	return command.Result{}
}

// settable names the capabilities that drivers may lower (or, where the maximum allows, raise): those
// that Linux edits (reference 04 §2 step 10), by their names in the PRM.
func settable(g prm.CapGroup, name string) bool {
	if g != prm.CapGroupGeneral {
		return false
	}
	switch name {
	case "pkey_table_size", "log_max_qp", "cmdif_checksum", "log_uar_page_sz", "uar_4k", "cache_line_128byte",
		"dct", "pci_sync_for_fw_update_event", "num_vhca_ports", "release_all_pages", "mkey_by_name",
		"num_total_dynamic_vf_msix", "roce", "log_max_current_uc_list", "log_max_current_mc_list",
		"event_on_vhca_state_allocated", "event_on_vhca_state_active", "event_on_vhca_state_in_use",
		"event_on_vhca_state_teardown_request", "vhca_state", "sw_owner_id", "cqe_version", "icm_mng_function_id_mode":
		return true
	}
	return false
}

// capLayout is the table of a group's structure.
func capLayout(g prm.CapGroup) *prm.Layout {
	switch g {
	case prm.CapGroupGeneral:
		return prm.LayoutByName("CapGeneral")
	case prm.CapGroupEthernetOffloads:
		return prm.LayoutByName("CapEthernetOffloads")
	case prm.CapGroupFlowTable:
		return prm.LayoutByName("CapFlowTable")
	}
	return nil
}

// check holds new values against current and maximum: named fields may change if they are settable, up
// to the maximum; every other bit must equal the current or the maximum one. Drivers write back whole
// structures, bits they have no name for included.
func (g *capGroup) check(id prm.CapGroup, set []byte) command.Result {
	if bytes.Equal(set, g.current) || bytes.Equal(set, g.max) {
		return command.Result{}
	}
	rest := bytes.Clone(set) // what is left to explain
	if layout := capLayout(id); layout != nil {
		for i := range layout.Fields {
			field := &layout.Fields[i]
			if field.Kind != prm.KindBits || !settable(id, field.PRM) {
				continue
			}
			v, limit := fieldBits(set, field), fieldBits(g.max, field)
			if v > limit && field.PRM != "log_uar_page_sz" {
				return fault(prm.StatusBadParameter, synCapTooLarge)
			}
			if field.PRM == "log_uar_page_sz" && v > maxLogUARPage {
				return fault(prm.StatusBadParameter, synCapTooLarge)
			}
			setFieldBits(rest, field, fieldBits(g.current, field))
		}
	}
	for i, b := range rest {
		if b != g.current[i] && b != g.max[i] {
			return fault(prm.StatusBadParameter, synCapNotSettable)
		}
	}
	return command.Result{}
}

// maxLogUARPage allows hosts with pages of up to 64 KiB.
const maxLogUARPage = 4

// fieldBits reads a field of at most 32 bits that lies in one dword, which all settable ones do.
func fieldBits(b []byte, f *prm.Field) uint32 {
	word := uint32(b[f.Off])<<24 | uint32(b[f.Off+1])<<16 | uint32(b[f.Off+2])<<8 | uint32(b[f.Off+3])
	return word >> f.Lo & uint32(uint64(1)<<(f.Hi-f.Lo+1)-1)
}

func setFieldBits(b []byte, f *prm.Field, v uint32) {
	mask := uint32(uint64(1)<<(f.Hi-f.Lo+1)-1) << f.Lo
	word := uint32(b[f.Off])<<24 | uint32(b[f.Off+1])<<16 | uint32(b[f.Off+2])<<8 | uint32(b[f.Off+3])
	word = word&^mask | v<<f.Lo&mask
	b[f.Off], b[f.Off+1], b[f.Off+2], b[f.Off+3] = byte(word>>24), byte(word>>16), byte(word>>8), byte(word)
}
