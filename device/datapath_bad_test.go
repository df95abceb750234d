package device

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"

	"cxkit/device/internal/steer"
	"cxkit/dma"
	"cxkit/prm"
)

// What a guest can do that no driver does. TestBadWorkRequestsEndInError is the same for send queues.

// TestBadReceiveRequestsEndInError: a WQE whose memory the queue may not write ends the queue, and nothing is written.
func TestBadReceiveRequestsEndInError(t *testing.T) {
	for name, c := range map[string]func(b *dataBench, at uint64) (size, key uint32, addr uint64){
		"unknown key":            func(b *dataBench, at uint64) (uint32, uint32, uint64) { return 256, 0x999900, at },
		"wrong variant of a key": func(b *dataBench, at uint64) (uint32, uint32, uint64) { return 256, b.key ^ 1, at },
		"key without write": func(b *dataBench, at uint64) (uint32, uint32, uint64) {
			return 256, b.newKey(prm.MKeyContext{LR: true, Length64: true}), at
		},
		"past the end of a key": func(b *dataBench, at uint64) (uint32, uint32, uint64) {
			return 256, b.newKey(prm.MKeyContext{LW: true, StartAddr: at, Length: 99}), at
		},
		"in front of a key": func(b *dataBench, at uint64) (uint32, uint32, uint64) {
			return 256, b.newKey(prm.MKeyContext{LW: true, StartAddr: at + 1, Length: 4096}), at
		},
		"behind a key": func(b *dataBench, at uint64) (uint32, uint32, uint64) {
			return 256, b.newKey(prm.MKeyContext{LW: true, StartAddr: at - 4096, Length: 4000}), at
		},
		"address that is not mapped": func(b *dataBench, at uint64) (uint32, uint32, uint64) { return 256, b.key, 0x10 },
		"address that wraps":         func(b *dataBench, at uint64) (uint32, uint32, uint64) { return 256, b.key, 1<<64 - 50 },
		"2 GiB that wrap":            func(b *dataBench, at uint64) (uint32, uint32, uint64) { return 1<<31 - 1, b.key, 1<<64 - 50 },
		"2 GiB of a short key": func(b *dataBench, at uint64) (uint32, uint32, uint64) {
			return 1<<31 - 1, b.newKey(prm.MKeyContext{LW: true, StartAddr: at, Length: 99}), at
		},
		"end of the memory": func(b *dataBench, at uint64) (uint32, uint32, uint64) {
			return 256, b.key, b.arena.Bus() + uint64(b.memory) - 99
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newDataBench(t)
			q := b.receiver(2, 256)
			q.post(3)
			size, key, addr := c(b, q.buf(1).Bus)
			segment(q.wqe(1), size, key, addr)
			before := bytes.Clone(q.bufs.Bytes[256:])
			b.receive(testFrame(100, 1), testFrame(100, 2), testFrame(100, 3))
			cqes := q.cq.take()
			if len(cqes) != 3 || cqes[0].Opcode() != prm.CQEResponderSend {
				t.Fatalf("%d completions", len(cqes))
			}
			for i, want := range []prm.CQESyndrome{prm.CQESyndromeLocalProtection, prm.CQESyndromeFlushed} {
				e := (*prm.ErrorCQE)(&cqes[i+1])
				if cqes[i+1].Opcode() != prm.CQEResponderError || e.Syndrome() != want || e.QPN() != q.n {
					t.Errorf("completion %d: %v %v, want %v", i+1, cqes[i+1].Opcode(), e.Syndrome(), want)
				}
			}
			if !bytes.Equal(q.bufs.Bytes[256:], before) {
				t.Error("memory was written that is not the WQE's")
			}
			if s := b.rqState(q.n); s != prm.QueueStateERR {
				t.Errorf("state %v, want ERR", s)
			}
		})
	}
}

func (b *dataBench) rqState(n uint32) prm.QueueState {
	b.Helper()
	var out prm.QueryRQOut
	b.must(&prm.QueryRQIn{RQN: n}, &out)
	return out.Context.State
}

// TestListsThatLoopAreBounded: WQEs of a list that lead to themselves, or round and round past what is posted, take as
// many frames as the doorbell record says.
func TestListsThatLoopAreBounded(t *testing.T) {
	for name, next := range map[string][]uint16{"to itself": {0, 0, 0, 0}, "to and fro": {1, 0, 0, 0}, "not through the first": {1, 2, 3, 2}} {
		t.Run(name, func(t *testing.T) {
			b := newDataBench(t)
			q := b.receiver(2, 256, func(in *prm.CreateRQIn) { in.Context.WQ.WQType, in.Context.WQ.LogWQStride = prm.WQTypeLinkedList, 6 })
			for i := range uint16(4) {
				w := q.wqe(i)
				binary.BigEndian.PutUint16(w[2:], next[i])
				segment(w[16:], 256, b.key, q.buf(i).Bus)
				segment(w[32:], 0, prm.TerminateScatterLKey, 0)
			}
			q.posted = 3
			q.ring0()
			at := uint16(0)
			for i := range 5 {
				b.receive(testFrame(100+i, 1))
				c := q.cq.take()
				if i >= 3 {
					if len(c) != 0 {
						t.Errorf("%d completions of frame %d, and 3 WQEs are posted", len(c), i)
					}
					continue
				}
				if len(c) != 1 || c[0].WQECounter() != at || int(c[0].ByteCnt()) != 100+i {
					t.Fatalf("frame %d: completions %x, want WQE %d", i, c, at)
				}
				at = next[at]
			}
			if n := b.outOfBuffer(); n != 2 {
				t.Errorf("%d frames out of buffer, want 2", n)
			}
		})
	}
}

// TestRingsAcrossRegionsWork: the pages of a ring lie in different arenas, with nothing between them.
func TestRingsAcrossRegionsWork(t *testing.T) {
	b := newDataBench(t)
	first, second := b.extra(dma.PageSize), b.extra(dma.PageSize)
	q := b.newSQ(b.newCQ(8), 7, func(in *prm.CreateSQIn) { in.PAS = []uint64{second.Bus(), first.Bus()} })
	q.state(prm.QueueStateRST, prm.QueueStateRDY)
	for i := range 300 {
		frame := testFrame(60+i, byte(i))
		q.put(prm.WQESend, prm.CompletionAlways, eth{inline: frame[:18], segs: []any{b.place(frame[18:40]), b.place(frame[40:])}}.bytes(b))
		copy(second.Bytes(), q.ring.Bytes[:dma.PageSize]) // the test's ring is one piece
		copy(first.Bytes(), q.ring.Bytes[dma.PageSize:])
		q.ring0()
		b.sendsExactly(frame)
		q.cq.take()
	}
}

// TestRingsThatEndInNothing: a page of a ring is not there. What lies in front of it works; then the queue ends, once,
// with the event for it.
func TestRingsThatEndInNothing(t *testing.T) {
	const nowhere = 1 << 50
	t.Run("SQ", func(t *testing.T) {
		b := newDataBench(t)
		q := b.newSQ(b.newCQ(8), 7, func(in *prm.CreateSQIn) { in.PAS[1] = nowhere })
		q.state(prm.QueueStateRST, prm.QueueStateRDY)
		for i := range 63 {
			q.put(prm.WQENop, prm.CompletionAlways, nil)
			if q.ring0(); len(q.cq.take()) != 1 {
				t.Fatalf("WQE %d does not complete", i)
			}
		}
		frame := testFrame(400, 1)
		var parts []any
		for at := 0; at < 400; at += 100 {
			parts = append(parts, b.place(frame[at:at+100]))
		}
		q.put(prm.WQESend, prm.CompletionAlways, eth{segs: parts}.bytes(b)) // two blocks, the second behind the end
		for range 3 {
			q.ring0()
		}
		if n := b.errors(prm.EventWQAccess); n != 1 || len(b.port.tx) != 0 {
			t.Errorf("%d events, %d frames sent", n, len(b.port.tx))
		}
	})
	t.Run("RQ", func(t *testing.T) {
		b := newDataBench(t)
		q := b.newRQ(b.newCQ(7), 6, 256, func(in *prm.CreateRQIn) { in.Context.WQ.LogWQStride = 7 })
		b.must(&prm.DestroyRQIn{RQN: q.n}, &prm.DestroyRQOut{})
		in := prm.CreateRQIn{Context: prm.RQContext{CQN: q.cq.n}, PAS: []uint64{q.ring.Bus, nowhere}}
		in.Context.WQ = prm.WQContext{WQType: prm.WQTypeCyclic, PD: b.pd, LogWQStride: 7, LogWQSz: 6, DBRAddr: q.record.Bus}
		var out prm.CreateRQOut
		b.must(&in, &out)
		q.n = out.RQN
		q.state(prm.QueueStateRST, prm.QueueStateRDY)
		b.all(b.newTIR(q))
		q.post(40)
		for range 35 {
			b.receive(testFrame(60, 1))
		}
		if got, n := len(q.cq.take()), b.errors(prm.EventWQAccess); got != 32 || n != 1 {
			t.Errorf("%d frames, %d events; want 32 and 1", got, n)
		}
	})
	t.Run("CQ", func(t *testing.T) {
		b := newDataBench(t)
		cq := b.newCQ(7, func(in *prm.CreateCQIn) { in.PAS[1] = nowhere })
		q := b.newSQ(cq, 4)
		q.state(prm.QueueStateRST, prm.QueueStateRDY)
		done := 0
		for range 70 {
			q.put(prm.WQENop, prm.CompletionAlways, nil)
			q.ring0()
			done += len(cq.take())
		}
		if n := b.errors(prm.EventCQError); done != 64 || n != 1 {
			t.Errorf("%d completions, %d events; want 64 and 1", done, n)
		}
	})
}

// TestDoorbellsOfDeadQueuesDoNothing: queues that were destroyed, that ended in error, and numbers nobody ever had.
func TestDoorbellsOfDeadQueuesDoNothing(t *testing.T) {
	b := newDataBench(t)
	dead, failed, alive := b.sender(4), b.sender(4), b.sender(4)
	cq := b.newCQ(3)
	b.must(&prm.DestroySQIn{SQN: dead.n}, &prm.DestroySQOut{})
	b.must(&prm.DestroyCQIn{CQN: cq.n}, &prm.DestroyCQOut{})
	failed.put(0x77, prm.CompletionAlways, nil)
	if failed.ring0(); len(failed.cq.take()) != 1 {
		t.Fatal("no error completion")
	}
	for range 50 {
		dead.put(prm.WQESend, prm.CompletionAlways, eth{segs: []any{b.boxFrame(0)}}.bytes(b))
		dead.ring0()
		cq.arm(false)
		b.regs.Store64(uint64(b.uar)<<uarShift+prm.UARBlueFlameOff, 0xffffff<<8)
		b.regs.Store32(uint64(b.uar)<<uarShift+prm.UAREQArmOff, 0xff<<24|5)
		b.settle()
	}
	if len(b.port.tx) != 0 || len(dead.cq.take()) != 0 || b.errors(prm.EventCQError)+b.errors(prm.EventWQCatastrophic) != 0 {
		t.Error("a doorbell of a queue that is gone did something")
	}
	// What is posted to a queue in ERR is flushed, a completion each.
	for i := range 3 {
		failed.put(prm.WQESend, prm.CompletionAlways, eth{segs: []any{b.boxFrame(0)}}.bytes(b))
		failed.ring0()
		c := failed.cq.take()
		if len(c) != 1 || c[0].Opcode() != prm.CQERequesterError || (*prm.ErrorCQE)(&c[0]).Syndrome() != prm.CQESyndromeFlushed {
			t.Errorf("doorbell %d of a queue in ERR: completions %x", i, c)
		}
	}
	alive.send(eth{segs: []any{b.boxFrame(1)}})
	if len(b.port.tx) != 1 {
		t.Errorf("%d frames of the queue that works", len(b.port.tx))
	}
}

// TestFlowTablesInCyclesAreRefused: by entries, by misses, and by both.
func TestFlowTablesInCyclesAreRefused(t *testing.T) {
	const levelOfDest, levelOfMiss = 0xc10516, 0xc10507 // package steer's
	b := newDataBench(t)
	var tables, groups [3]uint32
	for i := range tables {
		tables[i], groups[i] = b.newTable(uint8(i), 2, 0, prm.MatchParam{})
	}
	to := func(i int) prm.DestFormat {
		return prm.DestFormat{DestinationType: prm.DestinationFlowTable, DestinationID: tables[i]}
	}
	b.rule(tables[0], groups[0], 0, prm.MatchParam{}, 0, to(1))
	b.rule(tables[1], groups[1], 0, prm.MatchParam{}, 0, to(2))
	for from := range tables {
		for back := range from + 1 {
			in := prm.SetFlowTableEntryIn{TableID: tables[from], FlowIndex: 1}
			in.FlowContext = prm.FlowContext{GroupID: groups[from], Action: prm.FlowActionForward, DestinationListSize: 1}
			in.Destinations = []prm.Destination{{DestFormat: to(back)}}
			b.refused(&in, &prm.SetFlowTableEntryOut{}, prm.StatusBadParameter, levelOfDest)
			b.refused(&prm.ModifyFlowTableIn{TableID: tables[from], ModifyFieldSelect: 1,
				FlowTableContext: prm.FlowTableContext{TableMissAction: 1, TableMissID: tables[back]}}, &prm.ModifyFlowTableOut{},
				prm.StatusBadParameter, levelOfMiss)
			b.refused(&prm.CreateFlowTableIn{FlowTableContext: prm.FlowTableContext{Level: uint8(back), TableMissAction: 1, TableMissID: tables[back]}},
				&prm.CreateFlowTableOut{}, prm.StatusBadParameter, levelOfMiss)
		}
	}
	b.must(&prm.SetFlowTableRootIn{TableID: tables[0]}, &prm.SetFlowTableRootOut{})
	b.receive(testFrame(60, 1)) // it comes to rest
}

// TestRulesRunOut: firmware's memory for rules ends. A rule that finds none is refused with LIMIT_EXCEEDED, those there
// are go on, and one that goes makes room. Where CXKIT_LONG_TESTS is set they are the million that the card says it has.
func TestRulesRunOut(t *testing.T) {
	const noEntries = 0xc10514
	b := newDataBench(t)
	f, n := b.function(), uint32(1)<<logMaxFlow
	if os.Getenv("CXKIT_LONG_TESTS") == "" {
		n = 1000
		limits := b.card.profile.tableLimits()
		limits.Entries = int(n)
		f.rx = steer.NewDomain(steer.NICRx, limits, f.seed())
	}
	rq := b.newRQ(b.newCQ(4), 3, 256)
	rq.state(prm.QueueStateRST, prm.QueueStateRDY)
	rq.post(4)
	tir := b.newTIR(rq)
	mask := prm.MatchParam{}
	mask.Outer.DMAC = [6]byte{255, 255, 255, 255, 255, 255}
	table, group := b.newTable(0, logMaxFlow+1, prm.MatchOuterHeaders, mask)
	entry := func(i uint32) *prm.SetFlowTableEntryIn {
		in := &prm.SetFlowTableEntryIn{TableID: table, FlowIndex: i}
		in.FlowContext = prm.FlowContext{GroupID: group, FlowTag: 1 + i, Action: prm.FlowActionForward, DestinationListSize: 1}
		binary.BigEndian.PutUint32(in.FlowContext.MatchValue.Outer.DMAC[2:], i)
		in.Destinations = []prm.Destination{{DestFormat: toTIR(tir)}}
		return in
	}
	for range n * 512 / dma.PageSize / 500 { // what firmware wants for entries (pages.go)
		b.give(500)
	}
	for i := range n {
		b.must(entry(i), &prm.SetFlowTableEntryOut{})
	}
	b.refused(entry(n), &prm.SetFlowTableEntryOut{}, prm.StatusLimitExceeded, noEntries)
	look := func(i uint32) {
		t.Helper()
		frame := make([]byte, 60)
		binary.BigEndian.PutUint32(frame[2:], i)
		b.receive(frame)
		if c := rq.cq.take(); len(c) != 1 || c[0].FlowTag() != 1+i {
			t.Errorf("rule %d: completions %x", i, c)
		}
	}
	look(n - 1)
	b.must(&prm.DeleteFlowTableEntryIn{TableID: table, FlowIndex: 5}, &prm.DeleteFlowTableEntryOut{})
	b.must(entry(n), &prm.SetFlowTableEntryOut{})
	look(n)
	if err := b.fn.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	if books := b.card.Books().Functions[0]; !books.Clean() {
		t.Errorf("books after a reset: %+v", books)
	}
}
