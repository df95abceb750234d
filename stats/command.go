package stats

import (
	"fmt"
	"io"
	"math/bits"
	"strings"
	"time"
)

// Histogram counts durations by powers of two of nanoseconds: bin i holds 2^i <= ns < 2^(i+1), bin 0 also
// 0 ns. It is plain data.
type Histogram struct {
	Bins [44]uint64 `json:"bins"` // the last one, from 2^43 ns (2.4 h), is open
}

// Add counts one duration.
func (h *Histogram) Add(d time.Duration) {
	i := max(0, bits.Len64(uint64(max(0, d)))-1)
	h.Bins[min(i, len(h.Bins)-1)]++
}

// Count is how many durations were counted.
func (h Histogram) Count() (n uint64) {
	for _, b := range h.Bins {
		n += b
	}
	return n
}

// Quantile is an upper bound of the q-th quantile, 0 < q <= 1: the end of the bin that holds it; 0 if
// nothing was counted.
func (h Histogram) Quantile(q float64) time.Duration {
	n := h.Count()
	if n == 0 {
		return 0
	}
	rank := max(1, uint64(q*float64(n)+0.5))
	for i, b := range h.Bins {
		if rank <= b {
			return time.Duration(1) << (i + 1)
		}
		rank -= b
	}
	return time.Duration(1) << len(h.Bins)
}

// Since returns what was counted after earlier.
func (h Histogram) Since(earlier Histogram) Histogram {
	for i := range h.Bins {
		h.Bins[i] -= earlier.Bins[i]
	}
	return h
}

// WriteTo prints the histogram as bpftrace's hist() does, bins in nanoseconds.
func (h Histogram) WriteTo(w io.Writer) (int64, error) {
	const width = 52
	first, last, most := -1, -1, uint64(1)
	for i, b := range h.Bins {
		if b == 0 {
			continue
		}
		if first < 0 {
			first = i
		}
		last, most = i, max(most, b)
	}
	var total int64
	for i := first; first >= 0 && i <= last; i++ {
		bar := strings.Repeat("@", int(h.Bins[i]*width/most))
		low, high := power(i), power(i+1)
		if i == 0 {
			low = "0"
		}
		n, err := fmt.Fprintf(w, "%-16s %8d |%-*s|\n", "["+low+", "+high+")", h.Bins[i], width, bar)
		total += int64(n)
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// power is 2^i as bpftrace writes it: 512, 1K, 2M.
func power(i int) string {
	units := [...]string{"", "K", "M", "G", "T"}
	return fmt.Sprintf("%d%s", 1<<(i%10), units[i/10])
}

// Command is what became of one opcode's commands. Names follow Linux's debugfs files of a command.
type Command struct {
	Opcode uint16 `json:"opcode"`
	Name   string `json:"name"`
	// Count is commands that ended with an answer, whatever it said; Total the time firmware had them.
	Count uint64        `json:"n"`
	Total time.Duration `json:"total_ns"`
	// Slowest is the longest that firmware had one.
	Slowest time.Duration `json:"slowest_ns"`
	// Failed is all that did not succeed. FailedStatus of them were answered with a status that is not OK;
	// FailedTransport were not answered, or not by the rules of the interface.
	Failed          uint64 `json:"failed"`
	FailedStatus    uint64 `json:"failed_mbox_status"`
	FailedTransport uint64 `json:"failed_transport"`
	// Emulated is commands that were taken as done because the device was down.
	Emulated uint64 `json:"emulated"`
	// The latest failure: the error number Linux makes of it, and firmware's words if it had any.
	LastErrno    string `json:"last_failed_errno,omitempty"`
	LastStatus   uint8  `json:"last_failed_mbox_status"`
	LastSyndrome uint32 `json:"last_failed_syndrome"`
	// Latency is the time from the doorbell to the completion.
	Latency Histogram `json:"latency"`
}

// Average is the mean time firmware had a command.
func (c Command) Average() time.Duration {
	if c.Count == 0 {
		return 0
	}
	return c.Total / time.Duration(c.Count)
}

// WorkQueue is what the ordered queue of commands has done, counted by the queue itself.
type WorkQueue struct {
	Items    uint64 `json:"items"`    // work items queued
	Executed uint64 `json:"executed"` // handled by the worker
	Canceled uint64 `json:"canceled"` // given up by their caller before the worker came to them
	Deepest  int    `json:"deepest"`  // most items that ever waited
	// Contended counts takings of the queue's lock that had to wait, LockWait is for how long in all.
	Contended uint64        `json:"contended"`
	LockWait  time.Duration `json:"lock_wait_ns"`
}

// Mailboxes is the state of the mailbox pool.
type Mailboxes struct {
	Blocks int `json:"blocks"` // made so far
	Out    int `json:"out"`    // in use
	Peak   int `json:"peak"`   // most that ever were in use
	// Searched is how many pool pages were looked at to find the owners of freed blocks; 0 in a pool that
	// does not search.
	Searched uint64 `json:"searched"`
	// Free is the time of each free, if it was measured.
	Free Histogram `json:"free"`
}

// Commands is the command interface of a function at one time.
type Commands struct {
	Time time.Time `json:"time"`
	// Opcodes are the commands that were used, by opcode.
	Opcodes []Command `json:"opcodes"`
	// SlotWait is how long commands waited for a slot.
	SlotWait Histogram `json:"slot_wait"`
	Queue    WorkQueue `json:"queue"`
	Mailbox  Mailboxes `json:"mailboxes"`

	Issued          uint64 `json:"issued"`           // commands given to firmware
	NeverIssued     uint64 `json:"never_issued"`     // refused before, or given up while waiting for a slot
	NoAnswer        uint64 `json:"no_answer"`        // given up after they were issued
	LostInterrupts  uint64 `json:"lost_interrupts"`  // completed, their event was found without an interrupt
	LostEvents      uint64 `json:"lost_events"`      // completed, no event
	LateCompletions uint64 `json:"late_completions"` // completed after they were given up
	SpuriousEvents  uint64 `json:"spurious_events"`  // events for a slot that firmware owns or nobody uses

	Slots    int    `json:"slots"`     // entries of the command queue
	InFlight int    `json:"in_flight"` // slots in use by a command that has a caller
	Stuck    []int  `json:"stuck,omitempty"`
	Mode     string `json:"mode"` // "events" or "polling"
}

// Lookup finds an opcode's commands; ok is false if there were none.
func (c Commands) Lookup(opcode uint16) (command Command, ok bool) {
	for _, x := range c.Opcodes {
		if x.Opcode == opcode {
			return x, true
		}
	}
	return Command{Opcode: opcode}, false
}

// Total sums all opcodes.
func (c Commands) Total() (sum Command) {
	sum.Name = "all"
	for _, x := range c.Opcodes {
		sum.Count += x.Count
		sum.Total += x.Total
		sum.Failed += x.Failed
		sum.FailedStatus += x.FailedStatus
		sum.FailedTransport += x.FailedTransport
		sum.Emulated += x.Emulated
		for i := range x.Latency.Bins {
			sum.Latency.Bins[i] += x.Latency.Bins[i]
		}
	}
	return sum
}
