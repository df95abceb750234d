package device

import (
	"testing"

	"cxkit/prm"
)

func TestBringUpReachesInitHCAAndBack(t *testing.T) {
	b := newBench(t, Config{})
	b.bringUp()
	uar := b.allocUAR()
	cmd := b.newEQ(uar, 8, 0, prm.EventCommandCompletion)
	cmd.arm()
	b.must(&prm.NopIn{}, &prm.NopOut{})
	e := cmd.next()
	if e == nil || e.EventType() != prm.EventCommandCompletion || e.CommandVector() != 1 {
		t.Fatalf("no completion event for NOP: % x", e)
	}
	cmd.arm()
	b.must(&prm.DestroyEQIn{EQN: cmd.n}, &prm.DestroyEQOut{})
	b.must(&prm.DeallocUARIn{UAR: uar}, &prm.DeallocUAROut{})
	b.must(&prm.TeardownHCAIn{}, &prm.TeardownHCAOut{})
	for {
		var out prm.ManagePagesOut
		out.PAS = make([]uint64, 256)
		b.must(&prm.ManagePagesIn{OpMod: uint16(prm.PagesTake), InputNumEntries: 256}, &out)
		if out.OutputNumEntries == 0 {
			break
		}
	}
	b.must(&prm.DisableHCAIn{}, &prm.DisableHCAOut{})
}
