package spec

// moreCommands are monitor counters, packet reformat, header modification and scheduling.
var moreCommands = []Command{
	{Op: 0x774, Name: "SetMonitorCounter", PRM: "SET_MONITOR_COUNTER",
		In: &Layout{Name: "SetMonitorCounterIn", PRM: "set_monitor_counter_in", Size: 0x48, Fields: []Field{
			bits("NumOfCounters", "num_of_counters", 0x08, 15, 0, "0 = stop (Linux at detach)"),
			embeds("MonitorCounter", "monitor_counter", "MonitorCounter", 0x10, 7, "Linux sends the 0x48-byte structure whatever the number"),
		}},
		Out: &Layout{Name: "SetMonitorCounterOut", PRM: "set_monitor_counter_out", Size: 0x10},
	},
	{Op: 0x775, Name: "ArmMonitorCounter", PRM: "ARM_MONITOR_COUNTER",
		In:  &Layout{Name: "ArmMonitorCounterIn", PRM: "arm_monitor_counter_in", Size: 0x10},
		Out: &Layout{Name: "ArmMonitorCounterOut", PRM: "arm_monitor_counter_out", Size: 0x10},
	},
	{Op: 0x93D, Name: "AllocPacketReformatContext", PRM: "ALLOC_PACKET_REFORMAT_CONTEXT",
		In: &Layout{Name: "AllocPacketReformatContextIn", PRM: "alloc_packet_reformat_context_in", Size: 0x22, Fields: []Field{
			enum("ReformatType", bits("ReformatType", "packet_reformat_context.reformat_type", 0x1C, 31, 24, "")),
			bits("ReformatParam0", "packet_reformat_context.reformat_param_0", 0x1C, 19, 16, "insert/remove: anchor 1 MAC start, 7 IP start, 9 TCP/UDP start"),
			bits("ReformatDataSize", "packet_reformat_context.reformat_data_size", 0x1C, 9, 0, "bytes of reformat_data"),
			bits("ReformatParam1", "packet_reformat_context.reformat_param_1", 0x20, 31, 24, "insert/remove: offset from the anchor"),
		}, Tail: bytesTail("ReformatData", "reformat_data", 0x22, "ReformatDataSize", "the header")},
		Out: &Layout{Name: "AllocPacketReformatContextOut", PRM: "alloc_packet_reformat_context_out", Size: 0x10, Fields: []Field{
			bits("PacketReformatID", "packet_reformat_id", 0x08, 31, 0, "goes into flow_context.packet_reformat_id with action bit 4 (0x10)"),
		}},
	},
	{Op: 0x93E, Name: "DeallocPacketReformatContext", PRM: "DEALLOC_PACKET_REFORMAT_CONTEXT",
		In: &Layout{Name: "DeallocPacketReformatContextIn", PRM: "dealloc_packet_reformat_context_in", Size: 0x10, Fields: []Field{
			bits("PacketReformatID", "packet_reformat_id", 0x08, 31, 0, ""),
		}},
		Out: &Layout{Name: "DeallocPacketReformatContextOut", PRM: "dealloc_packet_reformat_context_out", Size: 0x10},
	},
	{Op: 0x940, Name: "AllocModifyHeaderContext", PRM: "ALLOC_MODIFY_HEADER_CONTEXT",
		In: &Layout{Name: "AllocModifyHeaderContextIn", PRM: "alloc_modify_header_context_in", Size: 0x10, Fields: []Field{
			enum("FlowTableType", bits("TableType", "table_type", 0x0C, 31, 24, "")),
			bits("NumOfActions", "num_of_actions", 0x0C, 7, 0, "8 bytes each"),
		}, Tail: words("Actions", "actions", 0x10, 8, "NumOfActions", "each a ModifyAction or ModifyActionCopy")},
		Out: &Layout{Name: "AllocModifyHeaderContextOut", PRM: "alloc_modify_header_context_out", Size: 0x10, Fields: []Field{
			bits("ModifyHeaderID", "modify_header_id", 0x08, 31, 0, "flow_context.modify_header_id with action bit 6 (0x40)"),
		}},
	},
	{Op: 0x941, Name: "DeallocModifyHeaderContext", PRM: "DEALLOC_MODIFY_HEADER_CONTEXT",
		In: &Layout{Name: "DeallocModifyHeaderContextIn", PRM: "dealloc_modify_header_context_in", Size: 0x10, Fields: []Field{
			bits("ModifyHeaderID", "modify_header_id", 0x08, 31, 0, ""),
		}},
		Out: &Layout{Name: "DeallocModifyHeaderContextOut", PRM: "dealloc_modify_header_context_out", Size: 0x10},
	},
	{Op: 0x782, Name: "CreateSchedulingElement", PRM: "CREATE_SCHEDULING_ELEMENT",
		In: &Layout{Name: "CreateSchedulingElementIn", PRM: "create_scheduling_element_in", Size: 0x80, Fields: []Field{
			enum("SchedulingHierarchy", bits("SchedulingHierarchy", "scheduling_hierarchy", 0x08, 31, 24, "2 eswitch, 3 NIC")),
			enum("SchedulingElementType", bits("ElementType", "scheduling_context.element_type", 0x20, 31, 24, "")),
			bits("ElementAttributes", "scheduling_context.element_attributes", 0x24, 31, 0, "TSAR: [23:16] type 0 DWRR, 1 round robin, 2 ETS; vport: [15:0] number; vport+TC: [31:28] TC, [15:0] vport"),
			bits("ParentElementID", "scheduling_context.parent_element_id", 0x28, 31, 0, "0 for the root"),
			bits("BWShare", "scheduling_context.bw_share", 0x34, 31, 0, "weight for DWRR, 0 = device default"),
			bits("MaxAverageBW", "scheduling_context.max_average_bw", 0x38, 31, 0, "Mbit/s, 0 = unlimited"),
		}},
		Out: &Layout{Name: "CreateSchedulingElementOut", PRM: "create_scheduling_element_out", Size: 0x40, Fields: []Field{
			bits("SchedulingElementID", "scheduling_element_id", 0x10, 31, 0, ""),
		}},
	},
	{Op: 0x783, Name: "DestroySchedulingElement", PRM: "DESTROY_SCHEDULING_ELEMENT",
		In: &Layout{Name: "DestroySchedulingElementIn", PRM: "destroy_scheduling_element_in", Size: 0x40, Fields: []Field{
			enum("SchedulingHierarchy", bits("SchedulingHierarchy", "scheduling_hierarchy", 0x08, 31, 24, "2 eswitch, 3 NIC")),
			bits("SchedulingElementID", "scheduling_element_id", 0x0C, 31, 0, ""),
		}},
		Out: &Layout{Name: "DestroySchedulingElementOut", PRM: "destroy_scheduling_element_out", Size: 0x40},
	},
	{Op: 0x784, Name: "QuerySchedulingElement", PRM: "QUERY_SCHEDULING_ELEMENT", Doc: "Not sent by Linux",
		In: &Layout{Name: "QuerySchedulingElementIn", PRM: "query_scheduling_element_in", Size: 0x40, Fields: []Field{
			enum("SchedulingHierarchy", bits("SchedulingHierarchy", "scheduling_hierarchy", 0x08, 31, 24, "2 eswitch, 3 NIC")),
			bits("SchedulingElementID", "scheduling_element_id", 0x0C, 31, 0, ""),
		}},
		Out: &Layout{Name: "QuerySchedulingElementOut", PRM: "query_scheduling_element_out", Size: 0x80, Fields: []Field{
			enum("SchedulingElementType", bits("ElementType", "scheduling_context.element_type", 0x20, 31, 24, "")),
			bits("ElementAttributes", "scheduling_context.element_attributes", 0x24, 31, 0, "TSAR: [23:16] type 0 DWRR, 1 round robin, 2 ETS; vport: [15:0] number; vport+TC: [31:28] TC, [15:0] vport"),
			bits("ParentElementID", "scheduling_context.parent_element_id", 0x28, 31, 0, "0 for the root"),
			bits("BWShare", "scheduling_context.bw_share", 0x34, 31, 0, "weight for DWRR, 0 = device default"),
			bits("MaxAverageBW", "scheduling_context.max_average_bw", 0x38, 31, 0, "Mbit/s, 0 = unlimited"),
		}},
	},
	{Op: 0x785, Name: "ModifySchedulingElement", PRM: "MODIFY_SCHEDULING_ELEMENT",
		In: &Layout{Name: "ModifySchedulingElementIn", PRM: "modify_scheduling_element_in", Size: 0x80, Fields: []Field{
			enum("SchedulingHierarchy", bits("SchedulingHierarchy", "scheduling_hierarchy", 0x08, 31, 24, "2 eswitch, 3 NIC")),
			bits("SchedulingElementID", "scheduling_element_id", 0x0C, 31, 0, ""),
			bits("ModifyBitmask", "modify_bitmask", 0x14, 31, 0, "bit0 bw_share, bit1 max_average_bw"),
			enum("SchedulingElementType", bits("ElementType", "scheduling_context.element_type", 0x20, 31, 24, "")),
			bits("ElementAttributes", "scheduling_context.element_attributes", 0x24, 31, 0, "TSAR: [23:16] type 0 DWRR, 1 round robin, 2 ETS; vport: [15:0] number; vport+TC: [31:28] TC, [15:0] vport"),
			bits("ParentElementID", "scheduling_context.parent_element_id", 0x28, 31, 0, "0 for the root"),
			bits("BWShare", "scheduling_context.bw_share", 0x34, 31, 0, "weight for DWRR, 0 = device default"),
			bits("MaxAverageBW", "scheduling_context.max_average_bw", 0x38, 31, 0, "Mbit/s, 0 = unlimited"),
		}},
		Out: &Layout{Name: "ModifySchedulingElementOut", PRM: "modify_scheduling_element_out", Size: 0x40},
	},
}
