package device

import (
	"cxkit/device/internal/command"
	"cxkit/prm"
)

// moduleEvent tells the drivers of a port's functions that a cable was plugged in or taken out.
func (p *port) moduleEvent(c *Card, plugged bool) {
	status := prm.ModulePlugged
	if !plugged {
		status = prm.ModuleUnplugged
	}
	for _, f := range c.functions {
		if f.port == p {
			f.moduleStatus(status, 0)
		}
	}
}

// moduleStatus tells the function's driver of its port's module.
func (f *function) moduleStatus(status prm.ModuleStatus, errorType uint8) {
	f.enter()
	f.events.Post(prm.EventPortModule, 0, func(e []byte) {
		e[0x21] = f.module()
		e[0x23] = byte(status)
		e[0x26] = errorType
	})
}

// eepromPage is the part of a module's memory at one I2C address: 128 bytes that are always there and
// one of several pages behind them.
const eepromPage = 256

// Parts of a QSFP28 module's memory (SFF-8636).
const (
	eepromAddress    = 0x50
	eepromIdentifier = 0x11 // QSFP28

	mciaOK       = 0
	mciaNoEEPROM = 1
	mciaMaxSize  = 48               // bytes in one access, without the capability for more
	mciaShort    = 16 + mciaMaxSize // MCIA of drivers that know nothing of more, Linux 6.1's among them
)

// eeprom is what the cable's memory says: lower memory and upper page 00h.
func (f *function) eeprom() (mem [eepromPage]byte) {
	mem[0] = eepromIdentifier
	mem[1] = 0x08               // revision of SFF-8636
	mem[2] = 0x04               // flat memory: no further pages
	mem[128] = eepromIdentifier //
	mem[130] = 0x23             // no separable connector
	mem[131] = 0x80             // extended compliance below
	mem[140] = 0xff             // above 25.4 Gbit/s a lane: see byte 222
	mem[146] = 1                // length in metres
	mem[147] = 0xa0             // copper, unequalised
	copyPadded(mem[148:164], "cxkit")
	copyPadded(mem[168:184], "100G-CR4-1M")
	copyPadded(mem[184:186], "A1")
	mem[192] = 0x0b // 100GBASE-CR4
	copyPadded(mem[196:212], "CX0000000001")
	copyPadded(mem[212:220], "240101")
	mem[222] = 103 // 25.75 Gbit/s a lane
	mem[191] = sum(mem[128:191])
	mem[223] = sum(mem[192:223])
	return mem
}

// copyPadded writes text padded with blanks, as module memories hold it.
func copyPadded(dst []byte, text string) {
	for i := copy(dst, text); i < len(dst); i++ {
		dst[i] = ' '
	}
}

func sum(b []byte) (s byte) {
	for _, v := range b {
		s += v
	}
	return s
}

func (f *function) readMCIA(image []byte) command.Result {
	var r prm.RegMCIA
	r.Get(image)
	if r.Module != f.module() {
		return fault(prm.StatusBadParameter, synRegisterPort)
	}
	if r.Size == 0 || r.Size > mciaMaxSize || int(r.DeviceAddress)+int(r.Size) > eepromPage {
		return fault(prm.StatusBadParameter, synRegisterValue)
	}
	r.Dwords = [128]byte{}
	r.Status = mciaOK
	if f.port.wire == nil || f.port.unplugs > 0 || r.I2CDeviceAddress != eepromAddress || r.PageNumber != 0 {
		r.Status = mciaNoEEPROM
	} else {
		mem := f.eeprom()
		copy(r.Dwords[:], mem[r.DeviceAddress:][:r.Size])
	}
	r.Put(image)
	return command.Result{}
}
