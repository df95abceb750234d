package hca

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"cxkit/driver/internal/event"
	"cxkit/prm"
	"cxkit/stats"
)

// surroundings is what the card says of its slot and of its port's module.
type surroundings struct {
	power *event.Signal // raised when the slot's power has changed
	group sync.WaitGroup

	mu      sync.Mutex // guards the two below
	module  *stats.Module
	offered *stats.Power
}

// watchSurroundings subscribes to what no other part of the driver handles, and starts the worker that
// reads MPEIN when an event says so: handlers execute no commands.
func (h *HCA) watchSurroundings() {
	x := &h.surroundings
	x.power = event.NewSignal()
	cancelEvents := h.Events.OnOther(h.otherEvent)
	ctx, cancel := context.WithCancel(h.ctx)
	x.group.Go(func() {
		for {
			select {
			case <-x.power.C():
			case <-ctx.Done():
				return
			}
			if err := h.readPower(ctx); err != nil && ctx.Err() == nil {
				h.config.Log.Debug("the slot's power is not known", "err", err) // a card without the register
			}
		}
	})
	h.undo.Add("stop watching slot and module", func(context.Context) error {
		cancelEvents()
		cancel()
		x.group.Wait()
		return nil
	})
}

// otherEvent takes asynchronous events that nobody else handles, and prints them as mlx5_core does.
func (h *HCA) otherEvent(e prm.EQE) {
	switch e.EventType() {
	case prm.EventMonitorCounter: // of the statistics
	case prm.EventPortModule:
		var d prm.PortModuleEvent
		d.Get(e.Data()[:])
		h.moduleEvent(d)
	case prm.EventTemperatureWarning:
		var d prm.TemperatureEvent
		d.Get(e.Data()[:])
		h.config.Log.Warn(fmt.Sprintf("High temperature on sensors with bit set %x %x", d.SensorWarningMSB, d.SensorWarningLSB))
	case prm.EventGeneral:
		if prm.GeneralSubType(e.EventSubType()) == prm.GeneralPCIPowerChange {
			h.surroundings.power.Raise()
			return
		}
		fallthrough
	default:
		h.config.Log.Info("asynchronous event", "type", e.EventType(), "sub_type", e.EventSubType())
	}
}

// moduleEvent notes a module event (Linux events.c, port_module).
func (h *HCA) moduleEvent(d prm.PortModuleEvent) {
	x := &h.surroundings
	x.mu.Lock()
	defer x.mu.Unlock()
	m := stats.Module{Number: int(d.Module), Status: moduleStatus(d.ModuleStatus)}
	if x.module != nil {
		m.Error, m.Errors = x.module.Error, x.module.Errors
	}
	x.module = &m
	if d.ModuleStatus != prm.ModuleError {
		h.config.Log.Info(fmt.Sprintf("Port module event: module %d, %s", m.Number, m.Status))
		return
	}
	m.Error = moduleError(uint8(d.ErrorType))
	m.Errors++
	h.config.Log.Error(fmt.Sprintf("Port module event[error]: module %d, %s, %s", m.Number, m.Status, m.Error))
}

// moduleStatus and moduleError are Linux's texts (events.c).
func moduleStatus(s prm.ModuleStatus) string {
	switch s {
	case prm.ModulePlugged:
		return "Cable plugged"
	case prm.ModuleUnplugged:
		return "Cable unplugged"
	case prm.ModuleError:
		return "Cable error"
	case prm.ModuleDisabled:
		return "Cable disabled"
	}
	return "Unknown status"
}

func moduleError(code uint8) string {
	switch code {
	case 0:
		return "Power budget exceeded"
	case 1:
		return "Long Range for non MLNX cable"
	case 2:
		return "Bus stuck (I2C or data shorted)"
	case 3:
		return "No EEPROM/retry timeout"
	case 4:
		return "Enforce part number list"
	case 5:
		return "Unknown identifier"
	case 6:
		return "High Temperature"
	case 7:
		return "Bad or shorted cable/module"
	case 12:
		return "One or more network ports have been powered down due to insufficient/unadvertised power on the PCIe slot"
	}
	return "Unknown error"
}

// readPower asks what the slot offers (Linux events.c, mlx5_pcie_event).
func (h *HCA) readPower(ctx context.Context) error {
	var reg prm.RegMPEIN
	in := prm.AccessRegIn{OpMod: uint16(prm.AccessRegRead), RegisterID: prm.RegIDMPEIN, RegisterData: make([]byte, reg.Len())}
	reg.Put(in.RegisterData)
	out := prm.AccessRegOut{RegisterData: make([]byte, reg.Len())}
	if err := h.exec(ctx, &in, &out); err != nil {
		return err
	}
	reg.Get(out.RegisterData)
	const sufficient, insufficient = 1, 2
	p := stats.Power{
		Watts: int(reg.PCIPower), Insufficient: reg.PwrStatus == insufficient,
		Known: reg.PwrStatus == sufficient || reg.PwrStatus == insufficient,
	}
	level := slog.LevelInfo
	if p.Insufficient {
		level = slog.LevelWarn
	}
	h.config.Log.Log(ctx, level, p.String())
	x := &h.surroundings
	x.mu.Lock()
	defer x.mu.Unlock()
	x.offered = &p
	return nil
}

// describe adds what is known to a report.
func (x *surroundings) describe(s *stats.Health) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.module != nil {
		m := *x.module
		s.Module = &m
	}
	if x.offered != nil {
		p := *x.offered
		s.Power = &p
	}
}
