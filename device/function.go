package device

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"cxkit/device/internal/command"
	"cxkit/device/internal/config"
	"cxkit/device/internal/event"
	"cxkit/device/internal/memory"
	"cxkit/device/internal/mkey"
	"cxkit/device/internal/object"
	"cxkit/pci"
	"cxkit/prm"
	"cxkit/trace"
)

// function is one PCI function of the card. It is a pci.Endpoint. The first group does not change, the
// second is read by any goroutine, the rest belongs to the engine (Card.mu).
type function struct {
	card  *Card
	index int
	port  *port
	info  pci.Info
	log   *trace.Log
	print *slog.Logger
	table command.Table

	config *config.Space
	sw     *switchPort // its place on an e-switch; nil: there is none
	// appetite is how many pages firmware works in.
	appetite *Memory
	regs     registers
	// unreachable: writes to registers are lost. removed: so are those to configuration space.
	unreachable, removed atomic.Bool
	// there: hosts see the function. Virtual functions come and go. gone: they don't, or it was removed.
	there bool
	gone  atomic.Bool

	host    pci.Host
	mem     pci.Memory // nil while no host is attached or the function is not bus master
	entered bool       // the step has entered mem

	partlyListed bool // in card.partly

	phase    command.Phase
	executor executor
	memory   memory.Books
	events   *event.Set
	keys     *mkey.Table

	uars     object.Table[*uar]
	uarShift uint8 // log2 of a doorbell page
	mapped   mappedBells
	pds      object.Table[*protectionDomain]
	domains  object.Table[*transportDomain]

	issi          uint16
	driverVersion [64]byte
	pageState     pageState
	moderation    timer  // sends completion events that are held back
	pageRetry     timer  // offers pages again that a driver could not take
	afterCommand  func() // what a handler wants done once its command is answered

	caps       capabilities
	management management
	vport      vport
	counters   vportCounters
	qsets      object.Table[*qCounterSet]
	monitor    monitor

	sender sender // what it has to send: datapath.go

	hooks         // what faults stand before: faulty.go
	states states // faults that last: faulty_state.go

	queueHalf // queues and their commands: cmd_queue.go
	steerHalf // steering and its commands: cmd_steer.go
}

// protectionDomain and transportDomain have no state but who uses them.
type (
	protectionDomain struct{ object.Refs }
	transportDomain  struct{ object.Refs }
)

// uar is a doorbell page that was allocated.
type uar struct {
	object.Refs
	cqArm, sq uint32 // first halves of doorbells that come as two writes
	number    uint32
	bytes     []byte // its registers, if they are memory
}

// qCounterSet is a q-counter set; queues that count in it hold it.
type qCounterSet struct {
	object.Refs
	qCounter
}

func newFunction(c *Card, index int) (*function, error) {
	address, err := functionAddress(c.config.Address, index)
	if err != nil {
		return nil, err
	}
	p := c.profile
	f := &function{card: c, index: index, there: true, log: c.config.Trace.For(trace.Device, address)}
	f.appetite = &c.config.Memory
	id := config.Identity{
		Vendor: p.vendor, Device: p.device, SubVendor: p.subVendor, SubDevice: p.subDevice, Revision: p.revision,
		BARSize: p.barSize, Vectors: c.config.Vectors, Multifunction: c.config.Ports > 1, Function: index,
		LastFunction: c.config.Ports - 1, VPD: p.vpd,
	}
	first := c.config.Ports // index of the first port's physical function
	if p.embedded {
		first *= 2
	}
	switch {
	case index < c.config.Ports:
		f.port = c.ports[index]
		if c.config.VFs > 0 || p.embedded {
			newESwitch(f)
		}
		if !p.embedded {
			f.hasVFs(&id, index)
		}
	case index < first:
		// The host's physical function of a card whose own processor manages the e-switch.
		port := index - c.config.Ports
		f.port = c.ports[port]
		c.functions[port].sw.esw.join(f)
		f.forgetManager()
		id.Function, id.VPD = port, p.vpd
		f.hasVFs(&id, port)
	default:
		manager := c.functions[(index-first)/c.config.VFs]
		f.port, f.there = manager.port, false
		manager.sw.esw.join(f)
		f.forgetManager()
		appetite := c.config.Memory.virtual()
		f.appetite = &appetite
		id.Device, id.BARSize, id.Vectors, id.VPD = p.vfDevice(), vfBARSize, min(id.Vectors, vfVectors), nil
		id.Virtual, id.Multifunction, id.Function, id.LastFunction = true, false, 0, 0
	}
	f.memory = memory.New(c.rand.Uint64())
	f.print = c.config.Logger
	if f.print == nil {
		f.print = slog.New(slog.DiscardHandler)
	}
	f.print = f.print.With("function", address)
	f.config = config.New(id)
	f.info = pci.Info{
		Address: address, Vendor: p.vendor, Device: id.Device, BARs: [6]uint64{id.BARSize},
		Vectors: id.Vectors, MSIXTable: f.config.Table(), MSIXPBA: f.config.PBA(),
	}
	if c.config.MapDoorbells {
		if err := f.mapBells(); err != nil {
			return nil, err
		}
	}
	f.events = event.NewSet(event.Config{
		Memory: func() pci.Memory { return f.mem },
		Raise:  f.raise,
		Failed: f.eqFailed,
		Log:    f.log,
		Count:  p.maxEQs,

		Unarmed: c.config.MapDoorbells,
	})
	f.table = f.controlHandlers()
	for _, half := range []command.Table{f.queueHandlers(), f.steerHandlers()} {
		for op, e := range half {
			if _, ok := f.table[op]; ok {
				return nil, fmt.Errorf("two handlers for command %#x", op)
			}
			f.table[op] = e
		}
	}
	f.reset()
	return f, nil
}

// hasVFs makes f, which is to have identity id, the physical function of a port's virtual functions.
func (f *function) hasVFs(id *config.Identity, port int) {
	c := f.card
	if c.config.VFs == 0 {
		return
	}
	id.VFs, id.VFDevice, id.VFBARSize = c.config.VFs, c.profile.vfDevice(), vfBARSize
	id.FirstVF = c.VF(port, 1) - f.index
}

// Virtual functions have small BARs and few vectors, as those of real cards.
const (
	vfBARSize = 1 << 20
	vfVectors = 12
)

// functionAddress adds index to the function number of a PCI address.
func functionAddress(first string, index int) (string, error) {
	var domain, bus, dev, fn int
	if n, err := fmt.Sscanf(first, "%04x:%02x:%02x.%d", &domain, &bus, &dev, &fn); n != 4 || err != nil {
		return "", fmt.Errorf("PCI address %q: not like %s", first, defaultAddress)
	}
	fn += index
	return fmt.Sprintf("%04x:%02x:%02x.%d", domain, bus, dev+fn/8, fn%8), nil
}

// Info describes the function.
func (f *function) Info() pci.Info { return f.info }

// ReadConfig reads configuration space.
func (f *function) ReadConfig(off, size int) uint32 { return f.face().readConfig(off, size) }

func (f *function) readConfig(off, size int) uint32 { return f.config.Read(off, size) }

// WriteConfig writes configuration space. A function level reset is over when it returns.
func (f *function) WriteConfig(off, size int, v uint32) {
	if f.gone.Load() {
		return
	}
	e := f.config.Write(off, size, v)
	if e.VFs {
		f.card.mu.Lock()
		f.card.begin()
		f.sw.esw.setVFs(f.config.VFs())
		f.card.mu.Unlock()
		f.card.wakeUp()
	}
	if e.Reset {
		f.Reset(pci.ResetFLR)
	} else if e.Master {
		f.card.mu.Lock()
		f.connect()
		f.card.mu.Unlock()
	}
}

// connect gives the engine the host's memory while the function is bus master, and takes it away
// otherwise. No step runs.
func (f *function) connect() {
	f.mem = nil
	if f.host != nil && f.config.BusMaster() && f.there && !f.removed.Load() {
		f.mem = f.host.Memory()
		f.resumeSending()
		if f.env.Holds() { // and could not send it
			f.card.timers.arm(&f.moderation, f.card.now)
			defer f.card.wakeUp()
		}
	}
}

// errAttached: a function has one host at a time.
var errAttached = errors.New("already attached to a host")

// Attach plugs the function into a host.
func (f *function) Attach(h pci.Host) error {
	f.card.mu.Lock()
	defer f.card.mu.Unlock()
	if f.host != nil {
		return fmt.Errorf("%s: %w", f.info.Address, errAttached)
	}
	if f.card.closed {
		return fmt.Errorf("%s: the card is closed", f.info.Address)
	}
	f.host = h
	f.connect()
	f.compose()
	return nil
}

// Detach unplugs the function, which forgets everything as after a power cycle.
func (f *function) Detach() {
	f.card.mu.Lock()
	defer f.card.mu.Unlock()
	f.host, f.mem = nil, nil
	f.config.Reset()
	f.reset()
	if f.card.closed {
		if err := f.freeBells(); err != nil {
			f.print.Error("doorbell pages", "why", err)
		}
	}
	f.loseVFs()
}

// Reset performs a reset.
func (f *function) Reset(kind pci.ResetKind) {
	f.card.mu.Lock()
	defer f.card.mu.Unlock()
	f.card.begin()
	if kind == pci.ResetHot {
		f.config.Reset()
	} else {
		f.config.ResetFunction()
	}
	f.reset()
	f.loseVFs()
}

// loseVFs ends the virtual functions of a function that was reset. No step runs.
func (f *function) loseVFs() {
	if f.sw != nil && f.sw.Number == pfVport {
		f.sw.esw.setVFs(0)
		f.card.wakeUp()
	}
}

// endSwitch ends what others have of the function: as manager of an e-switch its wards, tables and settings, as
// physical function its virtual functions. forget: it has been reset.
func (f *function) endSwitch(forget bool) {
	if e := f.esw(); e != nil {
		e.disableWards(forget)
		e.reset()
	}
	f.endVirtuals()
}

// enter makes the function's memory usable until the step ends. Whoever works for a function calls it
// first; the engine has done so for everything it calls on its own.
func (f *function) enter() {
	if !f.entered && f.mem != nil {
		f.mem.Enter()
		f.entered = true
		f.card.entered = append(f.card.entered, f)
	}
}

// lose ends a function whose host has made memory vanish under it, as a real card does when the root
// complex answers its reads with an error: nothing moves any more until a reset, and the health buffer
// says why. No step runs.
func (f *function) lose() {
	f.stopTraffic()
	f.executor.reset(f)
	f.mem = nil
	f.fail(health{severity: 2, syndrome: uint8(prm.HealthICMFetchPCI), resetRequest: true})
}

// raise interrupts. An MSI-X message is a memory write, so only a bus master can.
func (f *function) raise(vector int) {
	if f.mem != nil {
		f.interrupts.Raise(vector)
	}
}

// reset brings the function back to power-on. No step runs and the memory is not entered.
func (f *function) reset() {
	f.connect()
	f.dropWrites()
	f.resetState()
	f.regs.reset(f)
}

// resetState forgets everything but configuration space and registers.
func (f *function) resetState() {
	f.endSwitch(true)
	f.caps = f.card.profile.caps(f)
	f.stopAll()
	f.executor.reset(f)
	f.card.timers.disarm(&f.pageRetry)
	f.card.timers.disarm(&f.mapped.remind)
	f.pageRetry.fire = f.offerAgain
	f.afterCommand = nil
	if !f.isWard() {
		f.memory.Clear()
		f.pageState = pageState{}
		f.port.reset(f.card.profile)
		f.port.signal(f.card.profile)
	}
	f.resetVport()
	f.counters = vportCounters{}
	f.phase = command.Live
	f.issi, f.driverVersion, f.management = 0, [64]byte{}, management{}
	f.states.reset(f)
}

// stopAll ends all DMA and forgets all objects, as TEARDOWN_HCA does.
func (f *function) stopAll() {
	f.resetSteering()
	f.resetQueues()
	f.compose()
	f.events.Clear()
	f.stopMonitor()
	f.keys = mkey.NewTable(f.caps.maxMKeys())
	p := f.card.profile
	f.setUARPages(uint8(f.caps.General.LogUARPageSz))
	f.pds = object.New[*protectionDomain](1, 1<<p.logMaxPD-1)
	f.domains = object.New[*transportDomain](1, 1<<p.logMaxTD-1)
	f.qsets = object.New[*qCounterSet](1, 255)
}
