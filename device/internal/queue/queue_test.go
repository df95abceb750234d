package queue

import (
	"bytes"
	"encoding/binary"
	"testing"

	"cxkit/device/internal/event"
	"cxkit/device/internal/mkey"
	"cxkit/device/internal/packet"
	"cxkit/device/internal/ring"
	"cxkit/dma"
	"cxkit/pci"
	"cxkit/prm"
)

// memory is host memory from address base on. Without views it is reached by messages only, as regions
// of another process that are not shared.
type memory struct {
	dma.Region
	views      bool
	generation uint64
	gone       bool
}

const base = 1 << 32

func newMemory(t testing.TB, n int, views bool) *memory {
	t.Helper()
	a, err := dma.New(n, dma.Heap)
	if err != nil {
		t.Fatal(err)
	}
	a.Place(base, nil)
	return &memory{Region: a.Region(0, n), views: views}
}

func (m *memory) inside(addr uint64, n int) []byte {
	off := addr - base
	if m.gone || addr < base || off > uint64(len(m.Bytes)) || uint64(n) > uint64(len(m.Bytes))-off {
		return nil
	}
	return m.Bytes[off : off+uint64(n) : off+uint64(n)]
}

func (m *memory) View(addr uint64, n int, _ pci.Access) []byte {
	if !m.views {
		return nil
	}
	return m.inside(addr, n)
}

func (m *memory) ReadAt(p []byte, addr uint64) error {
	v := m.inside(addr, len(p))
	if v == nil {
		return &pci.DMAError{Addr: addr, Len: len(p), Access: pci.Read, Why: "unmapped"}
	}
	copy(p, v)
	return nil
}

func (m *memory) WriteAt(p []byte, addr uint64) error {
	v := m.inside(addr, len(p))
	if v == nil {
		return &pci.DMAError{Addr: addr, Len: len(p), Access: pci.Write, Why: "unmapped"}
	}
	copy(v, p)
	return nil
}

func (m *memory) Generation() uint64 { return m.generation }
func (m *memory) Enter()             {}
func (m *memory) Leave()             {}

// kit is an environment with a CQ, an RQ and an SQ in one memory.
type kit struct {
	mem      *memory
	env      *Env
	cq       *CQ
	rq       *RQ
	sq       *SQ
	counters [3]uint32
}

// Places in the memory.
const (
	cqAt, rqAt, sqAt, recordAt = 0x0000, 0x1000, 0x2000, 0x3000
	dataAt                     = 0x4000
	cqLog, rqLog, sqLog        = 3, 2, 3
)

func newKit(t testing.TB, views bool) *kit {
	t.Helper()
	k := &kit{mem: newMemory(t, 0x10000, views)}
	events := event.NewSet(event.Config{
		Memory: func() pci.Memory { return k.mem },
		Raise:  func(int) {},
		Failed: func(uint8, bool) {},
		Count:  4,
	})
	k.env = &Env{Events: events, Counters: Counters{&k.counters[0], &k.counters[1], &k.counters[2]}}
	buffer := func(at, n int) Buffer {
		return NewBuffer(ring.New([]uint64{base + uint64(at)}, 12, 0, pci.Read|pci.Write), 12, n)
	}
	user := mkey.User{Reserved: true}
	k.cq = NewCQ(k.env, CQConfig{Buffer: buffer(cqAt, 64<<cqLog), Record: NewRecord(base + recordAt), LogSize: cqLog, Stride: 6})
	wq := NewWQ(WQConfig{Buffer: buffer(rqAt, 32<<rqLog), Record: NewRecord(base + recordAt + 8), LogSize: rqLog, LogStride: 5})
	k.rq = NewRQ(k.env, RQConfig{WQ: wq, CQ: k.cq, User: user, Flush: true})
	k.sq = NewSQ(k.env, SQConfig{Buffer: buffer(sqAt, 64<<sqLog), Record: NewRecord(base + recordAt + 16), LogSize: sqLog,
		CQ: k.cq, User: user, Flush: true})
	k.rq.SetNumber(0x11, 0)
	k.sq.Number = 0x22
	for i := 63; i < 64<<cqLog; i += 64 {
		k.mem.Bytes[cqAt+i] = prm.CQEOwnInit
	}
	k.step()
	k.rq.SetState(prm.QueueStateRDY)
	k.sq.SetState(prm.QueueStateRDY)
	return k
}

// step begins an engine step.
func (k *kit) step() {
	k.env.Begin(k.mem, mkey.NewTable(4))
	k.env.SetTime(0, 99, 1)
}

func (k *kit) record(off int, v uint32) { dma.StoreBE32(k.mem.Bytes, recordAt+off, v) }

// cqe returns slot i.
func (k *kit) cqe(i int) *prm.CQE { return (*prm.CQE)(k.mem.Bytes[cqAt+64*i:]) }

// owned reports whether slot i has been written in the first round.
func (k *kit) owned(i int) bool {
	w := dma.LoadBE32(k.mem.Bytes, cqAt+64*i+60)
	return w&1 == 0 && prm.CQEOwn(w).Opcode() != prm.CQEInvalid
}

func putSegment(b []byte, n uint32, addr uint64) {
	binary.BigEndian.PutUint32(b, n)
	binary.BigEndian.PutUint32(b[4:], mkey.Reserved)
	binary.BigEndian.PutUint64(b[8:], addr)
}

func frameOf(n int, seed byte) *Frame {
	f := &Frame{Data: make([]byte, n), Headers: new(packet.Headers)}
	for i := range f.Data {
		f.Data[i] = byte(i)*3 + seed
	}
	packet.Parse(f.Data, f.Headers)
	return f
}

func TestQueuesWorkWithMappedMemoryAndWithMessages(t *testing.T) {
	for name, views := range map[string]bool{"mapped": true, "messages": false} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t, views)
			for i := range 4 {
				w := k.mem.Bytes[rqAt+32*i:]
				putSegment(w, 40, base+dataAt+uint64(i)*256)
				putSegment(w[16:], 200, base+dataAt+uint64(i)*256+40)
			}
			k.record(8, 4)
			for i := range 3 {
				f := frameOf(70+i, byte(i))
				if out := k.rq.Receive(f); out != Delivered {
					t.Fatalf("frame %d: %v", i, out)
				}
				if got := k.mem.Bytes[dataAt+256*i:][:len(f.Data)]; !bytes.Equal(got, f.Data) {
					t.Errorf("frame %d: %x", i, got)
				}
			}
			k.env.Flush()
			for i := range 3 {
				if c := k.cqe(i); !k.owned(i) || c.Opcode() != prm.CQEResponderSend || int(c.ByteCnt()) != 70+i || c.RQPN() != 0x11 {
					t.Errorf("completion %d: %x", i, c[:])
				}
			}
			if k.owned(3) {
				t.Error("a completion too many")
			}

			// A SEND of one block, and one of three whose inline data wraps around the ring's end.
			k.sq.next, k.sq.posted = 6, 6
			w := k.mem.Bytes[sqAt+6*64:]
			binary.BigEndian.PutUint32(w, 6<<8|uint32(prm.WQESend))
			w[7], w[11] = 3, byte(prm.CompletionAlways)<<2
			putSegment(w[32:], 66, base+dataAt)
			w = k.mem.Bytes[sqAt+7*64:]
			binary.BigEndian.PutUint32(w, 7<<8|uint32(prm.WQESend))
			w[7], w[11] = 10, byte(prm.CompletionAlways)<<2
			binary.BigEndian.PutUint32(w[32:], 1<<31|100)
			for i := range 28 {
				w[36+i] = byte(i)
			}
			for i := range 72 {
				k.mem.Bytes[sqAt+i] = byte(28 + i)
			}
			k.record(16+4, 10)
			b := NewBatch()
			k.sq.Fetch(b)
			if len(b.Items) != 2 || len(b.Items[0].Frame) != 66 || len(b.Items[1].Frame) != 100 {
				t.Fatalf("items %+v", b.Items)
			}
			if !bytes.Equal(b.Items[0].Frame, k.mem.Bytes[dataAt:][:66]) {
				t.Errorf("frame %x", b.Items[0].Frame)
			}
			for i, v := range b.Items[1].Frame {
				if v != byte(i) {
					t.Fatalf("inline byte %d is %d", i, v)
				}
			}
			k.sq.Complete(b, 2)
			k.env.Flush()
			if c := k.cqe(4); !k.owned(4) || c.WQECounter() != 7 || c.Timestamp() != 99 || c.QPN() != 0x22 {
				t.Errorf("completion %x", c[:])
			}
		})
	}
}

// The order in which a burst becomes visible: nothing before the first entry's last dword, and all of it
// after. Between the two the driver must see no completion.
func TestABurstIsInvisibleUntilItIsPublished(t *testing.T) {
	k := newKit(t, true)
	for i := range 4 {
		putSegment(k.mem.Bytes[rqAt+32*i:], 256, base+dataAt+uint64(i)*256)
		binary.BigEndian.PutUint32(k.mem.Bytes[rqAt+32*i+20:], prm.TerminateScatterLKey)
	}
	k.record(8, 4)
	for i := range 4 {
		if out := k.rq.Receive(frameOf(60, byte(i))); out != Delivered {
			t.Fatal(out)
		}
		if k.owned(0) {
			t.Fatalf("completion 0 is visible after %d frames of the burst", i+1)
		}
	}
	for i := 1; i < 4; i++ {
		if !k.owned(i) {
			t.Errorf("completion %d is not written when the burst is about to be published", i)
		}
	}
	k.env.Flush()
	if !k.owned(0) {
		t.Error("the burst was not published")
	}
}

func TestTheConsumersRecordIsReadBeforeASlotIsUsedAgain(t *testing.T) {
	k := newKit(t, true)
	b := NewBatch()
	send := func(n int) (taken int) {
		for range n {
			at := k.sq.next
			w := k.mem.Bytes[sqAt+int(at&7)*64:]
			clear(w[:64])
			binary.BigEndian.PutUint32(w, uint32(at)<<8)
			w[7], w[11] = 1, byte(prm.CompletionAlways)<<2
			k.record(20, uint32(at+1))
			k.sq.Fetch(b)
			k.sq.Complete(b, len(b.Items))
			k.env.Flush()
			if k.sq.State() != prm.QueueStateRDY {
				return taken
			}
			taken++
		}
		return taken
	}
	if n := send(8); n != 8 {
		t.Fatalf("%d completions in a CQ of 8", n)
	}
	k.record(0, 5)
	if n := send(5); n != 5 {
		t.Fatalf("%d completions after five were taken", n)
	}
	before := bytes.Clone(k.mem.Bytes[cqAt:][:64<<cqLog])
	if n := send(1); n != 0 {
		t.Error("a slot was used again that its consumer still has")
	}
	if !bytes.Equal(before, k.mem.Bytes[cqAt:][:64<<cqLog]) {
		t.Error("the ring was written to")
	}
	if k.cq.Working() || k.counters[2] != 1 {
		t.Errorf("working %v, %d overruns", k.cq.Working(), k.counters[2])
	}
}

func TestMemoryThatIsGoneIsNoticedInTheNextStep(t *testing.T) {
	for name, views := range map[string]bool{"mapped": true, "messages": false} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t, views)
			putSegment(k.mem.Bytes[rqAt:], 256, base+dataAt)
			k.record(8, 2)
			if out := k.rq.Receive(frameOf(60, 1)); out != Delivered {
				t.Fatal(out)
			}
			k.env.Flush()
			k.mem.gone = true
			k.mem.generation++
			k.step()
			if out := k.rq.Receive(frameOf(60, 1)); out != Failed || k.rq.State() != prm.QueueStateERR {
				t.Errorf("receive: %v, state %v", out, k.rq.State())
			}
			b := NewBatch()
			k.sq.Fetch(b)
			if len(b.Items) != 0 || k.sq.State() != prm.QueueStateERR {
				t.Errorf("%d items, state %v", len(b.Items), k.sq.State())
			}
		})
	}
}
