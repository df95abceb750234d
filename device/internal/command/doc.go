// Package command is the card's side of the command interface: what a slot and its mailbox chains say,
// checked byte by byte, and what the executor knows about each opcode.
//
// The executor itself is in package device, because a command acts on a function. Here is the part that
// reads and writes the host's memory, and the contract of handlers.
package command
