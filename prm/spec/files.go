package spec

import "slices"

// Files returns all tables, one entry a generated file. The tables must not be modified.
func Files() []File {
	return []File{
		{Name: "enum_command", Enums: commandEnums},
		{Name: "enum_object", Enums: objectEnums},
		{Name: "enum_flow", Enums: flowEnums},
		{Name: "enum_datapath", Enums: datapathEnums},
		{Name: "enum_port", Enums: portEnums},
		{Name: "cmd_function", Commands: functionCommands},
		{Name: "cmd_object", Commands: objectCommands},
		{Name: "cmd_queue", Commands: queueCommands},
		{Name: "cmd_flow", Commands: flowCommands},
		{Name: "cmd_vport", Commands: vportCommands},
		{Name: "cmd_more", Commands: moreCommands},
		{Name: "cmd_general", Commands: generalCommands, Layouts: generalLayouts},
		{Name: "cmd_qp", Commands: qpCommands()},
		{Name: "cmd_rdma", Commands: rdmaCommands},
		{Name: "cmd_named", Commands: namedCommands},
		{Name: "cmd_parts", Layouts: partLayouts},
		{Name: "context", Layouts: contextLayouts},
		{Name: "context_flow", Layouts: flowLayouts},
		{Name: "context_rdma", Layouts: rdmaLayouts},
		{Name: "cap_general", Layouts: capGeneralLayouts},
		{Name: "cap_groups", Layouts: capGroupLayouts},
		{Name: "cap_flow", Layouts: capFlowLayouts},
		{Name: "reg_port", Registers: portRegisters},
		{Name: "reg_management", Registers: managementRegisters},
		{Name: "reg_counters", Layouts: registerLayouts},
		{Name: "event", Layouts: slices.Concat(eventViews, eventData)},
		{Name: "cmdqueue", Layouts: commandViews},
		{Name: "completion", Layouts: completionViews},
		{Name: "doorbell", Layouts: doorbellViews},
		{Name: "wqe", Layouts: slices.Concat(wqeViews, rdmaViews)},
	}
}
