package stats

import (
	"fmt"
	"io"
	"time"
)

// HealthBuffer is what firmware wrote when something went wrong: the health buffer of the initialization
// segment.
type HealthBuffer struct {
	AssertVar     [6]uint32 `json:"assert_var"`
	AssertExitPtr uint32    `json:"assert_exit_ptr"`
	AssertCallRA  uint32    `json:"assert_callra"`
	Time          uint32    `json:"time"` // of firmware, seconds
	FirmwareVer   string    `json:"fw_ver"`
	RawFWVer      uint32    `json:"raw_fw_ver"`
	HardwareID    uint32    `json:"hw_id"`
	Reset         bool      `json:"rfr"`      // firmware asks for a reset
	Severity      uint8     `json:"severity"` // as Linux's log levels: 0 emergency, 3 error, 7 debug
	IRISCIndex    uint8     `json:"irisc_index"`
	Syndrome      uint8     `json:"synd"`
	Description   string    `json:"description"` // of the syndrome
	ExtSyndrome   uint16    `json:"ext_synd"`
}

// SeverityText is the severity's name as mlx5_core prints it.
func (b HealthBuffer) SeverityText() string {
	return [...]string{"EMERGENCY", "ALERT", "CRITICAL", "ERROR", "WARNING", "NOTICE", "INFO", "DEBUG"}[b.Severity&7]
}

// Lines are what mlx5_core prints of the buffer (Linux health.c print_health_info): a heading, then one
// line for each of six assertion words and eleven fields.
func (b HealthBuffer) Lines() []string {
	lines := []string{fmt.Sprintf("Health issue observed, %s, severity(%d) %s:", b.Description, b.Severity, b.SeverityText())}
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for i, v := range b.AssertVar {
		add("assert_var[%d] 0x%08x", i, v)
	}
	reset := 0
	if b.Reset {
		reset = 1
	}
	add("assert_exit_ptr 0x%08x", b.AssertExitPtr)
	add("assert_callra 0x%08x", b.AssertCallRA)
	add("fw_ver %s", b.FirmwareVer)
	add("time %d", b.Time)
	add("hw_id 0x%08x", b.HardwareID)
	add("rfr %d", reset)
	add("severity %d (%s)", b.Severity, b.SeverityText())
	add("irisc_index %d", b.IRISCIndex)
	add("synd 0x%x: %s", b.Syndrome, b.Description)
	add("ext_synd 0x%04x", b.ExtSyndrome)
	add("raw fw_ver 0x%08x", b.RawFWVer)
	return lines
}

// Reporter is one of a device's health reporters, as devlink shows them: "fw" for what the device
// survives, "fw_fatal" for what it does not.
type Reporter struct {
	Name     string `json:"name"`
	State    string `json:"state"` // "healthy" or "error"
	Errors   uint64 `json:"error"`
	Recovers uint64 `json:"recover"`
	// The latest error: when, what was reported, what the driver saw.
	Last    time.Time `json:"last,omitzero"`
	Message string    `json:"message,omitempty"`
	Cause   string    `json:"cause,omitempty"`
	// Dump is the health buffer at the latest error; nil if it held nothing.
	Dump *HealthBuffer `json:"dump,omitempty"`
}

// Health is the health of a function at one time.
type Health struct {
	Time time.Time `json:"time"` // of the latest look
	// Counter is firmware's heartbeat, Misses how many looks in a row found it standing still.
	Counter uint32 `json:"health_counter"`
	Misses  int    `json:"fw_miss_counter"`
	// Syndrome is what the health buffer holds, 0 if firmware has nothing to say.
	Syndrome  uint8      `json:"syndrome"`
	Reporters []Reporter `json:"reporters"`
	// Module and Power are nil as long as the card has said nothing of them.
	Module *Module `json:"module,omitempty"`
	Power  *Power  `json:"power,omitempty"`
}

// OK tells whether no reporter is in error.
func (h Health) OK() bool {
	for _, r := range h.Reporters {
		if r.State != "healthy" {
			return false
		}
	}
	return true
}

// WriteTo prints the reporters as devlink health show does, and dumps below them.
func (h Health) WriteTo(w io.Writer) (int64, error) {
	var total int64
	print := func(format string, args ...any) error {
		n, err := fmt.Fprintf(w, format, args...)
		total += int64(n)
		return err
	}
	if h.Module != nil {
		if err := print("  %v\n", h.Module); err != nil {
			return total, err
		}
	}
	if h.Power != nil {
		if err := print("  %v\n", h.Power); err != nil {
			return total, err
		}
	}
	for _, r := range h.Reporters {
		if err := print("  reporter %s\n    state %s error %d recover %d\n", r.Name, r.State, r.Errors, r.Recovers); err != nil {
			return total, err
		}
		if r.Message != "" {
			if err := print("    last %s %s: %s\n", r.Last.Format(time.RFC3339), r.Message, r.Cause); err != nil {
				return total, err
			}
		}
		if r.Dump == nil {
			continue
		}
		for _, line := range r.Dump.Lines() {
			if err := print("    %s\n", line); err != nil {
				return total, err
			}
		}
	}
	return total, nil
}
