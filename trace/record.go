package trace

import (
	"fmt"
	"time"
)

// Side is who recorded.
type Side uint8

const (
	// Driver is the host's end.
	Driver Side = iota + 1
	// Device is the card's end.
	Device
)

func (s Side) String() string {
	switch s {
	case Driver:
		return "driver"
	case Device:
		return "device"
	}
	return fmt.Sprintf("side(%d)", uint8(s))
}

// Kind is what a record is about.
type Kind uint8

const (
	// CommandIn is a command as issued.
	CommandIn Kind = iota + 1
	// CommandOut is a command's end.
	CommandOut
	// Event is an event queue entry.
	Event
	// Doorbell is a producer, consumer or arm value handed over.
	Doorbell
	// Register is a register write.
	Register
	// Note is a remark.
	Note
)

func (k Kind) String() string {
	switch k {
	case CommandIn:
		return "command in"
	case CommandOut:
		return "command out"
	case Event:
		return "event"
	case Doorbell:
		return "doorbell"
	case Register:
		return "register"
	case Note:
		return "note"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Kinds is a set of kinds.
type Kinds uint8

const (
	// Control is all but doorbells: what happens on the control path only.
	Control = Kinds(1<<CommandIn | 1<<CommandOut | 1<<Event | 1<<Register | 1<<Note)
	// All adds doorbells, one or more a burst of packets.
	All = Control | Kinds(1<<Doorbell)
)

// Has tells whether k is in the set.
func (s Kinds) Has(k Kind) bool { return k < 8 && s&(1<<k) != 0 }

// Bell is what kind of number a doorbell hands over.
type Bell uint8

const (
	// BellCommand: the bit mask of command slots.
	BellCommand Bell = iota + 1
	// BellSQ and BellRQ: a send or receive queue's producer counter.
	BellSQ
	BellRQ
	// BellCQ: a completion queue's consumer counter. BellCQArm also asks for an event.
	BellCQ
	BellCQArm
	// BellEQ: an event queue's consumer counter. BellEQArm also asks for an interrupt.
	BellEQ
	BellEQArm
)

func (b Bell) String() string {
	if int(b) < len(bellNames) && bellNames[b] != "" {
		return bellNames[b]
	}
	return fmt.Sprintf("bell(%d)", uint8(b))
}

// bellNames is never assigned to.
var bellNames = [...]string{
	BellCommand: "cmd", BellSQ: "sq", BellRQ: "rq", BellCQ: "cq", BellCQArm: "cq-arm", BellEQ: "eq", BellEQArm: "eq-arm",
}

// Record is one thing that happened. Which fields count depends on Kind.
type Record struct {
	// Seq counts all records of a recorder from 0, lost ones too.
	Seq uint64
	// Time is the time since the recorder was made.
	Time time.Duration
	Side Side
	// Function is the PCI address of the function, "0000:08:00.0".
	Function string
	Kind     Kind

	// Slot and Opcode are the command's (CommandIn, CommandOut).
	Slot   int
	Opcode uint16
	// Delivery is the delivery status of the slot (CommandOut); the command's own status and syndrome
	// are in Data.
	Delivery uint8

	// Number is the EQ's (Event) or the queue's (Doorbell), or the BAR's (Register).
	Number uint32
	Bell   Bell
	// Offset and Size are a register's place and width in bytes (Register).
	Offset uint64
	Size   int
	// Value is the counter or mask (Doorbell) or what was written (Register).
	Value uint64

	// Data is the command's input or output, or the EQE (64 bytes). Length is how long it was: more
	// than len(Data) if the recorder cut it short.
	Data   []byte
	Length int
	// Text says why, or is the note.
	Text string
}
