package drivertest

import (
	"context"
	"testing"

	"cxkit/pci"
)

// Bench is the place of one test.
type Bench struct {
	// Function is the PCI function under test. The suite opens a NIC on it; the maker closes it.
	Function pci.Function
	// Far is the far end of its wire.
	Far Far
	// Books reads the card's books; nil where the card can't be seen into.
	Books func() (CardBooks, error)
	// Used says that the card served others before: counters of its port do not start at zero.
	Used bool
	// Plain says that the memory of arenas is seen by the race detector (heap arenas).
	Plain bool
}

// Far is the far end of the wire. The bench's maker closes it.
type Far interface {
	// SendAll sends frames to the NIC, in order, waiting for room.
	SendAll(ctx context.Context, frames ...[]byte) error
	// Recv waits for the next frame from the NIC and returns a copy.
	Recv(ctx context.Context) ([]byte, error)
	// SetLink brings the cable up or down.
	SetLink(up bool)
}

// CardBooks is what the card holds of one function.
type CardBooks struct {
	// Pages is how many 4096-byte pages firmware holds.
	Pages int
	// Objects is how many objects of each kind exist, by the PRM's name: "CQ", "RQ", "TIR".
	Objects map[string]int
	// Commands is how many commands firmware has not completed.
	Commands int
}

// Options are what a test asks of its bench.
type Options struct {
	// Lossy makes the wire drop frames for which the NIC has no buffer, as a wire without flow control
	// does. Without it the far end waits.
	Lossy bool
	// Card is the kind of card, "" for the usual one, a ConnectX-5: "cx4lx", "cx6dx", "cx7".
	Card string
}

// Maker makes a bench for one test and registers its end with t.Cleanup.
type Maker func(t *testing.T, o Options) *Bench
