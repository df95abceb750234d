package spec

// partLayouts are structures nested in commands.
var partLayouts = []Layout{
	{Name: "AdapterBlock", PRM: "query_adapter_param_block", Size: 0x100, Fields: []Field{
		bits("IEEEVendorID", "ieee_vendor_id", 0x18, 23, 0, "0x0002C9"),
		bits("VSDVendorID", "vsd_vendor_id", 0x1C, 15, 0, "0x15B3"),
		blob("VSD", "vsd", 0x20, 0xD0, "vendor data"),
		blob("VSDContdPSID", "vsd_contd_psid", 0xF0, 0x10, "PSID (board id), 16 ASCII bytes; Linux prints/exports it (devlink, sysfs board_id)"),
	}},
	{Name: "VNICDiagnosticStatistics", PRM: "vnic_diagnostic_statistics", Size: 0x200, Fields: []Field{
		bits("CounterErrorQueues", "counter_error_queues", 0x00, 31, 0, ""),
		bits("TotalErrorQueues", "total_error_queues", 0x04, 31, 0, ""),
		bits("SendQueuePriorityUpdateFlow", "send_queue_priority_update_flow", 0x08, 31, 0, ""),
		bits("NICReceiveSteeringDiscard", "nic_receive_steering_discard", 0x10, 63, 0, ""),
		bits("ReceiveDiscardVportDown", "receive_discard_vport_down", 0x18, 63, 0, ""),
		bits("TransmitDiscardVportDown", "transmit_discard_vport_down", 0x20, 63, 0, ""),
		bits("AsyncEQOverrun", "async_eq_overrun", 0x28, 31, 0, ""),
		bits("CompEQOverrun", "comp_eq_overrun", 0x2C, 31, 0, ""),
		bits("InvalidCommand", "invalid_command", 0x34, 31, 0, ""),
		bits("QuotaExceededCommand", "quota_exceeded_command", 0x38, 31, 0, ""),
		bits("InternalRQOutOfBuffer", "internal_rq_out_of_buffer", 0x3C, 31, 0, ""),
		bits("CQOverrun", "cq_overrun", 0x40, 31, 0, ""),
		bits("EthWQETooSmall", "eth_wqe_too_small", 0x44, 31, 0, ""),
		bits("GeneratedPktSteeringFail", "generated_pkt_steering_fail", 0x60, 63, 0, ""),
		bits("HandledPktSteeringFail", "handled_pkt_steering_fail", 0x68, 63, 0, ""),
	}},
	{Name: "MonitorCounter", PRM: "monitor_counter_output", Size: 0x08, Fields: []Field{
		enum("MonitorCounterType", bits("Type", "type", 0x00, 27, 24, "0 PPCNT, 1 q-counter")),
		bits("Counter", "counter", 0x00, 15, 0, "PPCNT: 0 in_range_length_errors, 1 out_of_range_length_field, 2 frame_too_long_errors, 3 frame_check_sequence_errors, 4 alignment_errors, 5 if_out_discards; q-counter: 4 out_of_buffer"),
		bits("CounterGroupID", "counter_group_id", 0x04, 31, 0, "q-counter set id for type 1"),
	}},
	{Name: "ModifyAction", PRM: "set_action_in", Size: 0x08, Fields: []Field{
		enum("ModifyActionType", bits("ActionType", "action_type", 0x00, 31, 28, "1 set, 2 add (add: offset/length unused)")),
		enum("ModifyField", bits("Field", "field", 0x00, 27, 16, "")),
		bits("Offset", "offset", 0x00, 12, 8, "first bit, from the LSB of the field"),
		bits("Length", "length", 0x00, 4, 0, "bits, 0 = 32"),
		bits("Data", "data", 0x04, 31, 0, "value in the low bits"),
	}},
	{Name: "ModifyActionCopy", PRM: "copy_action_in", Size: 0x08, Fields: []Field{
		enum("ModifyActionType", bits("ActionType", "action_type", 0x00, 31, 28, "3")),
		enum("ModifyField", bits("SrcField", "src_field", 0x00, 27, 16, "")),
		bits("SrcOffset", "src_offset", 0x00, 12, 8, ""),
		bits("Length", "length", 0x00, 4, 0, ""),
		enum("ModifyField", bits("DstField", "dst_field", 0x04, 27, 16, "")),
		bits("DstOffset", "dst_offset", 0x04, 12, 8, ""),
	}},
	{Name: "TrafficCounter", PRM: "traffic_counter", Size: 0x10, Fields: []Field{
		bits("Packets", "packets", 0x00, 63, 0, ""),
		bits("Octets", "octets", 0x08, 63, 0, ""),
	}},
	{Name: "RXHashFieldSelect", PRM: "rx_hash_field_select", Size: 0x04, Fields: []Field{
		enum("L3ProtType", bits("L3ProtType", "l3_prot_type", 0x00, 31, 31, "0 IPv4, 1 IPv6")),
		enum("L4ProtType", bits("L4ProtType", "l4_prot_type", 0x00, 30, 30, "0 TCP, 1 UDP")),
		enum("RXHashField", bits("SelectedFields", "selected_fields", 0x00, 29, 0, "")),
	}},
	{Name: "VLANTag", PRM: "vlan", Size: 0x04, Fields: []Field{
		bits("EthType", "ethtype", 0x00, 31, 16, ""),
		bits("Prio", "prio", 0x00, 15, 13, ""),
		bits("CFI", "cfi", 0x00, 12, 12, ""),
		bits("VID", "vid", 0x00, 11, 0, ""),
	}},
	{Name: "Timeout", PRM: "default_timeout", Size: 0x04, Fields: []Field{
		enum("TimeoutUnit", bits("Multiplier", "to_multiplier", 0x00, 31, 29, "unit of value")),
		bits("Value", "to_value", 0x00, 19, 0, ""),
	}},
	{Name: "BufferX", PRM: "bufferx_reg", Size: 0x08, Fields: []Field{
		bits("Lossy", "lossy", 0x00, 25, 25, ""),
		bits("EPSB", "epsb", 0x00, 24, 24, ""),
		bits("Size", "size", 0x00, 15, 0, ""),
		bits("XOFFThreshold", "xoff_threshold", 0x04, 31, 16, ""),
		bits("XONThreshold", "xon_threshold", 0x04, 15, 0, ""),
	}},
	{Name: "ETSTCConfig", PRM: "ets_tcn_config_reg", Size: 0x08, Fields: []Field{
		bits("G", "g", 0x00, 31, 31, "apply group"),
		bits("B", "b", 0x00, 30, 30, "apply bw_allocation"),
		bits("R", "r", 0x00, 29, 29, "apply the rate"),
		bits("Group", "group", 0x00, 19, 16, ""),
		bits("BWAllocation", "bw_allocation", 0x00, 6, 0, "percent"),
		bits("MaxBWUnits", "max_bw_units", 0x04, 19, 16, ""),
		bits("MaxBWValue", "max_bw_value", 0x04, 7, 0, ""),
	}},
}
