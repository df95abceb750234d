package prmtext

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"cxkit/prm"
)

type message interface {
	Len() int
	Put([]byte)
}

func encode(m message) []byte {
	b := make([]byte, m.Len())
	m.Put(b)
	return b
}

func wantText(t *testing.T, r *Record, err error, lines ...string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	text := r.Text(Options{})
	for _, l := range lines {
		if !strings.Contains(text, l) {
			t.Errorf("no %q in\n%s", l, text)
		}
	}
}

func TestCommandsPrintTheirFieldsByName(t *testing.T) {
	b := encode(&prm.CreateCQIn{Context: prm.CQContext{LogCQSize: 10, ST: prm.CQStateArmed, DBRAddr: 0x123456780}, PAS: []uint64{0x1000, 0x2000}})
	b[0x5d] = 0x04
	r, err := DecodeInput(b)
	wantText(t, r, err,
		"CREATE_CQ(0x400) input, 0x120 bytes",
		"0x00[31:16]    opcode                           0x400 (1024) CREATE_CQ",
		"0x1c[28:24]    cq_context.log_cq_size           0xa (10)",
		"0x10[11:8]     cq_context.st                    9 ARMED",
		"0x48..0x4f     cq_context.dbr_addr              0x123456780",
		"pas[1]                           0x2000 (8192)",
		"reserved 0x5c[18]=1",
	)
	if !bytes.Equal(r.Encode(), b) {
		t.Error("encodes to other bytes")
	}
}

func TestLongListsAreAbbreviated(t *testing.T) {
	r, err := DecodeInput(encode(&prm.ManagePagesIn{OpMod: 1, InputNumEntries: 100, PAS: slicesOf(100, 0x1000)}))
	wantText(t, r, err, "pas[15]", "... 84 more fields of lists")
	if text := r.Text(Options{MaxList: -1}); !strings.Contains(text, "pas[99]") {
		t.Errorf("no pas[99] in\n%s", text)
	}
}

func slicesOf(n int, v uint64) []uint64 {
	s := make([]uint64, n)
	for i := range s {
		s[i] = v
	}
	return s
}

func TestOutputIsReadByWhatTheInputAskedFor(t *testing.T) {
	out := prm.QueryHCACapOut{}
	(&prm.CapGeneral{LogMaxCQ: 24, PortType: prm.PortTypeEthernet}).Put(out.Capability[:])
	out.Capability[0x41] |= 0x04
	b := encode(&out)
	r, err := DecodeOutput(encode(&prm.QueryHCACapIn{OpMod: prm.CapOpMod(prm.CapGroupGeneral, prm.CapCurrent)}), b)
	wantText(t, r, err, "capability.log_max_cq            0x18 (24)", "capability.port_type             1 ETHERNET", "reserved 0x40[18]=1 in capability")
	if !bytes.Equal(r.Encode(), b) {
		t.Error("encodes to other bytes")
	}

	reg := make([]byte, prm.RegPPCNTSize)
	(&prm.RegPPCNT{LocalPort: 1, Grp: prm.PPCNTGroup8023}).Put(reg)
	ask := encode(&prm.AccessRegIn{OpMod: 1, RegisterID: prm.RegIDPPCNT, RegisterData: reg})
	(&prm.PPCNT8023{AFramesReceivedOK: 77}).Put(reg[8:])
	r, err = DecodeOutput(ask, encode(&prm.AccessRegOut{RegisterData: reg}))
	wantText(t, r, err, "register_data.local_port", "register_data.counter_set.a_frames_received_ok 0x4d (77)")
}

func TestFlowEntryListsAreDecoded(t *testing.T) {
	in := prm.SetFlowTableEntryIn{FlowContext: prm.FlowContext{Action: prm.FlowActionForward | prm.FlowActionCount, DestinationListSize: 1, FlowCounterListSize: 1}}
	in.Destinations = []prm.Destination{{DestFormat: prm.DestFormat{DestinationType: prm.DestinationTIR, DestinationID: 5}}}
	in.Counters = []uint32{9}
	in.FlowContext.MatchValue.Outer.SetDstIPv4(0x0a000001)
	b := append(encode(&in), 1, 2, 3, 4) // and something after the lists
	r, err := DecodeInput(b)
	wantText(t, r, err, "FWD_DEST|COUNT", "destination[0].destination_type  2 TIR", "destination[0].destination_id    5", "flow_counter_list[0].flow_counter_id 9", "reserved 0x350=0x1020304")
	if !bytes.Equal(r.Encode(), b) {
		t.Error("encodes to other bytes")
	}
}

func TestQueueEntriesAreReadByTheirKind(t *testing.T) {
	var e prm.EQE
	e.SetEventType(prm.EventPageRequest)
	(&prm.PageRequestEvent{FuncID: 3, NumPages: -1_300_000}).Put(e.Data()[:])
	r, err := DecodeEQE(e[:])
	wantText(t, r, err, "EQE PAGE_REQUEST", "event_data.func_id               3", "event_data.num_pages             0xffec29e0 (-1300000)")

	var c prm.ErrorCQE
	c.SetSyndrome(prm.CQESyndromeFlushed)
	c[0x3f] = byte(prm.CQERequesterError) << 4
	r, err = DecodeCQE(c[:])
	wantText(t, r, err, "ErrorCQE REQ_ERR", "5 work request flushed error")

	var w [64]byte
	ctrl := (*prm.WQECtrlSeg)(w[:])
	ctrl.SetOpcode(prm.WQESend)
	ctrl.SetSQN(0x2bb)
	ctrl.SetDS(4)
	ctrl.SetCE(prm.CompletionAlways)
	eth := (*prm.WQEEthSeg)(w[16:])
	eth.SetInlineHdrSz(18)
	eth.SetL4Csum(true)
	w[32] = 0xab
	(*prm.WQEDataSeg)(w[48:]).SetByteCount(1500)
	r, err = DecodeSendWQE(w[:])
	wantText(t, r, err, "WQE SEND", "ctrl.qpn                         0x2bb (699)", "ctrl.ce                          2 ALWAYS", "eth.cs_flags.l4", "eth.inline_hdr                   ab", "data[0].byte_count               0x5dc (1500)")
	if !bytes.Equal(r.Encode(), w[:]) {
		t.Error("encodes to other bytes")
	}
	r, err = DecodeReceiveWQE(w[32:], true)
	wantText(t, r, err, "data[0].byte_count")

	r, err = DecodeStruct("RegPAOS", encode(&prm.RegPAOS{AdminStatus: prm.PortAdminUp}))
	wantText(t, r, err, "admin_status                     1 UP")
}

func TestWrongInputIsAnError(t *testing.T) {
	for name, f := range map[string]func() error{
		"empty input":    func() error { _, err := DecodeInput(nil); return err },
		"unknown opcode": func() error { _, err := DecodeInput([]byte{0x0f, 0xff}); return err },
		"unknown output": func() error { _, err := DecodeOutput([]byte{0x0f, 0xff}, nil); return err },
		"no input":       func() error { _, err := DecodeOutput(nil, nil); return err },
		"no structure":   func() error { _, err := DecodeStruct("Nothing", nil); return err },
		"short EQE":      func() error { _, err := DecodeEQE(make([]byte, 63)); return err },
		"long CQE":       func() error { _, err := DecodeCQE(make([]byte, 128)); return err },
		"odd WQE":        func() error { _, err := DecodeSendWQE(make([]byte, 24)); return err },
		"empty WQE":      func() error { _, err := DecodeReceiveWQE(nil, false); return err },
	} {
		if f() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestEveryStructureEncodesToWhatWasDecoded(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for _, name := range prm.LayoutNames() {
		l := prm.LayoutByName(name)
		for i := range 8 {
			b := make([]byte, max(0, l.Size+rnd.IntN(40)-i*5))
			for j := range b {
				b[j] = byte(rnd.Uint32())
			}
			r, err := DecodeStruct(name, b)
			if err != nil {
				t.Fatal(err)
			}
			if got := r.Encode(); !bytes.Equal(got, b) {
				t.Fatalf("%s:\ngot  %x\nwant %x\n%s", name, got, b, r.Text(Options{All: true}))
			}
		}
	}
}

func TestEveryCommandEncodesToWhatWasDecoded(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for _, op := range prm.Opcodes() {
		for _, n := range []int{2, 3, 8, 15, 16, 17, 0x110, 0x123, 0x400} {
			in, out := make([]byte, n), make([]byte, n)
			for j := range in {
				in[j], out[j] = byte(rnd.Uint32()), byte(rnd.Uint32())
			}
			in[0], in[1] = byte(op>>8), byte(op)
			r, err := DecodeInput(in)
			if err != nil || !bytes.Equal(r.Encode(), in) {
				t.Fatalf("%s: %v, %x from %x", op, err, r.Encode(), in)
			}
			r, err = DecodeOutput(in, out)
			if err != nil || !bytes.Equal(r.Encode(), out) {
				t.Fatalf("%s: %v, %x from %x", op, err, r.Encode(), out)
			}
		}
	}
}
