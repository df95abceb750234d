package control

import "cxkit/stats"

// Overview is what is known of a running card at one time, without asking it: what `cxkit top` shows.
type Overview struct {
	Info  Info           `json:"info"`
	Stats stats.Snapshot `json:"stats"`
	// Commands, Health and Pages are the driver's; nil for a card whose driver is in a guest.
	Commands *stats.Commands       `json:"commands,omitempty"`
	Health   *stats.Health         `json:"health,omitempty"`
	Pages    []stats.FunctionPages `json:"pages,omitempty"`
	Buffers  []Buffers             `json:"buffers,omitempty"`
}

// Buffers are packet buffers in one place: "posted", "sending", "elsewhere".
type Buffers struct {
	Holder string `json:"holder"`
	Count  int    `json:"count"`
}
