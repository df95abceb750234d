package spec

// queueCommands are the PRM: RQ, SQ, RQT, TIR, TIS and RMP commands.
var queueCommands = []Command{
	{Op: 0x908, Name: "CreateRQ", PRM: "CREATE_RQ",
		In: &Layout{Name: "CreateRQIn", PRM: "create_rq_in", Size: 0x110, Fields: []Field{
			embed("Context", "ctx", "RQContext", 0x20, "RQC; its WQ PAS list runs on past 0x110"),
		}, Tail: words("PAS", "pas", 0x110, 8, "", "64-bit page addresses of the WQ buffer")},
		Out: &Layout{Name: "CreateRQOut", PRM: "create_rq_out", Size: 0x10, Fields: []Field{
			bits("RQN", "rqn", 0x08, 23, 0, "RQ number"),
		}},
	},
	{Op: 0x909, Name: "ModifyRQ", PRM: "MODIFY_RQ",
		In: &Layout{Name: "ModifyRQIn", PRM: "modify_rq_in", Size: 0x110, Fields: []Field{
			enum("QueueState", bits("RQState", "rq_state", 0x08, 31, 28, "state the caller believes the queue to be in")),
			bits("RQN", "rqn", 0x08, 23, 0, "RQ number"),
			bits("ModifyBitmask", "modify_bitmask", 0x10, 63, 0, "bit 1 vsd, 2 scatter_fcs, 3 counter_set_id; 0: the state alone"),
			embed("Context", "ctx", "RQContext", 0x20, "RQC with new values"),
		}},
		Out: &Layout{Name: "ModifyRQOut", PRM: "modify_rq_out", Size: 0x10},
	},
	{Op: 0x90B, Name: "QueryRQ", PRM: "QUERY_RQ",
		In: &Layout{Name: "QueryRQIn", PRM: "query_rq_in", Size: 0x10, Fields: []Field{
			bits("RQN", "rqn", 0x08, 23, 0, "RQ number"),
		}},
		Out: &Layout{Name: "QueryRQOut", PRM: "query_rq_out", Size: 0x110, Fields: []Field{
			embed("Context", "rq_context", "RQContext", 0x20, ""),
		}, Tail: words("PAS", "pas", 0x110, 8, "", "64-bit page addresses of the WQ buffer")},
	},
	{Op: 0x90A, Name: "DestroyRQ", PRM: "DESTROY_RQ",
		In: &Layout{Name: "DestroyRQIn", PRM: "destroy_rq_in", Size: 0x10, Fields: []Field{
			bits("RQN", "rqn", 0x08, 23, 0, "RQ number"),
		}},
		Out: &Layout{Name: "DestroyRQOut", PRM: "destroy_rq_out", Size: 0x10},
	},
	{Op: 0x904, Name: "CreateSQ", PRM: "CREATE_SQ",
		In: &Layout{Name: "CreateSQIn", PRM: "create_sq_in", Size: 0x110, Fields: []Field{
			embed("Context", "ctx", "SQContext", 0x20, "SQC; PAS list from 0x110"),
		}, Tail: words("PAS", "pas", 0x110, 8, "", "64-bit page addresses of the WQ buffer")},
		Out: &Layout{Name: "CreateSQOut", PRM: "create_sq_out", Size: 0x10, Fields: []Field{
			bits("SQN", "sqn", 0x08, 23, 0, "SQ number"),
		}},
	},
	{Op: 0x905, Name: "ModifySQ", PRM: "MODIFY_SQ",
		In: &Layout{Name: "ModifySQIn", PRM: "modify_sq_in", Size: 0x110, Fields: []Field{
			enum("QueueState", bits("SQState", "sq_state", 0x08, 31, 28, "state the caller believes the queue to be in")),
			bits("SQN", "sqn", 0x08, 23, 0, "SQ number"),
			bits("ModifyBitmask", "modify_bitmask", 0x10, 63, 0, "bit0 packet_pacing_rate_limit_index, bit2 qos_queue_group_id; 0 = only state"),
			embed("Context", "ctx", "SQContext", 0x20, "SQC with new values"),
		}},
		Out: &Layout{Name: "ModifySQOut", PRM: "modify_sq_out", Size: 0x10},
	},
	{Op: 0x907, Name: "QuerySQ", PRM: "QUERY_SQ",
		In: &Layout{Name: "QuerySQIn", PRM: "query_sq_in", Size: 0x10, Fields: []Field{
			bits("SQN", "sqn", 0x08, 23, 0, "SQ number"),
		}},
		Out: &Layout{Name: "QuerySQOut", PRM: "query_sq_out", Size: 0x110, Fields: []Field{
			embed("Context", "sq_context", "SQContext", 0x20, ""),
		}, Tail: words("PAS", "pas", 0x110, 8, "", "64-bit page addresses of the WQ buffer")},
	},
	{Op: 0x906, Name: "DestroySQ", PRM: "DESTROY_SQ",
		In: &Layout{Name: "DestroySQIn", PRM: "destroy_sq_in", Size: 0x10, Fields: []Field{
			bits("SQN", "sqn", 0x08, 23, 0, "SQ number"),
		}},
		Out: &Layout{Name: "DestroySQOut", PRM: "destroy_sq_out", Size: 0x10},
	},
	{Op: 0x916, Name: "CreateRQT", PRM: "CREATE_RQT",
		In: &Layout{Name: "CreateRQTIn", PRM: "create_rqt_in", Size: 0x110, Fields: []Field{
			embed("Context", "rqt_context", "RQTContext", 0x20, "RQTC; RQ list (4 B each) from 0x110"),
		}, Tail: words("RQNums", "rq_num", 0x110, 4, "", "RQ numbers")},
		Out: &Layout{Name: "CreateRQTOut", PRM: "create_rqt_out", Size: 0x10, Fields: []Field{
			bits("RQTN", "rqtn", 0x08, 23, 0, "RQT number"),
		}},
	},
	{Op: 0x917, Name: "ModifyRQT", PRM: "MODIFY_RQT",
		In: &Layout{Name: "ModifyRQTIn", PRM: "modify_rqt_in", Size: 0x110, Fields: []Field{
			bits("RQTN", "rqtn", 0x08, 23, 0, "RQT number"),
			bits("BitmaskRQNList", "bitmask.rqn_list", 0x14, 0, 0, "replace rqt_actual_size and RQ list"),
			embed("Context", "ctx", "RQTContext", 0x20, "RQTC; RQ list from 0x110"),
		}, Tail: words("RQNums", "rq_num", 0x110, 4, "", "RQ numbers")},
		Out: &Layout{Name: "ModifyRQTOut", PRM: "modify_rqt_out", Size: 0x10},
	},
	{Op: 0x919, Name: "QueryRQT", PRM: "QUERY_RQT",
		In: &Layout{Name: "QueryRQTIn", PRM: "query_rqt_in", Size: 0x10, Fields: []Field{
			bits("RQTN", "rqtn", 0x08, 23, 0, "RQT number"),
		}},
		Out: &Layout{Name: "QueryRQTOut", PRM: "query_rqt_out", Size: 0x110, Fields: []Field{
			embed("Context", "rqt_context", "RQTContext", 0x20, ""),
		}, Tail: words("RQNums", "rq_num", 0x110, 4, "", "RQ numbers")},
	},
	{Op: 0x918, Name: "DestroyRQT", PRM: "DESTROY_RQT",
		In: &Layout{Name: "DestroyRQTIn", PRM: "destroy_rqt_in", Size: 0x10, Fields: []Field{
			bits("RQTN", "rqtn", 0x08, 23, 0, "RQT number"),
		}},
		Out: &Layout{Name: "DestroyRQTOut", PRM: "destroy_rqt_out", Size: 0x10},
	},
	{Op: 0x900, Name: "CreateTIR", PRM: "CREATE_TIR",
		In: &Layout{Name: "CreateTIRIn", PRM: "create_tir_in", Size: 0x110, Fields: []Field{
			embed("Context", "ctx", "TIRContext", 0x20, ""),
		}},
		Out: &Layout{Name: "CreateTIROut", PRM: "create_tir_out", Size: 0x10, Fields: []Field{
			bits("ICMAddress63_40", "icm_address_63_40", 0x00, 23, 0, "SW steering only, 0"),
			bits("ICMAddress39_32", "icm_address_39_32", 0x08, 31, 24, "0"),
			bits("TIRN", "tirn", 0x08, 23, 0, "TIR number"),
			bits("ICMAddress31_0", "icm_address_31_0", 0x0C, 31, 0, "0"),
		}},
	},
	{Op: 0x901, Name: "ModifyTIR", PRM: "MODIFY_TIR",
		In: &Layout{Name: "ModifyTIRIn", PRM: "modify_tir_in", Size: 0x110, Fields: []Field{
			bits("TIRN", "tirn", 0x08, 23, 0, "TIR number"),
			bits("BitmaskSelfLBEn", "bitmask.self_lb_en", 0x14, 4, 4, "apply self_lb_block (only cap self_lb_en_modifiable)"),
			bits("BitmaskHash", "bitmask.hash", 0x14, 2, 2, "apply rx_hash_* fields and key"),
			bits("BitmaskPacketMerge", "bitmask.packet_merge", 0x14, 0, 0, "apply LRO fields"),
			embed("Context", "ctx", "TIRContext", 0x20, "TIRC, only fields selected by bitmask"),
		}},
		Out: &Layout{Name: "ModifyTIROut", PRM: "modify_tir_out", Size: 0x10},
	},
	{Op: 0x903, Name: "QueryTIR", PRM: "QUERY_TIR",
		In: &Layout{Name: "QueryTIRIn", PRM: "query_tir_in", Size: 0x10, Fields: []Field{
			bits("TIRN", "tirn", 0x08, 23, 0, "TIR number"),
		}},
		Out: &Layout{Name: "QueryTIROut", PRM: "query_tir_out", Size: 0x110, Fields: []Field{
			embed("Context", "tir_context", "TIRContext", 0x20, ""),
		}},
	},
	{Op: 0x902, Name: "DestroyTIR", PRM: "DESTROY_TIR",
		In: &Layout{Name: "DestroyTIRIn", PRM: "destroy_tir_in", Size: 0x10, Fields: []Field{
			bits("TIRN", "tirn", 0x08, 23, 0, "TIR number"),
		}},
		Out: &Layout{Name: "DestroyTIROut", PRM: "destroy_tir_out", Size: 0x10},
	},
	{Op: 0x912, Name: "CreateTIS", PRM: "CREATE_TIS",
		In: &Layout{Name: "CreateTISIn", PRM: "create_tis_in", Size: 0xC0, Fields: []Field{
			embed("Context", "ctx", "TISContext", 0x20, ""),
		}},
		Out: &Layout{Name: "CreateTISOut", PRM: "create_tis_out", Size: 0x10, Fields: []Field{
			bits("TISN", "tisn", 0x08, 23, 0, "TIS number"),
		}},
	},
	{Op: 0x913, Name: "ModifyTIS", PRM: "MODIFY_TIS",
		In: &Layout{Name: "ModifyTISIn", PRM: "modify_tis_in", Size: 0xC0, Fields: []Field{
			bits("TISN", "tisn", 0x08, 23, 0, "TIS number"),
			bits("BitmaskLAGTXPortAffinity", "bitmask.lag_tx_port_affinity", 0x14, 2, 2, ""),
			bits("BitmaskStrictLAGTXPortAffinity", "bitmask.strict_lag_tx_port_affinity", 0x14, 1, 1, ""),
			bits("BitmaskPrio", "bitmask.prio", 0x14, 0, 0, ""),
			embed("Context", "ctx", "TISContext", 0x20, ""),
		}},
		Out: &Layout{Name: "ModifyTISOut", PRM: "modify_tis_out", Size: 0x10},
	},
	{Op: 0x915, Name: "QueryTIS", PRM: "QUERY_TIS",
		In: &Layout{Name: "QueryTISIn", PRM: "query_tis_in", Size: 0x10, Fields: []Field{
			bits("TISN", "tisn", 0x08, 23, 0, "TIS number"),
		}},
		Out: &Layout{Name: "QueryTISOut", PRM: "query_tis_out", Size: 0xB0, Fields: []Field{
			embed("Context", "tis_context", "TISContext", 0x10, ""),
		}},
	},
	{Op: 0x914, Name: "DestroyTIS", PRM: "DESTROY_TIS",
		In: &Layout{Name: "DestroyTISIn", PRM: "destroy_tis_in", Size: 0x10, Fields: []Field{
			bits("TISN", "tisn", 0x08, 23, 0, "TIS number"),
		}},
		Out: &Layout{Name: "DestroyTISOut", PRM: "destroy_tis_out", Size: 0x10},
	},
	{Op: 0x90C, Name: "CreateRMP", PRM: "CREATE_RMP",
		In: &Layout{Name: "CreateRMPIn", PRM: "create_rmp_in", Size: 0x110, Fields: []Field{
			embed("Context", "ctx", "RMPContext", 0x20, "RMPC; PAS list from 0x110"),
		}, Tail: words("PAS", "pas", 0x110, 8, "", "64-bit page addresses of the WQ buffer")},
		Out: &Layout{Name: "CreateRMPOut", PRM: "create_rmp_out", Size: 0x10, Fields: []Field{
			bits("RMPN", "rmpn", 0x08, 23, 0, "RMP number"),
		}},
	},
	{Op: 0x90D, Name: "ModifyRMP", PRM: "MODIFY_RMP",
		In: &Layout{Name: "ModifyRMPIn", PRM: "modify_rmp_in", Size: 0x110, Fields: []Field{
			enum("QueueState", bits("RMPState", "rmp_state", 0x08, 31, 28, "expected current state")),
			bits("RMPN", "rmpn", 0x08, 23, 0, "RMP number"),
			bits("BitmaskLWM", "bitmask.lwm", 0x14, 0, 0, ""),
			embed("Context", "ctx", "RMPContext", 0x20, ""),
		}},
		Out: &Layout{Name: "ModifyRMPOut", PRM: "modify_rmp_out", Size: 0x10},
	},
	{Op: 0x90F, Name: "QueryRMP", PRM: "QUERY_RMP",
		In: &Layout{Name: "QueryRMPIn", PRM: "query_rmp_in", Size: 0x10, Fields: []Field{
			bits("RMPN", "rmpn", 0x08, 23, 0, "RMP number"),
		}},
		Out: &Layout{Name: "QueryRMPOut", PRM: "query_rmp_out", Size: 0x110, Fields: []Field{
			embed("Context", "rmp_context", "RMPContext", 0x20, ""),
		}, Tail: words("PAS", "pas", 0x110, 8, "", "64-bit page addresses of the WQ buffer")},
	},
	{Op: 0x90E, Name: "DestroyRMP", PRM: "DESTROY_RMP",
		In: &Layout{Name: "DestroyRMPIn", PRM: "destroy_rmp_in", Size: 0x10, Fields: []Field{
			bits("RMPN", "rmpn", 0x08, 23, 0, "RMP number"),
		}},
		Out: &Layout{Name: "DestroyRMPOut", PRM: "destroy_rmp_out", Size: 0x10},
	},
}
