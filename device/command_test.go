package device

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"cxkit/dma"
	"cxkit/prm"
)

// bytesOf encodes an input.
func bytesOf(in input) []byte {
	b := make([]byte, in.Len())
	in.Put(b)
	return b
}

// delivered posts what is in slot 0 again after change, and returns the delivery status.
func (b *bench) delivered(in []byte, outLen int, change func(entry []byte)) prm.DeliveryStatus {
	b.Helper()
	b.post(0, in, outLen)
	change(b.entry(0))
	b.settle()
	if b.owned(0) {
		b.Fatal("the entry stays with the card")
	}
	d, _ := b.answer(0, len(in), outLen)
	return d
}

func TestMalformedEntriesGetTheirDeliveryStatus(t *testing.T) {
	long := make([]byte, 16+3*512) // three input mailboxes
	binary.BigEndian.PutUint16(long, uint16(prm.OpNop))
	u32 := func(off int, v uint32) func([]byte) {
		return func(e []byte) { binary.BigEndian.PutUint32(e[off:], v) }
	}
	u64 := func(off int, v uint64) func([]byte) {
		return func(e []byte) { binary.BigEndian.PutUint64(e[off:], v) }
	}
	b := newBench(t, Config{})
	b.startQueue()
	box := func(n int, change func(prm.Mailbox) prm.Mailbox) func([]byte) {
		return func([]byte) {
			r := b.box(0, n).Bytes
			m := change(prm.Mailbox(r))
			copy(r, m[:])
		}
	}
	for _, c := range []struct {
		name   string
		in     []byte
		outLen int
		change func([]byte)
		want   prm.DeliveryStatus
	}{
		{"well formed", long, 16 + 600, func([]byte) {}, prm.DeliveryOK},
		{"type", long, 16, func(e []byte) { e[0] = 6 }, prm.DeliveryBadType},
		{"input length 7", long, 16, u32(4, 7), prm.DeliveryInputLength},
		{"input length 0", long, 16, u32(4, 0), prm.DeliveryInputLength},
		{"input length huge", long, 16, u32(4, 1<<31), prm.DeliveryInputLength},
		{"output length 7", long, 16, u32(0x38, 7), prm.DeliveryOutputLength},
		{"output length huge", long, 16, u32(0x38, 1<<31), prm.DeliveryOutputLength},
		{"input pointer odd", long, 16, u64(8, 0x1000_0240), prm.DeliveryInputPointerAlignment},
		{"input pointer nowhere", long, 16, u64(8, 0), prm.DeliveryFirmwareInternal},
		{"output pointer odd", long, 600, u64(0x30, 0x1000_0240), prm.DeliveryOutputPointerAlignment},
		{"output pointer nowhere", long, 600, u64(0x30, 1<<50), prm.DeliveryFirmwareInternal},
		{"second input link odd", long, 16, box(0, func(m prm.Mailbox) prm.Mailbox { m.SetNextPtr(m.NextPtr() + 8); return m }), prm.DeliveryInputPointerAlignment},
		{"token in second input box", long, 16, box(1, func(m prm.Mailbox) prm.Mailbox { m.SetToken(m.Token() ^ 1); return m }), prm.DeliveryTokenError},
		{"token in output box", long, 600, box(3, func(m prm.Mailbox) prm.Mailbox { m.SetToken(0); return m }), prm.DeliveryTokenError},
		{"block number in third input box", long, 16, box(2, func(m prm.Mailbox) prm.Mailbox { m.SetBlockNumber(7); return m }), prm.DeliveryBadBlockNumber},
		{"chain that loops", long, 16, box(0, func(m prm.Mailbox) prm.Mailbox { m.SetNextPtr(b.box(0, 0).Bus); return m }), prm.DeliveryBadBlockNumber},
		{"last link is not followed", long, 16, box(2, func(m prm.Mailbox) prm.Mailbox { m.SetNextPtr(3); return m }), prm.DeliveryOK},
	} {
		if got := b.delivered(c.in, c.outLen, c.change); got != c.want {
			t.Errorf("%s: delivery status %v, want %v", c.name, got, c.want)
		}
	}
}

func TestSignaturesAreCheckedAndMadeWhenAskedFor(t *testing.T) {
	b := newBench(t, Config{Signatures: true})
	b.startQueue()
	b.enableSignatures()
	in := make([]byte, 16+512)
	binary.BigEndian.PutUint16(in, uint16(prm.OpNop))
	xor := func(p []byte) (x byte) {
		for _, v := range p {
			x ^= v
		}
		return x
	}
	sign := func(e []byte) {
		m := b.box(0, 0).Bytes
		m[0x23e], m[0x23f] = 0, 0
		m[0x23e] = ^xor(m[0x200:0x23e])
		m[0x23f] = ^xor(m[:0x23f])
		e[0x3d] = 0
		e[0x3d] = ^xor(e)
	}
	if d := b.delivered(in, 16+512, sign); d != prm.DeliveryOK {
		t.Fatalf("signed command: %v", d)
	}
	if e := b.entry(0); xor(e) != 0xff {
		t.Error("the answer's entry is not signed")
	}
	if m := b.box(0, 1).Bytes; xor(m) != 0xff || xor(m[0x200:0x23f]) != 0xff {
		t.Error("the answer's mailbox is not signed")
	}
	if d := b.delivered(in, 16, func(e []byte) { sign(e); e[0x3d] ^= 4 }); d != prm.DeliverySignatureError {
		t.Errorf("bad signature of an entry: %v", d)
	}
	if d := b.delivered(in, 16, func(e []byte) { sign(e); b.box(0, 0).Bytes[5] ^= 1 }); d != prm.DeliverySignatureError {
		t.Errorf("bad signature of a mailbox: %v", d)
	}
	if d := newBenchLive(t).delivered(in, 16, func([]byte) {}); d != prm.DeliveryOK {
		t.Errorf("no signatures with checks off: %v", d)
	}
}

// enableSignatures does what a driver's SET_HCA_CAP does.
func (b *bench) enableSignatures() { b.function().caps.General.CmdifChecksum = 3 }

func TestSignaturesAreTheDriversChoice(t *testing.T) {
	for _, offered := range []bool{false, true} {
		b := newBench(t, Config{Signatures: offered})
		b.enable()
		var out prm.QueryHCACapOut
		get := func(mode prm.CapMode) (c prm.CapGeneral) {
			b.must(&prm.QueryHCACapIn{OpMod: prm.CapOpMod(prm.CapGroupGeneral, mode)}, &out)
			c.Get(out.Capability[:])
			return c
		}
		if got := get(prm.CapMax).CmdifChecksum != 0; got != offered {
			t.Errorf("offered %v: capability %v", offered, got)
		}
		if got := get(prm.CapCurrent).CmdifChecksum; got != 0 || b.function().signatures() {
			t.Errorf("signatures are on although nobody asked for them")
		}
		n := get(prm.CapCurrent)
		n.CmdifChecksum = 3
		n.Patch(out.Capability[:])
		status, syn := b.exec(&prm.SetHCACapIn{OpMod: prm.CapOpMod(prm.CapGroupGeneral, 0), Capability: out.Capability}, &prm.SetHCACapOut{})
		if offered != (status == prm.StatusOK) || b.function().signatures() != offered {
			t.Errorf("offered %v: enabling them: %v: %v", offered, status, syn)
		}
	}
}

func newBenchLive(t *testing.T) *bench {
	b := newBench(t, Config{})
	b.startQueue()
	return b
}

func TestNothingIsWrittenPastTheOutputLength(t *testing.T) {
	b := newBench(t, Config{})
	b.enable()
	for _, outLen := range []int{8, 12, 16, 17, 100, 16 + 512, 16 + 513, 0x1010, 0x1200} {
		in := bytesOf(&prm.QueryHCACapIn{OpMod: prm.CapOpMod(prm.CapGroupGeneral, prm.CapMax)})
		b.post(0, in, outLen)
		e := b.entry(0)
		for i := 0x20; i < 0x30; i++ {
			e[i] = 0xa5
		}
		blocks := prm.MailboxBlocks(outLen)
		before := make([]prm.Mailbox, blocks)
		for k := range blocks {
			m := b.box(0, k).Bytes
			for i := range 512 {
				m[i] = 0xa5
			}
			before[k] = prm.Mailbox(m)
		}
		b.settle()
		inline := e[0x20:0x30]
		if outLen < 16 && !bytes.Equal(inline[outLen:], bytes.Repeat([]byte{0xa5}, 16-outLen)) {
			t.Errorf("output length %d: % x", outLen, inline)
		}
		for k := range blocks {
			m := b.box(0, k).Bytes
			used := min(outLen-16-512*k, 512)
			if !bytes.Equal(m[used:0x23e], before[k][used:0x23e]) {
				t.Errorf("output length %d: mailbox %d is changed behind byte %d", outLen, k, used)
			}
		}
	}
}

func TestCommandsBeforeTheirPhaseAreRefused(t *testing.T) {
	b := newBench(t, Config{})
	b.startQueue()
	phases := []struct {
		name  string
		enter func()
		ok    []input
		no    []input
	}{
		{"live", func() {}, []input{&prm.NopIn{}, &prm.QueryISSIIn{}},
			[]input{&prm.QueryPagesIn{OpMod: 1}, &prm.DisableHCAIn{}, &prm.InitHCAIn{}, &prm.QueryHCACapIn{}, &prm.AllocPDIn{}, &prm.AccessRegIn{RegisterID: prm.RegIDHostEndianness, RegisterData: make([]byte, 16)}}},
		{"enabled", func() { b.must(&prm.EnableHCAIn{}, &prm.EnableHCAOut{}) }, []input{&prm.QueryPagesIn{OpMod: 1}, &prm.QueryHCACapIn{}},
			[]input{&prm.AllocPDIn{}, &prm.TeardownHCAIn{}, &prm.CreateEQIn{}, &prm.QueryVportStateIn{}, &prm.EnableHCAIn{}}},
		{"initialised", func() {
			b.give(b.wanted(prm.QueryPagesInit))
			b.must(&prm.InitHCAIn{}, &prm.InitHCAOut{})
		}, []input{&prm.AllocPDIn{}, &prm.QueryHCACapIn{}, &prm.QueryVportStateIn{}},
			[]input{&prm.InitHCAIn{}, &prm.DisableHCAIn{}, &prm.EnableHCAIn{}}},
		{"torn down", func() { b.must(&prm.TeardownHCAIn{}, &prm.TeardownHCAOut{}) },
			[]input{&prm.QueryHCACapIn{}}, []input{&prm.AllocPDIn{}, &prm.TeardownHCAIn{}}},
	}
	for _, p := range phases {
		p.enter()
		for _, in := range p.ok {
			if status, syn, _ := b.raw(bytesOf(in), 0x1010); status != prm.StatusOK {
				t.Errorf("%s: %v: %v: %v", p.name, in.Opcode(), status, syn)
			}
		}
		for _, in := range p.no {
			if status, _, _ := b.raw(bytesOf(in), 0x1010); status != prm.StatusBadSystemState {
				t.Errorf("%s: %v: %v, want bad system state", p.name, in.Opcode(), status)
			}
		}
	}
}

func TestRefusedCommandsSayWhy(t *testing.T) {
	b := newBench(t, Config{})
	b.bringUp()
	uar := b.allocUAR()
	var pd prm.AllocPDOut
	b.must(&prm.AllocPDIn{}, &pd)
	mkc := prm.MKeyContext{Length64: true, LR: true, PD: pd.PD, QPN: prm.MKeyAnyQPN}
	page := b.carve(4096, 4096).Bus
	eqc := prm.EQContext{LogEQSize: 5, UARPage: uar}
	var created prm.CreateEQOut
	b.must(&prm.CreateEQIn{Context: eqc, PAS: []uint64{page}}, &created)
	var key prm.CreateMKeyOut
	b.must(&prm.CreateMKeyIn{Context: mkc}, &key)
	with := func(c prm.EQContext, change func(*prm.EQContext)) prm.EQContext { change(&c); return c }
	withKey := func(change func(*prm.MKeyContext)) prm.MKeyContext { c := mkc; change(&c); return c }

	for _, c := range []struct {
		in     input
		status prm.Status
		syn    syndrome
	}{
		{&prm.QueryPagesIn{OpMod: 4}, prm.StatusBadOperation, synOpMod},
		{&prm.QueryPagesIn{OpMod: 1, FunctionID: 3}, prm.StatusBadParameter, synFunctionID},
		{&prm.ManagePagesIn{OpMod: 3}, prm.StatusBadOperation, synOpMod},
		{&prm.ManagePagesIn{OpMod: 1, InputNumEntries: 2, PAS: []uint64{1 << 50}}, prm.StatusBadInputLength, synPageList},
		{&prm.ManagePagesIn{OpMod: 1, InputNumEntries: 1 << 31}, prm.StatusBadInputLength, synPageList},
		{&prm.ManagePagesIn{OpMod: 1, InputNumEntries: 1, PAS: []uint64{8}}, prm.StatusBadParameter, synPageAddress},
		{&prm.ManagePagesIn{OpMod: 1, InputNumEntries: 2, PAS: []uint64{1 << 50, 1<<50 + 8}}, prm.StatusBadParameter, synPageAddress},
		{&prm.ManagePagesIn{OpMod: 1, InputNumEntries: 2, PAS: []uint64{1 << 50, 1 << 50}}, prm.StatusBadParameter, synPageTwice},
		{&prm.ManagePagesIn{OpMod: 1, InputNumEntries: 1, PAS: []uint64{1 << 44}}, prm.StatusBadParameter, synPageTwice},
		{&prm.SetISSIIn{CurrentISSI: 0}, prm.StatusBadParameter, synISSI},
		{&prm.SetISSIIn{CurrentISSI: 40}, prm.StatusBadParameter, synISSI},
		{&prm.QueryHCACapIn{OpMod: prm.CapOpMod(prm.CapGroupTLS, 0)}, prm.StatusBadParameter, synCapGroup},
		{&prm.QueryHCACapIn{FunctionID: 1, OtherFunction: true}, prm.StatusBadParameter, synFunctionID},
		{&prm.SetHCACapIn{}, prm.StatusBadSystemState, synCapAfterInit},
		{&prm.TeardownHCAIn{Profile: 3}, prm.StatusBadParameter, synTeardownProfile},
		{&prm.CreateEQIn{Context: with(eqc, func(c *prm.EQContext) { c.LogEQSize = 23 }), PAS: []uint64{page}}, prm.StatusBadParameter, synLogSize},
		{&prm.CreateEQIn{Context: with(eqc, func(c *prm.EQContext) { c.LogEQSize = 7 }), PAS: []uint64{page}}, prm.StatusBadInputLength, synPageListShort},
		{&prm.CreateEQIn{Context: with(eqc, func(c *prm.EQContext) { c.UARPage++ }), PAS: []uint64{page}}, prm.StatusBadResource, synNoUAR},
		{&prm.CreateEQIn{Context: with(eqc, func(c *prm.EQContext) { c.Intr = 64 }), PAS: []uint64{page}}, prm.StatusBadIndex, synVector},
		{&prm.CreateEQIn{Context: with(eqc, func(c *prm.EQContext) { c.LogPageSize = 19 }), PAS: []uint64{page}}, prm.StatusBadParameter, synPageSize},
		{&prm.CreateEQIn{Context: with(eqc, func(c *prm.EQContext) { c.LogPageSize = 1 }), PAS: []uint64{page | 4096}}, prm.StatusBadParameter, synPageListAddress},
		{&prm.CreateEQIn{Context: eqc, PAS: []uint64{page + 64}}, prm.StatusBadParameter, synPageListAddress},
		{&prm.CreateEQIn{Context: eqc, PAS: []uint64{page}, EventBitmask: [4]uint64{1 << 63}}, prm.StatusBadParameter, synEQMask},
		{&prm.CreateEQIn{Context: eqc, PAS: []uint64{page}, EventBitmask: [4]uint64{1: 1}}, prm.StatusBadParameter, synEQMask},
		{&prm.DestroyEQIn{EQN: created.EQN + 1}, prm.StatusBadResource, synNoEQ},
		{&prm.QueryEQIn{EQN: 0}, prm.StatusBadResource, synNoEQ},
		{&prm.GenEQEIn{EQN: 0}, prm.StatusBadResource, synNoEQ},
		{&prm.DeallocUARIn{UAR: uar}, prm.StatusBadResourceState, synInUse},
		{&prm.DeallocUARIn{UAR: 3}, prm.StatusBadResource, synNoUAR},
		{&prm.DeallocPDIn{PD: pd.PD}, prm.StatusBadResourceState, synInUse},
		{&prm.DeallocPDIn{PD: 0}, prm.StatusBadResource, synNoPD},
		{&prm.DeallocTransportDomainIn{TransportDomain: 9}, prm.StatusBadResource, synNoTransportDomain},
		{&prm.CreateMKeyIn{Context: withKey(func(c *prm.MKeyContext) { c.PD = 77 })}, prm.StatusBadResource, synNoPD},
		{&prm.CreateMKeyIn{Context: withKey(func(c *prm.MKeyContext) { c.SetAccessMode(prm.MKeyAccessMEMIC) })}, prm.StatusBadParameter, synMKeyMode},
		{&prm.CreateMKeyIn{Context: withKey(func(c *prm.MKeyContext) { c.SetAccessMode(prm.MKeyAccessMTT) })}, prm.StatusBadParameter, synMKeySize},
		{&prm.CreateMKeyIn{Context: mkc, MKeyUMEMValid: true}, prm.StatusBadParameter, synMKeyUMEM},
		{&prm.CreateMKeyIn{Context: mkc, TranslationsOctwordActualSize: 1}, prm.StatusBadInputLength, synMKeyList},
		{&prm.QueryMKeyIn{MKeyIndex: key.MKeyIndex + 1}, prm.StatusBadResource, synNoMKey},
		{&prm.DestroyMKeyIn{MKeyIndex: 1}, prm.StatusBadResource, synNoMKey},
		{&prm.QueryVportStateIn{OtherVport: true}, prm.StatusBadParameter, synOtherVport},
		{&prm.QueryVportStateIn{VportNumber: 2}, prm.StatusBadParameter, synVportNumber},
		{&prm.QueryVportStateIn{OpMod: 3}, prm.StatusBadOperation, synOpMod},
		{&prm.ModifyVportStateIn{AdminState: 3}, prm.StatusBadParameter, synAdminState},
		{&prm.QueryNICVportContextIn{AllowedListType: 3}, prm.StatusBadParameter, synListType},
		{&prm.ModifyNICVportContextIn{FieldSelectMTU: true}, prm.StatusBadParameter, synMTU},
		{&prm.ModifyNICVportContextIn{FieldSelectNodeGUID: true}, prm.StatusBadParameter, synFieldSelect},
		{&prm.ModifyNICVportContextIn{FieldSelectAddressesList: true, NICVportContext: prm.NICVportContext{AllowedListSize: 129}}, prm.StatusLimitExceeded, synListSize},
		{&prm.ModifyNICVportContextIn{FieldSelectAddressesList: true, NICVportContext: prm.NICVportContext{AllowedListSize: 2}, AddressList: []uint64{2}}, prm.StatusBadInputLength, synListSize},
		{&prm.ModifyNICVportContextIn{FieldSelectAddressesList: true, NICVportContext: prm.NICVportContext{AllowedListSize: 1}, AddressList: []uint64{1 << 40}}, prm.StatusBadParameter, synListAddress},
		{&prm.QueryQCounterIn{CounterSetID: 1}, prm.StatusBadResource, synNoCounterSet},
		{&prm.DeallocQCounterIn{CounterSetID: 0}, prm.StatusBadResource, synNoCounterSet},
		{&prm.SetWOLROLIn{WOLModeValid: true, WOLMode: 1}, prm.StatusBadParameter, synWOLMode},
		{&prm.AccessRegIn{RegisterID: 0x1234, RegisterData: make([]byte, 16)}, prm.StatusBadParameter, synRegister},
		{&prm.AccessRegIn{RegisterID: prm.RegIDPMTU, RegisterData: make([]byte, 8)}, prm.StatusBadInputLength, synRegisterLength},
		{&prm.AccessRegIn{RegisterID: prm.RegIDPMTU, OpMod: 1, RegisterData: make([]byte, 16)}, prm.StatusBadParameter, synRegisterPort},
		{&prm.AccessRegIn{RegisterID: prm.RegIDPCAM, RegisterData: make([]byte, 80)}, prm.StatusBadParameter, synRegisterReadOnly},
		{&prm.AccessRegIn{RegisterID: prm.RegIDDTOR, OpMod: 2, RegisterData: make([]byte, 64)}, prm.StatusBadOperation, synOpMod},
		{&prm.AllocSFIn{}, prm.StatusBadOperation, synUnknownOpcode},
	} {
		status, syn, out := b.raw(bytesOf(c.in), 0x110)
		if status != c.status || syn != c.syn {
			t.Errorf("%v %+v: %v (%v), want %v (%v)", c.in.Opcode(), c.in, status, syn, c.status, c.syn)
		}
		if !bytes.Equal(out[8:], make([]byte, len(out)-8)) {
			t.Errorf("%v: a refused command has output", c.in.Opcode())
		}
	}
	if got := b.card.Books().Functions[0].Pages; got != 518 {
		t.Errorf("%d pages held after refused gives, want 518", got)
	}
}

func TestShortInputAndOutputAreRefused(t *testing.T) {
	b := newBench(t, Config{})
	b.bringUp()
	for op, e := range b.function().table {
		in := make([]byte, 8)
		binary.BigEndian.PutUint16(in, uint16(op))
		if status, _, _ := b.raw(in, 16); status != prm.StatusBadInputLength && op != prm.OpTeardownHCA {
			t.Errorf("%v with 8 bytes of input: %v", op, status)
		}
		if e.MinOut > 8 {
			in = make([]byte, max(e.MinIn, 16))
			binary.BigEndian.PutUint16(in, uint16(op))
			if status, _, _ := b.raw(in, 8); status != prm.StatusBadOutputLength {
				t.Errorf("%v with 8 bytes of output: %v", op, status)
			}
		}
	}
}

func TestReservedBitsAreRefusedUnlessLenient(t *testing.T) {
	for _, lenient := range []bool{false, true} {
		b := newBench(t, Config{Lenient: lenient})
		b.bringUp()
		in := bytesOf(&prm.AllocPDIn{})
		in[15] = 1
		status, syn, _ := b.raw(in, 16)
		if lenient && status != prm.StatusOK || !lenient && (status != prm.StatusBadParameter || syn != synReserved) {
			t.Errorf("lenient %v: %v: %v", lenient, status, syn)
		}
	}
}

func TestSyndromesAreDistinctAndHaveText(t *testing.T) {
	if len(syndromeTexts) < 50 {
		t.Fatalf("only %d syndromes", len(syndromeTexts))
	}
	texts := map[string]syndrome{}
	for s, text := range syndromeTexts {
		if other, ok := texts[text]; ok {
			t.Errorf("syndromes %#x and %#x have the same text %q", uint32(s), uint32(other), text)
		}
		texts[text] = s
	}
}

func TestCommandsRunAtOnceAndEndByTheirLatency(t *testing.T) {
	b := newBench(t, Config{Latency: map[uint16]Latency{
		uint16(prm.OpNop):       {Min: 5 * time.Millisecond, Max: 5 * time.Millisecond},
		uint16(prm.OpQueryISSI): {Min: time.Millisecond, Max: time.Millisecond},
	}})
	b.startQueue()
	for i := range 31 {
		b.post(i, bytesOf(&prm.NopIn{}), 16)
	}
	b.post(31, bytesOf(&prm.QueryISSIIn{}), prm.QueryISSIOutSize)
	b.regs.Store32(regCmdDoorbell, 0xffffffff) // again: the card has them already
	b.settle()
	if got := b.card.Books().Functions[0].Running; got != 32 {
		t.Fatalf("%d commands run, want 32", got)
	}
	b.clock.advance(time.Millisecond)
	b.settle()
	if b.owned(31) || !b.owned(0) {
		t.Fatal("the quick command did not end before the slow ones")
	}
	b.clock.advance(4 * time.Millisecond)
	b.settle()
	for i := range 31 {
		if b.owned(i) {
			t.Fatalf("command %d did not end", i)
		}
	}
}

func TestRunsRepeatFromTheirSeed(t *testing.T) {
	order := func(seed uint64) (ends []int) {
		b := newBench(t, Config{Seed: seed, OtherLatency: Latency{Max: time.Millisecond}})
		b.startQueue()
		for i := range 16 {
			b.post(i, bytesOf(&prm.NopIn{}), 16)
		}
		b.settle()
		done := map[int]bool{}
		for range 1001 {
			for i := range 16 {
				if !done[i] && !b.owned(i) {
					done[i] = true
					ends = append(ends, i)
				}
			}
			b.clock.advance(time.Microsecond)
			b.settle()
		}
		return ends
	}
	first, again, other := order(1), order(1), order(2)
	if len(first) != 16 || !equal(first, again) {
		t.Errorf("the same seed gives %v and %v", first, again)
	}
	if equal(first, other) {
		t.Errorf("two seeds give the same order %v", first)
	}
}

func equal(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestDoorbellsWithoutACommandDoNothing(t *testing.T) {
	b := newBench(t, Config{})
	b.regs.Store32(regCmdDoorbell, 1) // no queue yet
	b.settle()
	b.startQueue()
	b.regs.Store32(regCmdDoorbell, 0xffffffff) // all entries are software's
	b.settle()
	if got := b.card.Books().Functions[0].Running; got != 0 {
		t.Errorf("%d commands run", got)
	}
	if !bytes.Equal(b.queue.Bytes, make([]byte, len(b.queue.Bytes))) {
		t.Error("the card wrote to entries it does not own")
	}
}

func TestNoDMAWithoutBusMaster(t *testing.T) {
	b := newBench(t, Config{})
	b.startQueue()
	if err := b.fn.WriteConfig(4, []byte{0x02, 0x04}); err != nil {
		t.Fatal(err)
	}
	b.post(0, bytesOf(&prm.NopIn{}), 16)
	b.settle()
	if !b.owned(0) {
		t.Fatal("the card answered without being bus master")
	}
	if err := b.fn.WriteConfig(4, []byte{0x06, 0x04}); err != nil {
		t.Fatal(err)
	}
	b.must(&prm.NopIn{}, &prm.NopOut{})
}

func TestQueueInUnmappedMemoryIsHarmless(t *testing.T) {
	b := newBench(t, Config{})
	b.regs.Store32(regCmdqHigh, 0xffff)
	b.regs.Store32(regCmdqLow, 0xfffff000)
	b.regs.Store32(regCmdDoorbell, 0xffffffff)
	b.settle()
	b.startQueue()
	b.must(&prm.NopIn{}, &prm.NopOut{})
}

func TestAnswerToMemoryThatWentAwayIsDropped(t *testing.T) {
	b := newBench(t, Config{OtherLatency: Latency{Min: time.Millisecond}})
	b.startQueue()
	in := make([]byte, 16)
	binary.BigEndian.PutUint16(in, uint16(prm.OpNop))
	a, err := b.fn.NewArena(4096, dma.Heap)
	if err != nil {
		t.Fatal(err)
	}
	m := (*prm.Mailbox)(a.Bytes())
	b.post(0, in, 16+512)
	binary.BigEndian.PutUint64(b.entry(0)[0x30:], a.Bus())
	m.SetToken(b.token)
	b.settle()
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	b.clock.advance(time.Millisecond)
	b.settle()
	if got := b.card.Books().Functions[0].Running; got != 0 {
		t.Errorf("%d commands run", got)
	}
}

func BenchmarkCommandRoundTrip(b *testing.B) {
	bench := newBench(b, Config{})
	bench.startQueue()
	in := bytesOf(&prm.NopIn{})
	for b.Loop() {
		bench.post(0, in, 16)
		for bench.owned(0) {
			bench.card.Step(1)
		}
	}
}
