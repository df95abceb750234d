// Package wire is what a card's ports are plugged into: a cable to another card or to a program, a
// reflector, a source, a TAP interface; capture players and recorders are in wire/capture.
//
// A Port is the card's view. The card's engine polls it (Transmit, Receive) and sleeps when there is
// nothing to do; the port wakes it. Ports own their buffers, copy what they are given, and allocate
// nothing per frame.
//
// Frames start at the destination MAC address and end before the frame check sequence. Ports carry
// bytes and judge nothing: runts, frames over the MTU and bad checksums arrive as they are, and the card
// counts them where a ConnectX does.
package wire
