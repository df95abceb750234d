package spec

// functionCommands are the PRM: function control. mlx5_ifc.h 6.12.
var functionCommands = []Command{
	{Op: 0x10A, Name: "QueryISSI", PRM: "QUERY_ISSI", Doc: "if it fails, Linux falls back to ISSI 0",
		In: &Layout{Name: "QueryISSIIn", PRM: "query_issi_in", Size: 0x10},
		Out: &Layout{Name: "QueryISSIOut", PRM: "query_issi_out", Size: 0x70, Fields: []Field{
			bits("CurrentISSI", "current_issi", 0x08, 15, 0, "ISSI now in force (0 after reset)"),
			bits("SupportedISSIDw0", "supported_issi_dw0", 0x6C, 31, 0, "bit n: ISSI n is supported; last dword of a 640-bit mask that starts at 0x20"),
		}},
	},
	{Op: 0x10B, Name: "SetISSI", PRM: "SET_ISSI", Doc: "the layouts here are those of ISSI 1",
		In: &Layout{Name: "SetISSIIn", PRM: "set_issi_in", Size: 0x10, Fields: []Field{
			bits("CurrentISSI", "current_issi", 0x08, 15, 0, "1"),
		}},
		Out: &Layout{Name: "SetISSIOut", PRM: "set_issi_out", Size: 0x10},
	},
	{Op: 0x104, Name: "EnableHCA", PRM: "ENABLE_HCA",
		In: &Layout{Name: "EnableHCAIn", PRM: "enable_hca_in", Size: 0x10, Fields: []Field{
			bits("EmbeddedCPUFunction", "embedded_cpu_function", 0x08, 31, 31, "0 on hosts (1 = ECPF)"),
			bits("FunctionID", "function_id", 0x08, 15, 0, "0 = own; PF may enable VF n"),
		}},
		Out: &Layout{Name: "EnableHCAOut", PRM: "enable_hca_out", Size: 0x0C},
	},
	{Op: 0x105, Name: "DisableHCA", PRM: "DISABLE_HCA",
		In: &Layout{Name: "DisableHCAIn", PRM: "disable_hca_in", Size: 0x10, Fields: []Field{
			bits("EmbeddedCPUFunction", "embedded_cpu_function", 0x08, 31, 31, "0 on hosts (1 = ECPF)"),
			bits("FunctionID", "function_id", 0x08, 15, 0, "0 = own function; VF n = n"),
		}},
		Out: &Layout{Name: "DisableHCAOut", PRM: "disable_hca_out", Size: 0x0C},
	},
	{Op: 0x107, Name: "QueryPages", PRM: "QUERY_PAGES", OpMod: "QueryPagesOpMod", Doc: "op_mod: 1 boot, 2 init, 3 regular (regular not used by Linux)",
		In: &Layout{Name: "QueryPagesIn", PRM: "query_pages_in", Size: 0x10, Fields: []Field{
			bits("EmbeddedCPUFunction", "embedded_cpu_function", 0x08, 31, 31, "0 on hosts (1 = ECPF)"),
			bits("FunctionID", "function_id", 0x08, 15, 0, "0 = own function; VF n = n"),
		}},
		Out: &Layout{Name: "QueryPagesOut", PRM: "query_pages_out", Size: 0x10, Fields: []Field{
			bits("EmbeddedCPUFunction", "embedded_cpu_function", 0x08, 31, 31, "0 on hosts (1 = ECPF)"),
			bits("FunctionID", "function_id", 0x08, 15, 0, "function to use in the following MANAGE_PAGES"),
			signed(bits("NumPages", "num_pages", 0x0C, 31, 0, "signed; pages the fw wants (boot/init/regular per op_mod); 0 = none, <0 = gives back")),
		}},
	},
	{Op: 0x108, Name: "ManagePages", PRM: "MANAGE_PAGES", OpMod: "PagesOpMod", Doc: "op_mod: 0 cannot give (allocation failed), 1 give, 2 take (return to host). Linux dedicates the last command-queue entry to this opcode. PA 0 is never given. Linux sends all boot/init pages in one command (mailbox chain), and on take asks at most (16+12×512−16)/8 = 768 PAs per command, repeating until every page it gave has come back; a take that returns 0 pages for 5 s is reported as an error (WARN). On op_mod 2 triggered by an event, num is the event's −num_pages",
		In: &Layout{Name: "ManagePagesIn", PRM: "manage_pages_in", Size: 0x10, Fields: []Field{
			bits("EmbeddedCPUFunction", "embedded_cpu_function", 0x08, 31, 31, "0 on hosts (1 = ECPF)"),
			bits("FunctionID", "function_id", 0x08, 15, 0, "0 = own function; VF n = n"),
			bits("InputNumEntries", "input_num_entries", 0x0C, 31, 0, "give: number of PAs that follow; take: max pages to return"),
		}, Tail: words("PAS", "pas", 0x10, 8, "InputNumEntries", "64-bit PAs of 4 KiB pages (give only)")},
		Out: &Layout{Name: "ManagePagesOut", PRM: "manage_pages_out", Size: 0x10, Fields: []Field{
			bits("OutputNumEntries", "output_num_entries", 0x08, 31, 0, "take: number of PAs returned (≤ requested)"),
		}, Tail: words("PAS", "pas", 0x10, 8, "OutputNumEntries", "64-bit PAs returned (take only)")},
	},
	{Op: 0x100, Name: "QueryHCACap", PRM: "QUERY_HCA_CAP", Doc: "op_mod: (group << 1) | mode, mode 0 = maximum, 1 = current",
		In: &Layout{Name: "QueryHCACapIn", PRM: "query_hca_cap_in", Size: 0x10, Fields: []Field{
			bits("OtherFunction", "other_function", 0x08, 31, 31, "1 = query/set caps of function_id (PF for VF/SF)"),
			bits("ECVFFunction", "ec_vf_function", 0x08, 30, 30, "function_id is an embedded-CPU VF (BlueField)"),
			bits("FunctionID", "function_id", 0x08, 15, 0, "0 = own function; VF n = n"),
		}},
		Out: &Layout{Name: "QueryHCACapOut", PRM: "query_hca_cap_out", Size: 0x1010, Fields: []Field{
			blob("Capability", "capability", 0x10, 0x1000, ""),
		}},
	},
	{Op: 0x109, Name: "SetHCACap", PRM: "SET_HCA_CAP", Doc: "op_mod: group << 1. Sent between boot and init pages (before INIT_HCA). fw must validate value ≤ max",
		In: &Layout{Name: "SetHCACapIn", PRM: "set_hca_cap_in", Size: 0x1010, Fields: []Field{
			bits("OtherFunction", "other_function", 0x08, 31, 31, "1 = query/set caps of function_id (PF for VF/SF)"),
			bits("ECVFFunction", "ec_vf_function", 0x08, 30, 30, "function_id is an embedded-CPU VF (BlueField)"),
			bits("FunctionID", "function_id", 0x08, 15, 0, "0 = own function; VF n = n"),
			blob("Capability", "capability", 0x10, 0x1000, "new current values; full structure of the group"),
		}},
		Out: &Layout{Name: "SetHCACapOut", PRM: "set_hca_cap_out", Size: 0x10},
	},
	{Op: 0x102, Name: "InitHCA", PRM: "INIT_HCA",
		In: &Layout{Name: "InitHCAIn", PRM: "init_hca_in", Size: 0x20, Fields: []Field{
			bits("SWVHCAID", "sw_vhca_id", 0x0C, 29, 16, "only if cap2 sw_vhca_id_valid"),
			blob("SWOwnerID", "sw_owner_id", 0x10, 0x10, "random 128-bit driver id, only if cap sw_owner_id"),
		}},
		Out: &Layout{Name: "InitHCAOut", PRM: "init_hca_out", Size: 0x10},
	},
	{Op: 0x103, Name: "TeardownHCA", PRM: "TEARDOWN_HCA",
		In: &Layout{Name: "TeardownHCAIn", PRM: "teardown_hca_in", Size: 0x10, Fields: []Field{
			enum("TeardownProfile", bits("Profile", "profile", 0x08, 15, 0, "0 graceful, 1 force, 2 prepare fast teardown")),
		}},
		Out: &Layout{Name: "TeardownHCAOut", PRM: "teardown_hca_out", Size: 0x10, Fields: []Field{
			bits("State", "state", 0x0C, 0, 0, "force/fast result: 0 ok, 1 failed"),
		}},
	},
	{Op: 0x10D, Name: "SetDriverVersion", PRM: "SET_DRIVER_VERSION",
		In: &Layout{Name: "SetDriverVersionIn", PRM: "set_driver_version_in", Size: 0x50, Fields: []Field{
			blob("DriverVersion", "driver_version", 0x10, 0x40, "NUL-padded, as Linux,mlx5_core,6.12.x"),
		}},
		Out: &Layout{Name: "SetDriverVersionOut", PRM: "set_driver_version_out", Size: 0x10},
	},
	{Op: 0x101, Name: "QueryAdapter", PRM: "QUERY_ADAPTER",
		In: &Layout{Name: "QueryAdapterIn", PRM: "query_adapter_in", Size: 0x10},
		Out: &Layout{Name: "QueryAdapterOut", PRM: "query_adapter_out", Size: 0x110, Fields: []Field{
			embed("Adapter", "query_adapter_struct", "AdapterBlock", 0x10, ""),
		}},
	},
	{Op: 0x80D, Name: "Nop", PRM: "NOP",
		In:  &Layout{Name: "NopIn", PRM: "nop_in", Size: 0x10},
		Out: &Layout{Name: "NopOut", PRM: "nop_out", Size: 0x10},
	},
}
