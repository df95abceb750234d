package main

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"cxkit/driver"
)

const (
	// burst is how many packets are taken at once.
	burst = 64
	// patience is how many empty polls, each with a yield, come before a sleep.
	patience = 64
)

// tally counts frames and bytes.
type tally struct {
	Frames uint64 `json:"frames"`
	Bytes  uint64 `json:"bytes"`
}

func (t *tally) add(frames, bytes int) {
	t.Frames += uint64(frames)
	t.Bytes += uint64(bytes)
}

// worker owns a receive and a transmit queue. Its fields are its goroutine's until that has ended.
type worker struct {
	s     *session
	index int
	rx    *driver.RxQueue
	tx    *driver.TxQueue

	received  tally
	sent      tally
	protocols [protocols]tally
	tagged    tally
	badSums   tally // IPv4, TCP or UDP checksum wrong
	last      time.Time
	flushed   time.Duration // how long the last completions of sent frames were waited for
	untold    uint64        // completions that were there when no event had come

	pkts   [burst]driver.Packet
	joined []byte
	copyBurst

	posted, sending atomic.Int64 // buffers with the card, published for other goroutines
}

// publish lets others see where the queues' buffers are.
func (w *worker) publish() {
	w.posted.Store(int64(w.rx.Posted()))
	w.sending.Store(int64(w.tx.Pending()))
}

func newWorker(s *session, i int) *worker {
	w := &worker{s: s, index: i, rx: s.nic.RxQueue(i), tx: s.nic.TxQueue(i)}
	w.publish()
	return w
}

// run receives until ctx ends and nothing is left, or --count is reached.
func (w *worker) run(ctx context.Context) error {
	idle := 0
	for !w.s.complete() {
		k := w.s.reserve(burst)
		n := w.rx.Poll(w.pkts[:k])
		w.s.settleReserve(k, n)
		if n > 0 {
			idle = 0
			err := w.take(ctx, w.pkts[:n])
			w.publish()
			if err != nil {
				return err
			}
			continue
		}
		if err := w.rx.Err(); err != nil {
			return err
		}
		if ctx.Err() != nil {
			break
		}
		if idle++; idle < patience || k == 0 { // k == 0: another queue holds the last of --count for now
			runtime.Gosched()
			continue
		}
		idle = 0
		w.publish()
		if err := w.rx.Wait(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return w.flush()
}

// take counts, records and releases or reflects a burst.
func (w *worker) take(ctx context.Context, pkts []driver.Packet) error {
	w.last = time.Now()
	var err error
	for i := range pkts {
		p := &pkts[i]
		w.count(p)
		if w.s.screen.wants() {
			w.s.screen.show(w.index, w.last.Sub(w.s.began), w.whole(p))
		}
		if w.s.recorder != nil && err == nil {
			err = w.s.recorder.Write(0, w.whole(p), w.last)
		}
	}
	switch w.s.c.Mode {
	case "reflect":
		return errors.Join(err, w.reflect(ctx, pkts))
	case "forward":
		sent, fault := w.forward(ctx, w.rx, w.tx, pkts)
		w.sent.join(sent)
		return errors.Join(err, fault)
	}
	w.rx.Release(pkts)
	return err
}

// whole is a packet's bytes, until the next call.
func (w *worker) whole(p *driver.Packet) []byte {
	if p.Segments() == 1 {
		return p.Data
	}
	w.joined = w.joined[:0]
	for part := range p.Fragments() {
		w.joined = append(w.joined, part...)
	}
	return w.joined
}

// count counts a packet; a large receive is as many frames as its segments.
func (w *worker) count(p *driver.Packet) {
	frames, n := p.Segments(), p.Len()
	w.received.add(frames, n)
	h := parse(p.Data)
	w.protocols[h.proto].add(frames, n)
	if h.tags > 0 {
		w.tagged.add(frames, n)
	}
	if wrongSum(p.Rx) {
		w.badSums.add(frames, n)
	}
}

// wrongSum tells whether the card found a checksum that it could check to be wrong.
func wrongSum(f driver.RxFlags) bool {
	return f.L3() == driver.L3IPv4 && !f.L3OK() || f.L4() != driver.L4None && !f.Fragment() && !f.L4OK()
}

// reflect sends packets back to where they came from, large receives cut again. Frames too short for addresses are
// released.
func (w *worker) reflect(ctx context.Context, pkts []driver.Packet) error {
	for i := range pkts {
		if f := pkts[i].Data; len(f) >= etherHeader {
			var mac [6]byte
			copy(mac[:], f[:6])
			copy(f[:6], f[6:12])
			copy(f[6:12], mac[:])
		}
		pkts[i].Segment = uint16(pkts[i].SegmentSize())
	}
	before := w.tx.Stats()
	for len(pkts) > 0 {
		n := w.tx.Send(pkts)
		if pkts = pkts[n:]; len(pkts) == 0 {
			break
		}
		// The ring is full: the far end holds the card up. The end of the run does not wait for it.
		if err := w.tx.Wait(ctx); err != nil {
			w.tx.Release(pkts)
			if ctx.Err() != nil {
				break
			}
			return err
		}
	}
	after := w.tx.Stats()
	w.sent.Frames += after.Packets - before.Packets
	w.sent.Bytes += after.Bytes - before.Bytes
	return nil
}

// flush waits for what was sent, a bounded time.
func (w *worker) flush() error {
	if w.tx.Pending() == 0 {
		return nil
	}
	ctx, cancel := w.s.patience(w.s.c.flushTime())
	defer cancel()
	began := time.Now()
	err := w.tx.Flush(ctx)
	w.flushed = time.Since(began)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		if w.tx.Reap() > 0 {
			w.untold++ // a completion that no event told of
		}
		err = nil
	}
	return err
}
