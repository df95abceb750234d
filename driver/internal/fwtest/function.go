package fwtest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"cxkit/dma"
	"cxkit/mmio"
	"cxkit/pci"
	"cxkit/prm"
)

const (
	barSize = 1 << 20
	// Vectors is how many MSI-X vectors the card has by default.
	Vectors = 5
	// firstBus is above 4 GiB, so that code that loses the upper half of an address is found out.
	firstBus = 0x12_0000_0000
	// firstUAR is the first doorbell page handed out.
	firstUAR = 8
)

// Card is a scripted card and the function it is.
type Card struct {
	info    pci.Info
	vectors []chan struct{}
	closed  chan struct{}
	work    sync.WaitGroup // handlers

	mu       sync.Mutex // guards all below
	regs     map[uint64]uint32
	command  uint16 // of configuration space
	memory   []*region
	nextBus  uint64
	gone     bool
	badDMA   int
	resets   int
	handlers map[prm.Opcode]func(*Call)
	resetErr error
	arenaErr error
	limit    int // bytes of Reserved memory, 0: none
	reserved int
	onClose  sync.Once
	deaf     bool        // raises no interrupts
	signs    bool        // checks and makes signatures
	always   func(*Card) // after each reset

	queue uint64 // command queue
	log   prm.InitSegCmdQ
	fw    firmware
}

// region is memory the card can reach.
type region struct {
	bus   uint64
	bytes []byte
}

// New makes a card whose firmware does everything right.
func New() *Card {
	c := &Card{
		info: pci.Info{
			Address: "0000:08:00.0", Vendor: 0x15B3, Device: 0x1017, BARs: [6]uint64{barSize}, Vectors: Vectors,
		},
		closed:   make(chan struct{}),
		handlers: make(map[prm.Opcode]func(*Call)),
		nextBus:  firstBus,
	}
	c.SetVectors(Vectors)
	c.power()
	return c
}

// SetVectors changes the number of vectors, before the card is used.
func (c *Card) SetVectors(n int) {
	c.info.Vectors = n
	c.vectors = make([]chan struct{}, n)
	for i := range c.vectors {
		c.vectors[i] = make(chan struct{}, 1)
	}
}

// SetDevice changes the PCI device identifier, before the card is used.
func (c *Card) SetDevice(id uint16) { c.info.Device = id }

// power brings registers and firmware to their state after a reset.
func (c *Card) power() {
	c.regs = map[uint64]uint32{
		prm.InitSegFWRevOff:                             prm.InitSegFWRevDword(35, 16),
		prm.InitSegCmdIfRevOff:                          prm.InitSegCmdIfRevDword(5, 2000),
		prm.InitSegCmdQOff:                              prm.InitSegCmdQDword(0, prm.NICInterfaceFull, 5, 6),
		prm.InitSegHealthOff + prm.HealthBufferFWVerOff: 0x10230000,
	}
	c.queue = 0
	c.log = prm.InitSegCmdQ(c.regs[prm.InitSegCmdQOff])
	c.fw.reset()
}

// Info describes the function.
func (c *Card) Info() pci.Info { return c.info }

// ReadConfig reads the command register; all else is 0.
func (c *Card) ReadConfig(off int, p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var space [4096]byte
	binary.LittleEndian.PutUint16(space[4:], c.command)
	copy(p, space[off:])
	if c.gone {
		for i := range p {
			p[i] = 0xFF
		}
	}
	return nil
}

// WriteConfig writes the command register.
func (c *Card) WriteConfig(off int, p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if off == 4 && len(p) == 2 {
		c.command = binary.LittleEndian.Uint16(p)
	}
	return nil
}

// BusMaster tells whether the driver lets the card do DMA.
func (c *Card) BusMaster() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.command&4 != 0
}

// Window is BAR 0.
func (c *Card) Window(bar int) (*mmio.Window, error) {
	if bar != 0 {
		return nil, fmt.Errorf("no BAR %d", bar)
	}
	return mmio.NewTrapped((*bar0)(c), barSize), nil
}

// NewArena makes heap memory, whatever kind is asked for; Reserved memory has no bytes, so that firmware
// pages by the million cost nothing.
func (c *Card) NewArena(size int, kind dma.Kind) (*dma.Arena, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.arenaErr != nil {
		return nil, c.arenaErr
	}
	if kind == dma.Reserved {
		if c.limit > 0 && c.reserved+size > c.limit {
			return nil, errLimit
		}
		c.reserved += size
	} else {
		kind = dma.Heap
	}
	a, err := dma.New(size, kind)
	if err != nil {
		return nil, err
	}
	bus := (c.nextBus + 2<<20 - 1) &^ (2<<20 - 1)
	c.nextBus = bus + uint64(a.Size()) + dma.PageSize
	r := &region{bus, a.Bytes()}
	c.memory = append(c.memory, r)
	a.Place(bus, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if kind == dma.Reserved {
			c.reserved -= size
		}
		for i, x := range c.memory {
			if x == r {
				c.memory = append(c.memory[:i], c.memory[i+1:]...)
				break
			}
		}
		return nil
	})
	return a, nil
}

var errLimit = errors.New("the host has no more memory for firmware")

// LimitPages bounds what the host can give to firmware, in pages.
func (c *Card) LimitPages(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limit = n * dma.PageSize
}

// Arenas is how many pieces of memory the driver has not freed.
func (c *Card) Arenas() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.memory)
}

// FailArenas makes NewArena fail with err; nil ends that.
func (c *Card) FailArenas(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arenaErr = err
}

// BadDMA is how often firmware was led to memory that is not there.
func (c *Card) BadDMA() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.badDMA
}

// at returns n bytes at bus address, nil if they are not there. Runs with mu held.
func (c *Card) at(bus uint64, n int) []byte {
	for _, r := range c.memory {
		if bus >= r.bus && r.bytes != nil && bus-r.bus+uint64(n) <= uint64(len(r.bytes)) {
			return r.bytes[bus-r.bus:][:n:n]
		}
	}
	c.badDMA++
	return nil
}

// Wait waits for a vector.
func (c *Card) Wait(ctx context.Context, vector int) error {
	select {
	case <-c.vectors[vector]:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.closed:
		return pci.ErrClosed
	}
}

// Deaf makes the card raise no interrupts from now on, or raise them again.
func (c *Card) Deaf(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deaf = on
}

// raise runs with mu held.
func (c *Card) raise(vector int) {
	if c.deaf || vector >= len(c.vectors) {
		return
	}
	select {
	case c.vectors[vector] <- struct{}{}:
	default:
	}
}

// Reset is a function level reset.
func (c *Card) Reset(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.resetErr != nil {
		return c.resetErr
	}
	c.resets++
	c.power()
	if c.always != nil {
		c.mu.Unlock()
		c.always(c)
		c.mu.Lock()
	}
	for _, v := range c.vectors {
		select {
		case <-v:
		default:
		}
	}
	return nil
}

// SetPersistent has f set the card's registers and handlers after each reset.
func (c *Card) SetPersistent(f func(*Card)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.always = f
}

// Resets counts resets.
func (c *Card) Resets() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resets
}

// FailReset makes Reset fail.
func (c *Card) FailReset(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resetErr = err
}

// Vanish makes the device read as ones and do nothing any more.
func (c *Card) Vanish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = true
}

// SetRegister changes what a register reads as.
func (c *Card) SetRegister(off uint64, v uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.regs[off] = v
}

// Close ends the function and waits for handlers.
func (c *Card) Close() error {
	c.onClose.Do(func() { close(c.closed) })
	c.work.Wait()
	return nil
}

// bar0 is the card's registers.
type bar0 Card

func (b *bar0) Load(off uint64, size int) uint64 {
	c := (*Card)(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return ^uint64(0)
	}
	if off == prm.InitSegHealthPollOff {
		if _, fixed := c.regs[off]; !fixed {
			c.fw.beats++
			return uint64(c.fw.beats & 0xFFFFFF)
		}
	}
	if size == 8 {
		return uint64(c.regs[off])<<32 | uint64(c.regs[off+4])
	}
	return uint64(c.regs[off])
}

func (b *bar0) Store(off uint64, size int, v uint64) {
	c := (*Card)(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return
	}
	switch {
	case off == prm.InitSegCmdQOff:
		c.queue = uint64(c.regs[prm.InitSegCmdQPhyAddrHOff])<<32 | v&^0xFFF
		c.regs[off] = uint32(v)&^0xFF | c.regs[off]&0xFF
	case off == prm.InitSegCommandDoorbellVectorOff:
		for slot := range 32 {
			if v>>slot&1 != 0 {
				c.start(slot)
			}
		}
	case off >= firstUAR*4096:
		c.fw.doorbell(c, off%4096, v)
	default:
		c.regs[off] = uint32(v)
	}
}

// Poke writes into the driver's memory as a device that has gone wild does: at off of the i-th piece, all
// counted modulo what there is. The caller makes sure that the driver is idle.
func (c *Card) Poke(i, off int, b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.memory) == 0 || i < 0 || off < 0 {
		return
	}
	m := c.memory[i%len(c.memory)].bytes
	if len(m) > 0 {
		copy(m[off%len(m):], b)
	}
}

// Raise raises every interrupt.
func (c *Card) Raise() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for v := range c.vectors {
		c.raise(v)
	}
}
