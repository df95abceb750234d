// Package driver runs a ConnectX network adapter from user space: ConnectX-4 and later, through a
// pci.Function, whichever transport serves it.
//
//	nic, err := driver.Open(ctx, function, driver.Config{Queues: 4, Promiscuous: true})
//	...
//	rx := nic.RxQueue(0)
//	pkts := make([]driver.Packet, 32)
//	for ctx.Err() == nil {
//		n := rx.Poll(pkts)
//		if n == 0 {
//			rx.Wait(ctx)
//			continue
//		}
//		... // pkts[:n]
//		rx.Release(pkts[:n])
//	}
//	err = nic.Close(ctx)
//
// Open brings the function up in steps (internal/hca), each with its undo; Close takes everything back in
// reverse, is bounded in time, and names what the device did not give back.
//
// One goroutine owns a queue; everything else on a NIC may be called from any goroutine. The package
// starts no goroutine on the data path. It owns a few on the control path, all ended by Close: one per
// interrupt vector, one that serves firmware's page requests, one that reads the port's state after its
// events, and two that watch the card's health.
//
// Received frames lie on pages that neighbouring slots of the ring share, and that are used again when the
// application has released them in time (RxPages; RxQueue.PageStats says how it went). Config.GRO merges
// segments, and with Config.LargeReceive the card does: Packet.Fragments. The card's merging saves the host's work
// for each segment and takes trains of one connection only; GRO takes UDP, too, keeps every header's bits and needs
// nothing of the card, and a packet of its may be forwarded as it came. Config.Program judges frames before Poll builds anything of them. A consumer
// that keeps its packets stops nothing but what is beyond Config.Buffers: frames are lost then, and counted,
// and receiving goes on when packets come back.
//
// A firmware command that fails says how: refused (a *prm.CommandError with status and syndrome), not
// delivered, answered against the rules, or not answered at all (*NoAnswerError, whose Cause tells silent
// firmware from a card that is gone). NIC.CommandStats counts them by opcode with their latency. When the
// card fails, Failed is closed, queues end with an error, commands fail at once, and Health keeps what the
// card wrote; the application calls Close, or Reset to go on with a new NIC on the same function.
//
// What the device writes is input: it is checked, bounded and counted, and at worst a command, a queue or
// the NIC ends with an error that says why.
package driver
