package spec

import "strings"

// qpCommands are the state transitions of a QP. PRM: all that carry a QP context share one layout.
func qpCommands() []Command {
	return []Command{
		qpTransition(0x502, "Rst2InitQP", "RST2INIT_QP", true),
		qpTransition(0x503, "Init2RTRQP", "INIT2RTR_QP", true),
		qpTransition(0x504, "RTR2RTSQP", "RTR2RTS_QP", true),
		qpTransition(0x505, "RTS2RTSQP", "RTS2RTS_QP", true),
		qpTransition(0x506, "SQErr2RTSQP", "SQERR2RTS_QP", false),
		qpTransition(0x50C, "SQD2RTSQP", "SQD_RTS_QP", false),
		qpTransition(0x50E, "Init2InitQP", "INIT2INIT_QP", true),
		qpPlain(0x501, "DestroyQP", "DESTROY_QP", "destroy_qp"),
		qpPlain(0x507, "ToErrQP", "2ERR_QP", "qp_2err"),
		qpPlain(0x50A, "ToRstQP", "2RST_QP", "qp_2rst"),
	}
}

func qpTransition(op uint16, name, prm string, ece bool) Command {
	in := []Field{
		bits("QPN", "qpn", 0x08, 23, 0, ""),
		bits("OptParamMask", "opt_param_mask", 0x10, 31, 0, ""),
	}
	var out []Field
	if ece {
		in = append(in, bits("ECE", "ece", 0x14, 31, 0, ""))
		out = []Field{bits("ECE", "ece", 0x0C, 31, 0, "")}
	}
	in = append(in, embed("Context", "qpc", "QPContext", 0x18, ""))
	ifc := strings.ToLower(prm)
	if name == "SQD2RTSQP" {
		ifc = "sqd2rts_qp"
	}
	return Command{Op: op, Name: name, PRM: prm,
		In:  &Layout{Name: name + "In", PRM: ifc + "_in", Size: 0x110, Fields: in},
		Out: &Layout{Name: name + "Out", PRM: ifc + "_out", Size: 0x10, Fields: out},
	}
}

func qpPlain(op uint16, name, prm, ifc string) Command {
	return Command{Op: op, Name: name, PRM: prm,
		In: &Layout{Name: name + "In", PRM: ifc + "_in", Size: 0x10, Fields: []Field{
			bits("QPN", "qpn", 0x08, 23, 0, ""),
		}},
		Out: &Layout{Name: name + "Out", PRM: ifc + "_out", Size: 0x10},
	}
}
