package device

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"cxkit/pci"
	"cxkit/prm"
)

// FuzzDevice plays a hostile driver and a hostile wire: the input becomes register writes, memory writes,
// configuration writes, whole commands, frames and time. The card must not panic, must come to rest, and
// must be clean after a reset. The memory behind bus addresses ends where the arena does, with nothing
// mapped around it, so an access outside is an error that the card sees, or a panic.
func FuzzDevice(f *testing.F) {
	f.Add([]byte("\x00\x01\x05\x02\x03\x04\x05\x06"))
	for _, op := range []prm.Opcode{prm.OpCreateEQ, prm.OpCreateCQ, prm.OpCreateRQ, prm.OpCreateSQ, prm.OpCreateMKey,
		prm.OpSetFlowTableEntry, prm.OpAccessReg, prm.OpModifyNICVportContext, prm.OpManagePages, prm.OpTeardownHCA} {
		seed := []byte{2, 0x20, byte(op >> 8), byte(op)}
		f.Add(append(seed, make([]byte, 200)...))
	}
	f.Add(fuzzTraffic())
	for start := range byte(4) { // some of everything in each state
		r := rand.New(rand.NewPCG(uint64(start), 1))
		for range 8 {
			seed := make([]byte, 600)
			for i := range seed {
				seed[i] = byte(r.Uint32())
			}
			seed[0] = start
			f.Add(seed)
		}
	}
	for _, s := range badSeeds(f) {
		f.Add(s.input)
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		h := playDevice(t, input)
		h.clock.advance(time.Second)
		h.settle()
		if len(h.card.inbox) != 0 {
			t.Errorf("%d register writes are left", len(h.card.inbox))
		}
		if err := h.fn.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		if books := h.card.Books().Functions[0]; !books.Clean() {
			t.Errorf("books after a reset: %+v", books)
		}
	})
}

// playDevice has a card suffer all of an input.
func playDevice(t testing.TB, input []byte) *hostile {
	b := newSizedBench(t, Config{Seed: 1, OtherLatency: Latency{Max: time.Microsecond}}, 1<<20, 128)
	h := &hostile{bench: b, input: input}
	h.setUp()
	for len(h.input) > 0 {
		h.act()
	}
	return h
}

// hostile turns bytes into deeds.
type hostile struct {
	*bench
	input []byte
	port  *testPort
	data  *dataBench // what setUp made; nil if that was nothing
	rqs   []*testRQ
	sq    *testSQ
	ops   []prm.Opcode
}

// setUp brings the function up as far as the first byte says: only its command queue, until INIT_HCA, or
// until frames move, with one rule or with Linux's tables. Random commands would hardly get there.
func (h *hostile) setUp() {
	h.rest = func() { // a command's time passes while it is waited for
		h.step()
		h.clock.advance(time.Millisecond)
		h.step()
	}
	how := h.byte() & 3
	switch how {
	case 0:
		h.port = &testPort{room: 10, lossless: len(h.input)%2 == 0}
		h.startQueue()
		if _, err := h.card.Plug(0, h.port); err != nil {
			h.Fatal(err)
		}
	default:
		h.data = dataBenchOn(h.TB, h.bench)
		h.port = h.data.port
		h.port.lossless = len(h.input)%2 == 0
	}
	if how > 1 {
		cq := h.data.newCQ(5)
		for range 2 {
			q := h.data.newRQ(cq, 3, 256)
			q.state(prm.QueueStateRST, prm.QueueStateRDY)
			q.post(4)
			h.rqs = append(h.rqs, q)
		}
		tir := h.data.newRSS([]uint32{h.rqs[0].n, h.rqs[1].n}, 4)
		if how == 2 {
			h.data.all(tir)
		} else {
			h.data.linuxTables(tir)
		}
		h.sq = h.data.sender(3)
	}
	h.rest = h.step
	for op := range h.function().table {
		h.ops = append(h.ops, op)
	}
	slices.Sort(h.ops)
}

// uar is the doorbell page of setUp, or where the first one would be.
func (h *hostile) uar() uint32 {
	if h.data != nil {
		return h.data.uar
	}
	return 16
}

// template is a command that is all right, or nearly: a few of its bytes are changed then.
func (h *hostile) template() []byte {
	page := h.arena.Bus() + uint64(h.memory) - uint64(1+h.byte()&3)*4096
	wq := prm.WQContext{WQType: prm.WQTypeCyclic, PD: 1, LogWQSz: 4, LogWQStride: 4, UARPage: h.uar(), DBRAddr: page + 64}
	swq := wq
	swq.LogWQStride = 6
	n := uint32(h.byte() & 3)
	all := []input{
		&prm.CreateCQIn{Context: prm.CQContext{LogCQSize: 4, UARPage: h.uar(), EQN: 2, DBRAddr: page + 128}, PAS: []uint64{page}},
		&prm.CreateRQIn{Context: prm.RQContext{CQN: n, WQ: wq}, PAS: []uint64{page}},
		&prm.CreateSQIn{Context: prm.SQContext{CQN: n, TISLstSz: 1, TISNum0: 1, WQ: swq}, PAS: []uint64{page}},
		&prm.ModifyRQIn{RQN: n, RQState: prm.QueueState(h.byte() & 3), Context: prm.RQContext{State: prm.QueueState(h.byte() & 3)}},
		&prm.ModifySQIn{SQN: n, SQState: prm.QueueState(h.byte() & 3), Context: prm.SQContext{State: prm.QueueState(h.byte() & 3)}},
		&prm.DestroyRQIn{RQN: n}, &prm.DestroySQIn{SQN: n}, &prm.DestroyCQIn{CQN: n},
		&prm.QueryRQIn{RQN: n}, &prm.QuerySQIn{SQN: n}, &prm.QueryCQIn{CQN: n},
		&prm.CreateRQTIn{Context: prm.RQTContext{RQTMaxSize: 4, RQTActualSize: 2}, RQNums: []uint32{n, n}},
		&prm.CreateTIRIn{Context: prm.TIRContext{TransportDomain: 1, InlineRQN: n}},
		&prm.CreateFlowTableIn{FlowTableContext: prm.FlowTableContext{Level: uint8(n), LogSize: 3}},
		&prm.CreateFlowGroupIn{TableID: n, EndFlowIndex: 7},
		&prm.SetFlowTableEntryIn{TableID: n, FlowContext: prm.FlowContext{GroupID: n, Action: prm.FlowActionForward, DestinationListSize: 1},
			DestinationList: prm.DestinationList{Destinations: []prm.Destination{{DestFormat: toTIR(n)}}}},
		&prm.SetFlowTableRootIn{TableID: n}, &prm.DestroyFlowTableIn{TableID: n}, &prm.DestroyTIRIn{TIRN: n},
		&prm.CreateMKeyIn{Context: prm.MKeyContext{Length64: true, LR: true, LW: true, PD: 1, QPN: prm.MKeyAnyQPN}},
		&prm.QueryVportCounterIn{}, &prm.TeardownHCAIn{Profile: prm.TeardownProfile(n)},
	}
	b := bytesOf(all[int(h.byte())%len(all)])
	for range h.byte() & 3 {
		b[2+int(h.byte())*int(h.byte())%(len(b)-2)] = h.byte()
	}
	return b
}

// move lets frames move, or nearly.
func (h *hostile) move() {
	if h.sq == nil {
		return
	}
	switch h.byte() % 5 {
	case 0:
		h.rqs[h.byte()&1].post(int(h.byte() & 7))
	case 1: // a good frame to be sent, and a few changed bytes
		h.sq.put(prm.WQESend, prm.CompletionAlways, nil)
		at := int(h.sq.pi-1) & 7 * 64
		wqe := h.sq.ring.Bytes[at : at+64]
		copy(wqe, []byte{0: 0, 1: wqe[1], 2: wqe[2], 3: byte(prm.WQESend), 4: wqe[4], 5: wqe[5], 6: wqe[6], 7: 3})
		segment(wqe[32:], 60+uint32(h.byte()), h.data.key, h.arena.Bus()+uint64(h.byte())*64)
		for range h.byte() & 3 {
			wqe[h.byte()&63] = h.byte()
		}
		h.sq.ring0()
	case 2: // frames that go through the tables
		for range 1 + h.byte()&7 {
			h.port.rx = append(h.port.rx, udpFrame(20+int(h.byte()), uint32(h.byte()), 2, uint16(h.byte()), 4))
		}
		h.port.room = 10
		h.port.wake()
	case 3:
		h.regs.Store64(uint64(h.uar())<<uarShift+prm.UARCQArmOff, uint64(h.word())<<32|uint64(h.byte()&3))
	case 4: // the consumer goes on
		h.sq.cq.take()
		h.rqs[0].cq.take()
	}
}

// rules makes a table of up to a thousand rules: of one value or of values of their own, in one group or many, of one
// mask or many, each with the memory that firmware wants for it.
func (h *hostile) rules() {
	n, kind := 4*uint32(h.byte()), h.byte()
	pages := prm.ManagePagesIn{OpMod: uint16(prm.PagesGive), InputNumEntries: 200, PAS: make([]uint64, 200)}
	for i := range pages.PAS {
		pages.PAS[i], h.nextPA = h.nextPA, h.nextPA+4096
	}
	h.try(&pages)
	level := 1 + h.byte()%8
	table := h.try(&prm.CreateFlowTableIn{FlowTableContext: prm.FlowTableContext{Level: level, LogSize: 10}})
	groups := uint32(1)
	if kind&1 != 0 {
		groups = 16
	}
	var group uint32
	for i := range n {
		if size := 1024 / groups; i%size == 0 {
			in := prm.CreateFlowGroupIn{TableID: table, StartFlowIndex: i, EndFlowIndex: i + size - 1, MatchCriteriaEnable: prm.MatchOuterHeaders}
			in.MatchCriteria.Outer.DMAC = [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
			if kind&2 != 0 {
				in.MatchCriteria.Outer.DMAC[5] = byte(i / size)
			}
			group = h.try(&in)
		}
		in := prm.SetFlowTableEntryIn{TableID: table, FlowIndex: i}
		in.FlowContext = prm.FlowContext{GroupID: group, FlowTag: i, Action: prm.FlowActionForward, DestinationListSize: 1}
		if kind&4 != 0 {
			binary.BigEndian.PutUint32(in.FlowContext.MatchValue.Outer.DMAC[:], i)
		}
		in.Destinations = []prm.Destination{{DestFormat: toTIR(1 + uint32(h.byte()&1))}}
		h.try(&in)
	}
	if kind&8 != 0 {
		h.try(&prm.SetFlowTableRootIn{TableID: table})
	}
	for i := range n {
		if kind&16 != 0 {
			h.try(&prm.DeleteFlowTableEntryIn{TableID: table, FlowIndex: i})
		}
	}
}

// try executes a command if the slot is free, and returns the number of what it made, or rubbish.
func (h *hostile) try(in input) uint32 {
	if h.owned(0) {
		return 0
	}
	h.post(0, bytesOf(in), 16)
	h.settle()
	h.clock.advance(time.Millisecond)
	h.settle()
	return binary.BigEndian.Uint32(h.entry(0)[0x28:]) & 0xffffff
}

func (h *hostile) take(n int) []byte {
	n = min(n, len(h.input))
	p := h.input[:n]
	h.input = h.input[n:]
	return p
}

func (h *hostile) byte() byte {
	if p := h.take(1); len(p) == 1 {
		return p[0]
	}
	return 0
}

func (h *hostile) word() uint32 {
	var b [4]byte
	copy(b[:], h.take(4))
	return binary.BigEndian.Uint32(b[:])
}

// address is one the card may meet: mostly inside the arena.
func (h *hostile) address() uint64 {
	v := h.word()
	if v>>28 == 0xf {
		return uint64(v) << 20
	}
	return h.arena.Bus() + uint64(v)%uint64(h.memory)
}

// act does one deed.
func (h *hostile) act() {
	switch h.byte() % 15 {
	case 10, 11:
		h.move()
	case 14:
		h.rules()
	case 12, 13: // a command that gets far
		if in := h.template(); !h.owned(0) {
			h.post(0, in, 8+int(h.byte()))
		}
	case 0: // a doorbell
		page := uint64(h.uar()) + uint64(h.byte()&1)
		reg := []uint64{0x20, 0x24, 0x40, 0x48, 0x800, 0x804, 0x900, 0xa00}[h.byte()&7]
		if off := page<<12 + reg; reg&7 == 0 && h.byte()&1 == 0 {
			h.regs.Store64(off, uint64(h.word())<<32|uint64(h.word()))
		} else {
			h.regs.Store32(off, h.word())
		}
	case 1: // any register
		h.regs.Store32(uint64(h.word())%(32<<20)&^3, h.word())
	case 2, 3: // a command
		in := make([]byte, 16+16*int(h.byte()))
		copy(in, h.take(len(in)))
		if h.byte()&3 != 0 {
			binary.BigEndian.PutUint16(in, uint16(h.ops[int(in[1])%len(h.ops)]))
			in[2], in[3], in[4], in[5] = 0, 0, 0, 0
		}
		if h.byte()&1 != 0 { // page lists that lead somewhere
			for at := 0x110; at+8 <= len(in); at += 8 {
				binary.BigEndian.PutUint64(in[at:], h.arena.Bus()+uint64(len(in)%64)*4096)
			}
		}
		if !h.owned(0) {
			h.post(0, in, 8+int(h.byte())*16)
		}
	case 4: // a raw command entry
		e := h.entry(int(h.byte() % 32))
		copy(e, h.take(64))
		if h.byte()&1 != 0 {
			e[0], e[63] = prm.CmdTypePCI, 1
			binary.BigEndian.PutUint64(e[8:], h.address()&^0x1ff)
			binary.BigEndian.PutUint64(e[0x30:], h.address()&^0x1ff)
		}
		h.regs.Store32(regCmdDoorbell, h.word())
	case 5: // memory
		off := int(h.word() % uint32(h.memory))
		copy(h.arena.Bytes()[off:], h.take(int(h.byte())))
	case 6:
		h.fn.WriteConfig(int(h.word()%4096), h.take(1+int(h.byte()%4)))
		h.fn.WriteConfig(4, []byte{6, 4})
	case 7: // a frame, and room for some
		n := int(h.byte()) * 8
		h.port.rx = append(h.port.rx, append([]byte(nil), h.take(n)...))
		h.port.room, h.port.down = 4, h.byte() > 250
		h.port.wake()
	case 8:
		h.clock.advance(time.Duration(h.byte()) * time.Microsecond)
	case 9:
		if h.byte() == 77 {
			h.card.Function(0).Reset(pci.ResetKind(h.byte() & 1))
			h.fn.WriteConfig(4, []byte{6, 4})
		}
	}
	h.card.Step(1 + int(h.byte()&7))
	if h.port.rx = h.port.rx[max(len(h.port.rx)-64, 0):]; h.byte() > 128 {
		h.settle()
	}
}

// fuzzTraffic is a seed that gets a queue going: CREATE_CQ, CREATE_RQ and more with plausible contexts.
func fuzzTraffic() []byte {
	seed := []byte{1}
	command := func(in input) {
		b := bytesOf(in)
		b = append(b, make([]byte, 15-(len(b)+15)%16)...)
		seed = append(seed, 2, byte((len(b)-16)/16))
		seed = append(seed, b...)
		seed = append(seed, 0, 1, 16, 0, 200)
	}
	wq := prm.WQContext{WQType: prm.WQTypeCyclic, PD: 1, LogWQSz: 4, LogWQStride: 6, UARPage: 16, DBRAddr: 1<<32 + 256<<10}
	command(&prm.CreateCQIn{Context: prm.CQContext{LogCQSize: 4, UARPage: 16, EQN: 2, DBRAddr: 1<<32 + 257<<10}, PAS: make([]uint64, 1)})
	command(&prm.CreateRQIn{Context: prm.RQContext{CQN: 1, WQ: wq}, PAS: make([]uint64, 1)})
	command(&prm.CreateTISIn{Context: prm.TISContext{TransportDomain: 1}})
	command(&prm.CreateSQIn{Context: prm.SQContext{CQN: 1, TISLstSz: 1, TISNum0: 1, WQ: wq}, PAS: make([]uint64, 1)})
	command(&prm.ModifyRQIn{RQN: 1, Context: prm.RQContext{State: prm.QueueStateRDY}})
	command(&prm.ModifySQIn{SQN: 1, Context: prm.SQContext{State: prm.QueueStateRDY}})
	return seed
}
