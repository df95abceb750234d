// Package prm is the wire language of ConnectX (mlx5) adapters: every structure that driver and device exchange, with
// opcodes, enums and status texts. The driver, the device model and the trace tools all use it, each in its own
// direction, so that there is one table and two readers.
//
// Two renderings come from the tables in prm/spec:
//
//   - Values: structs with Put and Get, for commands (CreateCQIn, CreateCQOut), contexts (CQContext), capability groups
//     (CapGeneral), registers (RegPMTU) and event data (PageRequestEvent). Put panics if a value is wider than its
//     field or the buffer is too short: both are the caller's mistake. Get never panics: what a short buffer does not
//     hold reads as 0, and a list is as long as the buffer and its count field allow. Neither keeps reserved bits; Patch
//     does, where capabilities and registers are read, changed and written back.
//   - Views: array types (CQE, EQE, CmdEntry, Mailbox, InitSeg, WQECtrlSeg) for what lives in memory both sides see. A
//     slice converts to a view: (*CQE)(b). There is no setter for a field that shares its dword with the ownership bit:
//     CQEOwnDword composes the whole dword, for the one store that publishes the entry.
//
// A second reading of the same bits (an IPv4 address in the last bytes of an IPv6 address) is a pair of methods and not
// a field, so that no bit is held twice.
//
// LayoutByName, CommandByOpcode and RegisterByID give the same tables as data, for printing and for tests.
//
// Sources: NVIDIA Adapters Programmer's Reference Manual; linux include/linux/mlx5/{mlx5_ifc,device,qp,driver,cq}.h
// (6.12, ISSI 1). All numbers are big endian; positions are written 0x0c[23:16]: dword at byte 0x0c, bits 23 to 16.
package prm

//go:generate go run cxkit/prm/gen -dir .
