package device

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	faults "cxkit/device/fault"
	"cxkit/device/wire"
	"cxkit/pci"
)

// Card is a ConnectX. Its exported methods may be called from any goroutine.
type Card struct {
	config    Config // with defaults filled in; does not change
	profile   *profile
	epoch     time.Time
	functions []*function // does not change; what they hold is guarded by mu

	wake   chan struct{} // one slot: the sleeping engine has work
	napper *napper       // how Run sleeps between looks at doorbell pages, and for fine timers; nil: by timer
	naps   bool          // it may get one: the card's time is the system's

	inboxMu  sync.Mutex // guards the five below
	inbox    []write
	sleeping bool // Run sleeps, or is about to
	napping  bool // it does so by napper
	woken    bool // wakeUp was called since Run looked for work

	// mu is held during a step, and by whoever needs the engine to stand still. It guards everything
	// below and the state of functions and ports.
	mu       sync.Mutex
	draining []write
	acted    int         // of draining: the engine has acted on these
	entered  []*function // whose memory this step has entered
	partly   []*function // that have commands done in part
	now      time.Duration
	timers   timers
	rand     *rand.Rand
	ports    []*port
	closed   bool

	faults faults.Injector // what is broken

	recoveries linkRecoveries // of the PCIe link
	monitors   int            // functions whose driver waits for a counter to move

	data  dataCard // the data path's own
	hints hints    // of the doorbell page under look
}

// New makes a card. It does nothing until its functions are attached, and something steps it: Run, or
// Step.
func New(config Config) (*Card, error) {
	realTime := config.Clock == nil
	config, profile, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Card{
		config: config, profile: profile, epoch: config.Clock(),
		wake: make(chan struct{}, 1),
		rand: rand.New(rand.NewPCG(config.Seed, 0x636f6e6e65637478)),
	}
	for i := range config.Ports {
		c.ports = append(c.ports, newPort(i+1, profile))
	}
	for i := range c.VF(config.Ports, 1) {
		f, err := newFunction(c, i)
		if err != nil {
			return nil, err
		}
		c.functions = append(c.functions, f)
	}
	c.naps = realTime
	if config.MapDoorbells && realTime {
		if c.napper, err = newNapper(); err != nil {
			return nil, err
		}
	}
	c.initData()
	c.begin()
	if err := c.addFaults(config.Faults); err != nil {
		return nil, err
	}
	return c, nil
}

// Functions is the number of PCI functions, virtual ones that no driver has enabled included.
func (c *Card) Functions() int { return len(c.functions) }

// VF is the number of virtual function n, from 1, of the physical function of port pf.
func (c *Card) VF(pf, n int) int { return c.HostPF(c.config.Ports) + pf*c.config.VFs + n - 1 }

// HostPF is the number of the function of a port whose driver has the virtual functions. On a card with a
// processor of its own that is the host's, and function i is the processor's.
func (c *Card) HostPF(port int) int {
	if c.profile.embedded {
		return c.config.Ports + port
	}
	return port
}

// Function is PCI function i, for a transport. It panics if there is none.
func (c *Card) Function(i int) pci.Endpoint { return c.functions[i] }

// Ports is the number of ports.
func (c *Card) Ports() int { return len(c.ports) }

// Plug connects port i, from 0, to w, in place of what was there, which is returned and no longer used
// by the card; nil if there was nothing, and nil for w unplugs. Closing w is up to the caller.
func (c *Card) Plug(i int, w wire.Port) (old wire.Port, err error) {
	if i < 0 || i >= len(c.ports) {
		return nil, fmt.Errorf("plug into port %d: the card has %d", i, len(c.ports))
	}
	c.do(func() {
		p := c.ports[i]
		old = p.wire
		if (old != nil) != (w != nil) {
			defer p.moduleEvent(c, w != nil)
		}
		if old != nil {
			old.Attach(nil)
		}
		p.wire = w
		p.lossless = w != nil && w.Lossless()
		p.ready.Store(true)
		if w != nil {
			w.Attach(func() {
				p.ready.Store(true)
				c.wakeUp()
			})
		}
		p.signal(c.profile)
		c.portPlugged(p)
		c.checkLinks()
	})
	return old, nil
}

// Close ends the card: Run returns and the engine does nothing any more. Detach the functions first.
func (c *Card) Close() error {
	c.mu.Lock()
	c.closed = true
	for _, p := range c.ports {
		if p.wire != nil {
			p.wire.Attach(nil)
			p.wire = nil
			c.portPlugged(p)
		}
	}
	var errs []error
	for _, f := range c.functions {
		errs = append(errs, f.freeBells())
	}
	c.mu.Unlock()
	c.wakeUp()
	return errors.Join(errs...)
}
