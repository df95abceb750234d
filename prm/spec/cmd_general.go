package spec

// generalCommands are general objects, sub-functions and VHCA state. PRM: general objects; Linux sf/mlx5_ifc_vhca_event.h.
var generalCommands = []Command{
	{Op: 0xA00, Name: "CreateGeneralObject", PRM: "CREATE_GENERAL_OBJECT", NoOpMod: true, Doc: "the object follows the header",
		In: &Layout{Name: "CreateGeneralObjectIn", PRM: "general_obj_in_cmd_hdr", Size: 0x10, Fields: generalHeader(
			bits("AliasObject", "op_param.create.alias_object", 0x0C, 31, 31, ""),
			bits("LogObjRange", "op_param.create.log_obj_range", 0x0C, 28, 24, "create 2^n consecutive ids"),
		), Tail: bytesTail("Object", "object", 0x10, "", "")},
		Out: generalOut("CreateGeneralObjectOut", nil),
	},
	{Op: 0xA01, Name: "ModifyGeneralObject", PRM: "MODIFY_GENERAL_OBJECT", NoOpMod: true, Doc: "the object follows the header",
		In:  &Layout{Name: "ModifyGeneralObjectIn", PRM: "general_obj_in_cmd_hdr", Size: 0x10, Fields: generalHeader(), Tail: bytesTail("Object", "object", 0x10, "", "")},
		Out: generalOut("ModifyGeneralObjectOut", nil),
	},
	{Op: 0xA02, Name: "QueryGeneralObject", PRM: "QUERY_GENERAL_OBJECT", NoOpMod: true,
		In: &Layout{Name: "QueryGeneralObjectIn", PRM: "general_obj_in_cmd_hdr", Size: 0x10, Fields: generalHeader(
			bits("AliasObject", "op_param.query.alias_object", 0x0C, 31, 31, ""),
			bits("ObjOffset", "op_param.query.obj_offset", 0x0C, 30, 0, ""),
		)},
		Out: generalOut("QueryGeneralObjectOut", bytesTail("Object", "object", 0x10, "", "")),
	},
	{Op: 0xA03, Name: "DestroyGeneralObject", PRM: "DESTROY_GENERAL_OBJECT", NoOpMod: true,
		In:  &Layout{Name: "DestroyGeneralObjectIn", PRM: "general_obj_in_cmd_hdr", Size: 0x10, Fields: generalHeader()},
		Out: generalOut("DestroyGeneralObjectOut", nil),
	},
	{Op: 0x113, Name: "AllocSF", PRM: "ALLOC_SF",
		In: &Layout{Name: "AllocSFIn", PRM: "alloc_sf_in", Size: 0x10, Fields: []Field{
			bits("FunctionID", "function_id", 0x08, 15, 0, ""),
		}},
		Out: &Layout{Name: "AllocSFOut", PRM: "alloc_sf_out", Size: 0x10},
	},
	{Op: 0x114, Name: "DeallocSF", PRM: "DEALLOC_SF",
		In: &Layout{Name: "DeallocSFIn", PRM: "dealloc_sf_in", Size: 0x10, Fields: []Field{
			bits("FunctionID", "function_id", 0x08, 15, 0, ""),
		}},
		Out: &Layout{Name: "DeallocSFOut", PRM: "dealloc_sf_out", Size: 0x10},
	},
	{Op: 0xB0D, Name: "QueryVHCAState", PRM: "QUERY_VHCA_STATE",
		In: &Layout{Name: "QueryVHCAStateIn", PRM: "query_vhca_state_in", Size: 0x10, Fields: []Field{
			bits("EmbeddedCPUFunction", "embedded_cpu_function", 0x08, 31, 31, ""),
			bits("FunctionID", "function_id", 0x08, 15, 0, ""),
		}},
		Out: &Layout{Name: "QueryVHCAStateOut", PRM: "query_vhca_state_out", Size: 0x20, Fields: []Field{
			embed("Context", "vhca_state_context", "VHCAStateContext", 0x10, ""),
		}},
	},
	{Op: 0xB0E, Name: "ModifyVHCAState", PRM: "MODIFY_VHCA_STATE",
		In: &Layout{Name: "ModifyVHCAStateIn", PRM: "modify_vhca_state_in", Size: 0x20, Fields: []Field{
			bits("EmbeddedCPUFunction", "embedded_cpu_function", 0x08, 31, 31, ""),
			bits("FunctionID", "function_id", 0x08, 15, 0, ""),
			bits("FieldSelectSWFunctionID", "vhca_state_field_select.sw_function_id", 0x0C, 1, 1, ""),
			bits("FieldSelectArmChangeEvent", "vhca_state_field_select.arm_change_event", 0x0C, 0, 0, ""),
			embed("Context", "vhca_state_context", "VHCAStateContext", 0x10, ""),
		}},
		Out: &Layout{Name: "ModifyVHCAStateOut", PRM: "modify_vhca_state_out", Size: 0x10},
	},
}

var generalLayouts = []Layout{
	{Name: "VHCAStateContext", PRM: "vhca_state_context", Size: 0x10, Fields: []Field{
		bits("ArmChangeEvent", "arm_change_event", 0x00, 31, 31, "one shot"),
		enum("VHCAState", bits("VHCAState", "vhca_state", 0x00, 19, 16, "")),
		bits("SWFunctionID", "sw_function_id", 0x04, 31, 0, ""),
	}},
}

// generalHeader is the input header of the general object commands: obj_type takes the place of op_mod.
func generalHeader(more ...Field) []Field {
	return append([]Field{
		bits("VHCATunnelID", "vhca_tunnel_id", 0x04, 31, 16, ""),
		enum("ObjectType", bits("ObjType", "obj_type", 0x04, 15, 0, "")),
		bits("ObjID", "obj_id", 0x08, 31, 0, ""),
	}, more...)
}

func generalOut(name string, tail *Tail) *Layout {
	return &Layout{Name: name, PRM: "general_obj_out_cmd_hdr", Size: 0x10, Tail: tail, Fields: []Field{
		bits("ObjID", "obj_id", 0x08, 31, 0, "new id on create"),
	}}
}
