package device

import (
	"testing"

	"cxkit/prm"
)

// TestFlowCounterBulks allocates, uses, queries and frees counters in bulk.
func TestFlowCounterBulks(t *testing.T) {
	b := newDataBench(t)
	var bulk, other prm.AllocFlowCounterOut
	b.must(&prm.AllocFlowCounterIn{FlowCounterBulk: bulkAlloc}, &bulk)
	b.must(&prm.AllocFlowCounterIn{FlowCounterBulkLogSize: 2}, &other)
	if bulk.FlowCounterID == other.FlowCounterID {
		t.Fatal("two bulks of one number")
	}
	q := b.newRQ(b.newCQ(5), 4, 256)
	q.state(prm.QueueStateRST, prm.QueueStateRDY)
	table, group := b.newTable(0, 0, 0, prm.MatchParam{})
	in := prm.SetFlowTableEntryIn{TableID: table}
	in.FlowContext = prm.FlowContext{GroupID: group, Action: prm.FlowActionForward | prm.FlowActionCount, DestinationListSize: 1, FlowCounterListSize: 1}
	in.Destinations = []prm.Destination{{DestFormat: toTIR(b.newTIR(q))}}
	in.Counters = []uint32{bulk.FlowCounterID + 5}
	b.must(&in, &prm.SetFlowTableEntryOut{})
	q.post(3)
	b.receive(testFrame(100, 1), testFrame(60, 2), testFrame(61, 3))
	query := func(id uint32, n uint16) prm.QueryFlowCounterOut {
		t.Helper()
		out := prm.QueryFlowCounterOut{FlowStatistics: make([]prm.TrafficCounter, n)}
		b.must(&prm.QueryFlowCounterIn{FlowCounterID: id, NumOfCounters: n, Clear: true}, &out)
		return out
	}
	for i, n := range query(bulk.FlowCounterID, 8).FlowStatistics {
		want := prm.TrafficCounter{}
		if i == 5 {
			want = prm.TrafficCounter{Packets: 3, Octets: 221}
		}
		if n != want {
			t.Errorf("counter %d: %+v, want %+v", i, n, want)
		}
	}
	if n := query(bulk.FlowCounterID, 8).FlowStatistics[5]; n.Packets != 0 {
		t.Errorf("not cleared: %+v", n)
	}
	one := prm.QueryFlowCounterOut{FlowStatistics: make([]prm.TrafficCounter, 1)}
	b.refused(&prm.QueryFlowCounterIn{FlowCounterID: other.FlowCounterID, NumOfCounters: 8}, &one, prm.StatusBadResource, synNoFlowCounter)
	b.refused(&prm.QueryFlowCounterIn{FlowCounterID: other.FlowCounterID, NumOfCounters: 4}, &one, prm.StatusBadOutputLength, synOutputShort)
	b.refused(&prm.QueryFlowCounterIn{FlowCounterID: bulk.FlowCounterID, NumOfCounters: 2000}, &one, prm.StatusBadParameter, synCounterBulk)
	b.refused(&prm.DeallocFlowCounterIn{FlowCounterID: bulk.FlowCounterID}, &prm.DeallocFlowCounterOut{}, prm.StatusBadResourceState, synInUse)
	b.refused(&prm.DeallocFlowCounterIn{FlowCounterID: bulk.FlowCounterID + 1}, &prm.DeallocFlowCounterOut{}, prm.StatusBadResource, synNoFlowCounter)
	b.refused(&prm.AllocFlowCounterIn{FlowCounterBulkLogSize: logMaxBulk + 1}, &bulk, prm.StatusBadParameter, synCounterBulk)
	b.must(&prm.DeallocFlowCounterIn{FlowCounterID: other.FlowCounterID}, &prm.DeallocFlowCounterOut{})
	// Bulks run out before the model's memory does.
	n := 0
	for {
		status, _ := b.exec(&prm.AllocFlowCounterIn{FlowCounterBulkLogSize: logMaxBulk}, &other)
		if status == prm.StatusLimitExceeded {
			break
		}
		if n++; n > maxBulked>>logMaxBulk {
			t.Fatal("there is no limit")
		}
	}
}
