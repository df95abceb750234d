// Command gen renders the tables of prm/spec as the Go source of package prm. Run it with
//
//	go generate ./prm/...
//
// It refuses tables that overlap, leave their structure, repeat a name, an opcode or a register id, or have bits in the
// wrong order. The output depends on the tables alone.
package main
