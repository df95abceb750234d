package prm

import (
	"errors"
	"testing"
)

func TestErrorReadsAsLinuxPrintsIt(t *testing.T) {
	err := error(&CommandError{Op: OpCreateCQ, OpMod: 0, Status: StatusBadParameter, Syndrome: 0x1f3c11})
	const want = "CREATE_CQ(0x400) op_mod(0x0) failed, status bad parameter(0x3), syndrome (0x1f3c11), err(-22)"
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
	if !errors.Is(err, StatusBadParameter) || errors.Is(err, StatusBadIndex) {
		t.Error("errors.Is does not compare the status")
	}
}

func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		OpCreateCQ.String():                            "CREATE_CQ",
		Opcode(0x999).String():                         "Opcode(0x999)",
		OpSetFlowTableEntry.LinuxString():              "SET_FLOW_TABLE_ENTRY(0x936)",
		OpToErrQP.LinuxString():                        "2ERR_QP(0x507)",
		Opcode(0x999).LinuxString():                    "unknown command opcode(0x999)",
		StatusBadQPState.String():                      "bad QP state",
		StatusNotReady.Errno():                         "EAGAIN",
		DeliveryBadType.String():                       "bad command descriptor type",
		RegIDPMTU.String():                             "PMTU",
		RegisterID(1).String():                         "RegisterID(0x1)",
		(FlowActionForward | FlowActionCount).String(): "FWD_DEST|COUNT",
		(FlowActionDrop | 0x8000).String():             "DROP|0x8000",
		FlowAction(0).String():                         "0x0",
		EventPageRequest.String():                      "PAGE_REQUEST",
		QueueState(9).String():                         "QueueState(0x9)",
		HealthFFSER.String():                           "FFSER error",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestReservedInputFindsTheFirstReservedBit(t *testing.T) {
	in := CreateCQIn{UID: 0xffff, OpMod: 1, Context: CQContext{LogCQSize: 31, DBRAddr: ^uint64(0)}, PAS: []uint64{^uint64(0)}}
	b := make([]byte, in.Len())
	in.Put(b)
	if off, found := ReservedInput(OpCreateCQ, b); found {
		t.Fatalf("reserved bit at %#x of a clean input", off)
	}
	for off, set := range map[int]byte{0x04: 0x80, 0x10: 0x04, 0x0b: 1, 0x5c: 1, 0x10f: 1} {
		c := append([]byte(nil), b...)
		c[off] |= set
		if got, found := ReservedInput(OpCreateCQ, c); !found || got != off {
			t.Errorf("bit in byte %#x: got %#x, %v", off, got, found)
		}
	}
	if _, found := ReservedInput(OpCreateCQ, b[:3]); found {
		t.Error("reserved bit in a cut input")
	}
	if _, found := ReservedInput(OpCreateLAG, []byte{1, 2, 3}); found {
		t.Error("reserved bit in a command without table")
	}
}

func TestReservedInputAcceptsEveryNamedBit(t *testing.T) {
	for _, op := range Opcodes() {
		c := CommandByOpcode(op)
		if c.In == nil {
			continue
		}
		if off, found := ReservedInput(op, namedMask(c.In)); found {
			t.Errorf("%v: byte %#x", op, off)
		}
	}
}

func TestListsAreBoundedByCountAndLength(t *testing.T) {
	b := make([]byte, ManagePagesOutSize+4*8)
	for count, want := range map[uint32]int{0: 0, 3: 3, 4: 4, 5: 4, 0xffffffff: 4} {
		(&ManagePagesOut{OutputNumEntries: count}).Put(b)
		var out ManagePagesOut
		out.Get(b)
		if len(out.PAS) != want || out.OutputNumEntries != count {
			t.Errorf("count %#x: %d pages, count field %#x, want %d", count, len(out.PAS), out.OutputNumEntries, want)
		}
	}
}

func TestFlowEntryListRoundTrip(t *testing.T) {
	for _, extended := range []bool{false, true} {
		in := SetFlowTableEntryIn{TableType: FlowTableNICRX, TableID: 7, FlowIndex: 3, FlowContext: FlowContext{
			Action: FlowActionForward | FlowActionCount, ExtendedDestination: extended, DestinationListSize: 2, FlowCounterListSize: 1,
		}}
		in.Destinations = []Destination{
			{DestFormat: DestFormat{DestinationType: DestinationTIR, DestinationID: 5}},
			{DestFormat: DestFormat{DestinationType: DestinationFlowTable, DestinationID: 6}},
		}
		in.Counters = []uint32{99}
		stride := 8
		if extended {
			in.Destinations[1].PacketReformatID = 42
			stride = 16
		}
		if in.Len() != SetFlowTableEntryInSize+3*stride {
			t.Fatalf("extended %v: length %#x", extended, in.Len())
		}
		b := make([]byte, in.Len())
		in.Put(b)
		if b[0x340] != 2 || b[0x343] != 5 || b[0x340+2*stride+3] != 99 {
			t.Errorf("extended %v: list %x", extended, b[0x340:])
		}
		var out SetFlowTableEntryIn
		out.Get(b)
		if len(out.Destinations) != 2 || out.Destinations[1] != in.Destinations[1] || len(out.Counters) != 1 || out.Counters[0] != 99 {
			t.Errorf("extended %v: got %+v", extended, out.DestinationList)
		}
		out.Get(b[:len(b)-1])
		if len(out.Counters) != 0 {
			t.Errorf("extended %v: a cut counter was read", extended)
		}
	}
}

func TestMailboxBlocks(t *testing.T) {
	for n, want := range map[int]int{0: 0, 16: 0, 17: 1, 528: 1, 529: 2, 16 + 8*50_000: 782, 16 + 8*12_868: 202} {
		if got := MailboxBlocks(n); got != want {
			t.Errorf("%d bytes: %d blocks, want %d", n, got, want)
		}
	}
}

// Positions written out by hand, as a check of the tables from another side.
func TestWellKnownPositions(t *testing.T) {
	in := SetFlowTableEntryIn{FlowContext: FlowContext{GroupID: 0x11, FlowTag: 0x22, Action: 4, DestinationListSize: 1}}
	m := &in.FlowContext.MatchValue.Outer
	m.DMAC, m.Ethertype, m.IPProtocol, m.CVLANTag, m.IPVersion, m.TCPDPort = [6]byte{1, 2, 3, 4, 5, 6}, 0x800, 6, true, 4, 80
	m.SetDstIPv4(0x0a000001)
	in.Destinations = []Destination{{}}
	b := make([]byte, in.Len())
	in.Put(b)
	for off, want := range map[int]byte{0x47: 0x11, 0x4b: 0x22, 0x4f: 4, 0x53: 1, 0x86: 8, 0x88: 1, 0x8d: 6, 0x90: 6, 0x92: 0x88, 0x97: 80, 0xbc: 10, 0xbf: 1} {
		if b[off] != want {
			t.Errorf("byte %#x: got %#x, want %#x", off, b[off], want)
		}
	}
}
