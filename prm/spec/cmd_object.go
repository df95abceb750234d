package spec

// objectCommands are the PRM: EQ, UAR, PD, transport domain, memory key and CQ commands.
var objectCommands = []Command{
	{Op: 0x301, Name: "CreateEQ", PRM: "CREATE_EQ",
		In: &Layout{Name: "CreateEQIn", PRM: "create_eq_in", Size: 0x110, Fields: []Field{
			embed("Context", "eq_context_entry", "EQContext", 0x10, ""),
			array("EventBitmask", "event_bitmask", 0x58, 8, 4, "bit 1<<n of word i subscribes event type 64*i + n; all 0: completion EQ"),
		}, Tail: words("PAS", "pas", 0x110, 8, "", "64-bit page addresses of the EQ buffer")},
		Out: &Layout{Name: "CreateEQOut", PRM: "create_eq_out", Size: 0x10, Fields: []Field{
			bits("EQN", "eq_number", 0x08, 7, 0, "EQN, 8 bit"),
		}},
	},
	{Op: 0x302, Name: "DestroyEQ", PRM: "DESTROY_EQ",
		In: &Layout{Name: "DestroyEQIn", PRM: "destroy_eq_in", Size: 0x10, Fields: []Field{
			bits("EQN", "eq_number", 0x08, 7, 0, "EQN, 8 bit"),
		}},
		Out: &Layout{Name: "DestroyEQOut", PRM: "destroy_eq_out", Size: 0x10},
	},
	{Op: 0x303, Name: "QueryEQ", PRM: "QUERY_EQ",
		In: &Layout{Name: "QueryEQIn", PRM: "query_eq_in", Size: 0x10, Fields: []Field{
			bits("EQN", "eq_number", 0x08, 7, 0, "EQN, 8 bit"),
		}},
		Out: &Layout{Name: "QueryEQOut", PRM: "query_eq_out", Size: 0x110, Fields: []Field{
			embed("Context", "eq_context_entry", "EQContext", 0x10, ""),
			bits("EventBitmask", "event_bitmask", 0x58, 63, 0, ""),
		}, Tail: words("PAS", "pas", 0x110, 8, "", "array of 64-bit page addresses (BE), page size 2^(12+log_page_size)")},
	},
	{Op: 0x304, Name: "GenEQE", PRM: "GEN_EQE", Doc: "Debug/test aid: device writes the given EQE into the EQ",
		In: &Layout{Name: "GenEQEIn", PRM: "gen_eqe_in", Size: 0x50, Fields: []Field{
			bits("EQN", "eq_number", 0x08, 7, 0, "EQN, 8 bit"),
			blob("EQE", "eqe", 0x10, 0x40, "64-byte EQE to inject"),
		}},
		Out: &Layout{Name: "GenEQEOut", PRM: "gen_eqe_out", Size: 0x10},
	},
	{Op: 0x802, Name: "AllocUAR", PRM: "ALLOC_UAR",
		In: &Layout{Name: "AllocUARIn", PRM: "alloc_uar_in", Size: 0x10},
		Out: &Layout{Name: "AllocUAROut", PRM: "alloc_uar_out", Size: 0x10, Fields: []Field{
			bits("UAR", "uar", 0x08, 23, 0, "UAR index = BAR page number"),
		}},
	},
	{Op: 0x803, Name: "DeallocUAR", PRM: "DEALLOC_UAR",
		In: &Layout{Name: "DeallocUARIn", PRM: "dealloc_uar_in", Size: 0x10, Fields: []Field{
			bits("UAR", "uar", 0x08, 23, 0, "UAR index = BAR page number"),
		}},
		Out: &Layout{Name: "DeallocUAROut", PRM: "dealloc_uar_out", Size: 0x10},
	},
	{Op: 0x800, Name: "AllocPD", PRM: "ALLOC_PD",
		In: &Layout{Name: "AllocPDIn", PRM: "alloc_pd_in", Size: 0x10},
		Out: &Layout{Name: "AllocPDOut", PRM: "alloc_pd_out", Size: 0x10, Fields: []Field{
			bits("PD", "pd", 0x08, 23, 0, "PD number"),
		}},
	},
	{Op: 0x801, Name: "DeallocPD", PRM: "DEALLOC_PD",
		In: &Layout{Name: "DeallocPDIn", PRM: "dealloc_pd_in", Size: 0x10, Fields: []Field{
			bits("PD", "pd", 0x08, 23, 0, "PD number"),
		}},
		Out: &Layout{Name: "DeallocPDOut", PRM: "dealloc_pd_out", Size: 0x10},
	},
	{Op: 0x816, Name: "AllocTransportDomain", PRM: "ALLOC_TRANSPORT_DOMAIN",
		In: &Layout{Name: "AllocTransportDomainIn", PRM: "alloc_transport_domain_in", Size: 0x10},
		Out: &Layout{Name: "AllocTransportDomainOut", PRM: "alloc_transport_domain_out", Size: 0x10, Fields: []Field{
			bits("TransportDomain", "transport_domain", 0x08, 23, 0, "TD number"),
		}},
	},
	{Op: 0x817, Name: "DeallocTransportDomain", PRM: "DEALLOC_TRANSPORT_DOMAIN",
		In: &Layout{Name: "DeallocTransportDomainIn", PRM: "dealloc_transport_domain_in", Size: 0x10, Fields: []Field{
			bits("TransportDomain", "transport_domain", 0x08, 23, 0, "TD number"),
		}},
		Out: &Layout{Name: "DeallocTransportDomainOut", PRM: "dealloc_transport_domain_out", Size: 0x10},
	},
	{Op: 0x200, Name: "CreateMKey", PRM: "CREATE_MKEY",
		In: &Layout{Name: "CreateMKeyIn", PRM: "create_mkey_in", Size: 0x110, Fields: []Field{
			bits("PgAccess", "pg_access", 0x0C, 31, 31, "translation entries are page addresses"),
			bits("MKeyUMEMValid", "mkey_umem_valid", 0x0C, 30, 30, "umem-based (devx)"),
			bits("DataDirect", "data_direct", 0x0C, 29, 29, ""),
			embed("Context", "memory_key_mkey_entry", "MKeyContext", 0x10, ""),
			bits("TranslationsOctwordActualSize", "translations_octword_actual_size", 0x60, 31, 0, "number of 16-byte translation units supplied in this command (2 MTTs each)"),
		}, Tail: words("Translations", "klm_pas_mtt", 0x110, 8, "", "translation entries: an MTT is one word, a KLM or KSM two")},
		Out: &Layout{Name: "CreateMKeyOut", PRM: "create_mkey_out", Size: 0x10, Fields: []Field{
			bits("MKeyIndex", "mkey_index", 0x08, 23, 0, "mkey >> 8; the variant byte mkc.mkey_7_0 completes the 32-bit key: key = (index << 8) + mkey_7_0"),
		}},
	},
	{Op: 0x202, Name: "DestroyMKey", PRM: "DESTROY_MKEY",
		In: &Layout{Name: "DestroyMKeyIn", PRM: "destroy_mkey_in", Size: 0x10, Fields: []Field{
			bits("MKeyIndex", "mkey_index", 0x08, 23, 0, "mkey >> 8; the variant byte mkc.mkey_7_0 completes the 32-bit key: key = (index << 8) + mkey_7_0"),
		}},
		Out: &Layout{Name: "DestroyMKeyOut", PRM: "destroy_mkey_out", Size: 0x10},
	},
	{Op: 0x201, Name: "QueryMKey", PRM: "QUERY_MKEY",
		In: &Layout{Name: "QueryMKeyIn", PRM: "query_mkey_in", Size: 0x10, Fields: []Field{
			bits("MKeyIndex", "mkey_index", 0x08, 23, 0, "mkey >> 8; the variant byte mkc.mkey_7_0 completes the 32-bit key: key = (index << 8) + mkey_7_0"),
			bits("PgAccess", "pg_access", 0x0C, 31, 31, "translation entries are page addresses"),
		}},
		Out: &Layout{Name: "QueryMKeyOut", PRM: "query_mkey_out", Size: 0x130, Fields: []Field{
			embed("Context", "memory_key_mkey_entry", "MKeyContext", 0x10, ""),
			blob("BSF0KLM0PASMTT0_1", "bsf0_klm0_pas_mtt0_1", 0x110, 0x10, ""),
			blob("BSF1KLM1PASMTT2_3", "bsf1_klm1_pas_mtt2_3", 0x120, 0x10, ""),
		}},
	},
	{Op: 0xA08, Name: "CreateUMEM", PRM: "CREATE_UMEM", Doc: "user memory that contexts name by number and offset; source: mlx5_ifc.h of Linux and rdma-core",
		In: &Layout{Name: "CreateUMEMIn", PRM: "create_umem_in", Size: 0x30, Fields: []Field{
			bits("LogPageSize", "umem.log_page_size", 0x20, 4, 0, "page size = 2^(12+x)"),
			bits("PageOffset", "umem.page_offset", 0x24, 31, 0, "bytes from the first page to the start of the memory"),
			bits("NumOfMTT", "umem.num_of_mtt", 0x28, 63, 0, "entries in the list"),
		}, Tail: words("MTT", "umem.mtt", 0x30, 8, "", "page addresses; bit 1 = may be written, bit 0 = may be read")},
		Out: &Layout{Name: "CreateUMEMOut", PRM: "create_umem_out", Size: 0x10, Fields: []Field{
			bits("UMEMID", "umem_id", 0x08, 23, 0, "umem number"),
		}},
	},
	{Op: 0xA0A, Name: "DestroyUMEM", PRM: "DESTROY_UMEM",
		In: &Layout{Name: "DestroyUMEMIn", PRM: "destroy_umem_in", Size: 0x10, Fields: []Field{
			bits("UMEMID", "umem_id", 0x08, 23, 0, "umem number"),
		}},
		Out: &Layout{Name: "DestroyUMEMOut", PRM: "destroy_umem_out", Size: 0x10},
	},
	{Op: 0x203, Name: "QuerySpecialContexts", PRM: "QUERY_SPECIAL_CONTEXTS",
		In: &Layout{Name: "QuerySpecialContextsIn", PRM: "query_special_contexts_in", Size: 0x10},
		Out: &Layout{Name: "QuerySpecialContextsOut", PRM: "query_special_contexts_out", Size: 0x20, Fields: []Field{
			bits("DumpFillMKey", "dump_fill_mkey", 0x08, 31, 0, "key for DUMP WQE fill"),
			bits("ReservedLKey", "resd_lkey", 0x0C, 31, 0, "reserved lkey: grants physical-address access to the whole address space (local read/write)"),
			bits("NullMKey", "null_mkey", 0x10, 31, 0, ""),
			bits("TerminateScatterListMKey", "terminate_scatter_list_mkey", 0x14, 31, 0, "lkey that ends a scatter list, with capability terminate_scatter_list_mkey"),
			bits("RepeatedMKey", "repeated_mkey", 0x18, 31, 0, ""),
		}},
	},
	{Op: 0x400, Name: "CreateCQ", PRM: "CREATE_CQ",
		In: &Layout{Name: "CreateCQIn", PRM: "create_cq_in", Size: 0x110, Fields: []Field{
			embed("Context", "cq_context", "CQContext", 0x10, ""),
			bits("CQUMEMOffset", "cq_umem_offset", 0x50, 63, 0, "with cq_umem_valid: where the ring starts in the umem"),
			bits("CQUMEMID", "cq_umem_id", 0x58, 31, 0, "with cq_umem_valid"),
			bits("CQUMEMValid", "cq_umem_valid", 0x5C, 31, 31, "umem-based (devx)"),
		}, Tail: words("PAS", "pas", 0x110, 8, "", "array of 64-bit page addresses (BE), page size 2^(12+log_page_size)")},
		Out: &Layout{Name: "CreateCQOut", PRM: "create_cq_out", Size: 0x10, Fields: []Field{
			bits("CQN", "cqn", 0x08, 23, 0, "CQ number 24 bit"),
		}},
	},
	{Op: 0x403, Name: "ModifyCQ", PRM: "MODIFY_CQ",
		In: &Layout{Name: "ModifyCQIn", PRM: "modify_cq_in", Size: 0x110, Fields: []Field{
			bits("CQN", "cqn", 0x08, 23, 0, "CQ number 24 bit"),
			enum("ModifyCQField", bits("ModifyFieldSelect", "modify_field_select_resize_field_select.modify_field_select.modify_field_select", 0x0C, 31, 0, "op_mod 0")),
			alias("ResizeFieldSelect", "modify_field_select_resize_field_select.resize_field_select.resize_field_select", 0x0C, 31, 0, "op_mod 1: bit 0 log_cq_size, 1 page_offset, 2 log_page_size"),
			embed("Context", "cq_context", "CQContext", 0x10, ""),
			bits("CQUMEMValid", "cq_umem_valid", 0x5C, 31, 31, "umem-based (devx)"),
		}, Tail: words("PAS", "pas", 0x110, 8, "", "array of 64-bit page addresses (BE), page size 2^(12+log_page_size)")},
		Out: &Layout{Name: "ModifyCQOut", PRM: "modify_cq_out", Size: 0x10},
	},
	{Op: 0x402, Name: "QueryCQ", PRM: "QUERY_CQ",
		In: &Layout{Name: "QueryCQIn", PRM: "query_cq_in", Size: 0x10, Fields: []Field{
			bits("CQN", "cqn", 0x08, 23, 0, "CQ number 24 bit"),
		}},
		Out: &Layout{Name: "QueryCQOut", PRM: "query_cq_out", Size: 0x110, Fields: []Field{
			embed("Context", "cq_context", "CQContext", 0x10, ""),
		}, Tail: words("PAS", "pas", 0x110, 8, "", "array of 64-bit page addresses (BE), page size 2^(12+log_page_size)")},
	},
	{Op: 0x401, Name: "DestroyCQ", PRM: "DESTROY_CQ",
		In: &Layout{Name: "DestroyCQIn", PRM: "destroy_cq_in", Size: 0x10, Fields: []Field{
			bits("CQN", "cqn", 0x08, 23, 0, "CQ number 24 bit"),
		}},
		Out: &Layout{Name: "DestroyCQOut", PRM: "destroy_cq_out", Size: 0x10},
	},
}
