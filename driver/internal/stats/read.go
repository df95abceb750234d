package stats

import (
	"context"
	"sync"

	"cxkit/prm"
)

// reader issues the commands.
type reader struct{ Config }

func (r reader) queue(ctx context.Context, v *values) error {
	var out prm.QueryQCounterOut
	if err := r.Exec.Exec(ctx, &prm.QueryQCounterIn{CounterSetID: r.CounterSet}, &out); err != nil {
		return err
	}
	v.raw[0] = uint64(out.OutOfBuffer)
	return nil
}

func (r reader) environmentFields() (fields []field) {
	if r.SteerMissed {
		fields = append(fields, field{"rx_steer_missed_packets", 64})
	}
	if r.InternalOOB {
		fields = append(fields, field{"dev_internal_queue_oob", 32})
	}
	if r.Oversize {
		fields = append(fields, field{"rx_oversize_pkts_buffer", 32})
	}
	return fields
}

func (r reader) environment(ctx context.Context, v *values) error {
	var out prm.QueryVNICEnvOut
	if err := r.Exec.Exec(ctx, &prm.QueryVNICEnvIn{}, &out); err != nil {
		return err
	}
	raw := v.raw[:0]
	if r.SteerMissed {
		raw = append(raw, out.VportEnv.NICReceiveSteeringDiscard)
	}
	if r.InternalOOB {
		raw = append(raw, uint64(out.VportEnv.InternalRQOutOfBuffer))
	}
	if r.Oversize {
		raw = append(raw, uint64(out.VportEnv.EthWQETooSmall))
	}
	v.raw = raw
	return nil
}

// register is a register's structure in package prm.
type register interface {
	Len() int
	Put([]byte)
	Get([]byte)
}

// access reads a register: reg says which part of it and gets the answer.
func (r reader) access(ctx context.Context, id prm.RegisterID, reg register) error {
	in := &prm.AccessRegIn{OpMod: uint16(prm.AccessRegRead), RegisterID: id, RegisterData: make([]byte, reg.Len())}
	reg.Put(in.RegisterData)
	out := &prm.AccessRegOut{RegisterData: make([]byte, reg.Len())}
	if err := r.Exec.Exec(ctx, in, out); err != nil {
		return err
	}
	reg.Get(out.RegisterData)
	return nil
}

// counterSet reads a group of the port's counters.
func (r reader) counterSet(ctx context.Context, group prm.PPCNTGroup, priority uint8) ([248]byte, error) {
	reg := prm.RegPPCNT{LocalPort: r.LocalPort, Grp: group, PrioTC: priority}
	err := r.access(ctx, prm.RegIDPPCNT, &reg)
	return reg.CounterSet, err
}

func (r reader) physical(ctx context.Context, v *values) error {
	set, err := r.counterSet(ctx, prm.PPCNTGroupPhysical, 0)
	if err != nil {
		return err
	}
	var p prm.PPCNTPhysical
	p.Get(set[:])
	v.raw[0] = uint64(p.LinkDownEvents)
	return nil
}

// busFields are those of MPCNT (reference counters §7), each with its own capability.
func (r reader) busFields() (fields []field) {
	f := &r.BusFeatures
	if !f.PCIePerformanceGroup {
		return nil
	}
	fields = append(fields, field{"rx_pci_signal_integrity", 32}, field{"tx_pci_signal_integrity", 32})
	if f.TXOverflowBufferPkt {
		fields = append(fields, field{"outbound_pci_buffer_overflow", 64})
	}
	if f.PCIeOutboundStalled {
		fields = append(fields, field{"outbound_pci_stalled_rd", 32}, field{"outbound_pci_stalled_wr", 32},
			field{"outbound_pci_stalled_rd_events", 32}, field{"outbound_pci_stalled_wr_events", 32})
	}
	return fields
}

func (r reader) bus(ctx context.Context, v *values) error {
	var reg prm.RegMPCNT
	if err := r.access(ctx, prm.RegIDMPCNT, &reg); err != nil {
		return err
	}
	var c prm.MPCNTPerformance
	c.Get(reg.CounterSet[:])
	raw := append(v.raw[:0], uint64(c.RXErrors), uint64(c.TXErrors))
	if r.BusFeatures.TXOverflowBufferPkt {
		raw = append(raw, c.TXOverflowBufferPkt)
	}
	if r.BusFeatures.PCIeOutboundStalled {
		raw = append(raw, uint64(c.OutboundStalledReads), uint64(c.OutboundStalledWrites),
			uint64(c.OutboundStalledReadsEvents), uint64(c.OutboundStalledWritesEvents))
	}
	v.raw = raw
	return nil
}

// ModuleEvents counts events of the port's module. Any goroutine may use it.
type ModuleEvents struct {
	mu     sync.Mutex // guards counts
	counts [4]uint64
}

// moduleFields are what is counted (reference counters §8; Linux events.c).
var moduleFields = []field{{"module_unplug", 64}, {"module_bus_stuck", 64}, {"module_high_temp", 64}, {"module_bad_shorted", 64}}

// Count takes note of an event.
func (m *ModuleEvents) Count(e prm.PortModuleEvent) {
	const busStuck, hot, shorted = 2, 6, 7
	i := -1
	switch {
	case e.ModuleStatus == prm.ModuleUnplugged:
		i = 0
	case e.ModuleStatus != prm.ModuleError:
	case e.ErrorType == busStuck:
		i = 1
	case e.ErrorType == hot:
		i = 2
	case e.ErrorType == shorted:
		i = 3
	}
	if i < 0 {
		return
	}
	m.mu.Lock()
	m.counts[i]++
	m.mu.Unlock()
}

func (m *ModuleEvents) read(_ context.Context, v *values) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	copy(v.raw, m.counts[:])
	return nil
}
