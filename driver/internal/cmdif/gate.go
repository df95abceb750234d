package cmdif

import "cxkit/prm"

// throttled tells whether commands of an opcode come often enough to take all slots from the rest; they
// share half of the slots (Linux cmd.c mlx5_cmd_is_throttle_opcode).
func throttled(op prm.Opcode) bool {
	switch op {
	case prm.OpCreateGeneralObject, prm.OpDestroyGeneralObject, prm.OpModifyGeneralObject, prm.OpQueryGeneralObject,
		opSyncCrypto:
		return true
	}
	return false
}

// opSyncCrypto is SYNC_CRYPTO, which prm does not describe (Linux mlx5_ifc.h).
const opSyncCrypto prm.Opcode = 0xB12

// emulated tells whether a command of a device that is down counts as done: what ends an object, or the
// use of the device, has the same result whether firmware does it or is dead (Linux cmd.c
// mlx5_internal_err_ret_value).
//
// Two groups of Linux's list are left out. MANAGE_PAGES: "success" returns no pages, and whoever counts
// on it loses them all (b898ce7bccf1); the page manager keeps its books itself and frees after the reset.
// MODIFY_* and SET_*: here they have callers who want their effect and would be told a lie.
func emulated(op prm.Opcode) bool {
	switch op {
	case prm.OpTeardownHCA, prm.OpDisableHCA,
		prm.OpDestroyMKey, prm.OpDestroyEQ, prm.OpDestroyCQ, prm.OpDestroyQP, prm.OpDestroyPSV,
		prm.OpDestroySRQ, prm.OpDestroyXRCSRQ, prm.OpDestroyXRQ, prm.OpDestroyDCT, prm.OpDeallocQCounter, prm.OpDestroySchedulingElement,
		prm.OpDeallocPD, prm.OpDeallocUAR, prm.OpDeallocXRCD, prm.OpDeallocTransportDomain,
		prm.OpDeleteVXLANUDPDPort, prm.OpDeleteL2TableEntry,
		prm.OpDestroyTIR, prm.OpDestroySQ, prm.OpDestroyRQ, prm.OpDestroyRMP, prm.OpDestroyTIS, prm.OpDestroyRQT,
		prm.OpDestroyFlowTable, prm.OpDestroyFlowGroup, prm.OpDeleteFlowTableEntry, prm.OpDeallocFlowCounter,
		prm.OpDeallocPacketReformatContext, prm.OpDeallocModifyHeaderContext, prm.OpDestroyGeneralObject,
		prm.OpDestroyUCTX, prm.OpDestroyUMEM, prm.OpDestroyLAG, prm.OpDestroyVportLAG, prm.OpDeallocMEMIC, prm.OpDeallocSF,
		prm.OpToErrQP, prm.OpToRstQP:
		return true
	}
	return false
}

// Outcome is who answered a command that succeeded.
type Outcome uint8

const (
	// Answered: firmware did.
	Answered Outcome = iota
	// Emulated: the device is down, and the driver takes the command as done. What the command was to
	// release the device may still use: memory it can reach is not free before a reset.
	Emulated
)

// gate decides at the door. emulate says that the command counts as done; without that or an error the
// caller is in, and leaves with leave.
func (c *Interface) gate(op prm.Opcode) (emulate bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if emulate, err = c.check(op); !emulate && err == nil {
		c.callers++
	}
	return emulate, err
}

// check is gate's decision. Runs with mu held.
func (c *Interface) check(op prm.Opcode) (emulate bool, err error) {
	switch {
	case c.dead != nil && emulated(op):
		return true, nil
	case c.dead != nil:
		err = c.dead
	case c.only != 0 && op != c.only:
		err = ErrNotAllowed
	default:
		return false, nil
	}
	return false, c.refused(Command{Op: op}, 0, err)
}

// leave ends what gate began.
func (c *Interface) leave() {
	c.mu.Lock()
	c.callers--
	c.mu.Unlock()
}

// Only lets commands of one opcode in, others are refused with ErrNotAllowed; 0 lets all in again. While
// the command event queue is made, nothing but CREATE_EQ may run (Linux f7936ddd35d8, d43b7007dbd1).
func (c *Interface) Only(op prm.Opcode) {
	c.mu.Lock()
	c.only = op
	c.mu.Unlock()
}

// zero makes out what an emulated command returns: an output of zeroes.
func zero(out Out) {
	var b [64]byte
	n := out.Len()
	if n <= len(b) {
		out.Get(b[:n])
		return
	}
	out.Get(make([]byte, n))
}

// user is on whose behalf a command runs.
type user struct {
	uid     uint16 // of the user context, 0: the driver itself
	limited bool   // counts against the unprivileged limit
}

// For returns an executor whose commands carry the number of a user context. Those of contexts without
// privilege share half of the slots, so that they can't keep the driver from its own commands (Linux
// unprivileged_sem).
func (c *Interface) For(uid uint16, privileged bool) Executor {
	return &caller{c, user{uid, uid != 0 && !privileged}}
}

// limitOf is the limit that a command counts against, nil if the slots are the only one.
func (c *Interface) limitOf(op prm.Opcode, u user) *limit {
	switch {
	case u.limited:
		return &c.unprivileged
	case throttled(op):
		return &c.throttle
	}
	return nil
}
