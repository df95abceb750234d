package prm

// Offsets in a UAR page. PRM: UAR; Linux doorbell.h, eq.c, cq.h, driver.h.
const (
	UARSize         = 4096
	UARCQArmOff     = 0x020 // 8 bytes: CQDoorbell
	UAREQArmOff     = 0x040 // 4 bytes: EQDoorbell, updates the consumer index and arms
	UAREQUpdateOff  = 0x048 // 4 bytes: EQDoorbell, updates the consumer index only
	UARBlueFlameOff = 0x800 // 8 bytes: start of the last WQE's control segment
)

// AdapterPageSize is the size of a page lent to firmware, whatever the host's page size is.
const AdapterPageSize = 4096

// CmdTypePCI is the type of every command queue entry.
const CmdTypePCI = 7

// CmdInterfaceRev is the only revision of the command interface.
const CmdInterfaceRev = 5

// InlineLen is how many bytes of a command's input and output lie in the command queue entry.
const InlineLen = 16

// MailboxDataLen is how many bytes of a message a mailbox block holds.
const MailboxDataLen = 512

// MailboxBlocks is the number of mailbox blocks for a message of n bytes.
func MailboxBlocks(n int) int { return (max(n-InlineLen, 0) + MailboxDataLen - 1) / MailboxDataLen }

// Values of mkc.qpn and of the scatter list terminator.
const (
	MKeyAnyQPN             = 0xFFFFFF
	TerminateScatterLKey   = 0x00000100
	MTTRead, MTTWrite      = 1 << 0, 1 << 1 // access bits of an MTT entry
	CQEOwnInit             = 0xF1           // op_own byte software writes into every CQE of a new CQ
	VportUplink, VportECPF = 0xFFFF, 0xFFFE // vport numbers; 0 is the PF
)

// AccessMode joins access_mode_4_2 and access_mode_1_0.
func (s *MKeyContext) AccessMode() MKeyAccessMode {
	return MKeyAccessMode(s.AccessMode4_2<<2 | s.AccessMode1_0)
}

// SetAccessMode splits m into access_mode_4_2 and access_mode_1_0.
func (s *MKeyContext) SetAccessMode(m MKeyAccessMode) {
	checkWidth("MKeyContext.AccessMode", uint64(m), 5)
	s.AccessMode4_2, s.AccessMode1_0 = uint8(m>>2), uint8(m&3)
}
