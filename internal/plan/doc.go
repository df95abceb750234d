// Package plan reads fault plans from TOML, and makes them of what a command line says.
//
//	about = "firmware is slow, and loses a completion event now and then"
//	seed = 7
//
//	[latency]
//	other = "100us"                                       # fixed
//	MANAGE_PAGES = { min = "1ms", max = "5ms" }           # uniform
//	CREATE_CQ = { mean = "1ms", deviation = "200us" }     # normal
//	ACCESS_REG = { median = "300us", p99 = "20ms" }       # long tail
//
//	[[fault]]
//	kind = "lost-eqe"
//	opcode = ["CREATE_CQ", "CREATE_SQ"]
//	skip = 2
//	probability = 0.1
//
// Everything is checked: a key that means nothing, an unknown name and a value out of range are errors
// that name the file and the line. Where one number or name may be given, a list may be, too. Opcodes,
// events and statuses have the names that prm prints, in any case, or numbers. docs/faults describes the
// kinds and keys; package device/fault is what a plan becomes.
package plan
