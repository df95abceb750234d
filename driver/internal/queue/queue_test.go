package queue

import (
	"encoding/binary"
	"testing"

	"cxkit/dma"
	"cxkit/mmio"
	"cxkit/prm"
)

// bells notes register writes.
type bells []uint64

func (b *bells) Load(uint64, int) uint64 { return 0 }
func (b *bells) Store(off uint64, _ int, v uint64) {
	*b = append(*b, off, v)
}

func memory(t *testing.T, size int) []byte {
	t.Helper()
	a, err := dma.New(size, dma.Heap)
	if err != nil {
		t.Fatal(err)
	}
	return a.Bytes()[:size]
}

func newCQ(t *testing.T, entries, lazy int) (*CQ, []byte, *bells) {
	var b bells
	record := memory(t, 64)
	q := NewCQ(memory(t, entries*prm.CQESize), record, Doorbell{Window: mmio.NewTrapped(&b, 0x2000), Page: 0x1000}, lazy)
	q.Named(0x123456)
	return q, record, &b
}

// write publishes entry i as the card does.
func write(q *CQ, i uint32, op prm.CQEOpcode) {
	dma.StoreBE32(q.Ring, int(i&q.Mask)*prm.CQESize+prm.CQEOwnOff,
		prm.CQEOwnDword(uint16(i), 0, op, prm.CQEFormatNone, false, i>>q.Log&1 != 0))
}

func TestEntriesAreTakenOnceOverManyWraps(t *testing.T) {
	q, _, _ := newCQ(t, 4, 0)
	for i := range uint32(50) {
		if _, there := q.Peek(); there {
			t.Fatalf("entry %d is there before it was written", i)
		}
		write(q, i, prm.CQERequester)
		own, there := q.Peek()
		if !there || own.WQECounter() != uint16(i) || !IsPlain(own, PlainOwn(q.Taken, q.Log, prm.CQERequester, i)) {
			t.Fatalf("entry %d: %#x, there %v", i, own, there)
		}
		q.Taken++
	}
}

func TestInvalidEntriesAreNotThereWhateverTheirOwner(t *testing.T) {
	q, _, _ := newCQ(t, 4, 0)
	write(q, 0, prm.CQEInvalid)
	if _, there := q.Peek(); there {
		t.Error("an entry of opcode invalid is there")
	}
}

func TestEveryBitOfTheOwnershipDwordThatMattersDecides(t *testing.T) {
	want := PlainOwn(9, 2, prm.CQEResponderSend, 0x1234)
	for bit := range 32 {
		changed := want ^ 1<<bit
		matters := bit == 0 || bit >= 2 && bit < 8 || bit >= 16
		if IsPlain(changed, want) == matters {
			t.Errorf("bit %d flipped: plain %v", bit, !matters)
		}
	}
}

func TestArmAsksForOneEventAtATimeWithItsSequence(t *testing.T) {
	q, record, b := newCQ(t, 8, 4)
	for round := range uint32(6) {
		q.Taken = 3 * round
		if !q.Arm() || q.Arm() {
			t.Fatal("Arm does not arm once")
		}
		word := round&3<<28 | 3*round
		if got := dma.LoadBE32(record, 4); got != word {
			t.Errorf("round %d: arm record %#x, want %#x", round, got, word)
		}
		if ci := dma.LoadBE32(record, 0); ci != 3*round {
			t.Errorf("round %d: consumer record %d before the arm, want %d", round, ci, 3*round)
		}
		last := (*b)[len(*b)-2:]
		if last[0] != 0x1020 || last[1] != uint64(word)<<32|0x123456 {
			t.Errorf("round %d: doorbell %#x at %#x", round, last[1], last[0])
		}
		q.Fired()
		q.Fired() // an event nobody asked for changes nothing
	}
	if len(*b) != 12 {
		t.Errorf("%d doorbells, want 6", len(*b)/2)
	}
}

func TestPublishIsLazyUpToItsLimit(t *testing.T) {
	q, record, _ := newCQ(t, 8, 3)
	for taken, want := range []uint32{0, 0, 0, 0, 4, 4} {
		q.Taken = uint32(taken)
		q.Publish()
		if got := dma.LoadBE32(record, 0); got != want {
			t.Errorf("%d taken: record %d, want %d", taken, got, want)
		}
	}
}

func TestDrainIsBoundedByTheRing(t *testing.T) {
	q, record, _ := newCQ(t, 4, 0)
	for i := range uint32(4) {
		write(q, i, prm.CQERequester)
	}
	if n := q.Drain(); n != 4 || q.Drain() != 0 {
		t.Errorf("drained %d entries of 4", n)
	}
	if ci := dma.LoadBE32(record, 0); ci != 4 {
		t.Errorf("consumer record %d", ci)
	}
}

func TestSendWQEsHaveTheirFieldsInPlace(t *testing.T) {
	var b bells
	ring, record := memory(t, 4*WQEBBSize), memory(t, 64)
	q := NewSQ(ring, record, Doorbell{Window: mmio.NewTrapped(&b, 0x2000), Page: 0x1000}, 0xabcd, InlineNone)
	q.Named(0x654321)
	q.Posted, q.Done, q.Queued, q.Freed = 0xffff, 0xffff, 0xffffff, 0xffffff // the counters wrap
	q.Write([]Frame{
		{Addr: 0x123456789a, Length: 1514, Buffer: 7, Offload: Insert(ChecksumL3|ChecksumL4, true, 0x2345)},
		{Addr: 0x42, Length: 60, Buffer: 8},
	})
	q.Ring()
	w := ring[3*WQEBBSize:]
	ctrl, eth, seg := (*prm.WQECtrlSeg)(w), (*prm.WQEEthSeg)(w[0x10:]), (*prm.WQEDataSeg)(w[0x20:])
	if ctrl.WQEIndex() != 0xffff || ctrl.Opcode() != prm.WQESend || ctrl.SQN() != 0x654321 || ctrl.DS() != 3 {
		t.Errorf("control segment %x", *ctrl)
	}
	if !eth.L3Csum() || !eth.L4Csum() || !eth.InsertVLAN() || eth.InsertSVLAN() || eth.VLANTCI() != 0x2345 {
		t.Errorf("Ethernet segment %x", *eth)
	}
	if seg.Addr() != 0x123456789a || seg.ByteCount() != 1514 || seg.LKey() != 0xabcd || seg.Inline() {
		t.Errorf("data segment %x", *seg)
	}
	last := (*prm.WQECtrlSeg)(ring)
	if last.CE() != prm.CompletionAlways || last.WQEIndex() != 0 {
		t.Errorf("last control segment %x", *last)
	}
	if got := dma.LoadBE32(record, 4); got != 1 {
		t.Errorf("record %d, want 1", got)
	}
	if len(b) != 2 || b[0] != 0x1800 || b[1] != binary.BigEndian.Uint64(ring) {
		t.Errorf("doorbells %x", b)
	}
	for _, tt := range []struct {
		counter uint16
		wqes    uint32
		ok      bool
	}{{0, 2, true}, {0xffff, 1, ctrl.CE() == prm.CompletionAlways}, {1, 0, false}, {0xfffe, 0, false}} {
		c, ok := q.Completed(tt.counter)
		if ok = ok && c.Signalled; c.Buffers != tt.wqes || ok != tt.ok {
			t.Errorf("completion of %d: %+v, %v; want %d, %v", tt.counter, c, ok, tt.wqes, tt.ok)
		}
	}
}

func TestLongBurstsAskForCompletionsOnTheWay(t *testing.T) {
	var b bells
	q := NewSQ(memory(t, 256*WQEBBSize), memory(t, 64), Doorbell{Window: mmio.NewTrapped(&b, 0x2000), Page: 0x1000}, 1, InlineNone)
	q.Named(1)
	q.Write(make([]Frame, 200))
	q.Ring()
	asked := 0
	for _, word := range q.words {
		if word&signalled != 0 {
			asked++
		}
	}
	if asked != 4 { // 64, 128, 192, 200
		t.Errorf("%d of 200 WQEs ask for a completion, want 4", asked)
	}
}
