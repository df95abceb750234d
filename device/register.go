package device

import (
	"encoding/binary"

	"cxkit/device/internal/command"
	"cxkit/prm"
)

// register is a register reached by ACCESS_REG. Both functions get the image the driver sent, size bytes
// long at least; read fills in the rest of it. A register without write can only be read.
type register struct {
	size int
	// short is the length that drivers of before the register grew send, if that is less than size.
	short int
	read  func(image []byte) command.Result
	write func(image []byte) command.Result
}

// registerHandlers is the command that reaches registers. It works before INIT_HCA too.
func (f *function) registerHandlers() command.Table {
	regs := f.portRegisterTable()
	for id, r := range f.managementRegisterTable() {
		regs[id] = r
	}
	return command.Table{
		prm.OpAccessReg: {Phase: command.Enabled, Handle: func(c *command.Call) command.Result {
			return f.accessRegister(regs, c)
		}},
	}
}

func (f *function) accessRegister(regs map[prm.RegisterID]register, c *command.Call) command.Result {
	id := prm.RegisterID(binary.BigEndian.Uint16(c.In[10:]))
	r, ok := regs[id]
	if !ok {
		return fault(prm.StatusBadParameter, synRegister)
	}
	least := r.size
	if r.short != 0 {
		least = r.short
	}
	if len(c.In) < 16+least {
		return fault(prm.StatusBadInputLength, synRegisterLength)
	}
	image := make([]byte, max(r.size, len(c.In)-16, len(c.Out)-16))
	copy(image, c.In[16:])
	switch prm.AccessRegOpMod(c.OpMod) {
	case prm.AccessRegWrite:
		if r.write == nil {
			return fault(prm.StatusBadParameter, synRegisterReadOnly)
		}
		// The port is the physical function's. Writes of virtual functions end well, for Linux gives up
		// otherwise, and change nothing.
		if f.isVF() {
			break
		}
		if result := r.write(image); !result.OK() {
			return result
		}
	case prm.AccessRegRead:
	default:
		return fault(prm.StatusBadOperation, synOpMod)
	}
	if result := r.read(image); !result.OK() {
		return result
	}
	if len(c.Out) > 16 {
		copy(c.Out[16:], image)
	}
	return command.Result{}
}

// bitMask sets the bits of registers (id less base) in a 128-bit mask of PCAM and MCAM, whose bit 0 is the
// last bit.
func bitMask(mask *[16]byte, bits ...int) {
	for _, k := range bits {
		mask[15-k/8] |= 1 << (k % 8)
	}
}
