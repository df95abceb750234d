package fault

// Kind is what goes wrong.
type Kind string

// Commands.
const (
	// NoAnswer: firmware takes the command, does not execute it, and never hands its slot back.
	NoAnswer Kind = "no-answer"
	// Late: firmware takes Delay longer.
	Late Kind = "late"
	// Ghost: Delay after the command's completion event another one comes for the same slot.
	Ghost Kind = "ghost"
	// WrongSlot: the completion event names slot To instead; the next one if To is 0.
	WrongSlot Kind = "wrong-slot"
	// BadToken: the answer's last output mailbox, or the entry if there is none, carries another token.
	BadToken Kind = "bad-token"
	// BadSignature: the answer's entry and its last output mailbox carry wrong signatures. Drivers see it
	// where signatures are on.
	BadSignature Kind = "bad-signature"
	// BadStatus: firmware refuses the command with Status and Syndrome.
	BadStatus Kind = "bad-status"
	// BadDelivery: firmware could not read the command, and hands it back with delivery status Delivery.
	BadDelivery Kind = "bad-delivery"
	// HalfOutput: only the first Bytes of the output are written before the slot is handed back; half of
	// it if Bytes is 0. Signatures, where they are on, don't fit what was written.
	HalfOutput Kind = "half-output"
)

// Events, interrupts and doorbells.
const (
	// LostEQE: an event is not written; of the types in Events, or command completions if there are none.
	LostEQE Kind = "lost-eqe"
	// LostInterrupt: an MSI-X message is lost.
	LostInterrupt Kind = "lost-interrupt"
	// MisdirectedInterrupt: an MSI-X message arrives at vector To.
	MisdirectedInterrupt Kind = "misdirected-interrupt"
	// LostDoorbell: a doorbell of the kind in Doorbell is lost.
	LostDoorbell Kind = "lost-doorbell"
)

// The data path.
const (
	// LostCQE: a packet's completion is not written, and takes no place in its CQ. What it completes has
	// happened.
	LostCQE Kind = "lost-cqe"
	// LateCQE: a packet's completion is written Delay later, and so are those behind it in its CQ.
	LateCQE Kind = "late-cqe"
)

// States.
const (
	// Hang: firmware does nothing for For: it takes no command, ends none, and its health counter stands
	// still. Packets flow. A reset ends it.
	Hang Kind = "hang"
	// Health: firmware fails: the health buffer shows Health, and firmware hangs. A reset ends it.
	Health Kind = "health"
	// AllOnes: registers read as ones and writes to them are lost.
	AllOnes Kind = "all-ones"
	// Removal: the card leaves the bus without a word: configuration space and registers read as ones,
	// writes, interrupts and DMA end. After For, if it is not 0, it is back as after a power cycle.
	Removal Kind = "removal"
	// InitStuck: the init segment says that firmware still boots.
	InitStuck Kind = "init-stuck"
	// Unplug: the cable is out of the port for For, with the events of modules; its link stays down
	// afterwards if NoLink is set.
	Unplug Kind = "unplug"
	// Module: a port module event with ModuleStatus and ModuleError.
	Module Kind = "module"
	// Power: the PCI slot offers Watts, not enough, and an event says so.
	Power Kind = "power"
	// Storm: firmware asks its driver for Pages pages that nothing needs, and when it has them gives all of them
	// back. Before a driver is up it waits for one.
	Storm Kind = "storm"
	// PortErrors: the port meets Count errors of the sort in What, and counts them.
	PortErrors Kind = "port-errors"
	// PCIeErrors: the PCIe link recovers from Count errors of the sort in What.
	PCIeErrors Kind = "pcie-errors"
)

// Point is a step at which faults strike.
type Point uint8

const (
	// AtCommand: a command is handed over by its doorbell. Lost doorbells of commands, and the states
	// that a command begins.
	AtCommand Point = iota
	// AtEnd: the time of a command is over.
	AtEnd
	// AtExecution: a command is about to be executed.
	AtExecution
	// AtAnswer: the answer of a command is about to be written.
	AtAnswer
	// AtReport: the completion event of a command is about to be written.
	AtReport
	// AtEvent: any event is about to be written.
	AtEvent
	// AtInterrupt: a vector is about to be raised.
	AtInterrupt
	// AtDoorbell: a doorbell page was written.
	AtDoorbell
	// AtCompletion: a CQE is about to be written.
	AtCompletion

	points = iota
)

// trait is what is known of a kind.
type trait struct {
	kind  Kind
	point Point
	state bool // begins by itself, or AtCommand
	text  string
}

// traits lists all kinds in the order of their constants.
func traits() []trait {
	return []trait{
		{NoAnswer, AtEnd, false, "firmware takes a command and never answers"},
		{Late, AtEnd, false, "firmware answers a command late by delay"},
		{Ghost, AtReport, false, "a second completion event for a command, after delay"},
		{WrongSlot, AtReport, false, "the completion event names another slot (to)"},
		{BadToken, AtAnswer, false, "the answer carries another token"},
		{BadSignature, AtAnswer, false, "the answer carries wrong signatures"},
		{BadStatus, AtExecution, false, "firmware refuses a command with status and syndrome"},
		{BadDelivery, AtEnd, false, "a command is handed back as not delivered (delivery)"},
		{HalfOutput, AtAnswer, false, "only the first bytes of an output are written"},
		{LostEQE, AtEvent, false, "an event is not written"},
		{LostInterrupt, AtInterrupt, false, "an interrupt is lost"},
		{MisdirectedInterrupt, AtInterrupt, false, "an interrupt arrives at another vector (to)"},
		{LostDoorbell, AtDoorbell, false, "a doorbell is lost"},
		{LostCQE, AtCompletion, false, "a packet's completion is not written"},
		{LateCQE, AtCompletion, false, "packets' completions are written after delay"},
		{Hang, AtCommand, true, "firmware hangs"},
		{Health, AtCommand, true, "firmware fails with a health buffer, and hangs"},
		{AllOnes, AtCommand, true, "registers read as ones"},
		{Removal, AtCommand, true, "the card leaves the bus"},
		{InitStuck, AtCommand, true, "firmware never finishes booting"},
		{Unplug, AtCommand, true, "the cable is taken out of the port"},
		{Module, AtCommand, true, "a port module event"},
		{Power, AtCommand, true, "the PCI slot offers too little power (watts)"},
		{Storm, AtCommand, true, "firmware asks for pages and gives all of them back (pages)"},
		{PortErrors, AtCommand, true, "frames or symbols arrive damaged at the port (what, count)"},
		{PCIeErrors, AtCommand, true, "the PCIe link recovers from errors (what, count)"},
	}
}

// trait finds what is known of k.
func (k Kind) trait() (trait, bool) {
	for _, t := range traits() {
		if t.kind == k {
			return t, true
		}
	}
	return trait{}, false
}

// Kinds lists all kinds.
func Kinds() []Kind {
	var all []Kind
	for _, t := range traits() {
		all = append(all, t.kind)
	}
	return all
}

// Text says in a line what a kind does, "" for an unknown one.
func (k Kind) Text() string {
	t, _ := k.trait()
	return t.text
}

// State reports whether faults of the kind are states, which last for a while, rather than single steps
// that go wrong.
func (k Kind) State() bool {
	t, _ := k.trait()
	return t.state
}

// Doorbell is a kind of doorbell.
type Doorbell string

const (
	// CommandBell hands commands over.
	CommandBell Doorbell = "command"
	// SQBell tells that send WQEs are posted.
	SQBell Doorbell = "sq"
	// CQBell arms a CQ.
	CQBell Doorbell = "cq"
	// EQBell gives an EQ's consumer counter, and arms it.
	EQBell Doorbell = "eq"
)

// Direction is the packets whose completions a fault concerns.
type Direction string

const (
	Sent     Direction = "send"
	Received Direction = "receive"
)
