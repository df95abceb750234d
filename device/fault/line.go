package fault

import "slices"

// LineError is a sort of error on a line: the port's cable, or the PCIe link.
type LineError string

// Of the port (IEEE 802.3 clause 30, RFC 2819). Each sort of frame is counted apart from the others, and none
// reaches a receive queue.
const (
	// BadFCS: a frame whose frame check sequence is wrong.
	BadFCS LineError = "crc"
	// BadAlignment: a frame that does not end with a whole byte.
	BadAlignment LineError = "alignment"
	// BadSymbol: a frame with a coding error in it.
	BadSymbol LineError = "symbol"
	// Fragment: less than 64 bytes with a wrong frame check sequence.
	Fragment LineError = "fragments"
	// Jabber: longer than the MTU with a wrong frame check sequence.
	Jabber LineError = "jabbers"
	// UncorrectedSymbol: a symbol that error correction could not correct.
	UncorrectedSymbol LineError = "pcs-symbol"
	// CorrectedBit: a bit that it corrected. No frame is lost.
	CorrectedBit LineError = "corrected-bits"
)

// Of the PCIe link. Each ends in a recovery of the link, which costs time and loses nothing.
const (
	// OwnRecovery: the card saw bad framing or a bad CRC.
	OwnRecovery LineError = "recovery"
	// PeerRecovery: the other end of the link did.
	PeerRecovery LineError = "peer-recovery"
)

// lineErrors lists the sorts that a kind has.
func lineErrors(k Kind) []LineError {
	switch k {
	case PortErrors:
		return []LineError{BadFCS, BadAlignment, BadSymbol, Fragment, Jabber, UncorrectedSymbol, CorrectedBit}
	case PCIeErrors:
		return []LineError{OwnRecovery, PeerRecovery}
	}
	return nil
}

// maxErrors bounds the errors of a fault.
const maxErrors = 1_000_000_000

// checkErrors holds the fields of PortErrors and PCIeErrors against their ranges.
func (f *Fault) checkErrors(bad func(string, ...any)) {
	if all := lineErrors(f.Kind); !slices.Contains(all, f.What) {
		bad("what %q: want one of %v", f.What, all)
	}
	if f.Count < 1 || f.Count > maxErrors {
		bad("count %d: want 1 to %d", f.Count, maxErrors)
	}
}
