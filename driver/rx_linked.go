package driver

import (
	"encoding/binary"
	"fmt"

	"cxkit/driver/internal/queue"
	"cxkit/prm"
)

// Linked receive queues: Config.LinkedReceive. A completion names the WQE that it is of, and need not name them in
// the order in which they were posted. What it names is checked: it must be in the ring, and posted.

// wrongWQE says what is wrong with a completion of a WQE.
func (q *RxQueue) wrongWQE(index uint16) string {
	switch {
	case !q.linked:
		return fmt.Sprintf("completion in WQE %d, expected %d", index, q.rq.Taken&q.rq.Mask)
	case uint32(index) > q.rq.Mask:
		return fmt.Sprintf("completion of WQE %d in a ring of %d", index, q.rq.Size())
	}
	return fmt.Sprintf("completion of WQE %d, which is not posted", index)
}

// pollLinked is poll of a queue of one frame for a WQE.
func (q *RxQueue) pollLinked(pkts []Packet) int {
	n := q.takeLinked(pkts)
	if q.rq.Missing() >= q.bulk && !q.stopped() {
		q.refill()
	}
	return n
}

// takeLinked consumes completions of received frames into pkts.
func (q *RxQueue) takeLinked(pkts []Packet) int {
	var sums rxSums
	n := 0
	for n < len(pkts) {
		own, there := q.cq.Peek()
		if !there {
			break
		}
		if !queue.Plain(own, prm.CQEResponderSend) {
			if !q.oddLinked(own) {
				break
			}
			continue
		}
		index, e := own.WQECounter(), q.cq.Next()
		if !q.rq.Has(index) {
			q.impossible(q.wrongWQE(index))
			break
		}
		length := e.ByteCnt()
		if int64(length) > int64(q.pool.Size) {
			q.impossible(fmt.Sprintf("%d bytes received in a buffer of %d", length, q.pool.Size))
			break
		}
		buffer := q.rq.Buffers[index]
		q.cq.Taken++
		q.rq.Completed(index)
		q.linkedPacket(&pkts[n], e, buffer, int(length))
		n++
		sums.bytes += uint64(length)
		kinds := binary.BigEndian.Uint32(e[0x1c:])
		sums.good += uint64(kinds >> 25 & (kinds >> 26) & 1)
		sums.stripped += uint64(kinds >> 16 & 1)
	}
	if n > 0 && !q.ending {
		q.count.add(uint64(n), &sums)
	}
	return n
}

// linkedPacket makes p a frame of length bytes in a buffer, of which the card says e.
func (q *RxQueue) linkedPacket(p *Packet, e *prm.CQE, buffer uint32, length int) {
	off := int(buffer) * q.pool.Unit
	*p = Packet{
		Data: q.pool.Mem[off : off+length : off+q.pool.Size], Timestamp: e.Timestamp(), RSSHash: e.RSSHashResult(),
		FlowTag: e.FlowTag(), Rx: RxFlags(uint16(e.HDSIPExt())<<8 | uint16(e.L4L3HdrType())), Checksum: e.Checksum(),
		VLAN: e.VLANInfo(), HashType: HashType(e.RSSHashType()), Tunnel: Tunnel(e.PktInfo() & 3), buffer: buffer + 1,
	}
	q.pool.Holders[buffer] = q.delivered
}

// oddLinked deals with a completion that is no frame's. It reports whether polling goes on.
func (q *RxQueue) oddLinked(own prm.CQEOwn) bool {
	switch {
	case q.compressed && queue.IsCompressed(own):
		if !q.cq.Expand(queue.MiniHash, min(q.rq.Outstanding(), queue.MaxMini)) {
			return q.impossible("session of compressed completions that cannot be")
		}
		return true
	case !queue.IsError(own):
		return q.impossible(fmt.Sprintf("opcode %v format %v on a receive queue", own.Opcode(), own.Format()))
	case !q.rq.Has(own.WQECounter()):
		return q.impossible(q.wrongWQE(own.WQECounter()))
	}
	e := q.cq.Error()
	buffer := q.rq.Buffers[own.WQECounter()]
	q.cq.Taken++
	q.rq.Completed(own.WQECounter())
	q.recycle(buffer)
	return q.refused(e)
}

// returnLinked takes back what is posted in a ring that the card does not use.
func (q *RxQueue) returnLinked() {
	q.rq.Each(func(index uint16) {
		if !q.striding {
			q.recycle(q.rq.Buffers[index])
		}
	})
}
