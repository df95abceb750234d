package driver

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// BuffersOutError names packet buffers that somebody had not given back when the NIC was closed: the
// application, or a card that did not end its queues.
type BuffersOutError struct {
	// Queue and Transmit name the queue that gave them out, by Poll or Get, or in whose ring they are.
	Queue    int
	Transmit bool
	// Card says that they are in the queue's ring, which the card may still use; else the application has
	// them.
	Card  bool
	Count int
}

func (e *BuffersOutError) Error() string {
	kind := "rx"
	if e.Transmit {
		kind = "tx"
	}
	if e.Card {
		return fmt.Sprintf("%d buffers are in the ring of %s queue %d, which the card may still use", e.Count, kind, e.Queue)
	}
	return fmt.Sprintf("%d buffers from %s queue %d are still with the application", e.Count, kind, e.Queue)
}

// buffersOut names the buffers with the application; nil if there are none.
func (n *NIC) buffersOut() error {
	census := n.pool.Census()
	var errs []error
	for _, h := range slices.Sorted(maps.Keys(census)) {
		if h.Out() {
			number, transmit := h.Queue()
			errs = append(errs, &BuffersOutError{Queue: number, Transmit: transmit, Count: census[h]})
		}
	}
	return errors.Join(errs...)
}

// inRings names the buffers in rings that the card did not give back; nil if there are none.
func (n *NIC) inRings() error {
	var errs []error
	rx, tx := n.made()
	for _, q := range rx {
		if q.rq == nil {
			continue
		}
		if count := int(q.rq.Outstanding()); count > 0 {
			errs = append(errs, &BuffersOutError{Queue: q.index, Card: true, Count: count})
		}
	}
	for _, q := range tx {
		if q.sq == nil {
			continue
		}
		if count := int(q.sq.Outstanding()); count > 0 {
			errs = append(errs, &BuffersOutError{Queue: q.index, Transmit: true, Card: true, Count: count})
		}
	}
	return errors.Join(errs...)
}

// ReleaseAll gives buffers back from any goroutine and empties the packets; empty packets are skipped. It
// takes a lock once in 64 packets: queue owners use RxQueue.Release.
func (n *NIC) ReleaseAll(pkts []Packet) {
	n.releasing.RLock()
	defer n.releasing.RUnlock()
	if n.isClosed() {
		clear(pkts)
		return
	}
	n.releaseAll(pkts)
}

// releaseAll is ReleaseAll while the NIC cannot be closed.
func (n *NIC) releaseAll(pkts []Packet) {
	var free [64]uint32
	k := 0
	for i := range pkts {
		p := &pkts[i]
		if c := p.unmerge(); c != nil {
			n.releaseAll(c.rest)
			c.done()
		}
		if p.buffer == 0 {
			continue
		}
		buffer := p.buffer - 1
		p.buffer, p.Data = 0, nil
		if n.pool.Release(buffer) {
			free[k] = buffer
			k++
		}
		if k == len(free) {
			n.pool.Return(free[:])
			k = 0
		}
	}
	n.pool.Return(free[:k])
}

// bufferBooks counts the buffers.
func (n *NIC) bufferBooks() BufferBooks {
	b := BufferBooks{Violations: n.pool.Violations()}
	for h, count := range n.pool.Census() {
		if h.Out() {
			b.Application += count
		}
	}
	for _, q := range n.queues().rx {
		b.Posted += q.posted()
	}
	for _, q := range n.queues().sends() {
		b.Sending += int(q.sq.Outstanding())
	}
	b.Free = n.pool.Count + n.pageFrames() - b.Application - b.Posted - b.Sending
	return b
}

// Lent is Books without buffers: what the card has of the NIC's. It may be called at any time.
func (n *NIC) Lent() Books {
	var b Books
	n.controlBooks(&b)
	return b
}

// Books returns where the NIC's buffers and the card's objects and pages are. It is exact when no queue
// is in use, and then only may it be called.
func (n *NIC) Books() Books {
	b := n.Lent()
	b.Buffers = n.bufferBooks()
	return b
}
