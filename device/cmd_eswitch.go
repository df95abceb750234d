package device

import (
	"fmt"

	"cxkit/device/internal/command"
	"cxkit/prm"
)

// eswitchHandlers are the commands of who manages an e-switch (reference 01 §8). Others are told so.
func (f *function) eswitchHandlers() command.Table {
	const ready = command.Initialised
	t := command.Table{
		prm.OpQueryESWVportContext:  {Handle: f.queryESWVport, Phase: ready},
		prm.OpModifyESWVportContext: {Handle: f.modifyESWVport, Phase: ready, MinIn: prm.ModifyESWVportContextInSize},

		prm.OpQueryESWFunctions: {Handle: f.queryESWFunctions, Phase: ready, MinOut: prm.QueryESWFunctionsOutSize},

		prm.OpCreateSchedulingElement: {Handle: f.createScheduling, Phase: ready, MinIn: prm.CreateSchedulingElementInSize,
			MinOut: 0x14},
		prm.OpModifySchedulingElement:  {Handle: f.modifyScheduling, Phase: ready, MinIn: prm.ModifySchedulingElementInSize},
		prm.OpQuerySchedulingElement:   {Handle: f.queryScheduling, Phase: ready, MinIn: prm.QuerySchedulingElementInSize},
		prm.OpDestroySchedulingElement: {Handle: f.destroyScheduling, Phase: ready, MinIn: prm.DestroySchedulingElementInSize},
	}
	for op, e := range t {
		handle := e.Handle
		e.Handle = func(c *command.Call) command.Result {
			if !f.manages() {
				return fault(prm.StatusBadOperation, synNotManager)
			}
			return handle(c)
		}
		t[op] = e
	}
	return t
}

// queryESWFunctions tells the card's own processor of the host: where its physical function is, and how many
// virtual functions it has and may have (Linux eswitch.c mlx5_esw_query_functions).
func (f *function) queryESWFunctions(c *command.Call) command.Result {
	e := f.sw.esw
	if e.ecpf == nil {
		return fault(prm.StatusBadOperation, synNotManager)
	}
	pf := e.vports[pfVport]
	out := prm.QueryESWFunctionsOut{
		HostNumOfVFs: uint16(e.seen), HostTotalVFs: uint16(len(e.vfs())), HostPFDisabled: !pf.enabled,
	}
	if _, err := fmt.Sscanf(pf.function.info.Address, "%04x:%02x:%02x.%d",
		new(int), &out.HostPCIBus, &out.HostPCIDevice, &out.HostPCIFunction); err != nil {
		return fault(prm.StatusInternalError, synFunctionID)
	}
	c.Reply(&out)
	return command.Result{}
}

func (f *function) queryESWVport(c *command.Call) command.Result {
	var in prm.QueryESWVportContextIn
	in.Get(c.In)
	p, r := f.vportOf(in.OtherVport, in.VportNumber)
	if !r.OK() {
		return r
	}
	c.Reply(&prm.QueryESWVportContextOut{ESWVportContext: p.context})
	return command.Result{}
}

// Values of vport_cvlan_insert (reference 01d §5).
const (
	cvlanInsertOff       = 0
	cvlanInsertUntagged  = 1
	cvlanInsertOverwrite = 2
	cvlanInsertAlways    = 3
)

func (f *function) modifyESWVport(c *command.Call) command.Result {
	var in prm.ModifyESWVportContextIn
	in.Get(c.In)
	g, r := f.functionVport(in.OtherVport, in.VportNumber)
	if !r.OK() {
		return r
	}
	set, to := &in.ESWVportContext, &g.sw.context
	if in.FieldSelectVportSVLANStrip && set.VportSVLANStrip || in.FieldSelectVportSVLANInsert && set.VportSVLANInsert ||
		in.FieldSelectFDBToVportRegCID && set.FDBToVportRegCID&^passedRegisters != 0 {
		return fault(prm.StatusBadParameter, synVLANRule)
	}
	if in.FieldSelectFDBToVportRegCID {
		to.FDBToVportRegCID = set.FDBToVportRegCID
	}
	if in.FieldSelectVportCVLANStrip {
		to.VportCVLANStrip = set.VportCVLANStrip
	}
	if in.FieldSelectVportCVLANInsert {
		to.VportCVLANInsert = set.VportCVLANInsert
		to.CVLANCFI, to.CVLANPCP, to.CVLANID = set.CVLANCFI, set.CVLANPCP, set.CVLANID
	}
	return command.Result{}
}
