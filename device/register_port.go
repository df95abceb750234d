package device

import (
	"cxkit/device/internal/command"
	"cxkit/prm"
)

// portSettings is what drivers have written to the registers of a port.
type portSettings struct {
	speeds       uint32 // PTYS admin: legacy bits; 0 means all
	autonegOff   bool
	noPortEvents bool // PAOS e = 0
	pause        prm.RegPFCC
	moduleEvents uint8
	fec          fecCodes // PPLM admin; 0 is the card's choice
}

// portRegisterTable are the registers of the function's port.
func (f *function) portRegisterTable() map[prm.RegisterID]register {
	return map[prm.RegisterID]register{
		prm.RegIDPMLP:  {size: prm.RegPMLPSize, read: f.readPMLP},
		prm.RegIDPMTU:  {size: prm.RegPMTUSize, read: f.readPMTU, write: f.writePMTU},
		prm.RegIDPTYS:  {size: prm.RegPTYSSize, read: f.readPTYS, write: f.writePTYS},
		prm.RegIDPAOS:  {size: prm.RegPAOSSize, read: f.readPAOS, write: f.writePAOS},
		prm.RegIDPFCC:  {size: prm.RegPFCCSize, read: f.readPFCC, write: f.writePFCC},
		prm.RegIDPPCNT: {size: prm.RegPPCNTSize, read: f.readPPCNT},
		prm.RegIDPMAOS: {size: prm.RegPMAOSSize, read: f.readPMAOS, write: f.writePMAOS},
		prm.RegIDPPLM:  {size: prm.RegPPLMSize, read: f.readPPLM, write: f.writePPLM},
		prm.RegIDPDDR:  {size: prm.RegPDDRSize, read: f.readPDDR},
		prm.RegIDPCMR:  {size: prm.RegPCMRSize, read: f.readPCMR, write: f.writePCMR},
		prm.RegIDPCAM:  {size: prm.RegPCAMSize, read: f.readPCAM},
	}
}

// localPort is the number of its port for every function: each sees a card with one.
const localPort = 1

func checkPort(n uint8) command.Result {
	if n != localPort {
		return fault(prm.StatusBadParameter, synRegisterPort)
	}
	return command.Result{}
}

// module is the number of the cage of the function's port.
func (f *function) module() uint8 { return uint8(f.port.number - 1) }

func (f *function) readPMLP(image []byte) command.Result {
	var r prm.RegPMLP
	r.Get(image)
	if res := checkPort(r.LocalPort); !res.OK() {
		return res
	}
	out := prm.RegPMLP{LocalPort: localPort, Width: f.card.profile.speed.lanes}
	for i, lane := range []*uint32{&out.Lane0ModuleMapping, &out.Lane1ModuleMapping, &out.Lane2ModuleMapping, &out.Lane3ModuleMapping} {
		if i < int(out.Width) {
			*lane = uint32(i)<<24 | uint32(i)<<16 | uint32(f.module())
		}
	}
	out.Put(image)
	return command.Result{}
}

func (f *function) readPMTU(image []byte) command.Result {
	var r prm.RegPMTU
	r.Get(image)
	if res := checkPort(r.LocalPort); !res.OK() {
		return res
	}
	p := f.port
	out := prm.RegPMTU{LocalPort: localPort, MaxMTU: uint16(p.maxMTU), AdminMTU: uint16(p.adminMTU), OperMTU: uint16(p.mtu())}
	out.Put(image)
	return command.Result{}
}

// minMTU is the shortest a port's MTU may be set to: an IPv4 packet that every host must take (RFC 791,
// 68 bytes), with its Ethernet header.
const minMTU = 68 + 14

func (f *function) writePMTU(image []byte) command.Result {
	var r prm.RegPMTU
	r.Get(image)
	if res := checkPort(r.LocalPort); !res.OK() {
		return res
	}
	if int(r.AdminMTU) < minMTU || int(r.AdminMTU) > f.port.maxMTU {
		return fault(prm.StatusBadParameter, synRegisterValue)
	}
	f.port.adminMTU = int(r.AdminMTU)
	for _, g := range f.card.functions {
		if g.port == f.port {
			g.vportChanged()
		}
	}
	return command.Result{}
}

// protoEthernet is the Ethernet bit of PTYS proto_mask.
const protoEthernet = 4

func (f *function) readPTYS(image []byte) command.Result {
	var r prm.RegPTYS
	r.Get(image)
	if res := checkPort(r.LocalPort); !res.OK() {
		return res
	}
	s := &f.card.profile.speed
	set := &f.port.settings
	out := prm.RegPTYS{
		LocalPort: localPort, ProtoMask: r.ProtoMask, ANDisableAdmin: set.autonegOff, ANDisableCap: true,
		EthProtoCapability: s.supported, ConnectorType: s.connector,
	}
	out.EthProtoAdmin = f.port.speeds(f.card.profile)
	if f.port.up() {
		mode := f.port.mode(f.card.profile)
		out.EthProtoOper = 1 << mode.bit
		out.DataRateOper = mode.rate
		out.EthProtoLpAdvertise = f.port.partner(f.card.profile)
		out.ANStatus = prm.ANComplete
		if set.autonegOff {
			out.ANStatus = prm.ANUnavailable
			out.EthProtoLpAdvertise = 0
		}
	}
	out.Put(image)
	return command.Result{}
}

func (f *function) writePTYS(image []byte) command.Result {
	var r prm.RegPTYS
	r.Get(image)
	if res := checkPort(r.LocalPort); !res.OK() {
		return res
	}
	if r.ProtoMask != protoEthernet || r.EthProtoAdmin&^f.card.profile.speed.supported != 0 {
		return fault(prm.StatusBadParameter, synRegisterValue)
	}
	f.port.settings.speeds, f.port.settings.autonegOff = r.EthProtoAdmin, r.ANDisableAdmin
	return command.Result{}
}

func (f *function) readPAOS(image []byte) command.Result {
	var r prm.RegPAOS
	r.Get(image)
	if res := checkPort(r.LocalPort); !res.OK() {
		return res
	}
	p := f.port
	out := prm.RegPAOS{LocalPort: localPort, AdminStatus: prm.PortAdminDown, OperStatus: prm.PortOperDown, E: 1}
	if p.adminUp {
		out.AdminStatus = prm.PortAdminUp
	}
	if p.up() {
		out.OperStatus = prm.PortOperUp
	}
	if p.settings.noPortEvents {
		out.E = 0
	}
	out.Put(image)
	return command.Result{}
}

func (f *function) writePAOS(image []byte) command.Result {
	var r prm.RegPAOS
	r.Get(image)
	if res := checkPort(r.LocalPort); !res.OK() {
		return res
	}
	p := f.port
	if r.EE {
		p.settings.noPortEvents = r.E == 0
	}
	if !r.ASE {
		return command.Result{}
	}
	was := p.up()
	p.countBlocks(f.card.profile, f.card.now)
	switch r.AdminStatus {
	case prm.PortAdminUp, prm.PortAdminUpOnce:
		p.adminUp = true
	case prm.PortAdminDown:
		p.adminUp = false
	default:
		return fault(prm.StatusBadParameter, synRegisterValue)
	}
	p.signal(f.card.profile)
	f.card.linkMayHaveChanged(p, was)
	return command.Result{}
}

func (f *function) readPFCC(image []byte) command.Result {
	var r prm.RegPFCC
	r.Get(image)
	if res := checkPort(r.LocalPort); !res.OK() {
		return res
	}
	out := f.port.settings.pause
	out.LocalPort = localPort
	out.Put(image)
	return command.Result{}
}

// writePFCC keeps the pause settings. What is plugged in says whether frames wait (wire.Port, Lossless): the
// settings say what of it is counted as pauses, and which of the peer's pause frames are obeyed.
func (f *function) writePFCC(image []byte) command.Result {
	var r prm.RegPFCC
	r.Get(image)
	if res := checkPort(r.LocalPort); !res.OK() {
		return res
	}
	set := &f.port.settings.pause
	set.PPTX, set.PPRX = r.PPTX, r.PPRX
	set.PFCTX = set.PFCTX&^r.PrioMaskTX | r.PFCTX&r.PrioMaskTX
	set.PFCRX = set.PFCRX&^r.PrioMaskRX | r.PFCRX&r.PrioMaskRX
	return command.Result{}
}

func (f *function) readPMAOS(image []byte) command.Result {
	var r prm.RegPMAOS
	r.Get(image)
	if r.Module != f.module() {
		return fault(prm.StatusBadParameter, synRegisterPort)
	}
	out := prm.RegPMAOS{Module: r.Module, AdminStatus: 1, OperStatus: 2, E: f.port.settings.moduleEvents}
	if f.port.wire != nil {
		out.OperStatus = 1
	}
	out.Put(image)
	return command.Result{}
}

func (f *function) writePMAOS(image []byte) command.Result {
	var r prm.RegPMAOS
	r.Get(image)
	if r.Module != f.module() {
		return fault(prm.StatusBadParameter, synRegisterPort)
	}
	if r.EE {
		f.port.settings.moduleEvents = r.E
	}
	return command.Result{}
}

// Operation codes of PDDR's troubleshooting page (Linux en_ethtool.c, mlx5e_get_link_ext_state).
const (
	pddrNoIssue         = 0
	pddrClosedByCommand = 1
	pddrNoPartner       = 2
	pddrNoPartnerForced = 36
	pddrFECMismatch     = 38
	pddrUnplugged       = 1024

	pddrTroubleshooting = 1
)

func (f *function) readPDDR(image []byte) command.Result {
	var r prm.RegPDDR
	r.Get(image)
	if res := checkPort(r.LocalPort); !res.OK() {
		return res
	}
	out := prm.RegPDDR{LocalPort: localPort, PageSelect: r.PageSelect}
	if r.PageSelect == pddrTroubleshooting {
		code, text := f.port.trouble(f.card.profile)
		out.MonitorOpcode = code
		copy(out.StatusMessage[:], text)
	}
	out.Put(image)
	return command.Result{}
}

// trouble says why a port is down.
func (p *port) trouble(profile *profile) (code uint16, text string) {
	switch {
	case p.up():
		return pddrNoIssue, "No issue was observed"
	case !p.adminUp:
		return pddrClosedByCommand, "Port is close by command"
	case p.wire == nil:
		return pddrUnplugged, "Cable is unplugged"
	case p.wire.Link() && !p.fecAgreed(profile):
		return pddrFECMismatch, "Negotiation failure - FEC mismatch during override"
	case p.settings.autonegOff:
		return pddrNoPartnerForced, "Negotiation failure - no partner detected during force mode"
	}
	return pddrNoPartner, "Negotiation failure - no partner detected"
}

func (f *function) readPCMR(image []byte) command.Result {
	var r prm.RegPCMR
	r.Get(image)
	if res := checkPort(r.LocalPort); !res.OK() {
		return res
	}
	(&prm.RegPCMR{LocalPort: localPort, FCSChk: true}).Put(image)
	return command.Result{}
}

// writePCMR takes only what is in force: frames carry no FCS that could go unchecked.
func (f *function) writePCMR(image []byte) command.Result {
	var r prm.RegPCMR
	r.Get(image)
	if res := checkPort(r.LocalPort); !res.OK() {
		return res
	}
	if !r.FCSChk {
		return fault(prm.StatusBadParameter, synRegisterValue)
	}
	return command.Result{}
}

// Feature bits of PCAM (reference 01c).
const (
	pcamStatisticalGroup = 0
	pcamConnectorType    = 3
	pcamFEC50GLanes      = 23
	pcamFEC100GLanes     = 55
)

func (f *function) readPCAM(image []byte) command.Result {
	var r prm.RegPCAM
	r.Get(image)
	out := prm.RegPCAM{FeatureGroup: r.FeatureGroup, AccessRegGroup: r.AccessRegGroup}
	if r.AccessRegGroup == 0 {
		for id := range f.portRegisterTable() {
			bitMask(&out.PortAccessRegCapMask, int(id-0x5000))
		}
	}
	if r.FeatureGroup == 0 {
		bitMask(&out.FeatureCapMask, pcamStatisticalGroup, pcamConnectorType)
		if has := &f.card.profile.fec; has[fec50G1x] != 0 {
			bitMask(&out.FeatureCapMask, pcamFEC50GLanes)
			if has[fec100G1x] != 0 {
				bitMask(&out.FeatureCapMask, pcamFEC100GLanes)
			}
		}
	}
	out.Put(image)
	return command.Result{}
}
