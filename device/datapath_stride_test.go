package device

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"cxkit/dma"
	"cxkit/prm"
)

// strider is the driver of a striding RQ as Linux has one: a linked list of WQEs whose memory a key of MTTs
// reaches, which UMR fills in before a WQE is posted.
type strider struct {
	*testRQ
	icosq    *testSQ
	key      uint32
	strides  int
	stride   int
	shift    int
	headroom int
	pages    int // of a WQE
	perWQE   int // MTTs of a WQE: more than its pages
	memory   dma.Region
	overflow dma.Region
	linked   bool
	head     uint16 // slot to be posted next
	tail     uint16 // slot whose link is written when another is given back
	sum      map[uint16]int
}

const (
	testStrides = 8
	testWQEs    = 4
)

// newStrider makes a striding RQ and posts what Linux posts: all WQEs but one.
func newStrider(t testing.TB, logStride uint8, edit ...func(*prm.CreateRQIn)) *strider {
	t.Helper()
	return newStriderOn(t, logStride, nil, edit...)
}

// newStriderOn is newStrider with edits of its CQ.
func newStriderOn(t testing.TB, logStride uint8, cq []func(*prm.CreateCQIn), edit ...func(*prm.CreateRQIn)) *strider {
	t.Helper()
	b := dataBenchOn(t, newSizedBench(t, Config{}, 16<<20, 2048))
	q := &strider{strides: testStrides, stride: 1 << logStride, headroom: 256, linked: true, tail: testWQEs - 1, sum: map[uint16]int{}}
	q.pages = max(1, testStrides<<logStride/4096)
	q.perWQE = (q.pages + 1 + 7) &^ 7
	q.memory, q.overflow = b.carve(testWQEs*q.pages*4096, 4096), b.carve(4096, 4096)
	q.key = b.newUMRKey(testWQEs*q.perWQE, q.overflow.Bus)
	q.testRQ = b.newRQ(b.newCQ(8, cq...), 2, 4096, append([]func(*prm.CreateRQIn){func(in *prm.CreateRQIn) {
		w := &in.Context.WQ
		w.WQType, w.LogWQStride, w.LogWQEStrideSize = prm.WQTypeLinkedListStriding, 5, logStride-6
		w.LogWQENumOfStrides = (3 - 9) & 15
	}, func(in *prm.CreateRQIn) { q.linked = in.Context.WQ.WQType == prm.WQTypeLinkedListStriding }}, edit...)...)
	q.icosq = b.umrSQ()
	q.state(prm.QueueStateRST, prm.QueueStateRDY)
	b.all(b.newTIR(q.testRQ))
	for i := range uint16(testWQEs) {
		binary.BigEndian.PutUint16(q.wqe(i)[2:], i+1)
	}
	for range testWQEs - 1 {
		q.postNext()
	}
	return q
}

// newUMRKey makes a free key of MTTs, all of which lead to one page.
func (b *dataBench) newUMRKey(mtts int, page uint64) uint32 {
	b.Helper()
	c := prm.MKeyContext{Free: true, UMREn: true, LR: true, LW: true, PD: b.pd, QPN: prm.MKeyAnyQPN, MKey7_0: 0x17,
		Length: uint64(mtts) * 4096, LogPageSize: 12, TranslationsOctwordSize: uint32(mtts / 2)}
	c.SetAccessMode(prm.MKeyAccessMTT)
	in := prm.CreateMKeyIn{Context: c, TranslationsOctwordActualSize: uint32(mtts / 2)}
	for range mtts {
		in.Translations = append(in.Translations, page|prm.MTTRead|prm.MTTWrite)
	}
	var out prm.CreateMKeyOut
	b.must(&in, &out)
	return out.MKeyIndex<<8 | 0x17
}

// umrSQ makes an SQ that may change keys and send nothing.
func (b *dataBench) umrSQ() *testSQ {
	b.Helper()
	return b.sender(6, func(in *prm.CreateSQIn) { in.Context.RegUMR, in.Context.TISLstSz, in.Context.TISNum0 = true, 0, 0 })
}

// umrWQE is a UMR WQE behind its control segment, as Linux makes it: translations inline, the key freed of
// its free state.
func umrWQE(offset int, words []uint64) []byte {
	w := make([]byte, 0x70, 0x70+8*len(words))
	w[0] = 0x90
	binary.BigEndian.PutUint16(w[4:], uint16(len(words)/2))
	binary.BigEndian.PutUint16(w[6:], uint16(offset))
	binary.BigEndian.PutUint64(w[8:], 1<<29)
	for _, v := range words {
		w = binary.BigEndian.AppendUint64(w, v)
	}
	return w
}

// umr executes a UMR and returns the completion's syndrome, 0 if it succeeded.
func (q *testSQ) umr(key uint32, body []byte) prm.CQESyndrome {
	q.b.Helper()
	at := q.pi
	q.put(prm.WQEUMR, prm.CompletionAlways, body)
	binary.BigEndian.PutUint32(q.ring.Bytes[int(at&(1<<q.log-1))*64+12:], key)
	q.ring0()
	c := q.cq.take()
	if len(c) != 1 {
		q.b.Fatalf("%d completions of a UMR", len(c))
	}
	if c[0].Opcode() == prm.CQERequester {
		return 0
	}
	return (*prm.ErrorCQE)(&c[0]).Syndrome()
}

// postNext posts the slot at head, its pages in an order of their own.
func (q *strider) postNext() {
	q.b.Helper()
	ix := q.head
	words := make([]uint64, (q.pages+1)&^1)
	for i := range q.pages {
		words[i] = q.memory.Bus + uint64(q.page(ix, i))*4096 | prm.MTTRead | prm.MTTWrite
	}
	if q.pages&1 != 0 { // a list of whole units: the entry behind it is the overflow page's
		words[q.pages] = q.overflow.Bus | prm.MTTRead | prm.MTTWrite
	}
	if s := q.icosq.umr(q.key, umrWQE(int(ix)*q.perWQE/2, words)); s != 0 {
		q.b.Fatalf("UMR: %v", s)
	}
	segment(q.wqe(ix)[16:], uint32(q.strides*q.stride), q.key, uint64(int(ix)*q.perWQE*4096+q.headroom))
	if q.linked {
		q.head = binary.BigEndian.Uint16(q.wqe(ix)[2:])
	} else {
		q.head = (ix + 1) % testWQEs
	}
	q.posted++
	q.ring0()
}

// page is the place in memory of page i of slot ix.
func (q *strider) page(ix uint16, i int) int { return int(ix)*q.pages + (i*3+1)%q.pages }

// at copies n bytes at offset off of a slot, as the key shows them.
func (q *strider) at(ix uint16, off, n int) []byte {
	out := make([]byte, n)
	for i := range out {
		pos := off + i + q.headroom
		if page := pos / 4096; page < q.pages {
			out[i] = q.memory.Bytes[q.page(ix, page)*4096+pos%4096]
		} else {
			out[i] = q.overflow.Bytes[pos%4096]
		}
	}
	return out
}

// take takes completions, counts strides as Linux does, and posts what is used up. It returns the frames.
func (q *strider) take(t testing.TB) (frames [][]byte) {
	t.Helper()
	return q.takeAll(t, q.cq.take())
}

func (q *strider) takeAll(t testing.TB, cqes []prm.CQE) (frames [][]byte) {
	t.Helper()
	for _, c := range cqes {
		ix := c.WQEID()
		n := int(c.ByteCnt() >> 16 & 0x7fff)
		if c.Opcode() != prm.CQEResponderSend {
			t.Fatalf("completion %x", c[:])
		}
		if c.WQECounter() != uint16(q.sum[ix]) && n > 0 {
			t.Fatalf("stride %d of WQE %d, want %d", c.WQECounter(), ix, q.sum[ix])
		}
		if c.ByteCnt()>>31 == 0 {
			frames = append(frames, q.at(ix, int(c.WQECounter())*q.stride+q.shift, int(c.ByteCnt()&0xffff)))
		}
		if q.sum[ix] += n; q.sum[ix] > q.strides {
			t.Fatalf("%d strides of WQE %d are used", q.sum[ix], ix)
		}
		if q.sum[ix] == q.strides {
			delete(q.sum, ix)
			binary.BigEndian.PutUint16(q.wqe(q.tail)[2:], ix)
			q.tail = ix
			q.postNext()
		}
	}
	return frames
}

// TestStridingReceive sends frames of random lengths and checks every byte and every stride.
func TestStridingReceive(t *testing.T) {
	for name, c := range map[string]struct {
		log  uint8
		edit func(*prm.CreateRQIn)
	}{
		"linked list": {11, func(*prm.CreateRQIn) {}},
		"shifted":     {10, func(in *prm.CreateRQIn) { in.Context.WQ.TwoByteShiftEn = true }},
		"cyclic":      {11, func(in *prm.CreateRQIn) { in.Context.WQ.WQType = prm.WQTypeCyclicStriding }},
		"one page":    {6, func(*prm.CreateRQIn) {}},
		"large":       {13, func(*prm.CreateRQIn) {}},
	} {
		t.Run(name, func(t *testing.T) {
			var shift bool
			q := newStrider(t, c.log, c.edit, func(in *prm.CreateRQIn) { shift = in.Context.WQ.TwoByteShiftEn })
			if shift {
				q.shift = 2
			}
			rnd := rand.New(rand.NewPCG(1, 2))
			longest := min(1514, q.strides*q.stride-2)
			for i := range 500 {
				var want [][]byte
				for range 1 + rnd.IntN(min(3, 1+q.strides*q.stride/2000)) {
					want = append(want, testFrame(60+rnd.IntN(longest-59), byte(i)))
				}
				q.b.receive(want...)
				got := q.take(t)
				if len(got) != len(want) {
					t.Fatalf("round %d: %d frames, want %d", i, len(got), len(want))
				}
				for k := range got {
					if !bytes.Equal(got[k], want[k]) {
						t.Fatalf("round %d: frame %d differs", i, k)
					}
				}
			}
			if n := q.b.outOfBuffer(); n != 0 {
				t.Errorf("%d frames without a buffer", n)
			}
		})
	}
}

// TestFillerWithoutANextWQE closes the last WQE although there is none for the frame that does not fit.
func TestFillerWithoutANextWQE(t *testing.T) {
	q := newStrider(t, 11)
	for range 8 + 8 + 6 {
		q.b.receive(testFrame(1500, 1))
	}
	q.b.receive(testFrame(6000, 2)) // two strides are left
	c := q.cq.take()
	if len(c) != 23 {
		t.Fatalf("%d completions", len(c))
	}
	last := c[len(c)-1]
	if last.ByteCnt() != 1<<31|2<<16 || last.WQEID() != 2 || last.WQECounter() != 6 {
		t.Errorf("the last WQE ends with %#x of %d at %d", last.ByteCnt(), last.WQEID(), last.WQECounter())
	}
	if n := q.b.outOfBuffer(); n != 1 {
		t.Errorf("%d frames without a buffer, want 1", n)
	}
}

// TestLosslessPortWaitsForStrides holds a frame for which what is left of the last WQE is too little.
func TestLosslessPortWaitsForStrides(t *testing.T) {
	q := newStrider(t, 11)
	port := &testPort{room: -1, lossless: true}
	if _, err := q.b.card.Plug(0, port); err != nil {
		t.Fatal(err)
	}
	q.b.port = port
	port.rx = nil
	for range 30 {
		port.rx = append(port.rx, testFrame(3000, 1)) // four a WQE
	}
	port.wake()
	total := 0
	for range 100 {
		for range 20 {
			q.b.card.Step(64)
		}
		total += len(q.take(t))
	}
	if total != 30 || q.b.outOfBuffer() != 0 {
		t.Errorf("%d frames, want 30; %d without a buffer", total, q.b.outOfBuffer())
	}
}

// TestStridesAddUpInErrors: error completions name the WQE and all that is left of it.
func TestStridesAddUpInErrors(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(q *strider)
		syn   prm.CQESyndrome
	}{
		"key":          {func(q *strider) { segment(q.wqe(1)[16:], 1<<14, 0x12345678, 0) }, prm.CQESyndromeLocalProtection},
		"past the key": {func(q *strider) { segment(q.wqe(1)[16:], 1<<14, q.key, 1<<40) }, prm.CQESyndromeLocalProtection},
		"short":        {func(q *strider) { segment(q.wqe(1)[16:], 100, q.key, 0) }, prm.CQESyndromeLocalLength},
	} {
		t.Run(name, func(t *testing.T) {
			q := newStrider(t, 11)
			c.spoil(q)
			for range 9 {
				q.b.receive(testFrame(1500, 1))
			}
			sum := map[uint16]int{}
			var errs []prm.CQESyndrome
			for _, c := range q.cq.take() {
				sum[c.WQEID()] += int(c.ByteCnt() >> 16 & 0x7fff)
				if c.Opcode() == prm.CQEResponderError {
					errs = append(errs, (*prm.ErrorCQE)(&c).Syndrome())
				}
			}
			if len(errs) != 2 || errs[0] != c.syn || errs[1] != prm.CQESyndromeFlushed {
				t.Errorf("syndromes %v", errs)
			}
			for ix := range uint16(3) {
				if sum[ix] != testStrides {
					t.Errorf("WQE %d: %d strides", ix, sum[ix])
				}
			}
			q.testRQ.state(prm.QueueStateERR, prm.QueueStateRST)
			q.testRQ.state(prm.QueueStateRST, prm.QueueStateRDY)
		})
	}
}

func TestLinkOutOfTheRing(t *testing.T) {
	q := newStrider(t, 11)
	binary.BigEndian.PutUint16(q.wqe(0)[2:], testWQEs)
	for range 9 {
		q.b.receive(testFrame(1500, 1))
	}
	if n := len(q.cq.take()); n != 8 {
		t.Errorf("%d completions, want 8", n)
	}
	if rq, _ := q.b.function().rqs.Get(q.n); rq.State() != prm.QueueStateERR {
		t.Errorf("the queue is in %v", rq.State())
	}
	if n := q.b.errors(prm.EventWQCatastrophic); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
}

// TestLinkedListReceive receives through a list that the driver links backwards, a WQE a frame.
func TestLinkedListReceive(t *testing.T) {
	b := newDataBench(t)
	q := b.receiver(2, 256, func(in *prm.CreateRQIn) { in.Context.WQ.WQType, in.Context.WQ.LogWQStride = prm.WQTypeLinkedList, 6 })
	order := []uint16{0, 3, 1, 2}
	for i, ix := range order {
		w := q.wqe(ix)
		binary.BigEndian.PutUint16(w[2:], order[(i+1)%4])
		segment(w[16:], 100, b.key, q.buf(ix).Bus)
		segment(w[32:], 156, b.key, q.buf(ix).Bus+100)
		segment(w[48:], 0, prm.TerminateScatterLKey, 0)
	}
	for round := range 10 {
		q.posted += 3
		q.ring0()
		for i := range 3 {
			f := testFrame(200+i, byte(round))
			b.receive(f)
			c := q.cq.take()
			ix := order[(3*round+i)%4]
			if len(c) != 1 || c[0].WQECounter() != ix || !bytes.Equal(q.data(&c[0]), f) {
				t.Fatalf("round %d: completions %v, want WQE %d", round, c, ix)
			}
		}
	}
}

// TestUMR changes keys in every way, and in those that are not allowed.
func TestUMR(t *testing.T) {
	b := newDataBench(t)
	page := b.carve(8192, 4096)
	sq := b.umrSQ
	fresh := func() uint32 { return b.newUMRKey(16, page.Bus) }
	edit := func(w []byte, f func([]byte)) []byte { f(w); return w }
	words := []uint64{page.Bus | 3, page.Bus + 4096 | 3}
	list := b.carve(4096, 4096)
	for i, w := range words {
		binary.BigEndian.PutUint64(list.Bytes[8*i:], w)
	}
	for name, c := range map[string]struct {
		key  uint32
		body []byte
		want prm.CQESyndrome
	}{
		"inline":           {fresh(), umrWQE(7, words), 0},
		"nothing":          {fresh(), umrWQE(0, nil), 0},
		"past the end":     {fresh(), umrWQE(8, words), prm.CQESyndromeMWBind},
		"far past the end": {fresh(), umrWQE(0xffff, words), prm.CQESyndromeMWBind},
		"list not there":   {fresh(), edit(umrWQE(0, words), func(w []byte) { w[5] = 8 }), prm.CQESyndromeLocalQPOp},
		"must be free":     {fresh(), edit(umrWQE(0, words), func(w []byte) { w[0] |= 0x40 }), 0},
		"must not be free": {fresh(), edit(umrWQE(0, words), func(w []byte) { w[0] |= 0x20 }), prm.CQESyndromeMWBind},
		"no such key":      {0x77777700, umrWQE(0, words), prm.CQESyndromeMWBind},
		"wrong variant":    {fresh() + 1, umrWQE(0, words), prm.CQESyndromeMWBind},
		"key without UMR":  {b.key, umrWQE(0, nil), prm.CQESyndromeMWBind},
		"reserved key":     {0x700, umrWQE(0, nil), prm.CQESyndromeMWBind},
		"PD":               {fresh(), edit(umrWQE(0, nil), func(w []byte) { w[15] |= 1 << 7 }), prm.CQESyndromeMWBind},
		"length that is too much": {fresh(), edit(umrWQE(0, nil), func(w []byte) {
			w[15] |= 1
			binary.BigEndian.PutUint64(w[0x30+0x18:], 17*4096)
		}), prm.CQESyndromeMWBind},
		"cut short": {fresh(), make([]byte, 0x40), prm.CQESyndromeLocalQPOp},
	} {
		if got := sq().umr(c.key, c.body); got != c.want {
			t.Errorf("%s: syndrome %v, want %v", name, got, c.want)
		}
	}

	// A list in memory; then the key reaches what it says.
	key := fresh()
	body := umrWQE(2, nil)
	body[0], body[5] = 0x10, 1
	body = append(body, make([]byte, 16)...)
	segment(body[0x70:], 16, b.key, list.Bus)
	if got := sq().umr(key, body); got != 0 {
		t.Fatalf("pointer: syndrome %v", got)
	}
	if k := b.function().keys.Get(key >> 8); k.Entries[4] != words[0] || k.Entries[5] != words[1] || k.Context.Free {
		t.Errorf("entries %x, free %v", k.Entries, k.Context.Free)
	}
	segment(body[0x70:], 16, b.key, 1<<50)
	if got := sq().umr(key, body); got != prm.CQESyndromeLocalProtection {
		t.Errorf("pointer to nothing: syndrome %v", got)
	}
	q := b.sender(4)
	if got := q.umr(key, umrWQE(0, nil)); got != prm.CQESyndromeLocalQPOp {
		t.Errorf("queue without reg_umr: syndrome %v", got)
	}
}

// TestUMRWaitsForEarlierSends: a UMR behind a SEND that the wire does not take yet is not executed, and is
// executed once.
func TestUMRWaitsForEarlierSends(t *testing.T) {
	b := newDataBench(t)
	page := b.carve(4096, 4096)
	key := b.newUMRKey(16, page.Bus)
	q := b.sender(6, func(in *prm.CreateSQIn) { in.Context.RegUMR = true })
	b.port.room = 0
	q.put(prm.WQESend, prm.CompletionAlways, eth{segs: []any{b.place(testFrame(100, 1))}}.bytes(b))
	at := q.pi
	body := umrWQE(0, nil)
	body[0] |= 0x40 // must be free: a second time it is not
	q.put(prm.WQEUMR, prm.CompletionAlways, body)
	binary.BigEndian.PutUint32(q.ring.Bytes[int(at)*64+12:], key)
	q.ring0()
	if k := b.function().keys.Get(key >> 8); !k.Context.Free {
		t.Fatal("executed before the SEND was")
	}
	b.port.room = 1
	b.port.wake()
	b.settle()
	if c := q.cq.take(); len(c) != 2 || c[1].Opcode() != prm.CQERequester || c[1].SendOpcode() != prm.WQEUMR {
		t.Errorf("completions %v", c)
	}
}

func TestScatterFCS(t *testing.T) {
	b := newDataBench(t)
	q := b.receiver(4, 256, func(in *prm.CreateRQIn) { in.Context.ScatterFCS = true })
	q.post(3)
	plain, tagged := udpFrame(41, 1, 2, 3, 4), udpFrame(40, 1, 2, 3, 4, 0x8100_0005)
	b.receive(plain, tagged)
	for i, c := range q.cq.take() {
		f := [][]byte{plain, tagged}[i]
		want := binary.LittleEndian.AppendUint32(bytes.Clone(f), crc32.ChecksumIEEE(f))
		if i == 1 { // the FCS is the wire's, the tag is taken out
			want = append(want[:12:12], want[16:]...)
		}
		if got := q.data(&c); !bytes.Equal(got, want) {
			t.Errorf("frame %d: %x, want %x", i, got, want)
		}
		if sum := refSum(want[14:], 0); c.Checksum() != sum {
			t.Errorf("frame %d: checksum %#x, want %#x", i, c.Checksum(), sum)
		}
	}
	in := prm.ModifyRQIn{RQState: prm.QueueStateRDY, RQN: q.n, ModifyBitmask: rqScatterFCS}
	in.Context.State = prm.QueueStateRDY
	b.must(&in, &prm.ModifyRQOut{})
	b.receive(plain)
	if c := q.cq.take(); len(c) != 1 || int(c[0].ByteCnt()) != len(plain) {
		t.Errorf("after scatter_fcs was cleared: %v", c)
	}
}

// TestReceiveMemoryPool feeds two RQs from one pool.
func TestReceiveMemoryPool(t *testing.T) {
	b := newDataBench(t)
	// A ring of the pool: the test's RQ type writes it.
	pool := &testRQ{b: b, log: 3, size: 256, stride: 16}
	pool.ring, pool.record = b.ring(16 << 3)
	pool.bufs = b.carve(256<<3, 4096)
	in := prm.CreateRMPIn{Context: prm.RMPContext{BasicCyclicRcvWQE: true}, PAS: pages(pool.ring)}
	in.Context.WQ = prm.WQContext{WQType: prm.WQTypeCyclic, PD: b.pd, LogWQStride: 4, LogWQSz: 3, DBRAddr: pool.record.Bus}
	var out prm.CreateRMPOut
	b.must(&in, &out)
	share := func(in *prm.CreateRQIn) { in.Context.MemRQType, in.Context.RMPN = prm.MemRQRMP, out.RMPN }
	first, second := b.newRQ(b.newCQ(4), 0, 64, share), b.newRQ(b.newCQ(4), 0, 64, share)
	for _, q := range []*testRQ{first, second} {
		q.state(prm.QueueStateRST, prm.QueueStateRDY)
	}
	table, group := b.newTable(0, 1, 1, prm.MatchParam{Outer: prm.MatchLayer24{SMAC: [6]byte{5: 0xff}}})
	b.rule(table, group, 0, prm.MatchParam{Outer: prm.MatchLayer24{SMAC: [6]byte{5: 1}}}, 0, toTIR(b.newTIR(first)))
	b.rule(table, group, 1, prm.MatchParam{Outer: prm.MatchLayer24{SMAC: [6]byte{5: 2}}}, 0, toTIR(b.newTIR(second)))
	b.must(&prm.SetFlowTableRootIn{TableID: table}, &prm.SetFlowTableRootOut{})
	pool.post(8)
	b.receive(testFrame(60, 1))
	if n := len(first.cq.take()); n != 0 {
		t.Fatalf("%d completions of a pool in RST", n)
	}
	modify := prm.ModifyRMPIn{RMPN: out.RMPN, RMPState: prm.QueueStateRST, Context: prm.RMPContext{State: prm.QueueStateRDY}}
	b.must(&modify, &prm.ModifyRMPOut{})
	b.receive(testFrame(60, 1), testFrame(61, 2), testFrame(62, 2), testFrame(63, 1))
	for q, want := range map[*testRQ][]uint16{first: {0, 3}, second: {1, 2}} {
		c := q.cq.take()
		if len(c) != 2 || c[0].WQECounter() != want[0] || c[1].WQECounter() != want[1] {
			t.Fatalf("RQ %#x: completions %v", q.n, c)
		}
		for i := range c {
			if got := pool.data(&c[i]); len(got) != 60+int(want[i]) {
				t.Errorf("frame of %d bytes", len(got))
			}
		}
	}
	b.refused(&prm.DestroyRMPIn{RMPN: out.RMPN}, &prm.DestroyRMPOut{}, prm.StatusBadResourceState, synInUse)
	var query prm.QueryRMPOut
	b.must(&prm.QueryRMPIn{RMPN: out.RMPN}, &query)
	if query.Context.State != prm.QueueStateRDY || query.Context.WQ.HWCounter != 4 || query.Context.WQ.SWCounter != 8 {
		t.Errorf("QUERY_RMP: %+v", query.Context)
	}
	// An RQ in error leaves the pool's WQEs to the other.
	first.state(prm.QueueStateRDY, prm.QueueStateERR)
	if n := len(first.cq.take()); n != 0 {
		t.Errorf("%d of the pool's WQEs were flushed", n)
	}
	b.receive(testFrame(64, 2))
	if c := second.cq.take(); len(c) != 1 || c[0].WQECounter() != 4 {
		t.Errorf("completions %v", c)
	}
}
