package prmtext

import (
	"fmt"

	"cxkit/prm"
)

// DecodeInput decodes a command's input. A command without a table, or a message without an opcode, is an error.
func DecodeInput(in []byte) (*Record, error) {
	op, ok := prm.InputOpcode(in)
	if !ok {
		return nil, fmt.Errorf("decode input: %d bytes, no opcode", len(in))
	}
	c := prm.CommandByOpcode(op)
	if c == nil {
		return nil, fmt.Errorf("decode input: %s", op.LinuxString())
	}
	l := c.In
	if l == nil {
		l = bareInput()
	}
	return decode(fmt.Sprintf("%s input, %#x bytes", op.LinuxString(), len(in)), l, in, commandOverlay(in)), nil
}

// DecodeOutput decodes the output of the command whose input was in: op_mod and register_id say what is inside. Of in,
// the first 16 bytes suffice.
func DecodeOutput(in, out []byte) (*Record, error) {
	op, ok := prm.InputOpcode(in)
	if !ok {
		return nil, fmt.Errorf("decode output: input of %d bytes, no opcode", len(in))
	}
	c := prm.CommandByOpcode(op)
	if c == nil {
		return nil, fmt.Errorf("decode output: %s", op.LinuxString())
	}
	l := c.Out
	if l == nil {
		l = bareOutput()
	}
	return decode(fmt.Sprintf("%s output, %#x bytes", op.LinuxString(), len(out)), l, out, commandOverlay(in)), nil
}

// DecodeStruct decodes any structure of package prm by the name of its Go type: a context, a capability group, a
// register, event data, a queue entry.
func DecodeStruct(name string, b []byte) (*Record, error) {
	l := prm.LayoutByName(name)
	if l == nil {
		return nil, fmt.Errorf("decode %s: no such structure", name)
	}
	var overlay func(string) string
	switch name {
	case "RegPPCNT":
		overlay = func(string) string { return ppcntGroup(b) }
	case "RegMPCNT":
		overlay = func(path string) string {
			return pick(path == "counter_set" && len(b) > 3 && b[3]&0x3f == 0, "MPCNTPerformance")
		}
	}
	return decode(fmt.Sprintf("%s, %#x bytes", name, len(b)), l, b, overlay), nil
}

func decode(title string, l *prm.Layout, b []byte, overlay func(string) string) *Record {
	d := &decoder{b: b, overlay: overlay}
	d.structure(l, "", 0)
	d.list(l)
	return &Record{Title: title, Len: len(b), Fields: d.fields}
}

// bareInput and bareOutput are the common headers, for commands whose body has no table.
func bareInput() *prm.Layout {
	l := *prm.CommandByOpcode(prm.OpNop).In
	l.Tail = &prm.Tail{Name: "Body", PRM: "body", Size: 1}
	return &l
}

func bareOutput() *prm.Layout {
	l := *prm.CommandByOpcode(prm.OpNop).Out
	l.Tail = &prm.Tail{Name: "Body", PRM: "body", Size: 1}
	return &l
}

// commandOverlay says which structure the raw bytes of a command hold.
func commandOverlay(in []byte) func(string) string {
	var h prm.AccessRegIn // has op_mod and register_id where the others have theirs
	h.Get(in)
	op, _ := prm.InputOpcode(in)
	return func(path string) string {
		switch {
		case path == "capability" && (op == prm.OpQueryHCACap || op == prm.OpSetHCACap):
			return capStruct(prm.CapGroup(h.OpMod >> 1))
		case path == "register_data" && op == prm.OpAccessReg:
			if r := prm.RegisterByID(h.RegisterID); r != nil && r.Layout != nil {
				return r.Layout.Name
			}
		case path == "register_data.counter_set" && h.RegisterID == prm.RegIDPPCNT && len(in) > prm.AccessRegInSize:
			return ppcntGroup(in[prm.AccessRegInSize:])
		case path == "register_data.counter_set" && h.RegisterID == prm.RegIDMPCNT:
			return "MPCNTPerformance"
		case path == "register_data.data" && h.RegisterID == prm.RegIDMCQI && len(in) > prm.AccessRegInSize:
			return mcqiData(in[prm.AccessRegInSize:])
		case path == "eqe" && op == prm.OpGenEQE:
			return "EQE"
		}
		return ""
	}
}

func capStruct(g prm.CapGroup) string {
	switch g {
	case prm.CapGroupGeneral:
		return "CapGeneral"
	case prm.CapGroupEthernetOffloads, prm.CapGroupIPoIBOffloads, prm.CapGroupIPoIBEnhanced:
		return "CapEthernetOffloads"
	case prm.CapGroupODP:
		return "CapODP"
	case prm.CapGroupRoCE:
		return "CapRoCE"
	case prm.CapGroupFlowTable:
		return "CapFlowTable"
	case prm.CapGroupESwitch:
		return "CapESwitch"
	case prm.CapGroupQOS:
		return "CapQOS"
	case prm.CapGroupDebug:
		return "CapDebug"
	case prm.CapGroupGeneral2:
		return "CapGeneral2"
	}
	return ""
}

// ppcntGroup names the counters in a PPCNT image.
func ppcntGroup(image []byte) string {
	if len(image) < 4 {
		return ""
	}
	switch prm.PPCNTGroup(image[3] & 0x3f) {
	case prm.PPCNTGroup8023:
		return "PPCNT8023"
	case prm.PPCNTGroup2863:
		return "PPCNT2863"
	case prm.PPCNTGroup2819:
		return "PPCNT2819"
	case prm.PPCNTGroup3635:
		return "PPCNT3635"
	case prm.PPCNTGroupExtended:
		return "PPCNTExtended"
	case prm.PPCNTGroupPerPriority:
		return "PPCNTPerPriority"
	case prm.PPCNTGroupPhysical:
		return "PPCNTPhysical"
	case prm.PPCNTGroupPhysicalStatistical:
		return "PPCNTPhysicalStatistical"
	}
	return ""
}

// mcqiData names the component information in an MCQI image.
func mcqiData(image []byte) string {
	var r prm.RegMCQI
	r.Get(image)
	switch r.InfoType {
	case 0:
		return "MCQICapabilities"
	case 1:
		return "MCQIVersion"
	case 5:
		return "MCQIActivationMethod"
	}
	return ""
}

func pick(yes bool, name string) string {
	if yes {
		return name
	}
	return ""
}
