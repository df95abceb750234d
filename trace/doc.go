// Package trace is the flight recorder: what driver and card said to each other, in order.
//
// A Recorder keeps the latest records in a bounded ring and can write every record to a file as it
// happens. Driver and card each get a Log from it, which stamps their side and their function's
// address on what they record. A nil Recorder gives nil Logs, and every method of a nil Log returns at
// once without allocating: that is how tracing is switched off.
//
// A command leaves two records, as the Linux driver dumps it: its input when it is issued and its
// output when it ends. So a command that never ends is seen too. The command's bytes are those that a
// driver sees: without mailbox headers, with the first 16 bytes that travel in the slot in front.
//
// The text form (WriteText, Read) is made of the lines that mlx5_core writes with its debug mask set
// (Linux cmd.c, dump_command), each headed by time, side and function:
//
//	[    0.000012345] driver 0000:08:00.0: cmd[0]: dump command data ENABLE_HCA(0x104) INPUT
//	cmd[0]: 000: 01040000 00000000 00000000
//
// so dmesg output, other drivers' traces and ours can be compared line by line, and prm/prmtext
// prints any of them field by field. Normalise replaces what differs from run to run.
package trace
