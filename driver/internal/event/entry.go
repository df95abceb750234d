package event

import (
	"errors"
	"fmt"

	"cxkit/prm"
)

// ErrInternal: firmware reported an internal error (event 0x08).
var ErrInternal = errors.New("firmware internal error event")

// PortEvent is a change of the port's state. The state itself is read with a command: an event is a
// hint, and several may stand for one change (Linux en_main.c, update_carrier).
type PortEvent struct {
	Port    uint8 // 1 is the first
	SubType prm.PortSubType
}

func portEvent(e *prm.EQE) PortEvent {
	var d prm.PortEvent
	d.Get(e.Data()[:])
	return PortEvent{Port: d.Port, SubType: prm.PortSubType(e.EventSubType())}
}

// QueueError is a queue that firmware stopped because of an error.
type QueueError struct {
	Event  prm.EventType // what happened
	Queue  prm.EventQueueType
	Number uint32
}

func (q QueueError) Error() string { return fmt.Sprintf("%v %#x: %v", q.Queue, q.Number, q.Event) }

func queueError(e *prm.EQE) QueueError {
	var d prm.QPSRQEvent
	d.Get(e.Data()[:])
	return QueueError{Event: e.EventType(), Queue: d.Type, Number: d.QPSRQN}
}

// PageRequest is firmware asking for pages (NumPages > 0) or offering some back (NumPages < 0).
type PageRequest = prm.PageRequestEvent
