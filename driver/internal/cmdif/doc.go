// Package cmdif is the command interface of a ConnectX function: the command queue in memory, its slots
// and mailboxes, and the life of a command from its input to a typed error.
//
// Exec runs one command and blocks until its end (exec.go). Start runs one and calls back (callback.go).
// Any goroutine may call them; as many commands run at once as the queue has general slots (31 of 32 on
// real parts), further callers wait in the order they came. The last slot belongs to MANAGE_PAGES, so that
// pages can be given while every general slot waits for pages (reference: Linux cmd.c, rdma-core
// mlx5_vfio.c).
//
//	gate ──> limit ──> line for a slot ──> slot ──> entry, mailboxes ──> doorbell ──> completion ──> answer
//	 │         │ ErrBusy (Start), else waits                                │
//	 │         └─ object commands, unprivileged users: half the slots      └─ event, or poll of the entry
//	 └─ device down: ends of things count as done (Emulated), the rest fails with ErrDown
//
// With SubmitQueue the part from the line to the doorbell is a work item of the function's one worker
// (workqueue.go), as it always is for Start; by default the caller of Exec does it itself. The worker, and
// the goroutine that ends callback commands, run while they have work and are gone after Quiesce.
//
// # Slots
//
//	free ──acquire──> filling ──post──> posted ──completion──> done ──output taken──> free
//	                     │                 │
//	                     └──error──> free  └──caller gave up, or flush──> stuck ──late completion──> free
//
// A slot is stuck while firmware may still write its entry and its mailboxes: neither is used again until
// firmware hands the entry back or the function has been reset. There is no way from posted to free that
// does not read the ownership bit. With every slot of a lane stuck, commands fail at once (ErrStuck).
//
// Linux keeps inputs of 1, 2, 16, 256 and 512 mailboxes linked and ready. Here mailboxes are linked for each
// command: BenchmarkInbox has what such a cache would save, 1 to 3 percent of a command (docs/performance.md).
//
// # Time
//
// Each wait has its own deadline of Config.Timeout: for a place within a limit, for the worker, for a slot
// (all three: never issued, the slot usable), for the completion. Who waits for an event looks each second
// whether the command is complete without one, and when the time is over or the caller gives up: the
// ownership bit is read and the command event queue polled, before the command is given up (deadline.go). What
// was found is the Cause in the error and in the log: interrupt lost and EQE lost (the command succeeds),
// firmware silent, device gone, interface in error. Messages are worded as mlx5_core's. A teardown has less
// patience where firmware was silent before, or a user waits for the end (GiveUpOnSilence).
//
// # Answers
//
// What the device writes is input: the entry and the output mailboxes are copied out once, then checked
// (delivery status, token, signatures if they are on, block numbers, links, length) before anybody
// interprets them. Whichever of event, poll, time-out and failure comes first, a command ends once: all
// of them change the slot's state under one lock, and the one that finds it posted wins.
package cmdif
