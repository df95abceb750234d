package hca

import (
	"context"
	"errors"
	"time"

	"cxkit/driver/internal/cmdif"
	"cxkit/prm"
)

// Timeouts of bring-up and teardown. The zero value of each means what firmware says, if it does, else
// Linux's default (lib/tout.c).
type Timeouts struct {
	Command time.Duration // one command: 60 s
	Boot    time.Duration // firmware's start after a reset: 120 s
	Init    time.Duration // firmware's start after the command queue is set: 2 s
	Stall   time.Duration // reclaiming pages without any coming back: 5 s
	Health  time.Duration // between looks at the health registers: 2 s
	Reset   time.Duration // the reset that ends a teardown: 5 s
	Toggle  time.Duration // from asking firmware for a reset to the interface being off: 2 s
}

// fields pairs each time-out with its default.
func (t *Timeouts) fields() []timeout {
	return []timeout{
		{&t.Command, cmdif.DefaultTimeout}, {&t.Boot, 120 * time.Second}, {&t.Init, 2 * time.Second},
		{&t.Stall, 5 * time.Second}, {&t.Health, 2 * time.Second}, {&t.Reset, 5 * time.Second},
		{&t.Toggle, 2 * time.Second},
	}
}

type timeout struct {
	value *time.Duration
	def   time.Duration
}

func (t Timeouts) complete() Timeouts {
	for _, f := range t.fields() {
		if *f.value == 0 {
			*f.value = f.def
		}
	}
	return t
}

// or fills in from other what t leaves open.
func (t Timeouts) or(other Timeouts) Timeouts {
	theirs := other.fields()
	for i, f := range t.fields() {
		if *f.value == 0 {
			*f.value = *theirs[i].value
		}
	}
	return t
}

// timeouts are those in force: the user's, then firmware's, then Linux's.
func (h *HCA) timeouts() Timeouts {
	h.toutMu.Lock()
	defer h.toutMu.Unlock()
	return h.config.Timeouts.or(h.advertised).complete()
}

// healthInterval is the time to the next look at the health registers.
func (h *HCA) healthInterval() time.Duration { return h.timeouts().Health }

// advertise notes what firmware says.
func (h *HCA) advertise(t Timeouts) {
	h.toutMu.Lock()
	defer h.toutMu.Unlock()
	h.advertised = t.or(h.advertised)
}

// Bounds of what firmware may say: less would be taken for silence, more would never end.
const (
	leastTimeout = 100 * time.Millisecond
	mostTimeout  = time.Hour
)

// duration is a time-out of the device, 0 if there is none.
func duration(unit prm.TimeoutUnit, value uint32) time.Duration {
	if value == 0 {
		return 0
	}
	scale := [...]time.Duration{time.Millisecond, time.Second, time.Minute, time.Hour}
	if int(unit) >= len(scale) {
		return 0
	}
	return min(mostTimeout, max(leastTimeout, time.Duration(value)*scale[unit]))
}

func fieldDuration(t prm.Timeout) time.Duration { return duration(t.Multiplier, t.Value) }

func wordDuration(w uint32) time.Duration {
	v := prm.TimeoutViewValue(w)
	return duration(v.Multiplier(), v.Value())
}

// readInitTimeouts reads the two time-outs of the initialization segment. Where the second is 0 the device
// has none to tell (Linux lib/tout.c mlx5_tout_query_iseg).
func (h *HCA) readInitTimeouts(context.Context) error {
	start := wordDuration(h.Window.Load32(prm.InitSegCmdQInitToOff))
	if start == 0 {
		return nil
	}
	h.advertise(Timeouts{Init: start, Command: wordDuration(h.Window.Load32(prm.InitSegCmdExecToOff))})
	h.tellsTimeouts = true
	return nil
}

// readTimeouts reads register DTOR, if the device has time-outs to tell.
func (h *HCA) readTimeouts(ctx context.Context) error {
	if !h.tellsTimeouts {
		return nil
	}
	out := prm.AccessRegOut{RegisterData: make([]byte, prm.RegDTORSize)}
	in := prm.AccessRegIn{OpMod: uint16(prm.AccessRegRead), RegisterID: prm.RegIDDTOR, RegisterData: make([]byte, prm.RegDTORSize)}
	err := h.exec(ctx, &in, &out)
	var refused *prm.CommandError
	if errors.As(err, &refused) {
		return nil // the defaults serve
	}
	if err != nil {
		return err
	}
	var r prm.RegDTOR
	r.Get(out.RegisterData)
	h.advertise(Timeouts{
		Health: fieldDuration(r.HealthPollTo), Stall: fieldDuration(r.ReclaimPagesTo), Toggle: fieldDuration(r.PCIeToggleTo),
	})
	h.Pages.SetStall(h.timeouts().Stall)
	return nil
}
