// Package device is a ConnectX network adapter in software. New makes a Card; each of its PCI functions
// is a pci.Endpoint for a transport to plug into a host; its ports are plugged into what package wire
// offers.
//
// # Who runs what
//
// One engine owns the state of the whole card: Card.Run in a goroutine, or Card.Step called by a test or
// a single-core program. Both are the same code, and everything they touch is guarded by Card.mu.
// Register writes come from any goroutine and wait in an inbox (engine.go); register reads are answered
// from what the engine has published (initseg.go). A running command is an entry in the engine's timer
// heap, so that many run at once and end in any order, and a run repeats from its seed.
//
// A step drains the inbox, fires the timers that are due, and lets the data path move packets. It enters
// the memory of each function it works for (function.enter) and leaves them all at its end, so whoever
// holds Card.mu outside a step (Reset, Detach, Books) knows that no DMA is under way.
//
// # The two halves
//
// The control plane (commands, events, firmware memory, registers, link state) and the data plane
// (queues, steering, packets: cmd_queue.go, cmd_steer.go, datapath*.go, internal/queue, internal/steer)
// meet in the function and Card structs. All calls below run in the engine.
//
// What the data plane uses:
//
//	f.mem                       the host's memory, nil while detached; entered when the engine calls in.
//	                            For another function than the one called for: g.enter() first.
//	f.keys.Resolve(...)         memory keys to views of host memory (internal/mkey)
//	f.events                    Completion, CQError, QueueError, Get(eqn) (hold the EQ of a CQ)
//	f.pds, f.domains, f.uars,   tables of objects to refer to: Get, then Hold and Drop
//	f.qsets
//	f.vport                     addresses, promiscuous bits, MTU, local loopback bits
//	f.counters, port.counters   what it counts in (counters.go)
//	f.port                      up(), mtu(), wire, lossless, ready
//	f.caps                      the current capabilities
//	f.log                       trace; nil is fine
//	f.timestamp()               the free-running clock of CQEs
//	c.now, c.timers.arm/disarm  time since the card was made; timers for moderation
//	c.rand                      the seeded random source
//	c.wakeUp()                  from other goroutines: there is work
//	command.Result              how a handler ends; syndromes from syndrome.go
//
// What the control plane calls on the data plane:
//
//	f.queueHandlers(), f.steerHandlers()  opcode tables, merged at start
//	f.sqDoorbell(uar, sqn, index)         a doorbell in 0x800-0xfff of a UAR page
//	f.cqArm(uar, cqn, word)               a CQ arm doorbell: word is the arm dword. Where doorbell pages
//	                                      are memory (mapped.go) both are called for what doorbell records
//	                                      show when something was written to a page
//	f.resetQueues(), f.resetSteering()    forget every object at once: FLR, teardown, detach. The EQ, PD,
//	                                      UAR, ... tables are cleared right after, so nothing need be dropped
//	f.stopTraffic()                       prepare for fast teardown: send and receive nothing any more
//	f.linkChanged(up)                     the port's state has changed
//	f.vportChanged()                      addresses, promiscuous bits, MTU or loopback bits have changed
//	f.countObjects(*[object.Kinds]int)    adds how many objects of its kinds there are
//	c.initData()                          once, at the end of New
//	c.portPlugged(p)                      something else (or nothing) is plugged into the port
//	c.dataWork(budget)                    move packets; says whether it did and what is left
//	queueCaps(*capabilities), steerCaps(*capabilities)
//	                                      set the bits of what the data plane implements
//
// # Virtual functions and the e-switch
//
// A card with Config.VFs has, for each physical function, an e-switch (eswitch.go) and virtual functions that
// the function's driver manages (eswitch_vf.go): vports, their ACLs, VLAN rules and rates (cmd_eswitch.go,
// eswitch_rate.go), FDB tables (cmd_flow.go), forwarding (eswitch_forward.go). A function never reaches what
// another one has: numbers, keys and doorbells are looked up in its own tables, and only the manager may name
// other vports and functions (vportOf, managed).
package device
