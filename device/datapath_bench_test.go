package device

import (
	"encoding/binary"
	"slices"
	"testing"

	"cxkit/dma"
	"cxkit/prm"
)

// testPort is the wire of a data bench: frames to be received, and what was sent.
type testPort struct {
	rx       [][]byte
	tx       [][]byte
	sent     int
	discard  bool // don't keep what is sent
	room     int  // frames that Transmit takes before it is full; negative: any number
	lossless bool
	down     bool
	wake     func()
}

func (p *testPort) Attach(wake func()) { p.wake = wake }
func (p *testPort) Link() bool         { return !p.down }
func (p *testPort) Lossless() bool     { return p.lossless }
func (p *testPort) Close() error       { return nil }

func (p *testPort) Transmit(frames [][]byte) int {
	n := len(frames)
	if p.room >= 0 {
		n = min(n, p.room)
		p.room -= n
	}
	p.sent += n
	if !p.discard {
		for _, f := range frames[:n] {
			p.tx = append(p.tx, slices.Clone(f))
		}
	}
	return n
}

func (p *testPort) Receive(frames [][]byte) int {
	n := copy(frames, p.rx)
	p.rx = p.rx[n:]
	return n
}

// dataBench is a bench whose function is up, with what queues need.
type dataBench struct {
	*bench
	port   *testPort
	uar    uint32
	async  *eq // error events
	comp   *eq // completion events
	pd     uint32
	td     uint32
	key    uint32 // all memory, read and write
	qset   uint8
	tis    uint32
	frames []dma.Region // of boxFrame
}

func newDataBench(t testing.TB) *dataBench {
	t.Helper()
	return dataBenchOn(t, newBench(t, Config{}))
}

// dataBenchOn brings up the function that a bench has attached, and plugs a port into the card.
func dataBenchOn(t testing.TB, on *bench) *dataBench {
	t.Helper()
	b := &dataBench{bench: on, port: &testPort{room: -1}}
	b.bringUp()
	if _, err := b.card.Plug(b.index, b.port); err != nil {
		t.Fatal(err)
	}
	b.objects()
	return b
}

// objects makes what all queues of the function need.
func (b *dataBench) objects() {
	b.Helper()
	b.uar = b.allocUAR()
	b.async = b.newEQ(b.uar, 8, 0, prm.EventCQError, prm.EventWQCatastrophic, prm.EventWQInvalidRequest, prm.EventWQAccess,
		prm.EventPageRequest, prm.EventNICVportChange, prm.EventPortChange, prm.EventESWFunctionsChanged)
	b.comp = b.newEQ(b.uar, 8, 1)
	var pd prm.AllocPDOut
	b.must(&prm.AllocPDIn{}, &pd)
	b.pd = pd.PD
	var td prm.AllocTransportDomainOut
	b.must(&prm.AllocTransportDomainIn{}, &td)
	b.td = td.TransportDomain
	b.key = b.newKey(prm.MKeyContext{LR: true, LW: true, Length64: true})
	var qset prm.AllocQCounterOut
	b.must(&prm.AllocQCounterIn{}, &qset)
	b.qset = qset.CounterSetID
	var tis prm.CreateTISOut
	b.must(&prm.CreateTISIn{Context: prm.TISContext{TransportDomain: b.td}}, &tis)
	b.tis = tis.TISN
	b.promiscuous(true)
}

// newKey makes a memory key of access mode PA.
func (b *dataBench) newKey(c prm.MKeyContext) uint32 {
	b.Helper()
	c.PD, c.QPN, c.MKey7_0 = b.pd, prm.MKeyAnyQPN, 0x42
	var out prm.CreateMKeyOut
	b.must(&prm.CreateMKeyIn{Context: c}, &out)
	return out.MKeyIndex<<8 | 0x42
}

// promiscuous opens the vport's address filter.
func (b *dataBench) promiscuous(on bool) {
	b.Helper()
	in := prm.ModifyNICVportContextIn{FieldSelectPromisc: true}
	in.NICVportContext.PromiscAll = on
	b.must(&in, &prm.ModifyNICVportContextOut{})
}

// pages lists the pages of a region, which starts at a page.
func pages(r dma.Region) (pas []uint64) {
	for at := 0; at < len(r.Bytes); at += dma.PageSize {
		pas = append(pas, r.Bus+uint64(at))
	}
	return pas
}

// ring carves a ring of n bytes and its doorbell record.
func (b *dataBench) ring(n int) (ring, record dma.Region) {
	b.Helper()
	return b.carve(max(n, dma.PageSize), dma.PageSize), b.carve(64, 64)
}

// testCQ is the consumer of a CQ.
type testCQ struct {
	b      *dataBench
	ring   dma.Region
	record dma.Region
	n      uint32
	log    uint8
	stride uint8
	ci     uint32
	sn     uint32
}

func (b *dataBench) newCQ(log uint8, edit ...func(*prm.CreateCQIn)) *testCQ {
	b.Helper()
	q := &testCQ{b: b, log: log, stride: 6}
	q.ring, q.record = b.ring(128 << log)
	for at := 0; at < len(q.ring.Bytes); at += 64 {
		q.ring.Bytes[at+63] = prm.CQEOwnInit
	}
	in := prm.CreateCQIn{Context: prm.CQContext{
		LogCQSize: log, UARPage: b.uar, EQN: uint32(b.comp.n), DBRAddr: q.record.Bus,
	}, PAS: pages(q.ring)}
	for _, f := range edit {
		f(&in)
	}
	if in.Context.CQESz != 0 {
		q.stride = 7
	}
	var out prm.CreateCQOut
	b.must(&in, &out)
	q.n = out.CQN
	return q
}

// next takes the next CQE, nil if there is none. It stays valid until release.
func (q *testCQ) next() *prm.CQE {
	at := int(q.ci&(1<<q.log-1)) << q.stride
	if q.stride == 7 {
		at += 64
	}
	slot := q.ring.Bytes[at : at+64]
	own := dma.LoadBE32(slot, 60)
	if own&1 != q.ci>>q.log&1 || own>>4&15 == uint32(prm.CQEInvalid) {
		return nil
	}
	q.ci++
	return (*prm.CQE)(slot)
}

// release tells the card what was taken.
func (q *testCQ) release() { dma.StoreBE32(q.record.Bytes, 0, q.ci&0xffffff) }

// take takes all CQEs there are and releases them.
func (q *testCQ) take() (cqes []prm.CQE) {
	for c := q.next(); c != nil; c = q.next() {
		cqes = append(cqes, *c)
	}
	q.release()
	return cqes
}

// arm arms the CQ at its consumer counter.
func (q *testCQ) arm(solicited bool) {
	word := q.sn<<28 | q.ci&0xffffff
	if solicited {
		word |= 1 << 24
	}
	dma.StoreBE32(q.record.Bytes, 4, word)
	q.b.regs.Store64(uint64(q.b.uar)<<uarShift+prm.UARCQArmOff, uint64(word)<<32|uint64(q.n))
	q.b.settle()
}

// testRQ is the producer of an RQ. Each WQE has one buffer of its own unless a test writes the WQE.
type testRQ struct {
	b      *dataBench
	cq     *testCQ
	ring   dma.Region
	record dma.Region
	bufs   dma.Region
	n      uint32
	log    uint8
	stride int
	size   int // of a buffer
	posted uint16
}

func (b *dataBench) newRQ(cq *testCQ, log uint8, size int, edit ...func(*prm.CreateRQIn)) *testRQ {
	b.Helper()
	q := &testRQ{b: b, cq: cq, log: log, size: size}
	in := prm.CreateRQIn{Context: prm.RQContext{CQN: cq.n, CounterSetID: b.qset, FlushInErrorEn: true, UserIndex: 0x123456}}
	in.Context.WQ = prm.WQContext{WQType: prm.WQTypeCyclic, PD: b.pd, LogWQStride: 4, LogWQSz: log}
	for _, f := range edit {
		f(&in)
	}
	q.stride = 1 << in.Context.WQ.LogWQStride
	q.ring, q.record = b.ring(q.stride << log)
	q.bufs = b.carve(size<<log, dma.PageSize)
	in.Context.WQ.DBRAddr, in.PAS = q.record.Bus, pages(q.ring)
	var out prm.CreateRQOut
	b.must(&in, &out)
	q.n = out.RQN
	return q
}

func (q *testRQ) state(from, to prm.QueueState) {
	q.b.Helper()
	in := prm.ModifyRQIn{RQState: from, RQN: q.n}
	in.Context.State = to
	q.b.must(&in, &prm.ModifyRQOut{})
}

// wqe returns the WQE of a counter, buf its buffer.
func (q *testRQ) wqe(counter uint16) []byte {
	at := int(counter&(1<<q.log-1)) * q.stride
	return q.ring.Bytes[at : at+q.stride]
}

func (q *testRQ) buf(counter uint16) dma.Region {
	return q.bufs.Slice(int(counter&(1<<q.log-1))*q.size, q.size)
}

// segment writes a data segment.
func segment(b []byte, size, key uint32, addr uint64) {
	binary.BigEndian.PutUint32(b, size)
	binary.BigEndian.PutUint32(b[4:], key)
	binary.BigEndian.PutUint64(b[8:], addr)
}

// post posts n WQEs of one segment.
func (q *testRQ) post(n int) {
	for range n {
		w := q.wqe(q.posted)
		segment(w, uint32(q.size), q.b.key, q.buf(q.posted).Bus)
		if len(w) > 16 {
			segment(w[16:], 0, prm.TerminateScatterLKey, 0)
		}
		q.posted++
	}
	q.ring0()
}

// ring0 stores the record.
func (q *testRQ) ring0() { dma.StoreBE32(q.record.Bytes, 0, uint32(q.posted)) }

// data is what a completion says was received.
func (q *testRQ) data(c *prm.CQE) []byte { return q.buf(c.WQECounter()).Bytes[:c.ByteCnt()] }

// newTIR makes a direct TIR.
func (b *dataBench) newTIR(rq *testRQ) uint32 {
	b.Helper()
	var out prm.CreateTIROut
	b.must(&prm.CreateTIRIn{Context: prm.TIRContext{TransportDomain: b.td, InlineRQN: rq.n}}, &out)
	return out.TIRN
}

// newTable makes a table of 1<<log entries with one group over all of it, mask as given, and returns
// both numbers.
func (b *dataBench) newTable(level, log uint8, enable prm.MatchCriteria, mask prm.MatchParam) (table, group uint32) {
	b.Helper()
	var t prm.CreateFlowTableOut
	b.must(&prm.CreateFlowTableIn{FlowTableContext: prm.FlowTableContext{Level: level, LogSize: log}}, &t)
	var g prm.CreateFlowGroupOut
	b.must(&prm.CreateFlowGroupIn{TableID: t.TableID, EndFlowIndex: 1<<log - 1, MatchCriteriaEnable: enable, MatchCriteria: mask}, &g)
	return t.TableID, g.GroupID
}

// rule makes an entry.
func (b *dataBench) rule(table, group, index uint32, value prm.MatchParam, tag uint32, to ...prm.DestFormat) {
	b.Helper()
	in := prm.SetFlowTableEntryIn{TableID: table, FlowIndex: index}
	in.FlowContext = prm.FlowContext{
		GroupID: group, FlowTag: tag, Action: prm.FlowActionForward, MatchValue: value, DestinationListSize: uint32(len(to)),
	}
	for _, d := range to {
		in.Destinations = append(in.Destinations, prm.Destination{DestFormat: d})
	}
	b.must(&in, &prm.SetFlowTableEntryOut{})
}

func toTIR(n uint32) prm.DestFormat {
	return prm.DestFormat{DestinationType: prm.DestinationTIR, DestinationID: n}
}

// all sends every frame to a TIR.
func (b *dataBench) all(tir uint32) (table uint32) {
	b.Helper()
	table, group := b.newTable(0, 0, 0, prm.MatchParam{})
	b.rule(table, group, 0, prm.MatchParam{}, 0, toTIR(tir))
	b.must(&prm.SetFlowTableRootIn{TableID: table}, &prm.SetFlowTableRootOut{})
	return table
}

// receiver is an RQ with everything in front of it, ready.
func (b *dataBench) receiver(log uint8, size int, edit ...func(*prm.CreateRQIn)) *testRQ {
	b.Helper()
	q := b.newRQ(b.newCQ(log+1), log, size, edit...)
	q.state(prm.QueueStateRST, prm.QueueStateRDY)
	b.all(b.newTIR(q))
	return q
}

// receive lets frames come in.
func (b *dataBench) receive(frames ...[]byte) {
	b.Helper()
	b.port.rx = append(b.port.rx, frames...)
	b.port.wake()
	b.settle()
}

// outOfBuffer reads the q-counter.
func (b *dataBench) outOfBuffer() int {
	b.Helper()
	var out prm.QueryQCounterOut
	b.must(&prm.QueryQCounterIn{CounterSetID: b.qset}, &out)
	return int(out.OutOfBuffer)
}
