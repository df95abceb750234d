// Package eswitch builds the tables of a physical function's e-switch, as Linux does (esw/legacy.c,
// eswitch_offloads.c).
//
// Legacy: FDB has an entry for each address that a vport wants, which its driver tells through its vport
// context. Multicast goes to the uplink, too; what no vport wants goes to the uplink or, if it came from there,
// nowhere.
//
//	root ─> addresses ─> vports │ any multicast ─> who wants all, uplink │ from the uplink ─> who is promiscuous
//
// Switchdev: rules first, then the representors' queues, and what is left goes to the manager.
//
//	root ─> rules ─> vports │ miss ─> queues of representors ─> their vports │ all else ─> manager
//
// A table set is built whole before it becomes the root, and the old one goes after that: no frame meets an
// e-switch without tables. ACL is what a vport of the legacy mode may send and gets.
//
// A value has one user at a time.
package eswitch
