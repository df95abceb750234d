package prm

import (
	"encoding/binary"
	"fmt"
	"strconv"
)

// Opcode is a command's number. PRM: opcode, bits 31..16 of the first dword of the input.
type Opcode uint16

// String is the command's name in the PRM, as CREATE_CQ.
func (op Opcode) String() string {
	if name := opcodeName(op); name != "" {
		return name
	}
	return numberText("Opcode", uint64(op))
}

// LinuxString is the command as mlx5_core prints it, as CREATE_CQ(0x400). Linux cmd.c: mlx5_command_str.
func (op Opcode) LinuxString() string {
	name := opcodeName(op)
	if name == "" {
		name = "unknown command opcode"
	}
	return name + "(0x" + strconv.FormatUint(uint64(op), 16) + ")"
}

// InputOpcode reads the opcode of a command's input.
func InputOpcode(in []byte) (Opcode, bool) {
	if len(in) < 2 {
		return 0, false
	}
	return Opcode(binary.BigEndian.Uint16(in)), true
}

// OutputResult reads status and syndrome of a command's output. A missing syndrome reads as 0.
func OutputResult(out []byte) (Status, uint32) {
	var h [8]byte
	copy(h[:], out)
	return Status(h[0]), binary.BigEndian.Uint32(h[4:])
}

// CapOpMod is the op_mod of QUERY_HCA_CAP and SET_HCA_CAP.
func CapOpMod(group CapGroup, mode CapMode) uint16 { return uint16(group)<<1 | uint16(mode)&1 }

// SplitCapOpMod undoes CapOpMod.
func SplitCapOpMod(opMod uint16) (CapGroup, CapMode) { return CapGroup(opMod >> 1), CapMode(opMod & 1) }

// ReservedInput finds the first byte of a command's input that holds a 1 in a reserved bit. found is false if there is
// none, or if the command's body is not described. The list after the fixed part is not looked at.
func ReservedInput(op Opcode, in []byte) (off int, found bool) {
	mask, size := namedInput(op)
	for i := range min(size, len(in)) {
		var named byte
		if i < len(mask) {
			named = mask[i]
		}
		if in[i]&^named != 0 {
			return i, true
		}
	}
	return 0, false
}

// Error makes a status usable as a target of errors.Is.
func (s Status) Error() string { return s.String() }

// Errno is the error number Linux makes of a status. Linux cmd.c: cmd_status_to_err.
func (s Status) Errno() string {
	name, _ := s.errno()
	return name
}

func (s Status) errno() (string, int) {
	switch s {
	case StatusOK:
		return "OK", 0
	case StatusInternalError, StatusBadSystemState, StatusBadInputLength, StatusBadOutputLength:
		return "EIO", 5
	case StatusResourceBusy:
		return "EBUSY", 16
	case StatusNotReady, StatusNoResources:
		return "EAGAIN", 11
	case StatusLimitExceeded:
		return "ENOMEM", 12
	case StatusBadOperation, StatusBadParameter, StatusBadResource, StatusBadResourceState, StatusBadIndex,
		StatusBadQPState, StatusBadPacket, StatusBadCQResize:
		return "EINVAL", 22
	}
	return "EIO", 5
}

// CommandError is a command that was executed and refused.
type CommandError struct {
	Op       Opcode
	OpMod    uint16
	Status   Status
	Syndrome uint32
}

// Error prints what mlx5_core logs. Linux cmd.c: cmd_status_print.
func (e *CommandError) Error() string {
	_, errno := e.Status.errno()
	return fmt.Sprintf("%s op_mod(0x%x) failed, status %s(0x%x), syndrome (0x%x), err(-%d)",
		e.Op.LinuxString(), e.OpMod, e.Status, uint8(e.Status), e.Syndrome, errno)
}

// Unwrap lets errors.Is compare the status.
func (e *CommandError) Unwrap() error { return e.Status }
