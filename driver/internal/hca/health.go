package hca

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"cxkit/mmio"
	"cxkit/prm"
	"cxkit/stats"
)

// missLimit is how often in a row the health counter may stand still (Linux health.c).
const missLimit = 3

// Sensor is one of the ways in which a device is seen to have failed (Linux health.c).
type Sensor uint8

const (
	SensorNone    Sensor = iota
	SensorPCIComm        // registers read as ones
	SensorPCI            // the bus says the device is off; not seen by this driver
	SensorDisabled
	SensorSWReset
	SensorFirmware // a syndrome, and firmware asks for a reset
)

// health watches the health registers.
type health struct {
	group sync.WaitGroup

	mu    sync.Mutex // guards all below
	state stats.Health
	fw    stats.Reporter
	fatal stats.Reporter
	found Sensor
}

// HealthError is a failure that firmware reported in the health buffer.
type HealthError struct {
	Syndrome    prm.HealthSyndrome
	ExtSyndrome uint16
	Severity    uint8
	Reset       bool // firmware asks for a reset
}

func (e *HealthError) Error() string {
	return fmt.Sprintf("health: synd %#x: %v, ext_synd %#06x, severity %d", uint8(e.Syndrome), describe(e.Syndrome), e.ExtSyndrome, e.Severity)
}

// describe is a syndrome in mlx5_core's words.
func describe(s prm.HealthSyndrome) string {
	switch s {
	case prm.HealthFWInternal, prm.HealthDeadIRISC, prm.HealthHWUnrecoverable, prm.HealthFWCRC, prm.HealthICMFetchPCI,
		prm.HealthICMPage, prm.HealthAsyncEQOverrun, prm.HealthEQError, prm.HealthInvalidEQ, prm.HealthFFSER,
		prm.HealthHighTemperature, prm.HealthPoisonedPCI:
		return s.String()
	}
	return "unrecognized error"
}

// ErrDisabled: firmware has taken the interface away (nic_interface).
var ErrDisabled = errors.New("firmware disabled the NIC interface")

// watchHealth starts the watch.
func (h *HCA) watchHealth(context.Context) error {
	ctx, cancel := context.WithCancel(h.ctx)
	h.health.state.Counter = h.Window.Load32(prm.InitSegHealthPollOff)
	h.health.group.Go(func() {
		timer := time.NewTimer(h.healthInterval())
		defer timer.Stop()
		for {
			select {
			case <-timer.C:
			case <-ctx.Done():
				return
			}
			if err := h.look(); err != nil {
				h.Fail(err)
				return
			}
			timer.Reset(h.healthInterval())
		}
	})
	h.undo.Add("stop the health watch", func(context.Context) error {
		cancel()
		h.health.group.Wait()
		return nil
	})
	return nil
}

// look reads the registers once and returns why the device can't be used any more, nil if it can.
func (h *HCA) look() error {
	sensor, err := sense(h.Window)
	if sensor != SensorNone {
		h.config.Log.Error(fmt.Sprintf("Fatal error %d detected", sensor))
		b := h.readHealthBuffer()
		h.printHealth(b)
		x := &h.health
		x.mu.Lock()
		defer x.mu.Unlock()
		x.found = sensor
		x.state.Time = time.Now()
		if b != nil {
			x.state.Syndrome = b.Syndrome
		}
		note(&x.fatal, "FW fatal error reported", err.Error(), b)
		return err
	}
	h.heartbeat()
	return nil
}

// sense tells whether and why the device has failed.
func sense(w *mmio.Window) (Sensor, error) {
	if w.Load32(prm.InitSegHealthOff+prm.HealthBufferFWVerOff) == allOnes {
		return SensorPCIComm, ErrGone
	}
	switch s := prm.InitSegCmdQ(w.Load32(prm.InitSegCmdQOff)).NICInterface(); s {
	case prm.NICInterfaceDisabled:
		return SensorDisabled, fmt.Errorf("%w: state %v", ErrDisabled, s)
	case prm.NICInterfaceSWReset:
		return SensorSWReset, fmt.Errorf("%w: state %v", ErrDisabled, s)
	}
	flags := prm.HealthBufferRFRSeverity(w.Load32(prm.InitSegHealthOff + prm.HealthBufferRFRSeverityOff))
	synd := prm.HealthBufferSyndrome(w.Load32(prm.InitSegHealthOff + prm.HealthBufferSyndromeOff))
	if synd.Synd() != prm.HealthOK && flags.RFR() {
		return SensorFirmware, &HealthError{
			Syndrome: synd.Synd(), ExtSyndrome: synd.ExtSynd(), Severity: severity(flags), Reset: true,
		}
	}
	return SensorNone, nil
}

// severity is the buffer's, or "error" when it has none.
func severity(flags prm.HealthBufferRFRSeverity) uint8 {
	const levelError = 3
	if flags.SeverityValid() {
		return flags.Severity()
	}
	return levelError
}

// heartbeat looks at what is wrong without being the end: a counter that stands still, a syndrome with
// which firmware goes on.
func (h *HCA) heartbeat() {
	counter := h.Window.Load32(prm.InitSegHealthPollOff)
	synd := uint8(prm.HealthBufferSyndrome(h.Window.Load32(prm.InitSegHealthOff + prm.HealthBufferSyndromeOff)).Synd())
	x := &h.health
	x.mu.Lock()
	x.state.Time = time.Now()
	if counter == x.state.Counter {
		x.state.Misses++
	} else {
		x.state.Misses = 0
	}
	x.state.Counter = counter
	missed := x.state.Misses == missLimit
	news := synd != 0 && synd != x.state.Syndrome
	x.state.Syndrome = synd
	if synd == 0 && x.state.Misses == 0 {
		x.fw.State = healthy
	}
	x.mu.Unlock()
	if !missed && !news {
		return
	}
	if missed {
		h.config.Log.Error("device's health compromised - reached miss count")
	}
	b := h.readHealthBuffer()
	h.printHealth(b)
	x.mu.Lock()
	defer x.mu.Unlock()
	if news {
		note(&x.fw, "FW syndrome reported", describe(prm.HealthSyndrome(synd)), b)
	} else {
		note(&x.fw, "FW miss counter reported", fmt.Sprintf("health counter stands at %#x", counter), b)
	}
}

const (
	healthy = "healthy"
	inError = "error"
)

// note enters an error into a reporter.
func note(r *stats.Reporter, message, cause string, b *stats.HealthBuffer) {
	r.State, r.Last, r.Message, r.Cause, r.Dump = inError, time.Now(), message, cause, b
	r.Errors++
}

// readHealthBuffer returns the health buffer, nil if firmware has written nothing there.
func (h *HCA) readHealthBuffer() *stats.HealthBuffer {
	w := h.Window
	at := func(off uint64) uint32 { return w.Load32(prm.InitSegHealthOff + off) }
	flags := prm.HealthBufferRFRSeverity(at(prm.HealthBufferRFRSeverityOff))
	synd := prm.HealthBufferSyndrome(at(prm.HealthBufferSyndromeOff))
	if synd.Synd() == prm.HealthOK {
		return nil
	}
	b := &stats.HealthBuffer{
		AssertExitPtr: at(prm.HealthBufferAssertExitPtrOff), AssertCallRA: at(prm.HealthBufferAssertCallRAOff),
		Time: at(prm.HealthBufferTimeOff), RawFWVer: at(prm.HealthBufferFWVerOff), HardwareID: at(prm.HealthBufferHWIDOff),
		FirmwareVer: fmt.Sprintf("%d.%d.%d", h.Firmware.Major, h.Firmware.Minor, h.Firmware.Subminor),
		Reset:       flags.RFR(), Severity: severity(flags), IRISCIndex: synd.IRISCIndex(),
		Syndrome: uint8(synd.Synd()), Description: describe(synd.Synd()), ExtSyndrome: synd.ExtSynd(),
	}
	for i := range b.AssertVar {
		b.AssertVar[i] = at(prm.HealthBufferAssertVarOff + 4*uint64(i))
	}
	return b
}

// printHealth logs the buffer as mlx5_core does, at the level that the buffer asks for.
func (h *HCA) printHealth(b *stats.HealthBuffer) {
	if b == nil {
		return
	}
	if b.RawFWVer == allOnes {
		h.config.Log.Error("PCI slot is unavailable")
		return
	}
	level := slog.LevelDebug
	switch {
	case b.Severity <= 3:
		level = slog.LevelError
	case b.Severity == 4:
		level = slog.LevelWarn
	case b.Severity <= 6:
		level = slog.LevelInfo
	}
	for _, line := range b.Lines() {
		h.config.Log.Log(context.Background(), level, line)
	}
}

// Health returns what the watch has seen.
func (h *HCA) Health() stats.Health {
	x := &h.health
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.state
	h.surroundings.describe(&s)
	fw, fatal := x.fw, x.fatal
	fw.Name, fatal.Name = "fw", "fw_fatal"
	for _, r := range []*stats.Reporter{&fw, &fatal} {
		if r.State == "" {
			r.State = healthy
		}
		s.Reporters = append(s.Reporters, *r)
	}
	return s
}

// Inherit takes over the reporters of the HCA that was up on the function before it was reset to recover.
func (h *HCA) Inherit(before *HCA) {
	fw, fatal := before.Health().Reporters[0], before.Health().Reporters[1]
	fatal.Recovers++
	fw.State, fatal.State = healthy, healthy
	x := &h.health
	x.mu.Lock()
	defer x.mu.Unlock()
	x.fw, x.fatal = fw, fatal
}

// RequestReset asks firmware to reset itself, if that is what it wants and it can: a function level reset
// does not restart firmware. It waits for at most the PCI toggle time (Linux mlx5_error_sw_reset).
func (h *HCA) RequestReset(ctx context.Context) {
	w := h.Window
	if sensor, _ := sense(w); sensor != SensorFirmware || !prm.InitSegState(w.Load32(prm.InitSegStateOff)).SWResetSupported() {
		return
	}
	log := h.config.Log
	log.Warn("Issuing FW Reset")
	// The queue's address stays in the register: the state alone changes.
	old := w.Load32(prm.InitSegCmdQOff)
	w.Store32(prm.InitSegCmdQOff, old&^0xFFF|uint32(prm.NICInterfaceSWReset)<<8)
	limit := h.timeouts().Toggle
	for begin := time.Now(); ; {
		state := prm.InitSegCmdQ(w.Load32(prm.InitSegCmdQOff)).NICInterface()
		if state == prm.NICInterfaceDisabled {
			return
		}
		if time.Since(begin) >= limit {
			log.Error(fmt.Sprintf("NIC IFC still %d after %dms.", uint8(state), limit.Milliseconds()))
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return
		}
	}
}
