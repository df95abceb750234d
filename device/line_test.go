package device

import (
	"testing"

	"cxkit/prm"

	faults "cxkit/device/fault"
)

// What is wrong with a port's line shows in every group of counters that has a name for it, once for the port
// however many functions share it.
func TestFaultPortErrorsShowInTheirGroups(t *testing.T) {
	b := newFaultBench(t, Config{VFs: 2})
	for i, what := range []faults.LineError{faults.BadFCS, faults.BadAlignment, faults.BadSymbol, faults.Fragment, faults.Jabber, faults.UncorrectedSymbol, faults.CorrectedBit} {
		b.inject(faults.Fault{Kind: faults.PortErrors, What: what, Count: 1 << i})
	}
	group := func(id prm.PPCNTGroup) []byte {
		image := make([]byte, prm.RegPPCNTSize)
		(&prm.RegPPCNT{LocalPort: 1, Grp: id}).Put(image)
		b.card.Do(func() {
			if res := b.function().readPPCNT(image); !res.OK() {
				t.Errorf("group %v: %+v", id, res)
			}
		})
		var r prm.RegPPCNT
		r.Get(image)
		return r.CounterSet[:]
	}
	var (
		ieee     prm.PPCNT8023
		rfc2863  prm.PPCNT2863
		rfc2819  prm.PPCNT2819
		rfc3635  prm.PPCNT3635
		physical prm.PPCNTPhysical
		bits     prm.PPCNTPhysicalStatistical
	)
	ieee.Get(group(prm.PPCNTGroup8023))
	rfc2863.Get(group(prm.PPCNTGroup2863))
	rfc2819.Get(group(prm.PPCNTGroup2819))
	rfc3635.Get(group(prm.PPCNTGroup3635))
	physical.Get(group(prm.PPCNTGroupPhysical))
	bits.Get(group(prm.PPCNTGroupPhysicalStatistical))
	got := [...]uint64{
		ieee.AFrameCheckSequenceErrors, ieee.AAlignmentErrors, ieee.ASymbolErrorDuringCarrier,
		rfc2863.IfInErrors, rfc2819.EtherStatsCRCAlignErrors, rfc2819.EtherStatsFragments, rfc2819.EtherStatsJabbers,
		rfc3635.Dot3statsFCSErrors, rfc3635.Dot3statsAlignmentErrors, rfc3635.Dot3statsSymbolErrors,
		physical.SymbolErrors, bits.PHYSymbolErrors, bits.PHYCorrectedBits,
	}
	if want := [...]uint64{1, 2, 4, 31, 3, 8, 16, 1, 2, 4, 32, 32, 64}; got != want {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if ieee.AFramesReceivedOK != 0 {
		t.Errorf("%d frames are good", ieee.AFramesReceivedOK)
	}
}

func TestFaultPCIeErrorsAreOfTheCard(t *testing.T) {
	b := newFaultBench(t, Config{VFs: 2})
	b.inject(faults.Fault{Kind: faults.PCIeErrors, What: faults.OwnRecovery, Count: 3})
	b.inject(faults.Fault{Kind: faults.PCIeErrors, What: faults.PeerRecovery, Count: 5})
	image := make([]byte, prm.RegMPCNTSize)
	b.card.Do(func() { b.function().readMPCNT(image) })
	var r prm.RegMPCNT
	r.Get(image)
	var c prm.MPCNTPerformance
	c.Get(r.CounterSet[:])
	if c.RXErrors != 3 || c.TXErrors != 5 {
		t.Errorf("%d and %d recoveries, want 3 and 5", c.RXErrors, c.TXErrors)
	}
}
