package driver

import (
	"encoding/binary"
	"log/slog"
	"testing"

	"cxkit/dma"
	"cxkit/driver/internal/queue"
	"cxkit/driver/internal/rxpool"
	"cxkit/mmio"
	"cxkit/prm"
)

// Numbers of the queues under test.
const (
	testRxCQ = 0x10 + iota
	testTxCQ
	testRQ
	testSQ
	testKey = 0x1234
)

// writer is a pair of queues without firmware, and the least that can stand for the card: it completes
// what the queues post, and nothing else. The queues' owner and the writer run in one goroutine.
type writer struct {
	nic *NIC
	rx  *RxQueue
	tx  *TxQueue

	counts channelCounts

	window *mmio.Window // the doorbell page
	rxCQ   ringView
	chunks dma.Region // behind WQEs of a striding queue
	stride uint32     // strides of the WQE at rqPI that are used
	rq     []byte
	rqDB   []byte
	rqPI   uint32 // WQEs consumed
	txCQ   ringView
	sq     []byte
	sqDB   []byte
	sqPI   uint32
	frame  []byte // copied into each buffer if not nil
	pool   dma.Region
}

// ringView is a completion queue as its producer sees it.
type ringView struct {
	ring []byte
	db   []byte
	mask uint32
	log  uint8
	pi   uint32
}

func (v *ringView) entry(i uint32) *prm.CQE { return (*prm.CQE)(v.ring[(i&v.mask)*prm.CQESize:]) }

// own publishes an entry.
func (v *ringView) own(i uint32, counter uint16, op prm.CQEOpcode) {
	dma.StoreBE32(v.ring, int(i&v.mask)*prm.CQESize+prm.CQEOwnOff,
		prm.CQEOwnDword(counter, 0, op, prm.CQEFormatNone, false, i>>v.log&1 != 0))
}

// plainOwn writes the ownership dword of an entry behind one that is not published yet.
func (v *ringView) plainOwn(i uint32, counter uint16, op prm.CQEOpcode) {
	binary.BigEndian.PutUint32(v.ring[(i&v.mask)*prm.CQESize+prm.CQEOwnOff:],
		prm.CQEOwnDword(counter, 0, op, prm.CQEFormatNone, false, i>>v.log&1 != 0))
}

// newWriter checks the buffers, whatever c says, but where time is measured.
func newWriter(tb testing.TB, c Config) *writer {
	tb.Helper()
	_, measured := tb.(*testing.B)
	c.CheckBuffers = !measured
	return newUncheckedWriter(tb, c)
}

// newUncheckedWriter is for the few tests of what happens where nobody checks: wrong moves are counted.
func newUncheckedWriter(tb testing.TB, c Config) *writer {
	tb.Helper()
	c.Queues = 1
	c, err := c.complete()
	if err != nil {
		tb.Fatal(err)
	}
	n := &NIC{config: c, log: slog.New(slog.DiscardHandler), closed: make(chan struct{})}
	n.maxFrame.Store(int32(c.MTU + frameOverhead))
	n.base.eth.MaxLSOCap = 18
	arena := func(size int) dma.Region {
		a, err := dma.New(size, c.Arena)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() {
			if err := a.Close(); err != nil {
				tb.Error(err)
			}
		})
		a.Place(1<<32, nil)
		return a.Region(0, a.Size())
	}
	w := &writer{nic: n, pool: arena(c.shapePool().bytes)}
	n.fillPool(w.pool, c.shapePool())
	w.window = mmio.NewMapped(arena(4096).Bytes)
	door := queue.Doorbell{Window: w.window}

	view := func(entries int) ringView {
		v := ringView{ring: arena(entries * prm.CQESize).Bytes[:entries*prm.CQESize], db: arena(4096).Bytes, mask: uint32(entries - 1)}
		for 1<<v.log < entries {
			v.log++
		}
		return v
	}
	shape := n.rxShape(c.RxRing)
	w.rxCQ, w.txCQ = view(shape.completions), view(2*c.TxRing)
	w.rq = arena(shape.wqes * shape.stride).Bytes[:shape.wqes*shape.stride]
	w.rqDB, w.sqDB = arena(4096).Bytes, arena(4096).Bytes
	w.sq = arena(c.TxRing * queue.WQEBBSize).Bytes[:c.TxRing*queue.WQEBBSize]
	common := func(transmit bool) common {
		return n.newCommon(0, transmit)
	}
	w.rx = &RxQueue{
		common: common(false), bulk: uint32(min(refillBulk, c.RxRing/2)),
		rxRings: rxRings{
			cq: queue.NewCQ(w.rxCQ.ring, w.rxCQ.db, door, 0),
		},
		delivered: rxpool.DeliveredBy(0), count: &w.counts.rx,
	}
	if n.pages != nil {
		w.rx.pages = n.pages[0]
	}
	if n.base.door, n.base.lkey = door, testKey; c.Striding {
		w.chunks = arena(shape.chunks)
	}
	w.rx.rq = n.newRQ(w.rq, w.rqDB, w.chunks)
	w.rx.prepare(&c)
	w.tx = &TxQueue{
		common: common(true),
		txRings: txRings{
			cq: queue.NewCQ(w.txCQ.ring, w.txCQ.db, door, c.TxRing/2),
			sq: queue.NewSQ(w.sq, w.sqDB, door, testKey, n.inline()),
		},
		taken: rxpool.TakenFrom(0), can: n.txCan(), count: &w.counts.tx,
	}
	w.rx.cq.Named(testRxCQ)
	w.tx.cq.Named(testTxCQ)
	w.rx.rq.Named(testRQ)
	w.tx.sq.Named(testSQ)
	w.publish(n)
	w.rx.refill()
	return w
}

// publish makes the writer's queues those of a NIC.
func (w *writer) publish(n *NIC) {
	n.slots = []slot{{rx: w.rx, tx: w.tx, counts: &w.counts}}
	n.publish(1)
}

// posted is how many WQEs the receive queue has posted and the writer not used.
func (w *writer) posted() int {
	return int(uint16(dma.LoadBE32(w.rqDB, 0)) - uint16(w.rqPI))
}

// receive completes up to n frames of length bytes and returns how many there were buffers for. Bodies
// are written last to first, the first one's ownership last, as the model publishes a burst.
func (w *writer) receive(n, length int) int {
	n = min(n, w.posted())
	for i := n - 1; i >= 0; i-- {
		at := w.rxCQ.pi + uint32(i)
		e := w.rxCQ.entry(at)
		e.SetByteCnt(uint32(length))
		e.SetRSSHashResult(at * 0x9e3779b9)
		e.SetHDSIPExt(7)
		if w.frame != nil {
			buffer := w.rx.rq.Buffers[(w.rqPI+uint32(i))&w.rx.rq.Mask]
			copy(w.nic.pool.Buffer(buffer), w.frame[:length])
		}
		if i > 0 {
			w.rxCQ.plainOwn(at, w.counter(i), prm.CQEResponderSend)
		}
	}
	if n > 0 {
		w.rxCQ.own(w.rxCQ.pi, w.counter(0), prm.CQEResponderSend)
	}
	w.rxCQ.pi += uint32(n)
	w.rqPI += uint32(n)
	return n
}

// counter is what the completion of the i-th WQE from now on says of it. A linked queue's stay in turn here.
func (w *writer) counter(i int) uint16 {
	if w.rx.linked {
		return uint16((w.rqPI + uint32(i)) & w.rx.rq.Mask)
	}
	return uint16(w.rqPI + uint32(i))
}

// receiveStrides completes frame in a striding queue, which has room for it; edit changes the completion.
func (w *writer) receiveStrides(frame []byte, edit func(e *prm.CQE)) {
	need := uint32(max(1, len(frame)+queue.StrideSize-1) / queue.StrideSize)
	if w.stride+need > queue.Strides {
		e := w.rxCQ.entry(w.rxCQ.pi)
		*e = prm.CQE{}
		e.SetFiller(true)
		e.SetConsumedStrides(uint16(queue.Strides - w.stride))
		w.consume(e, queue.Strides-w.stride)
	}
	copy(w.chunks.Bytes[int(w.rqPI&w.rx.rq.Mask)*queue.ChunkSize+int(w.stride)*queue.StrideSize:], frame)
	e := w.rxCQ.entry(w.rxCQ.pi)
	*e = prm.CQE{}
	e.SetConsumedStrides(uint16(need))
	e.SetStridingByteCnt(uint16(len(frame)))
	e.SetHDSIPExt(7)
	if edit != nil {
		edit(e)
	}
	w.consume(e, need)
}

// consume publishes a completion of so many strides.
func (w *writer) consume(e *prm.CQE, strides uint32) {
	e.SetWQEID(uint16(w.rqPI & w.rx.rq.Mask))
	w.rxCQ.own(w.rxCQ.pi, uint16(w.stride), prm.CQEResponderSend)
	w.rxCQ.pi++
	if w.stride += strides; w.stride == queue.Strides {
		w.stride = 0
		w.rqPI++
	}
}

// complete sends everything posted: a completion for each WQE that asks for one.
func (w *writer) complete() int {
	n := uint16(dma.LoadBE32(w.sqDB, 4)) - uint16(w.sqPI)
	for end := w.sqPI + uint32(n); w.sqPI != end; {
		c := (*prm.WQECtrlSeg)(w.sq[(w.sqPI&w.tx.sq.Mask)*queue.WQEBBSize:])
		if c.CE() == prm.CompletionAlways {
			e := w.txCQ.entry(w.txCQ.pi)
			e.SetSendOpcode(prm.WQESend)
			e.SetQPN(testSQ)
			w.txCQ.own(w.txCQ.pi, uint16(w.sqPI), prm.CQERequester)
			w.txCQ.pi++
		}
		w.sqPI += uint32(c.DS()+3) / 4
	}
	return int(n)
}
