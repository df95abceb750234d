// Package capture plays packet captures into a card's port and records what passes a port.
//
// A Player is a wire.Port that plays pcap and pcapng files: either byte order, any time resolution,
// several sections and interfaces, in constant memory. A Recorder writes pcapng with nanoseconds and
// interface names; Tee records both directions of any port.
//
// The recorder writes with gopacket's pcapgo. The player has a reader of its own, because pcapgo's gives
// out one frame at a time (its bytes are invalid at the next read, so a burst would have to be copied),
// knows no file offsets, and does not check block lengths against the block's contents. Tests compare
// the two frame by frame.
package capture
