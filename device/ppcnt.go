package device

import (
	"encoding/binary"

	"cxkit/device/internal/command"
	"cxkit/prm"
)

// counterWords is the counter set of PPCNT as 64-bit counters.
const counterWords = 248 / 8

// clearedCounters is what a group showed when a driver cleared it: the port goes on counting, and what
// the driver sees is the difference.
type clearedCounters struct {
	base [counterWords]uint64
	at   uint64 // milliseconds since the card was made
}

func (f *function) readPPCNT(image []byte) command.Result {
	var r prm.RegPPCNT
	r.Get(image)
	if res := checkPort(r.LocalPort); !res.OK() {
		return res
	}
	p := f.port
	var set [counterWords * 8]byte
	switch r.Grp {
	case prm.PPCNTGroup8023:
		p.ieee8023().Put(set[:])
	case prm.PPCNTGroup2863:
		p.rfc2863().Put(set[:])
	case prm.PPCNTGroup2819:
		p.rfc2819().Put(set[:])
	case prm.PPCNTGroup3635:
		(&prm.PPCNT3635{Dot3statsAlignmentErrors: p.counters.line.alignment, Dot3statsFCSErrors: p.counters.line.fcs,
			Dot3statsSymbolErrors: p.counters.line.symbol, Dot3statsFrameTooLongs: p.counters.oversize, Dot3inPauseFrames: p.counters.pauseRx, Dot3outPauseFrames: p.counters.pauseTx,
			Dot3controlInUnknownOpcodes: p.counters.unsupportedRx}).Put(set[:])
	case prm.PPCNTGroupExtended:
	case prm.PPCNTGroupPerPriority:
		if r.PrioTC > 7 {
			return fault(prm.StatusBadParameter, synRegisterValue)
		}
		p.countStopped(f.card.now)
		p.countObeyed(f.card.now)
		p.perPriority(int(r.PrioTC)).Put(set[:])
	case prm.PPCNTGroupPhysical:
		p.countBlocks(f.card.profile, f.card.now)
		p.physical().Put(set[:])
	case prm.PPCNTGroupPhysicalStatistical:
		(&prm.PPCNTPhysicalStatistical{PHYReceivedBits: 8 * p.counters.rx.octets,
			PHYSymbolErrors: p.counters.line.uncorrected, PHYCorrectedBits: p.counters.line.corrected}).Put(set[:])
	default:
		return fault(prm.StatusBadParameter, synRegisterValue)
	}
	key := [2]uint8{uint8(r.Grp), r.PrioTC}
	now := uint64(f.card.now.Milliseconds())
	cleared := p.cleared[key]
	var raw [counterWords]uint64
	for i := range raw {
		raw[i] = binary.BigEndian.Uint64(set[8*i:])
		binary.BigEndian.PutUint64(set[8*i:], raw[i]-cleared.base[i])
	}
	if r.Grp == prm.PPCNTGroupPhysical || r.Grp == prm.PPCNTGroupPhysicalStatistical {
		binary.BigEndian.PutUint64(set[:], now-cleared.at) // time since last clear
	}
	if r.Clr {
		if p.cleared == nil {
			p.cleared = make(map[[2]uint8]clearedCounters)
		}
		p.cleared[key] = clearedCounters{base: raw, at: now}
	}
	out := r
	out.CounterSet = set
	out.Put(image)
	return command.Result{}
}

func (p *port) ieee8023() *prm.PPCNT8023 {
	c := &p.counters
	return &prm.PPCNT8023{
		AFramesTransmittedOK: c.tx.frames, AFramesReceivedOK: c.rx.frames,
		AOctetsTransmittedOK: c.tx.octets, AOctetsReceivedOK: c.rx.octets,
		AMulticastFramesXmittedOK: c.tx.multicast, ABroadcastFramesXmittedOK: c.tx.broadcast,
		AMulticastFramesReceivedOK: c.rx.multicast, ABroadcastFramesReceivedOK: c.rx.broadcast,
		AInRangeLengthErrors: c.inRangeLength, AOutOfRangeLengthField: c.outOfRange,
		AFrameCheckSequenceErrors: c.line.fcs, AAlignmentErrors: c.line.alignment, ASymbolErrorDuringCarrier: c.line.symbol,
		AFrameTooLongErrors: c.oversize, AMACControlFramesReceived: c.macControlRx,
		AUnsupportedOpcodesReceived: c.unsupportedRx, APauseMACCtrlFramesReceived: c.pauseRx,
		AMACControlFramesTransmitted: c.pauseTx, APauseMACCtrlFramesTransmitted: c.pauseTx,
	}
}

func (p *port) rfc2863() *prm.PPCNT2863 {
	c := &p.counters
	return &prm.PPCNT2863{
		IfInOctets: c.rx.octets, IfInUcastPkts: c.rx.frames - c.rx.multicast - c.rx.broadcast,
		IfInDiscards: c.rx.discards, IfInErrors: c.oversize + c.undersize + c.line.frames(),
		IfOutOctets: c.tx.octets, IfOutUcastPkts: c.tx.frames - c.tx.multicast - c.tx.broadcast,
		IfOutDiscards: c.tx.discards, IfOutErrors: c.tx.errors,
		IfInMulticastPkts: c.rx.multicast, IfInBroadcastPkts: c.rx.broadcast,
		IfOutMulticastPkts: c.tx.multicast, IfOutBroadcastPkts: c.tx.broadcast,
	}
}

func (p *port) rfc2819() *prm.PPCNT2819 {
	c := &p.counters
	s := &c.sizes
	return &prm.PPCNT2819{
		EtherStatsDropEvents: c.rx.discards, EtherStatsOctets: c.rx.octets, EtherStatsPkts: c.rx.frames,
		EtherStatsBroadcastPkts: c.rx.broadcast, EtherStatsMulticastPkts: c.rx.multicast,
		EtherStatsCRCAlignErrors: c.line.fcs + c.line.alignment, EtherStatsFragments: c.line.fragments, EtherStatsJabbers: c.line.jabbers,
		EtherStatsUndersizePkts: c.undersize, EtherStatsOversizePkts: c.oversize,
		EtherStatsPkts64octets: s[0], EtherStatsPkts65to127octets: s[1], EtherStatsPkts128to255octets: s[2],
		EtherStatsPkts256to511octets: s[3], EtherStatsPkts512to1023octets: s[4], EtherStatsPkts1024to1518octets: s[5],
		EtherStatsPkts1519to2047octets: s[6], EtherStatsPkts2048to4095octets: s[7],
		EtherStatsPkts4096to8191octets: s[8], EtherStatsPkts8192to10239octets: s[9],
	}
}

func (p *port) perPriority(i int) *prm.PPCNTPerPriority {
	c := &p.counters
	return &prm.PPCNTPerPriority{
		RXOctets: c.rx.prioOctets[i], RXFrames: c.rx.prioFrames[i],
		TXOctets: c.tx.prioOctets[i], TXFrames: c.tx.prioFrames[i],
		RXDiscards: c.rx.prioDiscards[i], RXPause: c.rx.prioPause[i],
		RXPauseDuration: uint64(c.obeyed[i].Microseconds()), RXPauseTransition: c.transitions[i],
		TXPause: c.tx.prioPause[i], TXPauseDuration: uint64(c.stopped[i].Microseconds()),
	}
}
