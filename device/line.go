package device

import faults "cxkit/device/fault"

// lineErrors are what a port meets on a bad line. The model's frames carry neither a check sequence nor
// symbols: faults say that errors come, and of the frames that they hit nothing else is seen.
type lineErrors struct {
	fcs, alignment, symbol uint64 // frames of proper length
	fragments, jabbers     uint64 // frames that are too short or too long, and bad
	uncorrected, corrected uint64 // symbols, bits
}

// frames is how many frames were lost to errors.
func (l *lineErrors) frames() uint64 {
	return l.fcs + l.alignment + l.symbol + l.fragments + l.jabbers
}

// meet counts n errors.
func (l *lineErrors) meet(what faults.LineError, n uint64) {
	switch what {
	case faults.BadFCS:
		l.fcs += n
	case faults.BadAlignment:
		l.alignment += n
	case faults.BadSymbol:
		l.symbol += n
	case faults.Fragment:
		l.fragments += n
	case faults.Jabber:
		l.jabbers += n
	case faults.UncorrectedSymbol:
		l.uncorrected += n
	case faults.CorrectedBit:
		l.corrected += n
	}
}

// meet counts n errors of a port's line, and what the code in force makes of them.
func (p *port) meet(profile *profile, what faults.LineError, n uint64) {
	p.counters.line.meet(what, n)
	if p.up() && (what == faults.CorrectedBit || what == faults.UncorrectedSymbol) {
		p.counters.blocks.meet(p.fec(profile), what == faults.CorrectedBit, n)
	}
}

// linkRecoveries are recoveries of the PCIe link, which all functions of a card share: 32-bit counters that
// wrap.
type linkRecoveries struct{ own, peer uint32 }

func (l *linkRecoveries) meet(what faults.LineError, n uint32) {
	if what == faults.PeerRecovery {
		l.peer += n
		return
	}
	l.own += n
}

// place is what a fault concerns when it concerns a function: the function, or what it shares with others
// and what breaks once for all of them.
func (f *function) place(k faults.Kind) any {
	switch k {
	case faults.PortErrors:
		return f.port
	case faults.PCIeErrors:
		return f.card
	}
	return f
}
