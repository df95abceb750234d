package transporttest

import (
	"encoding/binary"
	"errors"
	"sync"

	"cxkit/pci"
)

// Card is the endpoint that the suite runs against. Its engine is a goroutine that lives from Attach to
// Detach.
type Card struct {
	config configSpace

	mu    sync.Mutex // guards what follows
	idle  *sync.Cond // the engine has nothing to do
	work  *sync.Cond // there is a command, or the host is gone
	regs  [regLast]byte
	bar2  [bar2Size]byte
	log   []uint32
	queue []command
	busy  bool // the engine runs a command
	host  pci.Host
	ended chan struct{} // closed when the engine of this host has ended

	engine engine // belongs to the engine's goroutine
}

var _ pci.Endpoint = (*Card)(nil)

// NewCard makes a card at power-on.
func NewCard() *Card {
	c := &Card{}
	c.idle, c.work = sync.NewCond(&c.mu), sync.NewCond(&c.mu)
	c.config.reset()
	c.resetRegisters()
	return c
}

// Info describes the card.
func (c *Card) Info() pci.Info {
	return pci.Info{
		Address: "0000:0f:00.0", Vendor: vendorID, Device: deviceID,
		BARs: [6]uint64{0: bar0Size, 2: bar2Size}, Vectors: Vectors,
		MSIXTable: pci.BARRange{BAR: 0, Off: msixTable, Len: Vectors * 16},
		MSIXPBA:   pci.BARRange{BAR: 0, Off: msixPBA, Len: (Vectors + 63) / 64 * 8},
	}
}

// ReadConfig reads configuration space.
func (c *Card) ReadConfig(off, size int) uint32 { return c.config.read(off, size) }

// WriteConfig writes configuration space.
func (c *Card) WriteConfig(off, size int, v uint32) {
	if c.config.write(off, size, v) {
		c.Reset(pci.ResetFLR)
	}
}

var errAttached = errors.New("already attached")

// Attach plugs the card in and starts its engine.
func (c *Card) Attach(h pci.Host) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.host != nil {
		return errAttached
	}
	c.host, c.ended = h, make(chan struct{})
	go c.run(h, c.ended)
	return nil
}

// Detach ends the engine.
func (c *Card) Detach() {
	c.mu.Lock()
	ended := c.ended
	if c.host == nil {
		c.mu.Unlock()
		return
	}
	c.host, c.queue = nil, nil
	c.work.Broadcast()
	c.mu.Unlock()
	<-ended
}

// Reset waits for the engine's step and clears everything but what a reset keeps.
func (c *Card) Reset(kind pci.ResetKind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = nil
	for c.busy {
		c.idle.Wait()
	}
	resets := c.get(regResets, 4)
	c.resetRegisters()
	c.engine.kept = nil
	if kind == pci.ResetHot {
		resets = 0
	} else {
		resets++
	}
	c.put(regResets, 4, resets)
	c.config.reset()
}

func (c *Card) resetRegisters() {
	clear(c.regs[:])
	clear(c.bar2[:])
	c.log = nil
	c.put(regID, 4, cardID)
}

// ReadBAR reads a register.
func (c *Card) ReadBAR(bar int, off uint64, size int) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case bar == 2 && off+uint64(size) <= bar2Size:
		return getBE(c.bar2[off:], size)
	case bar == 0 && off == regLog && size == 4:
		if at := c.get(regLogAt, 4); at < uint64(len(c.log)) {
			return uint64(c.log[at])
		}
		return 0
	case bar == 0 && off == regLogLen && size == 4:
		return uint64(len(c.log))
	case bar == 0 && off+uint64(size) <= regLast:
		return c.get(off, size)
	}
	return 0
}

// WriteBAR writes a register.
func (c *Card) WriteBAR(bar int, off uint64, size int, v uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case bar == 2 && off+uint64(size) <= bar2Size:
		putBE(c.bar2[off:], size, v)
	case bar != 0:
	case off == regAppend && size == 4:
		if len(c.log) < logMax {
			c.log = append(c.log, uint32(v))
		}
	case off == regCommand && size == 4:
		if c.host != nil && len(c.queue) < queueMax {
			c.queue = append(c.queue, command{
				op: uint32(v), source: c.get(regSource, 8), dest: c.get(regDest, 8),
				length: int(int32(c.get(regLength, 4))), arg: uint32(c.get(regArg, 4)), notify: int(int32(c.get(regNotify, 4))),
			})
			c.work.Signal()
		}
	case off >= regScratch && off+uint64(size) <= regScratch+scratchSize, off == regLogAt && size == 4,
		off >= regSource && off+uint64(size) <= regCommand:
		c.put(off, size, v)
	}
}

func (c *Card) get(off uint64, size int) uint64    { return getBE(c.regs[off:], size) }
func (c *Card) put(off uint64, size int, v uint64) { putBE(c.regs[off:], size, v) }

func getBE(b []byte, size int) uint64 {
	var p [8]byte
	copy(p[8-size:], b[:size])
	return binary.BigEndian.Uint64(p[:])
}

func putBE(b []byte, size int, v uint64) {
	var p [8]byte
	binary.BigEndian.PutUint64(p[:], v)
	copy(b[:size], p[8-size:])
}
