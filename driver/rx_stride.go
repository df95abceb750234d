package driver

import (
	"bytes"
	"fmt"

	"cxkit/driver/internal/queue"
	"cxkit/driver/internal/rxpool"
	"cxkit/prm"
)

// Receiving by striding queues: a work queue entry is a chunk of memory for many frames, which begin at
// strides. Poll copies each frame into a buffer of the pool, so that a chunk goes back to the card when the
// card has left it, however long the application keeps its frames.

// pollStrides is Poll.
func (q *RxQueue) pollStrides(pkts []Packet) int {
	var sums strideSums
	n := 0
	for n < len(pkts) {
		own, there := q.cq.Peek()
		if !there {
			break
		}
		if !queue.Plain(own, prm.CQEResponderSend) {
			if !q.oddStride(own) {
				break
			}
			continue
		}
		took, goOn := q.takeStride(&pkts[n], own, &sums)
		if took {
			n++
		}
		if !goOn {
			break
		}
	}
	if n > 0 && !q.ending {
		q.count.add(uint64(n)+sums.merged, &sums.rxSums)
		if sums.large > 0 {
			q.count.addLarge(&sums)
		}
	}
	if q.ending {
		return n
	}
	if q.rq.Missing() > 0 {
		q.refill()
	}
	return n
}

// starved tells that frames wait in chunks for buffers. It asks for buffers.
func (q *RxQueue) starved() bool {
	return q.striding && q.cache.Fill(q.short) < q.short && q.pool.Want(q.nudged)
}

// takeStride takes the next completion, which is no error and not compressed. took tells that it was of a
// frame, which is in p; without goOn the queue has stopped or there is no buffer.
func (q *RxQueue) takeStride(p *Packet, own prm.CQEOwn, sums *strideSums) (took, goOn bool) {
	rq, e := q.rq, q.cq.Next()
	if rq.Outstanding() == 0 {
		return false, q.impossible(fmt.Sprintf("completion of WQE %d with none posted", e.WQEID()))
	}
	strides, length := uint32(e.ConsumedStrides()), int(e.StridingByteCnt())
	first, segments, longest := uint32(own.WQECounter()), int(e.LRONumSeg()), q.pool.Size
	if segments > 1 {
		longest = q.longest
	}
	switch {
	case !rq.Enter(e.WQEID()):
		return false, q.impossible(q.wrongWQE(e.WQEID()))
	case first != rq.Stride || strides == 0 || first+strides > queue.Strides:
		return false, q.impossible(fmt.Sprintf("strides %d to %d of a WQE whose next is %d", first, first+strides, rq.Stride))
	case e.Filler():
		q.leave(strides)
		return false, true
	case length > int(strides)*queue.StrideSize || length > longest:
		return false, q.impossible(fmt.Sprintf("%d bytes of %d segments in %d strides, at most %d", length, max(1, segments), strides, longest))
	case segments > 1 && !q.completeHead(rq.Frame(length), e):
		return false, q.impossible(fmt.Sprintf("large receive of %d segments in %d bytes without headers of TCP", segments, length))
	case !q.salvaging && !q.ending && !q.room(length):
		q.count.noBuffer.Add(1)
		q.pool.Want(q.nudged)
		return false, false
	}
	*p = Packet{
		Data: rq.Frame(length), Timestamp: e.Timestamp(), RSSHash: e.RSSHashResult(),
		FlowTag: e.FlowTag(), Rx: RxFlags(uint16(e.HDSIPExt())<<8 | uint16(e.L4L3HdrType())), Checksum: e.Checksum(),
		VLAN: e.VLANInfo(), HashType: HashType(e.RSSHashType()), Tunnel: Tunnel(e.PktInfo() & 3),
	}
	if segments > 0 && q.longest > 0 {
		// Checksums of what may merge were looked at, and the field has another meaning (Linux en_rx.c,
		// mlx5e_handle_csum).
		p.Rx |= checksumsOK
		p.Checksum = 0
	}
	if segments > 1 {
		q.tellLarge(p, segments, sums)
	}
	if q.salvaging || q.ending {
		p.Data = bytes.Clone(p.Data)
	} else {
		q.copyOut(p)
	}
	if segments > 1 {
		copy(p.Data, q.head[:q.headed])
	}
	sums.bytes += uint64(length)
	if p.Rx.ChecksumOK() {
		sums.good++
	}
	if p.Rx.VLANStripped() {
		sums.stripped++
	}
	q.leave(strides)
	return true, true
}

// leave goes past a completion and its strides.
func (q *RxQueue) leave(strides uint32) {
	q.cq.Taken++
	q.rq.Leave(strides)
}

// oddStride deals with a completion that is no frame's. It reports whether polling goes on.
func (q *RxQueue) oddStride(own prm.CQEOwn) bool {
	switch {
	case q.compressed && queue.IsCompressed(own):
		format := uint8(queue.MiniHash)
		if q.nic.base.general.MiniCQERespStrideIndex {
			format = queue.MiniChecksumStride
		}
		if !q.cq.Expand(format, queue.MaxMini) {
			return q.impossible("session of compressed completions that cannot be")
		}
		return true
	case !queue.IsError(own):
		return q.impossible(fmt.Sprintf("opcode %v format %v on a receive queue", own.Opcode(), own.Format()))
	}
	e := q.cq.Error()
	q.cq.Taken++
	q.count.errors.Add(1)
	q.fail(&QueueError{Syndrome: uint8(e.Syndrome()), Vendor: e.VendorErrSynd(), What: e.Syndrome().String()})
	return false
}

// copyOut copies a packet's data into a buffer of the pool, which the cache must have.
func (q *RxQueue) copyOut(p *Packet) {
	if p.more != nil {
		q.copyParts(p)
		return
	}
	buffer := q.cache.Take(1)[0]
	q.pool.Holders[buffer] = q.delivered
	data := q.pool.Buffer(buffer)
	p.Data, p.buffer = data[:copy(data, p.Data)], buffer+1
}

// handOver gives out packets of rings that are gone, as far as there are buffers for those of striding ones.
func (q *RxQueue) handOver(pkts []Packet) int {
	n := copy(pkts, q.carry)
	for i := range pkts[:n] {
		p := &pkts[i]
		switch {
		case p.buffer != 0:
			q.pool.Holders[p.buffer-1] = q.delivered
		case !q.room(len(p.Data)):
			q.pool.Want(q.nudged)
			clear(pkts[i:n])
			n = i
		default:
			q.copyOut(p)
		}
		if i >= n {
			break
		}
	}
	if q.carry = q.carry[n:]; len(q.carry) == 0 {
		q.carry = nil
	}
	return n
}

// keep puts packets that were taken from rings aside for handOver.
func (q *RxQueue) keep(pkts []Packet) {
	for i := range pkts {
		if buffer := pkts[i].buffer; buffer != 0 {
			q.pool.Holders[buffer-1] = rxpool.NIC
		}
	}
	q.carry = append(q.carry, pkts...)
}
