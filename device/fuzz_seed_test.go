package device

import (
	"encoding/binary"
	"testing"

	"cxkit/prm"
)

// Seeds of FuzzDevice for what a hostile guest can be expected to try, each with a check that it gets there: random
// bytes would take long to.

// badSeed is an input of FuzzDevice, and reached says what is to be seen of it, or why not.
type badSeed struct {
	name    string
	input   []byte
	reached func(h *hostile) string
}

// script writes inputs of FuzzDevice: the bytes that hostile.act takes.
type script struct {
	b     []byte
	probe *hostile // what setUp makes; an input of the same first byte finds all in the same places
}

// newScript begins an input for a card on which frames move.
func newScript(t testing.TB) *script {
	return &script{b: []byte{2}, probe: playDevice(t, []byte{2})}
}

// end is what ends each deed: steps of the engine, until it rests.
func (s *script) end() { s.b = append(s.b, 7, 200) }

// time lets what takes time end.
func (s *script) time() {
	s.b = append(s.b, 8, 255)
	s.end()
}

// command executes a command on the probe, too, and returns the number of what it makes.
func (s *script) command(in input) uint32 {
	b := bytesOf(in)
	b = append(b, make([]byte, 15-(len(b)+15)%16)...)
	s.b = append(s.b, 2, byte((len(b)-16)/16))
	s.b = append(s.b, b...)
	s.b = append(s.b, 0, 0, 1) // as it is; an output of 24 bytes
	s.end()
	s.time()
	return s.probe.try(in)
}

// write writes to the guest's memory.
func (s *script) write(bus uint64, data []byte) {
	s.b = append(s.b, 5)
	s.b = binary.BigEndian.AppendUint32(s.b, uint32(bus-s.probe.arena.Bus()))
	s.b = append(append(s.b, byte(len(data))), data...)
	s.end()
}

// bell rings the doorbell of an SQ.
func (s *script) bell(sqn uint32) {
	s.b = append(s.b, 0, 0, 4, 0) // the doorbell page, BlueFlame buffer, 64 bits
	s.b = binary.BigEndian.AppendUint32(s.b, 1)
	s.b = binary.BigEndian.AppendUint32(s.b, sqn<<8)
	s.end()
}

// frames lets frames come in.
func (s *script) frames(n int) {
	for range n {
		f := append(testFrame(96, 1), 0)[:96]
		s.b = append(s.b, 7, byte(len(f)/8))
		s.b = append(append(s.b, f...), 0)
		s.end()
	}
}

// send posts a WQE with one data segment.
func (s *script) send(size, key uint32, addr uint64) {
	q := s.probe.sq
	wqe := make([]byte, 48)
	binary.BigEndian.PutUint32(wqe, uint32(prm.WQESend))
	binary.BigEndian.PutUint32(wqe[4:], q.n<<8|3)
	wqe[11] = byte(prm.CompletionAlways) << 2
	segment(wqe[32:], size, key, addr)
	s.write(q.ring.Bus, wqe)
	s.write(q.record.Bus+4, []byte{0, 0, 0, 1})
	s.bell(q.n)
}

// failed finds an error completion in a CQ.
func failed(q *testCQ, want prm.CQESyndrome) func(*hostile) string {
	return func(h *hostile) string {
		cq := h.sq.cq // q is the probe's
		if q.n != cq.n {
			cq = h.rqs[0].cq
		}
		for _, c := range cq.take() {
			if e := (*prm.ErrorCQE)(&c); (c.Opcode() == prm.CQERequesterError || c.Opcode() == prm.CQEResponderError) && e.Syndrome() == want {
				return ""
			}
		}
		return "no completion with " + want.String()
	}
}

// answered looks at what the last command came to.
func answered(want prm.Status) func(*hostile) string {
	return func(h *hostile) string {
		if got := prm.Status(h.entry(0)[0x20]); got != want {
			return "status " + got.String() + ", want " + want.String()
		}
		return ""
	}
}

// raised finds an event.
func raised(want prm.EventType) func(*hostile) string {
	return func(h *hostile) string {
		if h.data.errors(want) == 0 {
			return "no event " + want.String()
		}
		return ""
	}
}

func badSeeds(t testing.TB) (seeds []badSeed) {
	add := func(name string, s *script, reached func(*hostile) string) {
		seeds = append(seeds, badSeed{name, s.b, reached})
	}
	const nowhere = 1 << 50
	wq := func(s *script, kind prm.WQType, log uint8) prm.WQContext {
		page := s.probe.carve(4096, 4096)
		return prm.WQContext{WQType: kind, PD: s.probe.data.pd, LogWQSz: log, LogWQStride: 6, UARPage: s.probe.data.uar, DBRAddr: page.Bus}
	}

	s := newScript(t)
	in := &prm.CreateRQIn{Context: prm.RQContext{CQN: s.probe.rqs[0].cq.n, WQ: wq(s, prm.WQTypeLinkedList, 2)}}
	ring := s.probe.carve(4096, 4096)
	in.PAS = []uint64{ring.Bus}
	rq := s.command(in)
	s.command(&prm.ModifyRQIn{RQN: rq, Context: prm.RQContext{State: prm.QueueStateRDY}})
	list := make([]byte, 64) // the first WQE, whose next is the first one
	segment(list[16:], 256, s.probe.data.key, s.probe.carve(4096, 4096).Bus)
	segment(list[32:], 0, prm.TerminateScatterLKey, 0)
	s.write(ring.Bus, list)
	s.write(in.Context.WQ.DBRAddr, []byte{0, 0, 0, 3})
	s.command(&prm.ModifyRQTIn{RQTN: 1, BitmaskRQNList: true, Context: prm.RQTContext{RQTActualSize: 2}, RQNums: []uint32{rq, rq}})
	s.frames(5)
	add("descriptors that loop", s, func(h *hostile) string {
		if n := len(h.rqs[0].cq.take()); n != 3 {
			return "frames received by a list that loops are not 3"
		}
		return ""
	})

	s = newScript(t)
	box := s.probe.box(0, 0)
	var m prm.Mailbox // leads to itself
	m.SetNextPtr(box.Bus)
	m.SetToken(77)
	s.write(box.Bus+prm.MailboxDataLen, m[prm.MailboxDataLen:])
	entry := make([]byte, 64)
	entry[0], entry[60], entry[63] = prm.CmdTypePCI, 77, 1
	binary.BigEndian.PutUint32(entry[4:], 16+3*512)
	binary.BigEndian.PutUint64(entry[8:], box.Bus)
	binary.BigEndian.PutUint32(entry[0x38:], 16)
	s.b = append(append(append(s.b, 4, 0), entry...), 0, 0, 0, 0, 1)
	s.end()
	s.time()
	add("mailboxes that loop", s, func(h *hostile) string {
		if got := prm.DeliveryStatus(h.entry(0)[63] >> 1); got != prm.DeliveryBadBlockNumber {
			return "delivery status " + got.String()
		}
		return ""
	})

	s = newScript(t)
	s.send(1<<31-1, s.probe.data.key, 1<<64-50)
	add("lengths that overflow, sent", s, failed(s.probe.sq.cq, prm.CQESyndromeLocalLength))

	s = newScript(t)
	q := s.probe.rqs[0]
	for i := range uint16(4) {
		w := make([]byte, 16)
		segment(w, 1<<31-1, s.probe.data.key, 1<<64-50)
		s.write(q.ring.Bus+uint64(i)*16, w)
		s.write(s.probe.rqs[1].ring.Bus+uint64(i)*16, w)
	}
	s.frames(2)
	add("lengths that overflow, received", s, failed(q.cq, prm.CQESyndromeLocalProtection))

	s = newScript(t)
	key := s.command(&prm.CreateMKeyIn{Context: prm.MKeyContext{LR: true, LW: true, PD: s.probe.data.pd, QPN: prm.MKeyAnyQPN,
		StartAddr: s.probe.arena.Bus(), Length: 99}}) << 8
	s.send(100, key, s.probe.arena.Bus())
	add("a key's bounds", s, func(h *hostile) string {
		if h.function().keys.Get(key>>8) == nil {
			return "no key"
		}
		return failed(h.sq.cq, prm.CQESyndromeLocalProtection)(h)
	})

	s = newScript(t)
	s.command(&prm.DestroySQIn{SQN: s.probe.sq.n})
	s.send(100, s.probe.data.key, s.probe.arena.Bus())
	add("doorbell of a dead queue", s, func(h *hostile) string {
		if _, ok := h.function().sqs.Get(h.sq.n); ok || len(h.port.tx) != 0 || len(h.sq.cq.take()) != 0 {
			return "the queue is alive"
		}
		return ""
	})

	s = newScript(t)
	sin := &prm.CreateSQIn{Context: prm.SQContext{CQN: s.probe.sq.cq.n, TISLstSz: 1, TISNum0: s.probe.data.tis, WQ: wq(s, prm.WQTypeCyclic, 7)}}
	sin.PAS = []uint64{s.probe.carve(4096, 4096).Bus, nowhere}
	sqn := s.command(sin)
	s.command(&prm.ModifySQIn{SQN: sqn, Context: prm.SQContext{State: prm.QueueStateRDY}})
	wqe := make([]byte, 64) // as long as a whole page, and a block more
	binary.BigEndian.PutUint32(wqe, uint32(prm.WQENop))
	binary.BigEndian.PutUint32(wqe[4:], sqn<<8|1)
	for i := range uint64(64) {
		binary.BigEndian.PutUint32(wqe, uint32(i)<<8|uint32(prm.WQENop))
		s.write(sin.PAS[0]+64*i, wqe)
	}
	s.write(sin.Context.WQ.DBRAddr+4, []byte{0, 0, 0, 66})
	s.bell(sqn)
	add("a ring that ends in nothing", s, raised(prm.EventWQAccess))

	s = newScript(t)
	s.send(100, s.probe.data.key, nowhere)
	add("DMA to nothing", s, failed(s.probe.sq.cq, prm.CQESyndromeLocalProtection))

	s = newScript(t)
	low := s.command(&prm.CreateFlowTableIn{FlowTableContext: prm.FlowTableContext{Level: 3, LogSize: 1}})
	s.command(&prm.CreateFlowTableIn{FlowTableContext: prm.FlowTableContext{Level: 4, LogSize: 1, TableMissAction: 1, TableMissID: low}})
	add("a miss that leads back", s, answered(prm.StatusBadParameter))
	s.command(&prm.ModifyFlowTableIn{TableID: low, ModifyFieldSelect: 1, FlowTableContext: prm.FlowTableContext{TableMissAction: 1, TableMissID: low}})
	add("a table that leads to itself", s, answered(prm.StatusBadParameter))

	for kind, name := range []string{"rules of one value", "groups of rules", "rules of one value under masks", "groups of masks", "rules of values of their own"} {
		s = newScript(t)
		s.b = append(s.b, 14, 250, byte(kind)|8, 1)
		s.b = append(s.b, make([]byte, 1000)...)
		s.end()
		s.frames(2)
		add(name, s, func(h *hostile) string {
			if _, _, n := h.function().rx.Counts(); n < 1000 {
				return "fewer than a thousand rules"
			}
			return ""
		})
	}
	return seeds
}

// TestFuzzSeedsReachWhatTheyAreFor plays each seed and looks for what it is to cause.
func TestFuzzSeedsReachWhatTheyAreFor(t *testing.T) {
	for _, s := range badSeeds(t) {
		t.Run(s.name, func(t *testing.T) {
			h := playDevice(t, s.input)
			if why := s.reached(h); why != "" {
				t.Error(why)
			}
		})
	}
}
