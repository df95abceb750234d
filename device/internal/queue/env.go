package queue

import (
	"time"

	"cxkit/device/internal/event"
	"cxkit/device/internal/mkey"
	"cxkit/device/internal/packet"
	"cxkit/pci"
)

// Env is what the queues of a function share.
type Env struct {
	// Events takes completion and error events.
	Events *event.Set
	// Tunnels are those that frames on their way out are looked into.
	Tunnels *packet.Tunnels
	// Counters are the function's counters that queues move.
	Counters Counters
	// Filter looks at every CQE before it is written; nil, as in an honest card, at none.
	Filter Filter
	// Moderator holds events back.
	Moderator Moderator

	keys       *mkey.Table
	mem        pci.Memory
	generation uint64
	epoch      uint64 // counts Begin: a queue whose epoch differs has not checked its views in this step
	open       []*CQ  // with an unfinished burst
	wqe        [maxStride]byte
	fcs        [4]byte // of the frame under way
	windows    [windows]window
	clocks     [2]uint64 // free running and real time, as CQEs show them
}

// SetTime says what time it is, and what time CQEs show: the free-running clock, and real time as seconds and
// nanoseconds.
func (e *Env) SetTime(now time.Duration, free, real uint64) {
	e.Moderator.now, e.clocks = now, [2]uint64{free, real}
}

func (e *Env) time(real bool) uint64 {
	if real {
		return e.clocks[1]
	}
	return e.clocks[0]
}

// maxStride is the largest WQE of a receive queue: log_max_stride_sz_rq.
const maxStride = 1 << 13

// Counters point to what QUERY_VNIC_ENV reports of queues.
type Counters struct {
	ErrorQueues *uint32 // queues that went to the error state
	TooSmall    *uint32 // frames longer than their receive WQE
	CQOverrun   *uint32
}

// Begin lets queues use the host's memory until the step ends. mem has been entered.
func (e *Env) Begin(mem pci.Memory, keys *mkey.Table) {
	e.mem, e.keys = mem, keys
	e.generation = mem.Generation()
	e.epoch++
}

// Stop takes the host's memory away until the next Begin: queues that change their state meanwhile write
// nothing.
func (e *Env) Stop() { e.mem = nil }

// Flush publishes the completions of all unfinished bursts and raises their events.
func (e *Env) Flush() {
	for i, q := range e.open {
		q.flush() // may write CQEs, so the CQ is still listed
		q.listed = false
		q.notify(false)
		e.open[i] = nil
	}
	e.open = e.open[:0]
}
