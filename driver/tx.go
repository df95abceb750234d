package driver

import (
	"context"
	"fmt"

	"cxkit/driver/internal/eswitch"
	"cxkit/driver/internal/queue"
	"cxkit/driver/internal/rxpool"
	"cxkit/prm"
)

// TxQueue is one transmit queue: a ring of frames to send and its completion queue. One goroutine owns it
// at a time. Only Stats, Err and Index may be called from elsewhere.
type TxQueue struct {
	common
	txRings
	headroom int  // frames may begin so many bytes in front of their buffers
	short    bool // the latest Get found no buffer
	broken   bool // the card's completions make no sense: none is taken before Recover
	need     int  // basic blocks that the latest Send lacked, 0 if it had enough

	taken rxpool.Holder // how the books call what this queue gives out
	can   txCan

	frames [64]queue.Frame // scratch of post
	large  largeScratch    // scratch of postLarge

	way   *eswitch.Queue // to the vport that it sends to, in switchdev mode; nil: it needs none
	count *txCounts      // the channel's
}

// txCan is what a transmit queue may ask the card for, which does not change.
type txCan struct {
	flags   TxFlags
	segment int            // longest payload of a large send in bytes; 0: none
	pack    bool           // multi-packet WQEs
	headers prm.InlineMode // above L2: every WQE holds that much of its frame
}

// Get takes empty buffers for frames to send, at most len(pkts), and returns how many there were. Data
// has length 0 and room for at least MTU+22 bytes: append to it, or reslice it. Get never blocks; it
// looks for completed sends when the pool is short; after a 0 Wait waits for buffers, too.
func (q *TxQueue) Get(pkts []Packet) int {
	if q.guarded {
		return q.callGuarded((*TxQueue).get, pkts)
	}
	return q.get(pkts)
}

func (q *TxQueue) get(pkts []Packet) int {
	if q.stopped() {
		return 0
	}
	pool, cache := q.pool, q.cache
	done := 0
	for done < len(pkts) {
		want := min(len(pkts)-done, rxpool.Bulk)
		n := min(want, cache.Fill(want))
		if n < want && q.reap() > 0 {
			n = min(want, cache.Fill(want))
		}
		if n == 0 {
			break
		}
		buffers := cache.Take(n)
		pool.Hold(buffers, q.taken)
		mem, size, unit, part := pool.Mem, uint(pool.Size), uint(pool.Unit), pkts[done:][:n]
		for i, buffer := range buffers[:len(part)] {
			off := uint(buffer) * unit
			p := &part[i]
			p.Data = mem[off : off : off+size]
			p.buffer = buffer + 1
			p.TxFlags, p.Segment = 0, 0
		}
		done += n
	}
	if q.short = done == 0 && len(pkts) > 0; q.short {
		pool.Want(q.nudged)
	}
	return done
}

// Send posts frames and tells the card, once for all of them. It takes the first n packets and returns
// n: less than len(pkts) when the ring is full or the queue is in error (Err). Taken packets are empty
// afterwards; their buffers return to the NIC when the card has sent them. The others stay with the
// application.
//
// Packets come from Get or from Poll of any receive queue of the same NIC: forwarding copies nothing. A
// frame that cannot be sent (shorter than an Ethernet header, longer than the MTU allows, not in its
// buffer any more, asking for what Config left out) is taken, dropped and counted as dropped; empty packets
// are skipped. Send never blocks and never allocates.
func (q *TxQueue) Send(pkts []Packet) int {
	if q.guarded {
		return q.callGuarded((*TxQueue).send, pkts)
	}
	return q.send(pkts)
}

// callGuarded calls get or send of a queue that may end meanwhile.
func (q *TxQueue) callGuarded(call func(*TxQueue, []Packet) int, pkts []Packet) int {
	q.awake.Lock()
	defer q.awake.Unlock()
	return call(q, pkts)
}

func (q *TxQueue) send(pkts []Packet) int {
	if q.stopped() {
		return 0
	}
	q.reap()
	sq := q.sq
	taken := len(pkts)
	before := sq.Posted
	var sums txSums
	done := 0
	for done < taken {
		k := q.post(pkts[done:], min(taken-done, len(q.frames), int(sq.Room())), &sums)
		if k == 0 {
			break
		}
		done += k
	}
	if done < taken {
		q.count.full.Add(1)
	} else {
		q.need = 0
	}
	if sq.Posted != before {
		sq.Ring()
	}
	q.count.add(&sums)
	return done
}

// txSums is what a call of Send adds to the counters.
type txSums struct {
	packets, bytes, partial, tagged uint64
	large, largeBytes, inner        uint64 // large sends: calls, payload; of packets with inner checksums
	wqes, packed                    uint64 // multi-packet WQEs, and frames in them
}

// plainFlags are those that any WQE carries.
const plainFlags = TxChecksum | TxInsertVLAN | TxInnerChecksum

// post writes the WQEs of the first n of pkts, at most len(q.frames); there is room for n of the usual size.
// It returns how many packets it has taken, 0 when there is no room for the first. A frame in several parts
// may reach beyond n.
func (q *TxQueue) post(pkts []Packet, n int, sums *txSums) (done int) {
	pool, sq := q.pool, q.sq
	holders, mem, bus, size, unit := pool.Holders, pool.Mem, pool.Bus, pool.Size, pool.Unit
	limit, inline, headed := int(q.nic.maxFrame.Load()), sq.Inline != queue.InlineNone, q.can.headers > prm.InlineModeL2
	slow := ^(plainFlags & q.can.flags)
	frames, k := q.frames[:], 0
	var bytes uint64
	i := 0
	for i < n {
		p := &pkts[i]
		if p.TxFlags&slow != 0 || p.Segment != 0 || headed || p.more != nil {
			q.write(frames[:k], sums)
			k = 0
			used := q.postLarge(pkts[i:], sums)
			if used == 0 || i+used >= n || int(sq.Room()) < n-i-used {
				sums.bytes += bytes
				return i + used
			}
			i += used
			continue
		}
		i++
		buffer := p.buffer - 1
		if uint(buffer) >= uint(len(holders)) || !holders[buffer].Out() {
			q.refuse(p)
			continue
		}
		data := p.Data
		p.buffer, p.Data = 0, nil
		holders[buffer] = rxpool.NIC
		// A buffer's slices end where it ends, so the capacity tells where the frame starts in it; that
		// the frame is there is then checked by address.
		off := int(buffer)*unit + size - cap(data)
		if len(data) < ethernetHeader || len(data) > limit || cap(data) > size+q.headroom || off < 0 || &mem[off] != &data[0] {
			q.drop(buffer)
			continue
		}
		f := &frames[k]
		f.Addr, f.Length, f.Buffer, f.Offload = bus+uint64(off), uint32(len(data)), buffer, queue.Offload{}
		if p.TxFlags != 0 {
			f.Offload = p.offload()
			if p.TxFlags&(TxChecksum|TxInnerChecksum) != 0 {
				sums.partial++
			}
			if p.TxFlags&TxInnerChecksum != 0 {
				sums.inner++
			}
			if p.TxFlags&TxInsertVLAN != 0 {
				sums.tagged++
			}
		}
		if inline {
			if data = padded(data); data == nil {
				q.drop(buffer)
				continue
			}
			sq.WriteInline(f, data)
			sums.packets++
		} else {
			k++
		}
		bytes += uint64(max(len(data), minFrame))
	}
	q.write(frames[:k], sums)
	sums.bytes += bytes
	return i
}

// write writes the WQEs of frames without inlined headers.
func (q *TxQueue) write(frames []queue.Frame, sums *txSums) {
	sums.packets += uint64(len(frames))
	if !q.can.pack {
		q.sq.Write(frames)
		return
	}
	wqes, packed := q.sq.Pack(frames)
	sums.wqes += uint64(wqes)
	sums.packed += uint64(packed)
}

// offload is what the packet asks the card to do.
func (p *Packet) offload() queue.Offload {
	return queue.Insert(checksums(p.TxFlags), p.TxFlags&TxInsertVLAN != 0, p.VLAN)
}

// checksums are the flags' bits of the Ethernet segment.
func checksums(f TxFlags) uint8 {
	return uint8(f&TxChecksum)*queue.ChecksumL3 | uint8(f&TxInnerChecksum)/uint8(TxInnerL3Checksum)*queue.ChecksumInnerL3
}

// minFrame is the shortest frame on the wire, without FCS; the card pads.
const minFrame = 60

// padded lengthens a frame to minFrame in its buffer. Queues with inlined headers need something behind
// them.
func padded(data []byte) []byte {
	n := len(data)
	if n >= minFrame {
		return data
	}
	if cap(data) < minFrame {
		return nil
	}
	data = data[:minFrame]
	clear(data[n:])
	return data
}

// refuse deals with a packet without a buffer that the application has: an empty one is skipped.
func (q *TxQueue) refuse(p *Packet) {
	if p.buffer != 0 {
		q.count.dropped.Add(1)
		q.violation(p)
	}
}

// violation notes that a packet's buffer is not the application's.
func (q *TxQueue) violation(p *Packet) {
	buffer, held := p.buffer-1, rxpool.NIC
	p.buffer, p.Data = 0, nil
	if int(buffer) < len(q.pool.Holders) {
		held = q.pool.Holders[buffer]
	}
	q.pool.Violation("send", buffer, held)
}

// drop gives up a frame that cannot be sent.
func (q *TxQueue) drop(buffer uint32) {
	q.count.dropped.Add(1)
	q.cache.Put(buffer)
}

// restart lets the queue work again after an error.
func (q *TxQueue) restart() {
	q.broken, q.need = false, 0
	q.common.restart()
	q.count.recovered.Add(1)
}

// finished tells that completions wait to be taken, or that the queue has stopped.
func (q *TxQueue) finished() bool {
	if q.sq.Done == q.sq.Posted {
		return false
	}
	_, there := q.cq.Peek()
	return there
}

// Room is how many frames Send could take now, without looking for completions, if they have one part and no
// Segment. Multi-packet WQEs let more in.
func (q *TxQueue) Room() int {
	if q.guarded {
		q.awake.Lock()
		defer q.awake.Unlock()
	}
	return int(q.sq.Room())
}

// Pending is how many frames, or parts of frames, were posted and are not known to be sent.
func (q *TxQueue) Pending() int {
	if q.guarded {
		q.awake.Lock()
		defer q.awake.Unlock()
	}
	return int(q.sq.Outstanding())
}

// Release gives buffers back to the NIC without sending them, and empties the packets.
func (q *TxQueue) Release(pkts []Packet) {
	if q.guarded {
		q.releaseGuarded(pkts)
		return
	}
	q.release(pkts)
}

// Reap takes completions and frees the buffers of sent frames; it returns how many buffers came back. Send
// and Get do it when they need to. It never blocks.
func (q *TxQueue) Reap() int {
	if q.guarded {
		q.awake.Lock()
		defer q.awake.Unlock()
	}
	return q.reap()
}

func (q *TxQueue) reap() int {
	if q.over() {
		return 0
	}
	return q.takeSent()
}

// takeSent is Reap, of a queue that is closed, too.
func (q *TxQueue) takeSent() int {
	if q.broken {
		return 0
	}
	frames, entries := 0, uint64(0)
	for q.sq.Done != q.sq.Posted {
		own, there := q.cq.Peek()
		if !there {
			break
		}
		n, ok := q.complete(own)
		if !ok {
			break
		}
		frames += n
		entries++
	}
	if entries == 0 {
		return 0
	}
	q.cq.Publish()
	q.count.completions.Add(entries)
	q.share()
	return frames
}

// complete takes one completion, which completes the WQEs before it too.
func (q *TxQueue) complete(own prm.CQEOwn) (frames int, ok bool) {
	isError := queue.IsError(own)
	if !isError && !queue.Plain(own, prm.CQERequester) {
		return 0, q.impossible(fmt.Sprintf("opcode %v format %v on a send queue", own.Opcode(), own.Format()))
	}
	if sqn := q.cq.Next().QPN(); sqn != q.sq.Number() {
		return 0, q.impossible(fmt.Sprintf("completion of SQ %#x", sqn))
	}
	done, ok := q.sq.Completed(own.WQECounter())
	if !ok || !done.Signalled && !isError {
		return 0, q.impossible(fmt.Sprintf("completion of WQE %d, outstanding are %d from %d",
			own.WQECounter(), q.sq.Posted-q.sq.Done, uint16(q.sq.Done)))
	}
	if isError {
		e := q.cq.Error()
		q.count.errors.Add(1)
		q.count.dropped.Add(1)
		q.fail(&QueueError{Syndrome: uint8(e.Syndrome()), Vendor: e.VendorErrSynd(), What: e.Syndrome().String()})
	}
	q.cq.Taken++
	q.free(done.Buffers)
	q.sq.Complete(done)
	return int(done.Buffers), true
}

// free takes back the n oldest buffers.
func (q *TxQueue) free(n uint32) {
	for n > 0 {
		k := min(n, rxpool.Bulk)
		q.sq.Take(q.cache.Space()[:k])
		q.cache.Keep(int(k))
		n -= k
	}
}

func (q *TxQueue) impossible(what string) bool {
	q.broken = true
	q.count.impossible.Add(1)
	q.fail(&QueueError{What: "impossible completion: " + what})
	return false
}

func (q *TxQueue) fail(e *QueueError) {
	e.Queue, e.Transmit, e.Number = q.index, true, q.sq.Number()
	q.end(e)
}

// Wait blocks until there is room to send, and after a Get that found no buffer until there is one; or
// until ctx ends, or the queue fails (Err), or the NIC is closed.
func (q *TxQueue) Wait(ctx context.Context) error {
	return q.wait(ctx, func() bool {
		if q.short && q.cache.Fill(1) == 0 {
			return !q.pool.Want(q.nudged) && q.cache.Fill(1) > 0 && q.room()
		}
		return q.room()
	})
}

// room tells that Send would take the packet that it left last.
func (q *TxQueue) room() bool { return int(q.sq.Room()) >= max(q.need, 1) }

// Flush blocks until every frame posted has been sent, or ctx ends, or the queue fails, or the NIC is
// closed.
func (q *TxQueue) Flush(ctx context.Context) error {
	return q.wait(ctx, func() bool { return q.sq.Outstanding() == 0 })
}

func (q *TxQueue) wait(ctx context.Context, enough func() bool) error {
	q.count.waits.Add(1)
	q.awake.Lock()
	defer q.awake.Unlock()
	for {
		q.reap()
		if err := q.Err(); err != nil { // after reap, which may have found it
			return err
		}
		if enough() {
			return nil
		}
		if q.cq.Arm() {
			q.count.arms.Add(1)
		}
		// Partner: the card looks at the arm record after it wrote a completion.
		if _, there := q.cq.Peek(); there && !q.stopped() {
			continue
		}
		if err := q.sleep(ctx, q.cq, &q.count.waitCounts); err != nil {
			return err
		}
	}
}
