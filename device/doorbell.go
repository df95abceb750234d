package device

import (
	"slices"

	"cxkit/device/internal/config"
	"cxkit/device/internal/object"
	"cxkit/trace"
)

// uarShift is log2 of a doorbell page on hosts with 4 KiB pages; uarSize is how much of a page holds
// registers, on all hosts.
const (
	uarShift = 12
	uarSize  = 1 << uarShift
)

// setUARPages makes doorbell pages as large as the host's: SET_HCA_CAP gives log_uar_page_sz. The pages
// before config.End are the init segment and the MSI-X table. No page is allocated.
func (f *function) setUARPages(log uint8) {
	f.uarShift = uarShift + log
	first := uint32(config.End >> f.uarShift)
	f.uars = object.New[*uar](first, int(f.info.BARs[0]>>f.uarShift)-int(first))
	f.mapped.clear()
}

// Registers of a doorbell page (reference 00 §4).
const (
	uarCQArm = 0x020
	uarEQArm = 0x040
	uarEQ    = 0x048
	uarSend  = 0x800 // BlueFlame buffers from here to the page's end
	uarBFLog = 8     // log2 of a buffer: half of the register size that capabilities give
)

// WriteBAR takes note of a register write for the engine.
func (f *function) WriteBAR(bar int, off uint64, size int, v uint64) {
	if bar != 0 || off >= f.info.BARs[0] || size != 4 && size != 8 || off&3 != 0 || f.unreachable.Load() {
		return
	}
	if size == 8 {
		f.publishWrite(off, uint32(v>>32))
		f.publishWrite(off+4, uint32(v))
	} else {
		f.publishWrite(off, uint32(v))
	}
	f.card.post(write{function: uint16(f.index), size: uint8(size), off: uint32(off), value: v})
}

// publishWrite lets the writer of the command queue's address read it back.
func (f *function) publishWrite(off uint64, v uint32) {
	switch off {
	case regCmdqHigh:
		f.regs.cmdqHigh.Store(v)
	case regCmdqLow:
		// The engine may store nic_interface at the same time.
		for {
			old := f.regs.cmdqLow.Load()
			if f.regs.cmdqLow.CompareAndSwap(old, v&0xfffff000|old&nicInterfaceMask) {
				return
			}
		}
	}
}

// write acts on a register write in the engine.
func (f *function) write(off uint64, size int, v uint64) {
	if off >= config.End {
		f.ring(uint32(off>>f.uarShift), uint32(off&(1<<f.uarShift-1)), size, v)
		return
	}
	f.log.RegisterWrite(0, off, size, v)
	if size == 8 {
		f.writeRegister(off, uint32(v>>32))
		f.writeRegister(off+4, uint32(v))
		return
	}
	f.writeRegister(off, uint32(v))
}

// writeRegister acts on a write to the init segment.
func (f *function) writeRegister(off uint64, v uint32) {
	switch off {
	case regCmdqHigh:
		f.executor.high = v
	case regCmdqLow:
		f.writeCmdqLow(v)
	case regCmdDoorbell:
		f.enter()
		f.commandDoorbell(v)
	}
}

// doorbells takes the doorbells of pages. The function itself is the honest one.
type doorbells interface {
	sqDoorbell(uar, sqn uint32, index uint16)
	cqArm(uar, cqn, word uint32)
	eqDoorbell(uar, v uint32, arm bool)
}

// ring acts on a write to a doorbell page.
func (f *function) ring(page, reg uint32, size int, v uint64) {
	u, ok := f.uars.Get(page)
	if !ok {
		f.log.Note("doorbell in a page that is not allocated")
		return
	}
	f.enter()
	switch {
	case reg >= uarSize: // behind the registers of a larger page
	case reg >= uarSend:
		// Bytes behind the first eight of a buffer are a copy of the WQE, which is fetched from memory.
		switch in := reg & (1<<uarBFLog - 1); {
		case in == 0 && size == 8:
			f.bells.sqDoorbell(page, uint32(v)>>8, uint16(v>>40))
		case in == 0:
			u.sq = uint32(v)
		case in == 4 && size == 4:
			f.bells.sqDoorbell(page, uint32(v)>>8, uint16(u.sq>>8))
		}
	case reg == uarCQArm && size == 8:
		f.bells.cqArm(page, uint32(v)&0xffffff, uint32(v>>32))
	case reg == uarCQArm:
		u.cqArm = uint32(v)
	case reg == uarCQArm+4 && size == 4:
		f.bells.cqArm(page, uint32(v)&0xffffff, u.cqArm)
	case (reg == uarEQArm || reg == uarEQ) && size == 4:
		f.bells.eqDoorbell(page, uint32(v), reg == uarEQArm)
	}
}

// eqDoorbell takes an EQ's consumer counter.
func (f *function) eqDoorbell(page, v uint32, arm bool) {
	eqn := uint8(v >> 24)
	bell := trace.BellEQ
	if arm {
		bell = trace.BellEQArm
	}
	f.log.Doorbell(bell, uint32(eqn), v&0xffffff)
	eq := f.events.Get(eqn)
	if eq == nil || eq.UAR != page {
		f.log.Note("doorbell of an EQ that does not exist or uses another UAR")
		return
	}
	if !f.events.Doorbell(eq, v, arm) {
		f.log.Note("doorbell of an EQ with a consumer counter that is ahead of its entries")
	}
}

// dropWrites forgets the register writes of before a reset.
func (f *function) dropWrites() {
	c := f.card
	c.inboxMu.Lock()
	defer c.inboxMu.Unlock()
	own := func(w write) bool { return int(w.function) == f.index }
	c.inbox = slices.DeleteFunc(c.inbox, own)
	// What a fault has kept from being acted on.
	c.draining = append(c.draining[:c.acted], slices.DeleteFunc(c.draining[c.acted:], own)...)
}
