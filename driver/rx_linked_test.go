package driver

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"cxkit/dma"
	"cxkit/driver/internal/queue"
	"cxkit/prm"
)

func linkedConfig(striding bool) Config {
	return Config{Arena: dma.Heap, RxRing: 8, TxRing: 8, Buffers: 64, Offloads: Offloads{LinkedReceive: true, Striding: striding}}
}

// linkedCard uses the WQEs of a linked queue as a card does: it follows a link when it needs another WQE and one is
// posted, not before.
type linkedCard struct {
	*writer
	t       *testing.T
	at      uint16 // the WQE used last
	used    uint16 // how many were
	started bool
	holds   map[uint16]bool // WQEs that are used and not completed
}

func newLinkedCard(t *testing.T, c Config) *linkedCard {
	return &linkedCard{writer: newWriter(t, c), t: t, holds: map[uint16]bool{}}
}

// next uses a WQE, if one is posted.
func (c *linkedCard) next() (index uint16, ok bool) {
	if uint16(dma.LoadBE32(c.rqDB, 0)) == c.used {
		return 0, false
	}
	if c.started {
		c.at = (*prm.WQENextSeg)(c.rq[int(c.at)*queue.LinkedSize:]).NextWQEIndex()
	}
	c.started = true
	c.used++
	if uint32(c.at) > c.rx.rq.Mask || c.holds[c.at] || !c.rx.rq.Has(c.at) {
		c.t.Fatalf("the link leads to WQE %d, which is not posted", c.at)
	}
	c.holds[c.at] = true
	return c.at, true
}

// complete writes a completion with a WQE counter and an id.
func (c *linkedCard) complete(counter, id uint16, op prm.CQEOpcode, edit func(e *prm.CQE)) {
	e := c.rxCQ.entry(c.rxCQ.pi)
	*e = prm.CQE{}
	e.SetWQEID(id)
	if edit != nil {
		edit(e)
	}
	c.rxCQ.own(c.rxCQ.pi, counter, op)
	c.rxCQ.pi++
}

func TestLinkedQueueTakesCompletionsInAnyOrder(t *testing.T) {
	for _, striding := range []bool{false, true} {
		c := newLinkedCard(t, linkedConfig(striding))
		r := rand.New(rand.NewPCG(1, 2))
		var open []uint16
		turns := map[uint16]bool{}
		outOfTurn, last := 0, uint16(0)
		pkts := make([]Packet, 8)
		for round := range 4000 {
			for range r.IntN(4) {
				if at, ok := c.next(); ok {
					open = append(open, at)
				}
			}
			for range r.IntN(4) {
				if len(open) == 0 {
					break
				}
				i := r.IntN(len(open))
				at := open[i]
				open = append(open[:i], open[i+1:]...)
				delete(c.holds, at)
				turns[at] = true
				if i > 0 {
					outOfTurn++
				}
				length := uint32(60 + round%1000)
				if !striding {
					buffer := c.rx.rq.Buffers[at]
					c.nic.pool.Buffer(buffer)[0] = byte(at)
					c.complete(at, 0, prm.CQEResponderSend, func(e *prm.CQE) { e.SetByteCnt(length) })
				} else {
					c.chunks.Bytes[int(at)*queue.ChunkSize] = byte(at)
					c.complete(0, at, prm.CQEResponderSend, func(e *prm.CQE) {
						e.SetConsumedStrides(queue.Strides)
						e.SetStridingByteCnt(uint16(length))
					})
				}
				n := c.rx.Poll(pkts)
				if n != 1 || len(pkts[0].Data) != int(length) || pkts[0].Data[0] != byte(at) {
					t.Fatalf("round %d: %d packets of WQE %d, %v", round, n, at, c.rx.Err())
				}
				last = at
				c.rx.Release(pkts[:n])
			}
			c.rx.refill()
		}
		if outOfTurn < 500 || len(turns) != int(c.rx.rq.Size()) || c.rx.Err() != nil {
			t.Errorf("striding %v: %d completions out of turn, WQEs %v, the last %d", striding, outOfTurn, turns, last)
		}
		if b := c.nic.bufferBooks(); b.Application != 0 || b.Free+b.Posted != 64 {
			t.Errorf("books %+v", b)
		}
	}
}

// Every index that cannot be stops the queue, with a name, and costs no buffer.
func TestLinkedQueueRefusesIndicesThatCannotBe(t *testing.T) {
	type step struct {
		index uint16
		op    prm.CQEOpcode
	}
	ok := func(i uint16) step { return step{i, prm.CQEResponderSend} }
	for _, c := range []struct {
		striding bool
		steps    []step
		want     string
	}{
		{false, []step{ok(8)}, "completion of WQE 8 in a ring of 8"},
		{false, []step{ok(0xffff)}, "completion of WQE 65535 in a ring of 8"},
		{false, []step{ok(7)}, "completion of WQE 7, which is not posted"},
		{false, []step{ok(2), ok(2)}, "completion of WQE 2, which is not posted"},
		{false, []step{{9, prm.CQEResponderError}}, "completion of WQE 9 in a ring of 8"},
		{false, []step{ok(1), {1, prm.CQEResponderError}}, "completion of WQE 1, which is not posted"},
		{true, []step{ok(4)}, "completion of WQE 4 in a ring of 4"},
		{true, []step{ok(3)}, "completion of WQE 3, which is not posted"},
		{true, []step{ok(0), ok(0)}, "completion of WQE 0, which is not posted"},
	} {
		w := newLinkedCard(t, linkedConfig(c.striding))
		for _, s := range c.steps {
			counter := s.index
			if c.striding {
				counter = 0
			}
			w.complete(counter, s.index, s.op, func(e *prm.CQE) {
				if c.striding {
					e.SetConsumedStrides(queue.Strides)
					e.SetStridingByteCnt(60)
				} else {
					e.SetByteCnt(60)
				}
			})
		}
		pkts := make([]Packet, 4)
		n := w.rx.Poll(pkts)
		var failed *QueueError
		if n != len(c.steps)-1 || !errors.As(w.rx.Err(), &failed) || failed.What != "impossible completion: "+c.want {
			t.Errorf("%v: %d packets, %v", c, n, w.rx.Err())
		}
		w.rx.Release(pkts[:n])
		if b := w.nic.bufferBooks(); b.Application != 0 || b.Free+b.Posted != 64 || w.rx.Stats().Impossible != 1 {
			t.Errorf("%v: books %+v", c, b)
		}
	}
}

// Strides of a WQE go on where they ended, whichever other WQEs come between.
func TestLinkedStridesGoOnWhereTheyEnded(t *testing.T) {
	frame := func(first, strides uint16, id uint16) func(c *linkedCard) {
		return func(c *linkedCard) {
			c.complete(first, id, prm.CQEResponderSend, func(e *prm.CQE) {
				e.SetConsumedStrides(strides)
				e.SetStridingByteCnt(100)
			})
		}
	}
	for name, c := range map[string]struct {
		frames []func(c *linkedCard)
		good   int
	}{
		"by turns":         {[]func(*linkedCard){frame(0, 2, 0), frame(0, 3, 1), frame(2, 1, 0), frame(3, 5, 1)}, 4},
		"again":            {[]func(*linkedCard){frame(0, 2, 0), frame(0, 2, 0)}, 1},
		"the other's":      {[]func(*linkedCard){frame(0, 2, 0), frame(2, 2, 1)}, 1},
		"more than it has": {[]func(*linkedCard){frame(0, queue.Strides-1, 2), frame(queue.Strides-1, 2, 2)}, 1},
	} {
		w := newLinkedCard(t, linkedConfig(true))
		for _, f := range c.frames {
			f(w)
		}
		pkts := make([]Packet, 8)
		if n := w.rx.Poll(pkts); n != c.good || (w.rx.Err() == nil) != (c.good == len(c.frames)) {
			t.Errorf("%s: %d frames, %v", name, n, w.rx.Err())
		}
	}
}

func TestLinkedReceiveDoesNotAllocate(t *testing.T) {
	c := newLinkedCard(t, linkedConfig(false))
	pkts := make([]Packet, 4)
	if n := testing.AllocsPerRun(200, func() {
		at, _ := c.next()
		delete(c.holds, at)
		c.complete(at, 0, prm.CQEResponderSend, nil)
		c.rx.Release(pkts[:c.rx.Poll(pkts)])
		c.rx.refill()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A card that stops a linked queue completes what is posted; the queue recovers with the list as at first.
func TestLinkedQueuesRecover(t *testing.T) {
	for _, striding := range []bool{false, true} {
		c := recoverConfig()
		c.LinkedReceive, c.Striding = true, striding
		nic, far := onModel(t, c)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		rx, frame := nic.RxQueue(0), testFrame(nic.MAC(), 100)
		for round := range 3 {
			for range 5 * (round + 1) { // from anywhere in the list
				far.Send(frame)
				if got, err := receiveOne(ctx, rx); err != nil || !bytes.Equal(got, frame) {
					t.Fatalf("striding %v, round %d: %x, %v", striding, round, got, err)
				}
			}
			if err := rx.modify(ctx, prm.QueueStateRDY, prm.QueueStateERR); err != nil {
				t.Fatal(err)
			}
			_, err := receiveOne(ctx, rx)
			var failed *QueueError
			if !errors.As(err, &failed) || failed.Syndrome != uint8(prm.CQESyndromeFlushed) {
				t.Fatalf("striding %v, round %d: %v", striding, round, err)
			}
			if err := rx.Recover(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if s := rx.Stats(); s.Recovered != 3 || s.Packets != 30 || s.Impossible != 0 {
			t.Errorf("striding %v: %+v", striding, s)
		}
	}
}
