package device

import (
	"cmp"
	"sync/atomic"
	"time"

	"cxkit/prm"
)

// Registers of the initialization segment (reference 00 §3), offsets in BAR0.
const (
	regFWRev         = 0x000
	regCmdifRev      = 0x004
	regCmdqHigh      = 0x010
	regCmdqLow       = 0x014
	regCmdDoorbell   = 0x018
	regInitializing  = 0x1fc
	regHealth        = 0x200 // health buffer, 64 bytes
	regCmdExecTO     = 0xff8
	regCmdInitTO     = 0xffc
	regTimerHigh     = 0x1000
	regTimerLow      = 0x1004
	regHealthCounter = 0x1010
)

const (
	logCmdqSize   = 5 // 32 slots
	logCmdqStride = 6 // of 64 bytes
	slots         = 1 << logCmdqSize

	cmdifRev = 5

	nicInterfaceFull     = 0
	nicInterfaceDisabled = 1
	nicInterfaceReset    = 7
	nicInterfaceMask     = 7 << 8

	swResetSupported = 1 << 30
	embeddedCPU      = 1 << 23 // Linux MLX5_ECPU_BIT_NUM

	// Time-outs in milliseconds, Linux's own defaults (lib/tout.c).
	cmdExecTimeout = 60_000
	cmdInitTimeout = 2_000
)

// healthPeriod is how fast the health counter ticks: drivers look every two seconds and need to see it
// move.
const healthPeriod = 10 * time.Millisecond

// registers are the init segment as drivers read it, from any goroutine. The engine stores, but for the
// address of the command queue, which the writer's goroutine stores so that it reads back what it wrote.
type registers struct {
	cmdqHigh atomic.Uint32
	cmdqLow  atomic.Uint32 // address bits 31:12 and nic_interface 10:8
	readyAt  atomic.Int64  // when the function has booted, in time since the card was made
	health   [16]atomic.Uint32
}

// reset brings the segment to power-on.
func (r *registers) reset(f *function) {
	r.cmdqHigh.Store(0)
	r.cmdqLow.Store(nicInterfaceFull << 8)
	r.clearHealth(f)
	r.readyAt.Store(int64(f.bootedAt(f.bootedFrom(f.card.config.Clock().Sub(f.card.epoch)))))
}

// clearHealth makes the health buffer that of firmware that has just started.
func (r *registers) clearHealth(f *function) {
	for i := range r.health {
		r.health[i].Store(0)
	}
	p := f.card.profile
	r.health[0x30/4].Store(p.fwVersion())
	r.health[0x34/4].Store(p.hwID)
}

// health is what the health buffer shows of a failure (reference 00 §3).
type health struct {
	assertVar    [6]uint32
	assertExit   uint32
	assertCallra uint32
	resetRequest bool
	severity     uint8 // 0 to 7
	irisc        uint8
	syndrome     uint8
	extSyndrome  uint16
	time         uint32 // seconds; the card's own if 0
	fwVersion    uint32 // the profile's if 0
	hwID         uint32 // the profile's if 0
}

// fail publishes a failure. The syndrome comes last, because drivers look at it first.
func (f *function) fail(h health) {
	r := &f.regs
	for i, v := range h.assertVar {
		r.health[i].Store(v)
	}
	r.health[0x20/4].Store(h.assertExit)
	r.health[0x24/4].Store(h.assertCallra)
	r.health[0x2c/4].Store(cmp.Or(h.time, uint32(f.card.now/time.Second)))
	r.health[0x30/4].Store(cmp.Or(h.fwVersion, f.card.profile.fwVersion()))
	r.health[0x34/4].Store(cmp.Or(h.hwID, f.card.profile.hwID))
	flags := uint32(1<<3|h.severity&7) << 24
	if h.resetRequest {
		flags |= 1 << 31
	}
	r.health[0x38/4].Store(flags)
	r.health[0x3c/4].Store(uint32(h.irisc)<<24 | uint32(h.syndrome)<<16 | uint32(h.extSyndrome))
	f.print.Error("health", "syndrome", prm.HealthSyndrome(h.syndrome))
	f.log.Note("health syndrome raised")
}

// initializing reports whether the function still boots.
func (f *function) initializing(now time.Duration) bool { return int64(now) < f.regs.readyAt.Load() }

// timestamp is the free-running clock that CQEs and the internal timer show, at the frequency that the
// capabilities give.
func (f *function) timestamp() uint64 { return f.card.ticks(f.card.now) }

// ticks converts a time to the card's clock of frequencyKHz, without overflow for 584 years.
func (c *Card) ticks(t time.Duration) uint64 {
	khz := uint64(c.profile.frequencyKHz)
	ns := uint64(t)
	return ns/1e6*khz + ns%1e6*khz/1e6
}

// reads are what the host reads of a function, from any goroutine. The function itself is the honest one.
type reads interface {
	readRegister(off uint64) uint32
	readConfig(off, size int) uint32
}

// ReadBAR reads a register.
func (f *function) ReadBAR(bar int, off uint64, size int) uint64 {
	if bar != 0 || off >= f.info.BARs[0] {
		return ^uint64(0) >> (64 - 8*min(size, 8))
	}
	r := f.face()
	switch size {
	case 8:
		return uint64(r.readRegister(off&^3))<<32 | uint64(r.readRegister(off&^3+4))
	case 4:
		return uint64(r.readRegister(off &^ 3))
	case 2, 1:
		dword := r.readRegister(off &^ 3)
		return uint64(dword >> (8 * (4 - uint64(size) - off&3)) & (1<<(8*size) - 1))
	}
	return 0
}

// readRegister reads the dword at off. Doorbells and everything unknown read as zero.
func (f *function) readRegister(off uint64) uint32 {
	c := f.card
	p := c.profile
	r := &f.regs
	switch off {
	case regFWRev:
		return uint32(p.fwMinor)<<16 | uint32(p.fwMajor)
	case regCmdifRev:
		return cmdifRev<<16 | uint32(p.fwSubminor)
	case regCmdqHigh:
		return r.cmdqHigh.Load()
	case regCmdqLow:
		return r.cmdqLow.Load()&^0xff | logCmdqSize<<4 | logCmdqStride
	case regInitializing:
		v := uint32(swResetSupported)
		if f.embedded() {
			v |= embeddedCPU
		}
		if f.initializing(c.clock()) {
			v |= 1 << 31
		}
		return v
	case regCmdExecTO:
		return uint32(c.config.CommandTimeout / time.Millisecond)
	case regCmdInitTO:
		return cmdInitTimeout
	case regTimerHigh:
		return uint32(c.ticks(c.clock()) >> 32)
	case regTimerLow:
		return uint32(c.ticks(c.clock()))
	case prm.InitSegRealTimeHOff:
		return uint32(c.utc(c.clock()) >> 32)
	case prm.InitSegRealTimeLOff:
		return uint32(c.utc(c.clock()))
	case regHealthCounter:
		synd := r.health[0x3c/4].Load() >> 16 & 0xff
		return synd<<24 | uint32(c.clock()/healthPeriod)&0xffffff
	}
	if off >= regHealth && off < regHealth+0x40 {
		return r.health[(off-regHealth)/4].Load()
	}
	return 0
}

// clock is the time since the card was made.
func (c *Card) clock() time.Duration { return c.config.Clock().Sub(c.epoch) }
