package device

import (
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"time"

	faults "cxkit/device/fault"
	"cxkit/device/internal/object"
	"cxkit/trace"
)

// Config describes a card. The zero value is a ConnectX-5 with one port.
type Config struct {
	// Profile names the kind of card, one of Profiles; "cx5" if empty.
	Profile string
	// Ports is how many ports and physical functions there are, 1 to 8; 0 means 1. Function i serves
	// port i.
	Ports int
	// VFs is how many virtual functions each physical function may have, 0 to 127: drivers enable them.
	// They are functions Ports on, those of function 0 first.
	VFs int
	// Address is the PCI address of function 0 with domain; "0000:08:00.0" if empty. The others follow.
	Address string
	// Seed makes every random choice of the card repeatable.
	Seed uint64
	// Clock is the card's time; time.Now if nil. It must not run backwards.
	Clock func() time.Time
	// MAC is the permanent address of function 0; function i has i added to the last byte. If it is
	// zero the profile's is used.
	MAC [6]byte
	// Vectors is the number of MSI-X vectors a function has, 1 to 2048; the profile's if 0.
	Vectors int

	// Latency is how long firmware takes for a command, by opcode; OtherLatency is for opcodes that are
	// not in it. Zero means at once.
	Latency      map[uint16]Latency
	OtherLatency Latency
	// BootTime is how long a function takes to answer after a reset; the profile's if 0.
	BootTime time.Duration

	// ModerationGrain is the shortest period of CQ moderation that is kept; 50 µs if 0. Events with a shorter one
	// are held back for the burst that their completions come in, no longer: a host's timers take about as long
	// to go off, and more events are no error. A microsecond keeps all.
	ModerationGrain time.Duration

	// CommandTimeout is how long the init segment tells drivers to wait for a command; 60 s if 0, in steps of
	// a millisecond.
	CommandTimeout time.Duration

	// Bus bounds what PCI Express takes of the frames that come.
	Bus Bus

	// Memory is firmware's appetite; fields that are 0 take the profile's value.
	Memory Memory

	// Faults is what to break, from the card's start on.
	Faults faults.Plan

	// MapDoorbells makes doorbell pages memory that a transport may map into the host, and the engine look
	// for doorbells there while there are queues. Linux only.
	MapDoorbells bool

	// Signatures offers the capability cmdif_checksum: a driver that enables it signs its commands, and
	// has the answers signed. Off by default, as in the reference.
	Signatures bool
	// Lenient accepts commands with reserved bits set.
	Lenient bool

	// Trace records commands, events and doorbells; nil records nothing.
	Trace *trace.Recorder
	// Logger gets what an operator of a real card would find in its log; nil means none.
	Logger *slog.Logger
}

// Latency is a distribution of durations: fixed, uniform, normal or with a long tail.
type Latency = faults.Latency

// Memory is how many 4 KiB pages of the host firmware works in.
type Memory struct {
	// Boot and Init pages are asked for by QUERY_PAGES before INIT_HCA. A real ConnectX-4 asks for 6 and
	// 12,868. Negative means none.
	Boot, Init int
	// Included is how many pages of objects fit into them; objects beyond cost more pages, which
	// firmware asks for by event. Negative means none.
	Included int
	// Objects is how many bytes an object takes, by kind as Books names it; kinds that are not in it take
	// what they do on real cards, roughly.
	Objects map[string]int
	// TakeLimit is how many pages firmware returns in one command, 50,000 if 0.
	TakeLimit int
	// VHCAIDs lets firmware name functions by vhca_id in page commands and events, where the driver agrees
	// (icm_mng_function_id_mode).
	VHCAIDs bool
}

const (
	defaultAddress = "0000:08:00.0"
	defaultGrain   = 50 * time.Microsecond
	maxPorts       = 8
	maxVectors     = 2048 // PCI: MSI-X table size
	maxFunctions   = 256  // of a bus
)

// withDefaults checks the configuration and fills in what is not given.
func (c Config) withDefaults() (Config, *profile, error) {
	if c.Profile == "" {
		c.Profile = "cx5"
	}
	p := profileNamed(c.Profile)
	if p == nil {
		return c, nil, fmt.Errorf("device profile %q: not one of %s", c.Profile, strings.Join(Profiles(), ", "))
	}
	if c.Ports == 0 {
		c.Ports = 1
	}
	if c.Ports < 1 || c.Ports > maxPorts {
		return c, nil, fmt.Errorf("%d ports: a card has 1 to %d", c.Ports, maxPorts)
	}
	if c.VFs < 0 || c.VFs > maxVFs {
		return c, nil, fmt.Errorf("%d virtual functions: a physical function has 0 to %d", c.VFs, maxVFs)
	}
	if n := c.Ports * (1 + c.VFs); n > maxFunctions {
		return c, nil, fmt.Errorf("%d functions: a bus has %d", n, maxFunctions)
	}
	if c.Address == "" {
		c.Address = defaultAddress
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.MAC == [6]byte{} {
		c.MAC = p.mac
	}
	if c.MAC[0]&1 != 0 {
		return c, nil, fmt.Errorf("MAC address %x: a group address", c.MAC)
	}
	if c.Vectors == 0 {
		c.Vectors = p.vectors
	}
	if c.Vectors < 1 || c.Vectors > maxVectors {
		return c, nil, fmt.Errorf("%d vectors: a function has 1 to %d", c.Vectors, maxVectors)
	}
	if c.CommandTimeout == 0 {
		c.CommandTimeout = cmdExecTimeout * time.Millisecond
	}
	if ms := c.CommandTimeout / time.Millisecond; ms < 1 || ms >= 1<<20 {
		return c, nil, fmt.Errorf("command timeout %v: drivers can be told 1 ms to %v", c.CommandTimeout, (1<<20-1)*time.Millisecond)
	}
	if c.ModerationGrain == 0 {
		c.ModerationGrain = defaultGrain
	}
	if c.BootTime == 0 {
		c.BootTime = p.bootTime
	}
	for op, l := range c.Latency {
		if err := l.Check(); err != nil {
			return c, nil, fmt.Errorf("latency of command %#x: %w", op, err)
		}
	}
	if err := c.Bus.check(); err != nil {
		return c, nil, err
	}
	if err := c.OtherLatency.Check(); err != nil {
		return c, nil, fmt.Errorf("latency of other commands: %w", err)
	}
	if err := c.Faults.Check(); err != nil {
		return c, nil, fmt.Errorf("fault plan: %w", err)
	}
	c.Latency = maps.Clone(c.Latency) // a plan may add to it
	c.Memory.Boot = orDefault(c.Memory.Boot, p.memory.Boot)
	c.Memory.Init = orDefault(c.Memory.Init, p.memory.Init)
	c.Memory.Included = orDefault(c.Memory.Included, p.memory.Included)
	c.Memory.TakeLimit = orDefault(c.Memory.TakeLimit, maxTake)
	if err := c.Memory.check(); err != nil {
		return c, nil, err
	}
	return c, p, nil
}

// virtual is the appetite of a virtual function of a card with appetite m.
func (m Memory) virtual() Memory {
	m.Boot, m.Init, m.Included = min(m.Boot, vfBoot), min(m.Init, vfInit), min(m.Included, vfInit)
	return m
}

// vfBoot and vfInit are the pages that firmware asks for at most before a virtual function's INIT_HCA.
const vfBoot, vfInit = 2, 256

// check finds what is wrong with an appetite.
func (m *Memory) check() error {
	if m.TakeLimit <= 0 {
		return fmt.Errorf("take limit of %d pages: want 1 or more", m.TakeLimit)
	}
	for name, n := range m.Objects {
		k := object.None + 1
		for k < object.Kinds && k.String() != name {
			k++
		}
		if k == object.Kinds || n < 0 || n > 1<<20 {
			return fmt.Errorf("memory of objects: %q takes %d bytes: want a kind of object, and 0 to 1 MiB", name, n)
		}
	}
	return nil
}

// orDefault is def for 0 and 0 for a negative v.
func orDefault(v, def int) int {
	if v == 0 {
		return def
	}
	return max(v, 0)
}
