package device

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"cxkit/device/internal/object"
	"cxkit/dma"
	"cxkit/pci"
	"cxkit/prm"
)

// newUMEM makes a umem of a region's pages of 1<<shift bytes, with the flags in each entry.
func (b *dataBench) newUMEM(r dma.Region, shift uint8, offset uint32, flags uint64) uint32 {
	b.Helper()
	in := prm.CreateUMEMIn{LogPageSize: shift - 12, PageOffset: offset}
	for at := 0; at < len(r.Bytes); at += 1 << shift {
		in.MTT = append(in.MTT, r.Bus+uint64(at)|flags)
	}
	in.NumOfMTT = uint64(len(in.MTT))
	var out prm.CreateUMEMOut
	b.must(&in, &out)
	return out.UMEMID
}

// A driver that knows numbers and offsets alone sends and receives: all rings and records lie in one umem of large
// pages, one behind the other, and cross its pages.
func TestQueuesInAUMEM(t *testing.T) {
	b := newDataBench(t)
	const size, shift, start = 64 << 10, 14, 192
	memory := b.carve(size+1<<shift, dma.PageSize)
	memory = memory.Slice(int(-memory.Bus&(1<<shift-1)), size)
	id := b.newUMEM(memory, shift, start, umemRead|umemWrite)
	const cqRecord, sqRecord, sqRing, cqRing = 0, 64, 128, 1<<shift - 64 - start // the CQ crosses into the next page
	cq := b.newCQ(6, func(in *prm.CreateCQIn) {
		in.CQUMEMValid, in.CQUMEMID, in.CQUMEMOffset, in.PAS = true, id, cqRing, nil
		in.Context.DBRUMEMValid, in.Context.DBRUMEMID, in.Context.DBRAddr = true, id, cqRecord
	})
	cq.record, cq.ring = memory.Slice(start+cqRecord, 8), memory.Slice(start+cqRing, 64<<6)
	for i := 0; i < len(cq.ring.Bytes); i += 64 {
		cq.ring.Bytes[i+63] = prm.CQEOwnInit
	}
	sq := b.newSQ(cq, 4, func(in *prm.CreateSQIn) {
		wq := &in.Context.WQ
		wq.WQUMEMValid, wq.WQUMEMID, wq.WQUMEMOffset, in.PAS = true, id, sqRing, nil
		wq.DBRUMEMValid, wq.DBRUMEMID, wq.DBRAddr = true, id, sqRecord
	})
	sq.record, sq.ring = memory.Slice(start+sqRecord, 8), memory.Slice(start+sqRing, 64<<4)
	sq.state(prm.QueueStateRST, prm.QueueStateRDY)
	b.refused(&prm.DestroyUMEMIn{UMEMID: id}, &prm.DestroyUMEMOut{}, prm.StatusBadResourceState, synInUse)

	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 100 { // more than the rings have
		frame := testFrame(64+rng.IntN(1000), byte(i))
		data := b.place(frame)
		sq.send(eth{segs: []any{data}})
		b.sendsExactly(frame)
		if got := len(cq.take()); got != 1 {
			t.Fatalf("frame %d: %d completions", i, got)
		}
	}
	b.must(&prm.DestroySQIn{SQN: sq.n}, &prm.DestroySQOut{})
	b.must(&prm.DestroyCQIn{CQN: cq.n}, &prm.DestroyCQOut{})
	b.must(&prm.DestroyUMEMIn{UMEMID: id}, &prm.DestroyUMEMOut{})
	if f := b.function(); f.umemPages != 0 || f.umems.Len() != 0 {
		t.Errorf("%d umems of %d pages left", f.umems.Len(), f.umemPages)
	}
}

func TestUMEMIsChecked(t *testing.T) {
	b := newDataBench(t)
	page := b.carve(dma.PageSize, dma.PageSize)
	for name, c := range map[string]struct {
		in     prm.CreateUMEMIn
		status prm.Status
		syn    syndrome
	}{
		"no pages":               {prm.CreateUMEMIn{}, prm.StatusBadInputLength, synUMEMList},
		"list too short":         {prm.CreateUMEMIn{NumOfMTT: 2, MTT: []uint64{page.Bus | 3}}, prm.StatusBadInputLength, synUMEMList},
		"2^64 pages":             {prm.CreateUMEMIn{NumOfMTT: 1<<64 - 1, MTT: []uint64{page.Bus | 3}}, prm.StatusBadInputLength, synUMEMList},
		"page size":              {prm.CreateUMEMIn{LogPageSize: 20, NumOfMTT: 1, MTT: []uint64{3}}, prm.StatusBadParameter, synPageSize},
		"offset past the page":   {prm.CreateUMEMIn{PageOffset: 4096, NumOfMTT: 1, MTT: []uint64{page.Bus | 3}}, prm.StatusBadParameter, synPageOffset},
		"address":                {prm.CreateUMEMIn{LogPageSize: 1, NumOfMTT: 1, MTT: []uint64{0x1003}}, prm.StatusBadParameter, synPageListAddress},
		"address at 2^64":        {prm.CreateUMEMIn{NumOfMTT: 1, MTT: []uint64{1<<64 - 4096 | 3}}, prm.StatusBadParameter, synPageListAddress},
		"neither read nor write": {prm.CreateUMEMIn{NumOfMTT: 1, MTT: []uint64{page.Bus}}, prm.StatusBadParameter, synUMEMAccess},
		"unknown flag":           {prm.CreateUMEMIn{NumOfMTT: 1, MTT: []uint64{page.Bus | 7}}, prm.StatusBadParameter, synUMEMAccess},
	} {
		t.Run(name, func(t *testing.T) {
			b.TB = t
			b.refused(&c.in, &prm.CreateUMEMOut{}, c.status, c.syn)
		})
	}
	b.TB = t
	b.refused(&prm.DestroyUMEMIn{UMEMID: 1}, &prm.DestroyUMEMOut{}, prm.StatusBadResource, synNoUMEM)
	b.function().umemPages = maxUMEMPages
	b.refused(&prm.CreateUMEMIn{NumOfMTT: 1, MTT: []uint64{page.Bus | 3}}, &prm.CreateUMEMOut{}, prm.StatusLimitExceeded, synUMEMPages)
}

func TestRingsHaveToLieInTheUMEM(t *testing.T) {
	b := newDataBench(t)
	memory := b.carve(2*dma.PageSize, dma.PageSize)
	id, readOnly := b.newUMEM(memory, 12, 0, umemRead|umemWrite), b.newUMEM(memory, 12, 0, umemRead)
	_, record := b.ring(64)
	in := func(edit func(in *prm.CreateCQIn)) *prm.CreateCQIn {
		in := prm.CreateCQIn{Context: prm.CQContext{LogCQSize: 6, UARPage: b.uar, EQN: uint32(b.comp.n), DBRAddr: record.Bus},
			CQUMEMValid: true, CQUMEMID: id}
		edit(&in)
		return &in
	}
	for name, c := range map[string]struct {
		in     *prm.CreateCQIn
		status prm.Status
		syn    syndrome
	}{
		"no such umem":   {in(func(in *prm.CreateCQIn) { in.CQUMEMID = 77 }), prm.StatusBadResource, synNoUMEM},
		"past the end":   {in(func(in *prm.CreateCQIn) { in.CQUMEMOffset = 4096 + 64 }), prm.StatusBadParameter, synUMEMRange},
		"offset of 2^64": {in(func(in *prm.CreateCQIn) { in.CQUMEMOffset = 1<<64 - 64 }), prm.StatusBadParameter, synUMEMRange},
		"not aligned":    {in(func(in *prm.CreateCQIn) { in.CQUMEMOffset = 32 }), prm.StatusBadParameter, synPageOffset},
		"read only":      {in(func(in *prm.CreateCQIn) { in.CQUMEMID = readOnly }), prm.StatusBadParameter, synUMEMAccess},
		"record past it": {in(func(in *prm.CreateCQIn) {
			in.Context.DBRUMEMValid, in.Context.DBRUMEMID, in.Context.DBRAddr = true, id, 8192-4
		}), prm.StatusBadParameter, synUMEMRange},
		"record not aligned": {in(func(in *prm.CreateCQIn) {
			in.Context.DBRUMEMValid, in.Context.DBRUMEMID, in.Context.DBRAddr = true, id, 4
		}), prm.StatusBadParameter, synRecordAddress},
		"record in no umem": {in(func(in *prm.CreateCQIn) { in.Context.DBRUMEMValid, in.Context.DBRAddr = true, 0 }), prm.StatusBadResource, synNoUMEM},
	} {
		t.Run(name, func(t *testing.T) {
			b.TB = t
			b.refused(c.in, &prm.CreateCQOut{}, c.status, c.syn)
		})
	}
	b.TB = t
	for _, n := range []uint32{id, readOnly} { // nobody holds them
		b.must(&prm.DestroyUMEMIn{UMEMID: n}, &prm.DestroyUMEMOut{})
	}
}

// A QP holds what it is made of, and goes as far as a card without an RDMA transport can take it.
func TestQPIsMadeAndInitialised(t *testing.T) {
	b := newDataBench(t)
	cq := b.newCQ(4)
	memory := b.carve(4*dma.PageSize, dma.PageSize)
	id := b.newUMEM(memory, 12, 0, umemRead|umemWrite)
	good := func() *prm.CreateQPIn {
		return &prm.CreateQPIn{
			Context: prm.QPContext{
				ST: prm.QPServiceRC, PD: b.pd, UARPage: b.uar, CQNSnd: cq.n, CQNRcv: cq.n, LogSQSize: 4, LogRQSize: 4, LogRQStride: 1,
				DBRUMEMValid: true, DBRUMEMID: id, DBRAddr: 0x3000,
			},
			WQUMEMValid: true, WQUMEMID: id, WQUMEMOffset: 64,
		}
	}
	for name, c := range map[string]struct {
		edit   func(in *prm.CreateQPIn)
		status prm.Status
		syn    syndrome
	}{
		"state":         {func(in *prm.CreateQPIn) { in.Context.State = prm.QPStateINIT }, prm.StatusBadParameter, synTransition},
		"service":       {func(in *prm.CreateQPIn) { in.Context.ST = prm.QPServiceXRC }, prm.StatusBadParameter, synQPFeature},
		"shared RQ":     {func(in *prm.CreateQPIn) { in.Context.RQType = 1 }, prm.StatusBadParameter, synQPFeature},
		"special":       {func(in *prm.CreateQPIn) { in.InputQPN = 1 }, prm.StatusBadParameter, synQPFeature},
		"PD":            {func(in *prm.CreateQPIn) { in.Context.PD = 0xfff }, prm.StatusBadResource, synNoPD},
		"UAR":           {func(in *prm.CreateQPIn) { in.Context.UARPage = 0xfffff }, prm.StatusBadResource, synNoUAR},
		"send CQ":       {func(in *prm.CreateQPIn) { in.Context.CQNSnd = 0xfff }, prm.StatusBadResource, synNoCQ},
		"receive CQ":    {func(in *prm.CreateQPIn) { in.Context.CQNRcv = 0xfff }, prm.StatusBadResource, synNoCQ},
		"counters":      {func(in *prm.CreateQPIn) { in.Context.CounterSetID = 99 }, prm.StatusBadResource, synNoCounterSet},
		"ring too long": {func(in *prm.CreateQPIn) { in.Context.LogSQSize = 8 }, prm.StatusBadParameter, synUMEMRange},
		"no list":       {func(in *prm.CreateQPIn) { in.WQUMEMValid = false }, prm.StatusBadInputLength, synPageListShort},
		"record":        {func(in *prm.CreateQPIn) { in.Context.DBRAddr = 4 }, prm.StatusBadParameter, synRecordAddress},
	} {
		t.Run(name, func(t *testing.T) {
			b.TB = t
			in := good()
			c.edit(in)
			b.refused(in, &prm.CreateQPOut{}, c.status, c.syn)
		})
	}
	b.TB = t
	var qp prm.CreateQPOut
	b.must(good(), &qp)
	b.refused(&prm.DestroyUMEMIn{UMEMID: id}, &prm.DestroyUMEMOut{}, prm.StatusBadResourceState, synInUse)
	b.refused(&prm.DestroyCQIn{CQN: cq.n}, &prm.DestroyCQOut{}, prm.StatusBadResourceState, synInUse)
	state := func(want prm.QPState) {
		t.Helper()
		var out prm.QueryQPOut
		b.must(&prm.QueryQPIn{QPN: qp.QPN}, &out)
		if out.Context.State != want || out.Context.PD != b.pd || out.Context.CQNSnd != cq.n {
			t.Errorf("state %v, PD %#x, CQ %#x, want %v, %#x, %#x", out.Context.State, out.Context.PD, out.Context.CQNSnd, want, b.pd, cq.n)
		}
		if got := binary.BigEndian.Uint64(out.QPPASOrQpcExtAndPAS[:]); got != memory.Bus {
			t.Errorf("first page at %#x, want %#x", got, memory.Bus)
		}
	}
	state(prm.QPStateRST)
	toInit := prm.Rst2InitQPIn{QPN: qp.QPN}
	toInit.Context.PrimaryAddressPath.VHCAPortNum = 1
	b.must(&toInit, &prm.Rst2InitQPOut{})
	state(prm.QPStateINIT)
	b.refused(&toInit, &prm.Rst2InitQPOut{}, prm.StatusBadQPState, synQueueState)
	b.refused(&prm.Init2RTRQPIn{QPN: qp.QPN}, &prm.Init2RTRQPOut{}, prm.StatusBadOperation, synUnknownOpcode)
	b.must(&prm.ToRstQPIn{QPN: qp.QPN}, &prm.ToRstQPOut{})
	state(prm.QPStateRST)
	b.must(&prm.DestroyQPIn{QPN: qp.QPN}, &prm.DestroyQPOut{})
	b.refused(&prm.DestroyQPIn{QPN: qp.QPN}, &prm.DestroyQPOut{}, prm.StatusBadResource, synNoQP)
	b.must(&prm.DestroyUMEMIn{UMEMID: id}, &prm.DestroyUMEMOut{})
	b.must(&prm.DestroyCQIn{CQN: cq.n}, &prm.DestroyCQOut{})
	var n [object.Kinds]int
	b.function().countObjects(&n)
	if n[object.QP] != 0 || n[object.UMEM] != 0 || n[object.CQ] != 0 {
		t.Errorf("objects left: %v", n)
	}
}

// Nothing beside the ring is reached for: what a large page of a umem holds beyond it need not be mapped.
func TestOnlyTheRingOfAUMEMIsReachedFor(t *testing.T) {
	b := newDataBench(t)
	memory := b.carve(dma.PageSize, dma.PageSize)
	top := memory.Bus &^ (1<<31 - 1) // a page of 2 GiB around it, of which little is mapped
	in := prm.CreateUMEMIn{LogPageSize: maxLogUMEMPage, NumOfMTT: 1, MTT: []uint64{top | umemRead | umemWrite}}
	var out prm.CreateUMEMOut
	b.must(&in, &out)
	at := memory.Bus - top
	cq := b.newCQ(4, func(in *prm.CreateCQIn) {
		in.CQUMEMValid, in.CQUMEMID, in.CQUMEMOffset, in.PAS = true, out.UMEMID, at, nil
	})
	f := b.function()
	q, _ := f.cqs.Get(cq.n)
	addrs := q.Config().Buffer.Pages().Addrs()
	if len(addrs) != 1 || addrs[0] != memory.Bus {
		t.Fatalf("pages %#x, want %#x", addrs, memory.Bus)
	}
	if f.mem.View(addrs[0], dma.PageSize, pci.Read|pci.Write) == nil {
		t.Error("the ring's page is not mapped")
	}
}

// rdma-core switches RoCE on at each Ethernet port; a card without it keeps the bit and nothing else happens.
func TestVportKeepsRoCEEnable(t *testing.T) {
	b := newDataBench(t)
	for _, on := range []bool{true, false} {
		in := prm.ModifyNICVportContextIn{FieldSelectRoCEEn: true}
		in.NICVportContext.RoCEEn = on
		b.must(&in, &prm.ModifyNICVportContextOut{})
		var out prm.QueryNICVportContextOut
		b.must(&prm.QueryNICVportContextIn{}, &out)
		if got := out.NICVportContext.RoCEEn; got != on {
			t.Errorf("roce_en %v, want %v", got, on)
		}
	}
}
