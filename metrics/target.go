package metrics

import "cxkit/stats"

// Target is what is exposed of one NIC. Functions may be nil: their metrics are left out then. They are
// called during a scrape, by one goroutine at a time, and must neither wait nor issue commands.
type Target struct {
	// Device is the PCI address, Port the number of the port on the card, from 1.
	Device, Port string
	// Model and Firmware say what it is.
	Model, Firmware string

	Counters func() stats.Snapshot
	Commands func() stats.Commands
	Health   func() stats.Health
	Pages    func() []stats.FunctionPages
	Buffers  func() []Buffers
}

// Buffers are packet buffers in one place.
type Buffers struct {
	Holder string // "posted", "sending", "application", "free"
	Count  int
}
