// Package event is a function's event queues: their rings in the host's memory, arming, and the interrupt
// each arm asks for (reference 02).
//
// The engine owns everything here. An entry is published with one atomic store of its last dword, which
// holds the owner bit, after the rest was written plainly; its partner is the driver's load of that
// dword.
package event
