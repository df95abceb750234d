package device

import (
	"slices"
	"strings"
	"testing"

	"cxkit/device/internal/object"
	"cxkit/prm"
)

func TestCreateCQIsChecked(t *testing.T) {
	b := newDataBench(t)
	ring, record := b.ring(4096)
	for name, c := range map[string]struct {
		edit   func(in *prm.CreateCQIn)
		status prm.Status
		syn    syndrome
	}{
		"size":                   {func(in *prm.CreateCQIn) { in.Context.LogCQSize = 23 }, prm.StatusBadParameter, synLogSize},
		"compression":            {func(in *prm.CreateCQIn) { in.Context.CQECompEn, in.Context.CQECompressionLayout = true, 1 }, prm.StatusBadParameter, synCQFeature},
		"umem":                   {func(in *prm.CreateCQIn) { in.CQUMEMValid = true }, prm.StatusBadResource, synNoUMEM},
		"CQE size":               {func(in *prm.CreateCQIn) { in.Context.CQESz = 3 }, prm.StatusBadParameter, synCQESize},
		"record at 0":            {func(in *prm.CreateCQIn) { in.Context.DBRAddr = 0 }, prm.StatusBadParameter, synRecordAddress},
		"record not aligned":     {func(in *prm.CreateCQIn) { in.Context.DBRAddr += 4 }, prm.StatusBadParameter, synRecordAddress},
		"no such EQ":             {func(in *prm.CreateCQIn) { in.Context.EQN = 77 }, prm.StatusBadResource, synNoEQ},
		"EQ number of 9 bits":    {func(in *prm.CreateCQIn) { in.Context.EQN |= 1 << 8 }, prm.StatusBadResource, synNoEQ},
		"no such UAR":            {func(in *prm.CreateCQIn) { in.Context.UARPage = 0xfffff }, prm.StatusBadResource, synNoUAR},
		"page list too short":    {func(in *prm.CreateCQIn) { in.Context.LogCQSize = 7 }, prm.StatusBadInputLength, synPageListShort},
		"page address":           {func(in *prm.CreateCQIn) { in.PAS[0] += 512 }, prm.StatusBadParameter, synPageListAddress},
		"page size":              {func(in *prm.CreateCQIn) { in.Context.LogPageSize = 19 }, prm.StatusBadParameter, synPageSize},
		"offset past the page":   {func(in *prm.CreateCQIn) { in.Context.PageOffset = 1 }, prm.StatusBadInputLength, synPageListShort},
		"pages of 16 KiB unfits": {func(in *prm.CreateCQIn) { in.Context.LogPageSize = 2; in.PAS[0] = 0x1000 }, prm.StatusBadParameter, synPageListAddress},
	} {
		t.Run(name, func(t *testing.T) {
			b.TB = t
			in := prm.CreateCQIn{Context: prm.CQContext{LogCQSize: 6, UARPage: b.uar, EQN: uint32(b.comp.n), DBRAddr: record.Bus},
				PAS: []uint64{ring.Bus}}
			c.edit(&in)
			b.refused(&in, &prm.CreateCQOut{}, c.status, c.syn)
		})
	}
	b.TB = t
	if n := b.function().cqs.Len(); n != 0 {
		t.Errorf("%d CQs after refusals", n)
	}
	b.must(&prm.DestroyEQIn{EQN: b.comp.n}, &prm.DestroyEQOut{}) // nobody holds it
}

func TestCreateRQAndSQAreChecked(t *testing.T) {
	b := newDataBench(t)
	cq := b.newCQ(4)
	ring, record := b.ring(4096)
	type contexts struct {
		rq *prm.RQContext
		sq *prm.SQContext
		wq *prm.WQContext
	}
	for name, c := range map[string]struct {
		edit   func(c contexts)
		status prm.Status
		syn    syndrome
	}{
		"sq: wq_type":               {func(c contexts) { c.wq.WQType = prm.WQTypeLinkedList }, prm.StatusBadParameter, synWQType},
		"rq: wq_type":               {func(c contexts) { c.wq.WQType = 4 }, prm.StatusBadParameter, synWQType},
		"rq: too few strides":       {func(c contexts) { c.wq.WQType, c.wq.LogWQENumOfStrides = 2, 9 }, prm.StatusBadParameter, synStrides},
		"rq: many strides":          {func(c contexts) { c.wq.WQType, c.wq.LogWQENumOfStrides = 2, 7 }, prm.StatusBadParameter, synStrides},
		"rq: no room for a segment": {func(c contexts) { c.wq.WQType, c.wq.LogWQStride = 0, 4 }, prm.StatusBadParameter, synWQStride},
		"rq: shift":                 {func(c contexts) { c.wq.TwoByteShiftEn = true }, prm.StatusBadParameter, synWQFeature},
		"umem":                      {func(c contexts) { c.wq.WQUMEMValid = true }, prm.StatusBadResource, synNoUMEM},
		"stride too small":          {func(c contexts) { c.wq.LogWQStride = 3 }, prm.StatusBadParameter, synWQStride},
		"stride too large":          {func(c contexts) { c.wq.LogWQStride = 14 }, prm.StatusBadParameter, synWQStride},
		"size":                      {func(c contexts) { c.wq.LogWQSz = 16 }, prm.StatusBadParameter, synLogSize},
		"pages":                     {func(c contexts) { c.wq.LogWQSz = 9 }, prm.StatusBadInputLength, synPageListShort},
		"record":                    {func(c contexts) { c.wq.DBRAddr++ }, prm.StatusBadParameter, synRecordAddress},
		"PD":                        {func(c contexts) { c.wq.PD = 0xfff }, prm.StatusBadResource, synNoPD},
		"CQ":                        {func(c contexts) { c.rq.CQN, c.sq.CQN = 0xfff, 0xfff }, prm.StatusBadResource, synNoCQ},
		"state":                     {func(c contexts) { c.rq.State, c.sq.State = 1, 1 }, prm.StatusBadParameter, synTransition},
		"real time":                 {func(c contexts) { c.rq.TSFormat, c.sq.TSFormat = 2, 2 }, prm.StatusBadParameter, synTSFormat},
		"rq: delay drop":            {func(c contexts) { c.rq.DelayDropEn = true }, prm.StatusBadParameter, synRQFeature},
		"rq: no such RMP":           {func(c contexts) { c.rq.MemRQType = prm.MemRQRMP }, prm.StatusBadResource, synNoRMP},
		"rq: counter set":           {func(c contexts) { c.rq.CounterSetID = 99 }, prm.StatusBadResource, synNoCounterSet},
		"sq: UAR":                   {func(c contexts) { c.wq.UARPage = 0xfffff }, prm.StatusBadResource, synNoUAR},
		"sq: two TIS":               {func(c contexts) { c.sq.TISLstSz = 2 }, prm.StatusBadParameter, synTISCount},
		"sq: no such TIS":           {func(c contexts) { c.sq.TISLstSz, c.sq.TISNum0 = 1, 0xfff }, prm.StatusBadResource, synNoTIS},
		"sq: software parser":       {func(c contexts) { c.sq.AllowSWP = true }, prm.StatusBadParameter, synSQFeature},
		"sq: inline mode":           {func(c contexts) { c.sq.MinWQEInlineMode = 4 }, prm.StatusBadParameter, synInlineMode},
		"sq: stride of an RQ":       {func(c contexts) { c.wq.LogWQStride = 5 }, prm.StatusBadParameter, synWQStride},
	} {
		t.Run(name, func(t *testing.T) {
			b.TB = t
			wq := prm.WQContext{WQType: prm.WQTypeCyclic, PD: b.pd, UARPage: b.uar, LogWQStride: 6, LogWQSz: 4, DBRAddr: record.Bus}
			rin := prm.CreateRQIn{Context: prm.RQContext{CQN: cq.n, WQ: wq}, PAS: []uint64{ring.Bus}}
			sin := prm.CreateSQIn{Context: prm.SQContext{CQN: cq.n, WQ: wq}, PAS: []uint64{ring.Bus}}
			c.edit(contexts{&rin.Context, &sin.Context, &rin.Context.WQ})
			c.edit(contexts{&rin.Context, &sin.Context, &sin.Context.WQ})
			if !strings.HasPrefix(name, "sq:") {
				b.refused(&rin, &prm.CreateRQOut{}, c.status, c.syn)
			}
			if !strings.HasPrefix(name, "rq:") {
				b.refused(&sin, &prm.CreateSQOut{}, c.status, c.syn)
			}
		})
	}
	b.TB = t
	b.must(&prm.DestroyCQIn{CQN: cq.n}, &prm.DestroyCQOut{}) // nobody holds it
}

func TestQueueStatesFollowTheirMachine(t *testing.T) {
	b := newDataBench(t)
	rq, sq := b.newRQ(b.newCQ(4), 4, 256), b.newSQ(b.newCQ(4), 4)
	const rst, rdy, errState = prm.QueueStateRST, prm.QueueStateRDY, prm.QueueStateERR
	now := rst
	for i, c := range []struct {
		believed, to prm.QueueState
		status       prm.Status
		syn          syndrome
	}{
		{rst, rst, 0, 0}, {rdy, rst, prm.StatusBadQPState, synQueueState}, {errState, rst, prm.StatusBadQPState, synQueueState},
		{rst, 2, prm.StatusBadParameter, synTransition}, {rst, rdy, 0, 0}, {rst, rdy, prm.StatusBadQPState, synQueueState},
		{rdy, rdy, 0, 0}, {rdy, rst, 0, 0}, {rst, rdy, 0, 0}, {rdy, errState, 0, 0}, {errState, errState, 0, 0},
		{errState, rdy, prm.StatusBadQPState, synTransition}, {errState, rst, 0, 0}, {rst, errState, 0, 0}, {errState, rst, 0, 0},
	} {
		rin := prm.ModifyRQIn{RQN: rq.n, RQState: c.believed}
		sin := prm.ModifySQIn{SQN: sq.n, SQState: c.believed}
		rin.Context.State, sin.Context.State = c.to, c.to
		b.refused(&rin, &prm.ModifyRQOut{}, c.status, c.syn)
		b.refused(&sin, &prm.ModifySQOut{}, c.status, c.syn)
		if c.status == 0 {
			now = c.to
		}
		var rout prm.QueryRQOut
		var sout prm.QuerySQOut
		b.must(&prm.QueryRQIn{RQN: rq.n}, &rout)
		b.must(&prm.QuerySQIn{SQN: sq.n}, &sout)
		if rout.Context.State != now || sout.Context.State != now {
			t.Fatalf("step %d: RQ %v, SQ %v, want %v", i, rout.Context.State, sout.Context.State, now)
		}
	}
	bad := prm.ModifySQIn{SQN: sq.n, ModifyBitmask: 1}
	b.refused(&bad, &prm.ModifySQOut{}, prm.StatusBadParameter, synModifyBits)
	badRQ := prm.ModifyRQIn{RQN: rq.n, ModifyBitmask: 1}
	b.refused(&badRQ, &prm.ModifyRQOut{}, prm.StatusBadParameter, synModifyBits)
}

func TestQueryReportsWhatWasCreated(t *testing.T) {
	b := newDataBench(t)
	q := b.sender(4, func(in *prm.CreateSQIn) { in.Context.FRE = true; in.PAS = in.PAS[:1] })
	q.put(prm.WQENop, prm.CompletionOnError, nil)
	q.put(prm.WQENop, prm.CompletionOnError, nil)
	q.ring0()
	out := prm.QuerySQOut{PAS: make([]uint64, 1)}
	b.must(&prm.QuerySQIn{SQN: q.n}, &out)
	c := out.Context
	if !c.FRE || c.CQN != q.cq.n || c.TISNum0 != b.tis || c.UserIndex != 0x654321 || c.WQ.LogWQSz != 4 ||
		c.WQ.DBRAddr != q.record.Bus || c.WQ.HWCounter != 2 || c.WQ.SWCounter != 2 || out.PAS[0] != q.ring.Bus {
		t.Errorf("%+v", out)
	}
	rq := b.newRQ(b.newCQ(4), 4, 256)
	rout := prm.QueryRQOut{PAS: make([]uint64, 1)}
	b.must(&prm.QueryRQIn{RQN: rq.n}, &rout)
	if r := rout.Context; r.CQN != rq.cq.n || r.CounterSetID != b.qset || rout.PAS[0] != rq.ring.Bus || !r.FlushInErrorEn {
		t.Errorf("%+v", rout)
	}
}

func TestObjectsInUseCantBeDestroyed(t *testing.T) {
	b := newDataBench(t)
	rq, sq := b.newRQ(b.newCQ(4), 4, 256), b.newSQ(b.newCQ(4), 4)
	tir := b.newTIR(rq)
	var rqt prm.CreateRQTOut
	b.must(&prm.CreateRQTIn{Context: prm.RQTContext{RQTMaxSize: 4, RQTActualSize: 4},
		RQNums: []uint32{rq.n, rq.n, rq.n, rq.n}}, &rqt)
	var indirect prm.CreateTIROut
	b.must(&prm.CreateTIRIn{Context: prm.TIRContext{TransportDomain: b.td, DispType: prm.TIRDispIndirect, IndirectTable: rqt.RQTN}}, &indirect)
	table := b.all(tir)
	var counter prm.AllocFlowCounterOut
	b.must(&prm.AllocFlowCounterIn{}, &counter)

	busy := func(in input, out output) {
		t.Helper()
		b.refused(in, out, prm.StatusBadResourceState, synInUse)
	}
	busy(&prm.DestroyEQIn{EQN: b.comp.n}, &prm.DestroyEQOut{})
	busy(&prm.DestroyCQIn{CQN: rq.cq.n}, &prm.DestroyCQOut{})
	busy(&prm.DestroyCQIn{CQN: sq.cq.n}, &prm.DestroyCQOut{})
	busy(&prm.DestroyRQIn{RQN: rq.n}, &prm.DestroyRQOut{})
	busy(&prm.DestroyRQTIn{RQTN: rqt.RQTN}, &prm.DestroyRQTOut{})
	busy(&prm.DestroyTIRIn{TIRN: tir}, &prm.DestroyTIROut{})
	busy(&prm.DestroyTISIn{TISN: b.tis}, &prm.DestroyTISOut{})
	busy(&prm.DeallocPDIn{PD: b.pd}, &prm.DeallocPDOut{})
	busy(&prm.DeallocUARIn{UAR: b.uar}, &prm.DeallocUAROut{})
	busy(&prm.DeallocTransportDomainIn{TransportDomain: b.td}, &prm.DeallocTransportDomainOut{})
	busy(&prm.DeallocQCounterIn{CounterSetID: b.qset}, &prm.DeallocQCounterOut{})

	// In the right order everything goes, and nothing stays held.
	b.must(&prm.DeleteFlowTableEntryIn{TableID: table}, &prm.DeleteFlowTableEntryOut{})
	b.must(&prm.DestroyFlowGroupIn{TableID: table, GroupID: 1}, &prm.DestroyFlowGroupOut{})
	b.must(&prm.DestroyFlowTableIn{TableID: table}, &prm.DestroyFlowTableOut{})
	b.must(&prm.DeallocFlowCounterIn{FlowCounterID: counter.FlowCounterID}, &prm.DeallocFlowCounterOut{})
	b.must(&prm.DestroyTIRIn{TIRN: tir}, &prm.DestroyTIROut{})
	b.must(&prm.DestroyTIRIn{TIRN: indirect.TIRN}, &prm.DestroyTIROut{})
	b.must(&prm.DestroyRQTIn{RQTN: rqt.RQTN}, &prm.DestroyRQTOut{})
	b.must(&prm.DestroyRQIn{RQN: rq.n}, &prm.DestroyRQOut{})
	b.must(&prm.DestroySQIn{SQN: sq.n}, &prm.DestroySQOut{})
	b.must(&prm.DestroyTISIn{TISN: b.tis}, &prm.DestroyTISOut{})
	b.must(&prm.DestroyCQIn{CQN: rq.cq.n}, &prm.DestroyCQOut{})
	b.must(&prm.DestroyCQIn{CQN: sq.cq.n}, &prm.DestroyCQOut{})
	b.must(&prm.DestroyEQIn{EQN: b.comp.n}, &prm.DestroyEQOut{})
	b.must(&prm.DestroyEQIn{EQN: b.async.n}, &prm.DestroyEQOut{})
	b.must(&prm.DestroyMKeyIn{MKeyIndex: b.key >> 8}, &prm.DestroyMKeyOut{})
	b.must(&prm.DeallocPDIn{PD: b.pd}, &prm.DeallocPDOut{})
	b.must(&prm.DeallocUARIn{UAR: b.uar}, &prm.DeallocUAROut{})
	b.must(&prm.DeallocTransportDomainIn{TransportDomain: b.td}, &prm.DeallocTransportDomainOut{})
	b.must(&prm.DeallocQCounterIn{CounterSetID: b.qset}, &prm.DeallocQCounterOut{})
	var n [object.Kinds]int
	b.function().countObjects(&n)
	if n != [object.Kinds]int{} {
		t.Errorf("objects left: %v", n)
	}
}

func TestUnknownNumbersAreRefused(t *testing.T) {
	b := newDataBench(t)
	for _, c := range []struct {
		in  input
		out output
		syn syndrome
	}{
		{&prm.ModifyCQIn{CQN: 0xabc}, &prm.ModifyCQOut{}, synNoCQ}, {&prm.QueryCQIn{CQN: 0xabc}, &prm.QueryCQOut{}, synNoCQ},
		{&prm.DestroyCQIn{CQN: 0xabc}, &prm.DestroyCQOut{}, synNoCQ}, {&prm.ModifyRQIn{RQN: 0xabc}, &prm.ModifyRQOut{}, synNoRQ},
		{&prm.QueryRQIn{RQN: 0xabc}, &prm.QueryRQOut{}, synNoRQ}, {&prm.DestroyRQIn{RQN: 0xabc}, &prm.DestroyRQOut{}, synNoRQ},
		{&prm.ModifySQIn{SQN: 0xabc}, &prm.ModifySQOut{}, synNoSQ}, {&prm.QuerySQIn{SQN: 0xabc}, &prm.QuerySQOut{}, synNoSQ},
		{&prm.DestroySQIn{SQN: 0xabc}, &prm.DestroySQOut{}, synNoSQ}, {&prm.ModifyTISIn{TISN: 0xabc}, &prm.ModifyTISOut{}, synNoTIS},
		{&prm.QueryTISIn{TISN: 0xabc}, &prm.QueryTISOut{}, synNoTIS}, {&prm.DestroyTISIn{TISN: 0xabc}, &prm.DestroyTISOut{}, synNoTIS},
		{&prm.ModifyTIRIn{TIRN: 0xabc}, &prm.ModifyTIROut{}, synNoTIR}, {&prm.QueryTIRIn{TIRN: 0xabc}, &prm.QueryTIROut{}, synNoTIR},
		{&prm.DestroyTIRIn{TIRN: 0xabc}, &prm.DestroyTIROut{}, synNoTIR}, {&prm.ModifyRQTIn{RQTN: 0xabc}, &prm.ModifyRQTOut{}, synNoRQT},
		{&prm.QueryRQTIn{RQTN: 0xabc}, &prm.QueryRQTOut{}, synNoRQT}, {&prm.DestroyRQTIn{RQTN: 0xabc}, &prm.DestroyRQTOut{}, synNoRQT},
		{&prm.QueryFlowTableIn{TableID: 0xabc}, &prm.QueryFlowTableOut{}, synNoFlowTable},
		{&prm.ModifyFlowTableIn{TableID: 0xabc}, &prm.ModifyFlowTableOut{}, synNoFlowTable},
		{&prm.DestroyFlowTableIn{TableID: 0xabc}, &prm.DestroyFlowTableOut{}, synNoFlowTable},
		{&prm.SetFlowTableRootIn{TableID: 0xabc}, &prm.SetFlowTableRootOut{}, synNoFlowTable},
		{&prm.CreateFlowGroupIn{TableID: 0xabc}, &prm.CreateFlowGroupOut{}, synNoFlowTable},
		{&prm.SetFlowTableEntryIn{TableID: 0xabc}, &prm.SetFlowTableEntryOut{}, synNoFlowTable},
		{&prm.DeallocFlowCounterIn{FlowCounterID: 9}, &prm.DeallocFlowCounterOut{}, synNoFlowCounter},
		{&prm.QueryFlowCounterIn{FlowCounterID: 9}, &prm.QueryFlowCounterOut{}, synNoFlowCounter},
	} {
		b.refused(c.in, c.out, prm.StatusBadResource, c.syn)
	}
}

func TestTIRAndRQTAreChecked(t *testing.T) {
	b := newDataBench(t)
	rq := b.newRQ(b.newCQ(4), 4, 256)
	tir := func(c prm.TIRContext, status prm.Status, syn syndrome) {
		t.Helper()
		if c.TransportDomain == 0 {
			c.TransportDomain = b.td
		}
		b.refused(&prm.CreateTIRIn{Context: c}, &prm.CreateTIROut{}, status, syn)
	}
	tir(prm.TIRContext{InlineRQN: 0xfff}, prm.StatusBadResource, synNoRQ)
	tir(prm.TIRContext{DispType: 1, IndirectTable: 0xfff}, prm.StatusBadResource, synNoRQT)
	tir(prm.TIRContext{DispType: 2}, prm.StatusBadParameter, synTIRType)
	tir(prm.TIRContext{InlineRQN: rq.n, TransportDomain: 0xfff}, prm.StatusBadResource, synNoTransportDomain)
	tir(prm.TIRContext{InlineRQN: rq.n, PacketMergeMask: 4}, prm.StatusBadParameter, synTIRFeature)
	tir(prm.TIRContext{InlineRQN: rq.n, PacketMergeMask: 1, LROMaxIPPayloadSize: 255, LROTimeoutPeriodUsecs: 33}, prm.StatusBadParameter, synLRO)
	tir(prm.TIRContext{InlineRQN: rq.n, PacketMergeMask: 3, LROTimeoutPeriodUsecs: 32}, prm.StatusBadParameter, synLRO)
	tir(prm.TIRContext{InlineRQN: rq.n, RXHashFn: 3}, prm.StatusBadParameter, synHashFunction)
	tir(prm.TIRContext{InlineRQN: rq.n, RXHashFieldSelectorOuter: prm.RXHashFieldSelect{SelectedFields: 32}}, prm.StatusBadParameter, synHashFields)

	rqt := func(c prm.RQTContext, list []uint32, status prm.Status, syn syndrome) {
		t.Helper()
		b.refused(&prm.CreateRQTIn{Context: c, RQNums: list}, &prm.CreateRQTOut{}, status, syn)
	}
	n := rq.n
	rqt(prm.RQTContext{RQTActualSize: 1}, []uint32{n}, prm.StatusBadParameter, synRQTSize)
	rqt(prm.RQTContext{RQTMaxSize: 4096, RQTActualSize: 1}, []uint32{n}, prm.StatusBadParameter, synRQTSize)
	rqt(prm.RQTContext{RQTMaxSize: 4}, []uint32{n}, prm.StatusBadParameter, synRQTSize)
	rqt(prm.RQTContext{RQTMaxSize: 4, RQTActualSize: 3}, []uint32{n, n, n}, prm.StatusBadParameter, synRQTSize)
	rqt(prm.RQTContext{RQTMaxSize: 4, RQTActualSize: 8}, slices.Repeat([]uint32{n}, 8), prm.StatusBadParameter, synRQTSize)
	rqt(prm.RQTContext{RQTMaxSize: 4, RQTActualSize: 4}, []uint32{n, n}, prm.StatusBadInputLength, synRQTList)
	rqt(prm.RQTContext{RQTMaxSize: 4, RQTActualSize: 2}, []uint32{n, 0xfff}, prm.StatusBadResource, synNoRQ)
	rqt(prm.RQTContext{RQTMaxSize: 4, RQTActualSize: 1, ListQType: 1}, []uint32{n}, prm.StatusBadParameter, synRQTFeature)
	b.must(&prm.DestroyRQIn{RQN: n}, &prm.DestroyRQOut{}) // nobody holds it
}

func TestRSSSpreadsAndReportsTheHash(t *testing.T) {
	b := newDataBench(t)
	var rqs []*testRQ
	var rqns []uint32
	for range 4 {
		q := b.newRQ(b.newCQ(7), 6, 256)
		q.state(prm.QueueStateRST, prm.QueueStateRDY)
		q.post(64)
		rqs, rqns = append(rqs, q), append(rqns, q.n)
	}
	tirn := b.newRSS(rqns, 128)
	b.all(tirn)
	there, back := map[uint16]uint32{}, map[uint16]uint32{}
	var frames [][]byte
	for i := range uint16(64) {
		frames = append(frames, udpFrame(20, 0x0a000001, 0x0a000002, i, 80), udpFrame(20, 0x0a000002, 0x0a000001, 80, i))
	}
	b.receive(frames...)
	for i, q := range rqs {
		cqes := q.cq.take()
		if len(cqes) < 8 {
			t.Errorf("queue %d got %d of 128 frames", i, len(cqes))
		}
		for _, c := range cqes {
			if c.RSSHashL4() != prm.RSSHashL4(2) || c.RSSHashIP() != prm.RSSHashIP(1) {
				t.Fatalf("hash type %#x", c.RSSHashType())
			}
			if want := c.RSSHashResult() & 127 % 4; want != uint32(i) {
				t.Errorf("hash %#x went to queue %d", c.RSSHashResult(), i)
			}
			d := q.data(&c)
			src, dst := uint16(d[34])<<8|uint16(d[35]), uint16(d[36])<<8|uint16(d[37])
			if dst == 80 && d[29] == 1 {
				there[src] = c.RSSHashResult()
			} else {
				back[dst] = c.RSSHashResult()
			}
		}
	}
	for p, h := range there {
		if back[p] != h {
			t.Errorf("port %d: hash %#x there, %#x back", p, h, back[p])
		}
	}
	// MODIFY_TIR changes the hash: by source port alone, all frames to one of two queues by XOR8.
	in := prm.ModifyTIRIn{TIRN: tirn, BitmaskHash: true}
	in.Context.RXHashFn = prm.RXHashFnInvertedXOR8
	in.Context.RXHashFieldSelectorOuter.SelectedFields = prm.RXHashL4SPort
	b.must(&in, &prm.ModifyTIROut{})
	q := rqs[^uint32(80)&3]
	q.post(4)
	b.receive(udpFrame(20, 5, 6, 80, 1), udpFrame(20, 7, 8, 80, 2))
	if cqes := q.cq.take(); len(cqes) != 2 || cqes[0].RSSHashResult() != 0xff&^80 {
		t.Errorf("after MODIFY_TIR: %d frames", len(cqes))
	}
	if n := len(b.function().toeplitz); n != 0 {
		t.Errorf("%d prepared keys that nobody uses", n)
	}
}

func TestFlowCommandsThroughTheWire(t *testing.T) {
	b := newDataBench(t)
	rq := b.newRQ(b.newCQ(4), 4, 256)
	tir := b.newTIR(rq)
	var mask, value prm.MatchParam
	mask.Outer.DMAC, value.Outer.DMAC = [6]byte{255, 255, 255, 255, 255, 255}, [6]byte{2, 1, 2, 3, 4, 5}
	table, group := b.newTable(2, 4, 1, mask)
	next, nextGroup := b.newTable(3, 0, 0, prm.MatchParam{})
	b.rule(next, nextGroup, 0, prm.MatchParam{}, 0, toTIR(tir))
	b.rule(table, group, 7, value, 0x1234, prm.DestFormat{DestinationType: prm.DestinationFlowTable, DestinationID: next})

	var q prm.QueryFlowTableEntryOut
	q.Destinations = make([]prm.Destination, 1)
	q.FlowContext.DestinationListSize = 1
	b.must(&prm.QueryFlowTableEntryIn{TableID: table, FlowIndex: 7}, &q)
	if c := q.FlowContext; c.FlowTag != 0x1234 || c.GroupID != group || c.MatchValue.Outer.DMAC != value.Outer.DMAC ||
		len(q.Destinations) != 1 || q.Destinations[0].DestinationID != next || q.Destinations[0].DestinationType != prm.DestinationFlowTable {
		t.Errorf("entry %+v %+v", c, q.DestinationList)
	}
	var g prm.QueryFlowGroupOut
	b.must(&prm.QueryFlowGroupIn{TableID: table, GroupID: group}, &g)
	if g.EndFlowIndex != 15 || g.MatchCriteriaEnable != 1 || g.MatchCriteria.Outer.DMAC != mask.Outer.DMAC {
		t.Errorf("group %+v", g)
	}
	b.must(&prm.ModifyFlowTableIn{TableID: table, ModifyFieldSelect: 1,
		FlowTableContext: prm.FlowTableContext{TableMissAction: 1, TableMissID: next}}, &prm.ModifyFlowTableOut{})
	var ft prm.QueryFlowTableOut
	b.must(&prm.QueryFlowTableIn{TableID: table}, &ft)
	if c := ft.FlowTableContext; c.Level != 2 || c.LogSize != 4 || c.TableMissAction != 1 || c.TableMissID != next {
		t.Errorf("table %+v", c)
	}
	b.refused(&prm.CreateFlowTableIn{TableType: prm.FlowTableFDB}, &prm.CreateFlowTableOut{}, prm.StatusBadParameter, synFlowTableType)
	b.refused(&prm.CreateFlowTableIn{OtherVport: true}, &prm.CreateFlowTableOut{}, prm.StatusBadParameter, synOtherVport)
	b.refused(&prm.CreateFlowTableIn{FlowTableContext: prm.FlowTableContext{SWOwner: true}}, &prm.CreateFlowTableOut{},
		prm.StatusBadParameter, synFlowFeature)

	entry := prm.SetFlowTableEntryIn{TableID: table, FlowIndex: 9}
	entry.FlowContext = prm.FlowContext{GroupID: group, Action: prm.FlowActionForward, DestinationListSize: 1}
	entry.Destinations = []prm.Destination{{DestFormat: prm.DestFormat{DestinationType: prm.DestinationVport}}}
	b.refused(&entry, &prm.SetFlowTableEntryOut{}, prm.StatusBadParameter, synDestination)
	entry.Destinations[0] = prm.Destination{DestFormat: toTIR(0xfff)}
	b.refused(&entry, &prm.SetFlowTableEntryOut{}, prm.StatusBadResource, synNoTIR)
	entry.FlowContext.DestinationListSize = 2
	b.refused(&entry, &prm.SetFlowTableEntryOut{}, prm.StatusBadInputLength, synFlowList)
	entry.FlowContext.DestinationListSize = 1 << 20
	b.refused(&entry, &prm.SetFlowTableEntryOut{}, prm.StatusLimitExceeded, synFlowList)
	entry.FlowContext.DestinationListSize, entry.FlowContext.FlowCounterListSize = 0, 1
	entry.Destinations = nil
	entry.Counters = []uint32{5}
	b.refused(&entry, &prm.SetFlowTableEntryOut{}, prm.StatusBadResource, synNoFlowCounter)

	// SET_FLOW_TABLE_ROOT with op_mod 1 disconnects: every frame misses.
	rq.state(prm.QueueStateRST, prm.QueueStateRDY)
	rq.post(4)
	b.must(&prm.SetFlowTableRootIn{TableID: table}, &prm.SetFlowTableRootOut{})
	b.receive(testFrame(60, 1))
	b.must(&prm.SetFlowTableRootIn{OpMod: 1}, &prm.SetFlowTableRootOut{})
	b.receive(testFrame(60, 1))
	if cqes := rq.cq.take(); len(cqes) != 1 || cqes[0].FlowTag() != 0x1234 || b.function().counters.steeringDiscard != 1 {
		t.Errorf("%d frames, %d discarded", len(cqes), b.function().counters.steeringDiscard)
	}
}
