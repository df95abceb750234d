package control

import (
	"encoding/json"
	"errors"
	"time"
)

// version of the protocol. A reply to another one is an error that says which is spoken.
const version = 1

const (
	// maxRequest and maxReply bound lines, in bytes. A trace of 10,000 records fits a reply.
	maxRequest = 64 << 10
	maxReply   = 64 << 20
	// MaxTrace is the most trace records in one reply.
	MaxTrace = 10_000
)

// limits of a server.
type limits struct {
	clients int           // connections at a time
	request time.Duration // the work for one request
	idle    time.Duration // the wait for a request
	write   time.Duration // the wait for a client that reads a reply
}

func defaultLimits() limits {
	return limits{clients: 16, request: 10 * time.Second, idle: 5 * time.Minute, write: 10 * time.Second}
}

// Operations of version 1.
const (
	opInfo  = "info"
	opStats = "stats"
	opLink  = "link"
	opBooks = "books"
	opTrace = "trace"

	opReclaim = "reclaim"
	opStorm   = "storm"

	opInject = "inject"
	opFaults = "faults"

	opHealth = "health"

	opOverview = "overview"

	opVport = "vport"
)

// request is a line from a client.
type request struct {
	V    int             `json:"v"`
	Op   string          `json:"op"`
	Args json.RawMessage `json:"args,omitempty"`
}

// reply is a line from a server: a result or an error.
type reply struct {
	V      int             `json:"v"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  string          `json:"error,omitempty"`
}

type linkArgs struct {
	Up *bool `json:"up"`
}

// vportArgs names a port of the card's e-switch.
type vportArgs struct {
	Vport *uint16 `json:"vport"`
}

// injectArgs is a fault plan: its text in TOML, and what errors call it.
type injectArgs struct {
	Name string `json:"name"`
	Plan string `json:"plan"`
}

type traceArgs struct {
	Last int `json:"last"`
}

type reclaimArgs struct {
	Pages int `json:"pages"`
}

// Storm is what a storm of firmware pages has done: firmware asks for pages, and when it has them it offers
// all of them back.
type Storm struct {
	// Phase is "none", "filling", "draining" or "over".
	Phase string `json:"phase"`
	// Pages is what firmware was told to ask for, Hoarded what it got; Refused: the driver had no more.
	Pages   int  `json:"pages"`
	Hoarded int  `json:"hoarded"`
	Refused bool `json:"refused"`
	// Gives and Takes are commands, Offers events that offer pages back, Returned pages that came back.
	Gives    int `json:"gives"`
	Offers   int `json:"offers"`
	Takes    int `json:"takes"`
	Returned int `json:"returned"`
	// Filled is how long it took until firmware had all, Took until it had given all back.
	Filled time.Duration `json:"filled_ns"`
	Took   time.Duration `json:"took_ns"`
	// Held is how many pages firmware has now, the storm's or others.
	Held int `json:"held"`
}

// Info is what a card says about itself.
type Info struct {
	// Command is how the process was started; PID is its number, Started its start.
	Command string    `json:"command"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	// Device is what --device chose, Seed what makes a run repeatable.
	Device string `json:"device"`
	Seed   uint64 `json:"seed"`
	// Address is the PCI function's, Model the card's name, Firmware its version.
	Address  string `json:"address"`
	Model    string `json:"model"`
	Firmware string `json:"firmware"`
	// MAC, MTU and Queues are the NIC's; LinkUp and SpeedMbps its port's.
	MAC       string `json:"mac"`
	MTU       int    `json:"mtu"`
	Queues    int    `json:"queues"`
	LinkUp    bool   `json:"link_up"`
	SpeedMbps int    `json:"speed_mbps"`
	// Port says what the card's port is plugged into.
	Port string `json:"port"`
}

// Book is a thing that one side has lent to the other, as both sides count it. The two may differ
// for a moment while commands run.
type Book struct {
	Name   string `json:"name"`
	Driver int    `json:"driver"`
	// Card is nil if the card can't be looked into.
	Card *int `json:"card,omitempty"`
}

// TraceText is a trace in the text form of package trace.
type TraceText struct {
	Text string `json:"text"`
	Lost uint64 `json:"lost"`
}

// RemoteError is an error that the server sent.
type RemoteError struct{ Text string }

func (e *RemoteError) Error() string { return e.Text }

// Is reports whether the server said that it ends.
func (e *RemoteError) Is(target error) bool { return target == ErrEnded && e.Text == ErrEnded.Error() }

// ErrEnded: there is nobody any more who could answer.
var ErrEnded = errors.New("the card's process ended, or closes the card")

// ErrTooLong: a line of the other side is longer than the protocol allows.
var ErrTooLong = errors.New("message too long")
