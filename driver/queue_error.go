package driver

import (
	"errors"
	"fmt"
)

// ErrNICClosed: the NIC was closed.
var ErrNICClosed = errors.New("NIC closed")

// ErrChannelGone: SetChannels has ended the queue.
var ErrChannelGone = errors.New("the channel is gone")

// QueueError says why a queue stopped. Recover restarts it.
type QueueError struct {
	// Queue is the queue's index in the NIC, Transmit its direction, Number the card's name for it.
	Queue    int
	Transmit bool
	Number   uint32
	// Syndrome is the card's reason (completion error syndrome, or the CQ's), 0 if the driver stopped the
	// queue; Vendor the code behind it.
	Syndrome, Vendor uint8
	// What is the reason in words.
	What string
}

func (e *QueueError) Error() string {
	kind := "rx"
	if e.Transmit {
		kind = "tx"
	}
	if e.Syndrome == 0 {
		return fmt.Sprintf("%s queue %d (%#x): %s", kind, e.Queue, e.Number, e.What)
	}
	return fmt.Sprintf("%s queue %d (%#x): %s (syndrome %#x, vendor %#x)", kind, e.Queue, e.Number, e.What, e.Syndrome, e.Vendor)
}
