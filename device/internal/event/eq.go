package event

import (
	"cxkit/device/internal/object"
	"cxkit/device/internal/ring"
	"cxkit/prm"
)

// counterMask is the width of EQ counters: 24 bits.
const counterMask = 1<<24 - 1

// Status is the state of an EQ as its context reports it.
type Status uint8

const (
	StatusOK           Status = 0
	StatusOverrun      Status = 9
	StatusWriteFailure Status = 0xa
)

// EQ is one event queue. CQs that report to it hold it.
type EQ struct {
	object.Refs
	// Ring is where entries go; LogSize is log2 of their number.
	Ring    *ring.Pages
	LogSize uint8
	// Mask has a bit for each type subscribed to; none in a completion EQ.
	Mask [4]uint64
	// Vector is the interrupt, UAR the page whose doorbells it obeys.
	Vector int
	UAR    uint32
	// OverrunIgnore writes on when the driver has not kept up.
	OverrunIgnore bool
	// Context is what CREATE_EQ gave, for QUERY_EQ.
	Context prm.EQContext

	number             uint8
	producer, consumer uint32
	armed, fired       bool
	status             Status

	owing  bool   // it is in the set's list
	unseen uint32 // entries that the driver may not have taken, as far as is known; of an unarmed set
}

// Number is the EQ's number once it is in a set.
func (e *EQ) Number() uint8 { return e.number }

// Counters are the producer and consumer counters.
func (e *EQ) Counters() (producer, consumer uint32) { return e.producer, e.consumer }

// Armed, Fired and Status are the EQ's state.
func (e *EQ) Armed() bool { return e.armed }

// Fired reports whether the EQ has interrupted since it was armed last.
func (e *EQ) Fired() bool { return e.fired }

// Status tells whether the EQ works.
func (e *EQ) Status() Status { return e.status }

// pending is how many entries the driver has not consumed.
func (e *EQ) pending() uint32 { return (e.producer - e.consumer) & counterMask }
