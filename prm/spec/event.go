package spec

// eventViews is the event queue entry. PRM: EQE; Linux include/linux/mlx5/device.h.
var eventViews = []Layout{
	{Name: "EQE", Size: 0x40, Form: View, Doc: "event queue entry", Fields: []Field{
		enum("EventType", bits("EventType", "event_type", 0x00, 23, 16, "")),
		bits("EventSubType", "event_sub_type", 0x00, 7, 0, ""),
		blob("Data", "event_data", 0x20, 0x1C, "one of the Event structures"),
		alias("CompletionCQN", "comp.cqn", 0x38, 23, 0, "completion event"),
		alias("CommandVector", "cmd.vector", 0x20, 31, 0, "command event: bit i = entry i finished"),
		bits("Signature", "signature", 0x3C, 15, 8, ""),
		bits("Owner", "owner", 0x3C, 0, 0, "parity of the device's pass"),
	}, Dwords: []Dword{{Name: "Own", Off: 0x3C, Own: true}}},
}

// eventData are the payloads of an EQE, from its byte 0x20.
var eventData = []Layout{
	{Name: "CompletionEvent", Size: 0x1C, Doc: "data of event 0x00", Fields: []Field{
		bits("CQN", "cqn", 0x18, 23, 0, ""),
	}},
	{Name: "CQErrorEvent", Size: 0x1C, Doc: "data of event 0x04", Fields: []Field{
		bits("CQN", "cqn", 0x00, 23, 0, ""),
		enum("CQErrorSyndrome", bits("Syndrome", "syndrome", 0x08, 7, 0, "")),
	}},
	{Name: "QPSRQEvent", Size: 0x1C, Doc: "data of the queue events 0x01..0x03, 0x05, 0x07, 0x10..0x14", Fields: []Field{
		enum("EventQueueType", bits("Type", "type", 0x14, 31, 24, "")),
		bits("QPSRQN", "qp_srq_n", 0x18, 23, 0, "number of the QP, RQ, SQ or SRQ"),
	}},
	{Name: "PortEvent", Size: 0x1C, Doc: "data of event 0x09", Fields: []Field{
		bits("Port", "port", 0x08, 31, 28, "port number, from 1"),
	}},
	{Name: "CommandEvent", Size: 0x1C, Doc: "data of event 0x0A", Fields: []Field{
		bits("Vector", "vector", 0x00, 31, 0, "bit i = entry i finished"),
	}},
	{Name: "PageRequestEvent", Size: 0x1C, Doc: "data of event 0x0B", Fields: []Field{
		bits("ECFunction", "ec_function", 0x00, 31, 31, ""),
		bits("ReleaseAllPages", "release_all_pages", 0x00, 30, 30, ""),
		bits("FuncID", "func_id", 0x00, 15, 0, ""),
		signed(bits("NumPages", "num_pages", 0x04, 31, 0, "> 0: firmware wants pages, < 0: it offers pages back")),
	}},
	{Name: "NICVportChangeEvent", Size: 0x1C, Doc: "data of event 0x0D", Fields: []Field{
		bits("VportNum", "vport_num", 0x00, 15, 0, ""),
	}},
	{Name: "VHCAStateEvent", Size: 0x1C, Doc: "data of event 0x0F", Fields: []Field{
		bits("ECFunction", "ec_function", 0x00, 31, 16, ""),
		bits("FunctionID", "function_id", 0x00, 15, 0, ""),
	}},
	{Name: "PortModuleEvent", Size: 0x1C, Doc: "data of event 0x16", Fields: []Field{
		bits("Module", "module", 0x00, 23, 16, ""),
		enum("ModuleStatus", bits("ModuleStatus", "module_status", 0x00, 3, 0, "")),
		bits("ErrorType", "error_type", 0x04, 11, 8, ""),
	}},
	{Name: "TemperatureEvent", Size: 0x1C, Doc: "data of event 0x17", Fields: []Field{
		bits("SensorWarningMSB", "sensor_warning_msb", 0x00, 63, 0, "sensors 127..64"),
		bits("SensorWarningLSB", "sensor_warning_lsb", 0x08, 63, 0, "sensors 63..0"),
	}},
	{Name: "DCTEvent", Size: 0x1C, Doc: "data of events 0x1C and 0x1D", Fields: []Field{
		bits("DCTN", "dctn", 0x18, 23, 0, ""),
	}},
	{Name: "GeneralEvent", Size: 0x1C, Doc: "data of event 0x22", Fields: []Field{
		bits("SyncRSTState", "sync_rst_state", 0x00, 3, 0, "sub-type 8 only"),
	}},
	{Name: "PPSEvent", Size: 0x1C, Doc: "data of event 0x25", Fields: []Field{
		bits("Pin", "pin", 0x00, 7, 0, ""),
		bits("TimeStamp", "time_stamp", 0x08, 63, 0, ""),
	}},
	{Name: "ObjectChangeEvent", Size: 0x1C, Doc: "data of event 0x27", Fields: []Field{
		enum("ObjectType", bits("ObjType", "obj_type", 0x00, 15, 0, "")),
		bits("ObjID", "obj_id", 0x04, 31, 0, ""),
	}},
}
