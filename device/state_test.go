package device

import (
	"testing"

	"cxkit/prm"
)

// TestACardReceivesOnceARuleLeadsToAReadyQueue: queues alone, and tables that lead elsewhere, receive nothing.
func TestACardReceivesOnceARuleLeadsToAReadyQueue(t *testing.T) {
	b := newDataBench(t)
	expect := func(what string, want bool) {
		t.Helper()
		if got := b.card.Receives(0); got != want {
			t.Errorf("%s: receives %v", what, got)
		}
	}
	expect("without a queue", false)
	q, other := b.newRQ(b.newCQ(3), 2, 256), b.newRQ(b.newCQ(3), 2, 256)
	other.state(prm.QueueStateRST, prm.QueueStateRDY)
	tir := b.newRSS([]uint32{q.n}, 2)
	expect("without a table", false)
	first, group := b.newTable(0, 1, 0, prm.MatchParam{})
	second, inner := b.newTable(1, 1, 0, prm.MatchParam{})
	third, last := b.newTable(2, 1, 0, prm.MatchParam{})
	b.must(&prm.SetFlowTableRootIn{TableID: first}, &prm.SetFlowTableRootOut{})
	b.rule(third, last, 0, prm.MatchParam{}, 0, toTIR(tir))
	q.state(prm.QueueStateRST, prm.QueueStateRDY)
	expect("with a rule that no table leads to", false)
	b.rule(first, group, 0, prm.MatchParam{}, 0, prm.DestFormat{DestinationType: prm.DestinationFlowTable, DestinationID: second})
	expect("with a table without rules", false)
	b.must(&prm.ModifyFlowTableIn{TableID: second, ModifyFieldSelect: 1,
		FlowTableContext: prm.FlowTableContext{TableMissAction: 1, TableMissID: third}}, &prm.ModifyFlowTableOut{})
	expect("by a rule and a miss", true)
	q.state(prm.QueueStateRDY, prm.QueueStateERR)
	expect("with a queue in error", false)
	b.rule(second, inner, 0, prm.MatchParam{}, 0, toTIR(b.newTIR(other)))
	expect("with another queue", true)
	b.must(&prm.SetFlowTableRootIn{TableID: third}, &prm.SetFlowTableRootOut{})
	expect("from another root", false)
}
