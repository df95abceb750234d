package device

import (
	"maps"

	"cxkit/device/internal/command"
	"cxkit/device/internal/object"
	"cxkit/prm"
)

// controlHandlers are the commands of the control plane.
func (f *function) controlHandlers() command.Table {
	const live, enabled, initialised = command.Live, command.Enabled, command.Initialised
	t := command.Table{
		prm.OpEnableHCA:        {Handle: f.enableHCA, Phase: live},
		prm.OpDisableHCA:       {Handle: f.disableHCA, Phase: enabled},
		prm.OpQueryISSI:        {Handle: f.queryISSI, Phase: live},
		prm.OpSetISSI:          {Handle: f.setISSI, Phase: live},
		prm.OpQueryPages:       {Handle: f.queryPages, Phase: enabled, MinOut: 16},
		prm.OpManagePages:      {Handle: f.managePages, Phase: enabled},
		prm.OpQueryHCACap:      {Handle: f.queryHCACap, Phase: enabled},
		prm.OpSetHCACap:        {Handle: f.setHCACap, Phase: enabled, MinIn: prm.SetHCACapInSize},
		prm.OpInitHCA:          {Handle: f.initHCA, Phase: enabled},
		prm.OpTeardownHCA:      {Handle: f.teardownHCA, Phase: initialised},
		prm.OpSetDriverVersion: {Handle: f.setDriverVersion, Phase: initialised, MinIn: prm.SetDriverVersionInSize},
		prm.OpQueryAdapter:     {Handle: f.queryAdapter, Phase: enabled},
		prm.OpNop:              {Handle: func(*command.Call) command.Result { return command.Result{} }, Phase: live},

		prm.OpCreateEQ:  {Handle: f.createEQ, Phase: initialised, MinIn: prm.CreateEQInSize, MinOut: 12, Creates: object.EQ},
		prm.OpDestroyEQ: {Handle: f.destroyEQ, Phase: initialised},
		prm.OpQueryEQ:   {Handle: f.queryEQ, Phase: initialised},
		prm.OpGenEQE:    {Handle: f.genEQE, Phase: initialised, MinIn: prm.GenEQEInSize},

		prm.OpAllocUAR:               {Handle: f.allocUAR, Phase: initialised, MinOut: 12, Creates: object.UAR},
		prm.OpDeallocUAR:             {Handle: f.deallocUAR, Phase: initialised},
		prm.OpAllocPD:                {Handle: f.allocPD, Phase: initialised, MinOut: 12, Creates: object.PD},
		prm.OpDeallocPD:              {Handle: f.deallocPD, Phase: initialised},
		prm.OpAllocTransportDomain:   {Handle: f.allocTransportDomain, Phase: initialised, MinOut: 12, Creates: object.TransportDomain},
		prm.OpDeallocTransportDomain: {Handle: f.deallocTransportDomain, Phase: initialised},
		prm.OpQuerySpecialContexts:   {Handle: f.querySpecialContexts, Phase: initialised},
		prm.OpCreateMKey:             {Handle: f.createMKey, Phase: initialised, MinIn: prm.CreateMKeyInSize, MinOut: 12, Creates: object.MKey},
		prm.OpQueryMKey:              {Handle: f.queryMKey, Phase: initialised},
		prm.OpDestroyMKey:            {Handle: f.destroyMKey, Phase: initialised},
	}
	maps.Copy(t, f.vportHandlers())
	maps.Copy(t, f.eswitchHandlers())
	maps.Copy(t, f.counterHandlers())
	maps.Copy(t, f.registerHandlers())
	return t
}

// ownFunction checks the function_id of a command that concerns the function itself.
func (f *function) ownFunction(id uint16, embedded bool) command.Result {
	if id != 0 || embedded != f.embedded() {
		return fault(prm.StatusBadParameter, synFunctionID)
	}
	return command.Result{}
}

// enables finds the function that ENABLE_HCA or DISABLE_HCA names; nil for the function itself. Virtual
// functions are their physical function's to enable, and that of a host is the card's own processor's.
func (f *function) enables(id uint16, embedded bool) (*switchPort, command.Result) {
	vfs := f.virtuals()
	switch {
	case id > 0 && int(id) <= len(vfs) && !embedded:
		return vfs[id-1], command.Result{}
	case id == 0 && !embedded && f.embedded():
		return f.sw.esw.vports[pfVport], command.Result{}
	}
	return nil, f.ownFunction(id, embedded)
}

func (f *function) enableHCA(c *command.Call) command.Result {
	var in prm.EnableHCAIn
	in.Get(c.In)
	p, r := f.enables(in.FunctionID, in.EmbeddedCPUFunction)
	switch {
	case !r.OK():
		return r
	case p != nil:
		if f.phase != command.Initialised {
			return fault(prm.StatusBadSystemState, synPhase)
		}
		return p.enable()
	case f.phase != command.Live:
		return fault(prm.StatusBadSystemState, synAlreadyEnabled)
	}
	f.phase = command.Enabled
	return command.Result{}
}

func (f *function) disableHCA(c *command.Call) command.Result {
	var in prm.DisableHCAIn
	in.Get(c.In)
	p, r := f.enables(in.FunctionID, in.EmbeddedCPUFunction)
	switch {
	case !r.OK():
		return r
	case p != nil:
		if !p.enabled {
			return fault(prm.StatusBadSystemState, synNotEnabled)
		}
		p.disable()
		return command.Result{}
	case f.phase == command.Initialised:
		return fault(prm.StatusBadSystemState, synInitialised)
	case !f.isWard() && f.pagesOut():
		return fault(prm.StatusBadResourceState, synPagesOut)
	}
	f.phase = command.Live
	f.issi = 0
	f.caps = f.card.profile.caps(f)
	return command.Result{}
}

// supportedISSI has a bit for ISSI 1, as a real ConnectX-4 answers.
const supportedISSI = 1 << 1

func (f *function) queryISSI(c *command.Call) command.Result {
	c.Reply(&prm.QueryISSIOut{CurrentISSI: f.issi, SupportedISSIDw0: supportedISSI})
	return command.Result{}
}

func (f *function) setISSI(c *command.Call) command.Result {
	var in prm.SetISSIIn
	in.Get(c.In)
	if in.CurrentISSI > 31 || supportedISSI>>in.CurrentISSI&1 == 0 {
		return fault(prm.StatusBadParameter, synISSI)
	}
	f.issi = in.CurrentISSI
	return command.Result{}
}

func (f *function) initHCA(*command.Call) command.Result {
	if f.phase == command.Initialised {
		return fault(prm.StatusBadSystemState, synInitialised)
	}
	if m := f.appetite; f.memory.Len() < m.Boot+m.Init {
		return fault(prm.StatusNoResources, synPagesMissing)
	}
	f.phase = command.Initialised
	f.vport.reset(f)
	return command.Result{}
}

func (f *function) teardownHCA(c *command.Call) command.Result {
	var in prm.TeardownHCAIn
	in.Get(c.In)
	switch in.Profile {
	case prm.TeardownGraceful, prm.TeardownForce:
		f.endSwitch(false)
		f.stopAll()
		f.phase = command.Enabled
		f.pageState.teardown()
	case prm.TeardownPrepareFast:
		// The driver ends it by writing nic_interface; until then nothing more is sent or received.
		f.stopTraffic()
	default:
		return fault(prm.StatusBadParameter, synTeardownProfile)
	}
	c.Reply(&prm.TeardownHCAOut{})
	return command.Result{}
}

func (f *function) setDriverVersion(c *command.Call) command.Result {
	var in prm.SetDriverVersionIn
	in.Get(c.In)
	f.driverVersion = in.DriverVersion
	return command.Result{}
}

func (f *function) queryAdapter(c *command.Call) command.Result {
	out := prm.QueryAdapterOut{}
	out.Adapter.IEEEVendorID = 0x0002c9
	out.Adapter.VSDVendorID = uint16(f.card.profile.vendor)
	copy(out.Adapter.VSDContdPSID[:], f.card.profile.psid)
	c.Reply(&out)
	return command.Result{}
}
