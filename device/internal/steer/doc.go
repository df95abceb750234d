// Package steer decides where a frame goes: flow tables, what they forward to, and receive side scaling
// (reference 01 §6 and §7, 03 §9 and §10).
//
// A Domain is the flow tables of one type of one function. A look-up starts at the root table; in a table
// the matching entry with the lowest index wins; it forwards to further tables, whose level must be
// higher, so that there are no cycles, and in the end to TIRs. A TIR names a receive queue or hashes the
// frame into a table of them (RQT).
//
//	Domain.Classify ─> root Table ─> Group (one mask) ─> Entry ─> Table … ─> TIR ─> RQT ─> RQ
//
// Speed. A group keeps its entries in a hash table over the words its mask touches, so a look-up costs
// the same with 1 entry and with 60,000. In front of all tables lies a cache of decisions, keyed by the
// union of all masks: whatever two frames differ in beyond that, no table can tell them apart.
//
// The engine owns everything here. Handlers have checked what refers to other objects; this package checks
// what concerns tables, and answers as a command ends.
package steer
