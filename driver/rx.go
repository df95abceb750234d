package driver

import (
	"context"
	"encoding/binary"
	"fmt"

	"cxkit/driver/internal/layout"
	"cxkit/driver/internal/queue"
	"cxkit/driver/internal/rxpool"
	"cxkit/prm"
)

// RxQueue is one receive queue: a completion queue, a ring of posted buffers and the buffers in hand.
// One goroutine owns it at a time; handing it to another needs a happens-before edge, as for any value.
// Only Stats and Err may be called from elsewhere.
type RxQueue struct {
	common
	rxRings
	bulk uint32 // posting starts when this many WQEs are missing

	striding, linked bool
	special          bool // striding or linked
	compressed       bool
	carry            []Packet // from rings that are gone: what Poll hands out first
	salvaging        bool     // frames of striding rings go to memory of their own, not to buffers
	ending           bool     // frames that are taken are lost, and not counted

	delivered rxpool.Holder // how the books call what this queue gives out
	pages     *layout.Queue // nil with RxStack
	fragments [refillBulk]uint32

	merge *merging // nil without Config.GRO
	xdp   *program // nil without Config.Program

	count *rxCounts // the channel's

	chains  *chains // nil without Config.GRO and Config.LargeReceive
	longest int     // of a large receive; 0 without Config.LargeReceive
	short   int     // buffers that the next frame of a striding queue takes
	head    [maxLargeHeader]byte
	headed  int // of head
}

// refillBulk is how many WQEs are posted at once, ring size allowing: doorbell records are atomic stores,
// which cost as much as receiving a frame.
const refillBulk = 32

// Poll takes received frames, at most len(pkts), oldest first, and posts free buffers in their place. It
// never blocks and never allocates. 0 means that nothing is there now, or that the queue is in error: Err
// tells. The application owns the packets until Release or Send.
//
// Every field of the packets is overwritten; their old buffers must have been released before.
//
// With Config.GRO packets may be merged ones; with a Program, Poll returns what it lets pass.
func (q *RxQueue) Poll(pkts []Packet) int {
	switch {
	case q.guarded:
		return q.pollGuarded(pkts)
	case q.merge != nil:
		return q.pollMerged(pkts)
	case q.xdp != nil:
		return q.pollProgram(pkts)
	}
	return q.poll(pkts)
}

// pollGuarded is poll of a queue that may end meanwhile.
func (q *RxQueue) pollGuarded(pkts []Packet) int {
	q.awake.Lock()
	defer q.awake.Unlock()
	return q.poll(pkts)
}

// poll takes frames as the card has delivered them.
func (q *RxQueue) poll(pkts []Packet) int {
	if q.stopped() {
		return 0
	}
	n := 0
	if len(q.carry) > 0 {
		n = q.handOver(pkts)
	}
	if len(q.carry) > 0 {
		return n // later ones must not come before
	}
	switch {
	case !q.special:
	case q.striding:
		return n + q.pollStrides(pkts[n:])
	default:
		return n + q.pollLinked(pkts[n:])
	}
	n += q.take(pkts[n:])
	for n < len(pkts) {
		// There was no further frame in turn: nothing is there, or something else.
		own, there := q.cq.Peek()
		if !there || !q.odd(own) {
			break
		}
		n += q.take(pkts[n:])
	}
	if q.rq.Missing() >= q.bulk {
		q.refill()
	}
	return n
}

// take consumes completions of received frames into pkts, up to the first that is something else.
func (q *RxQueue) take(pkts []Packet) int {
	pkts = pkts[:min(len(pkts), int(q.rq.Outstanding()))]
	var sums rxSums
	n := 0
	for n < len(pkts) {
		k, run := q.takeRun(pkts[n:], &sums)
		n += k
		if k < run {
			break
		}
	}
	if n > 0 && !q.ending {
		q.count.add(uint64(n), &sums)
	}
	return n
}

// rxSums is what a burst adds to the counters beside its packets.
type rxSums struct{ bytes, good, stripped uint64 }

// maxRun bounds a run, so that its counts fit the parts of one word.
const maxRun = 256

// takeRun is take for packets whose entries and WQEs do not wrap in their rings: run is how many that can
// be, n how many there were. This loop is the cost of receiving. It is written for few instructions:
// slices that need no bounds check, one comparison for all that an ownership dword says, counts summed
// side by side in one word.
func (q *RxQueue) takeRun(pkts []Packet, sums *rxSums) (n, run int) {
	cq, rq, pool := q.cq, q.rq, q.pool
	entry, wqe := cq.Taken&cq.Mask, rq.Taken&rq.Mask
	run = min(len(pkts), maxRun, int(cq.Mask+1-entry), int(rq.Mask+1-wqe))
	pkts = pkts[:run]
	buffers := rq.Buffers[wqe:][:run]
	ring := cq.Ring[int(entry)*prm.CQESize:]
	holders, mem, size, unit, delivered := pool.Holders, pool.Mem, uint(pool.Size), uint(pool.Unit), q.delivered
	want := queue.PlainOwn(cq.Taken, cq.Log, prm.CQEResponderSend, rq.Taken)
	var bytes, flags uint64
	for i, buffer := range buffers {
		if len(ring) < prm.CQESize {
			break // never: the run ends with the ring
		}
		e := (*prm.CQE)(ring)
		ring = ring[prm.CQESize:]
		if !queue.IsPlain(queue.OwnDword(e), want) {
			break
		}
		want += queue.NextCounter
		length := uint(e.ByteCnt())
		if length > size {
			break
		}
		off := uint(buffer) * unit
		kinds := binary.BigEndian.Uint32(e[0x1c:]) // hds_ip_ext, l4_l3_hdr_type, vlan_info

		p := &pkts[i]
		p.Data = mem[off : off+length : off+size]
		p.Timestamp = e.Timestamp()
		p.RSSHash = e.RSSHashResult()
		p.FlowTag = e.FlowTag()
		p.Rx = RxFlags(kinds >> 16)
		p.Checksum = e.Checksum()
		p.VLAN = uint16(kinds)
		p.HashType = HashType(e.RSSHashType())
		p.TxFlags = 0
		p.Segment = 0
		p.Tunnel = Tunnel(e.PktInfo() & 3)
		p.buffer = buffer + 1
		holders[buffer] = delivered

		bytes += uint64(length)
		flags += uint64(kinds&(kinds>>1)&kindL3OK | kinds&kindStripped)
		n++
	}
	cq.Taken += uint32(n)
	rq.Taken += uint32(n)
	sums.bytes += bytes
	sums.good += flags / kindL3OK
	sums.stripped += flags % kindL3OK / kindStripped
	return n, run
}

// Bits of the dword that takeRun reads as kinds: L3 ok, with L4 ok above it, and VLAN stripped. A sum of
// maxRun of them keeps apart.
const (
	kindL3OK     = 1 << 25
	kindStripped = 1 << 16
)

// odd deals with a completion that take did not take. It reports whether polling goes on.
func (q *RxQueue) odd(own prm.CQEOwn) bool {
	rq := q.rq
	switch {
	case rq.Taken == rq.Posted:
		return q.impossible(fmt.Sprintf("completion of WQE %d with none posted", own.WQECounter()))
	case own.WQECounter() != uint16(rq.Taken):
		return q.impossible(fmt.Sprintf("completion of WQE %d, expected %d", own.WQECounter(), uint16(rq.Taken)))
	case queue.Plain(own, prm.CQEResponderSend):
		if length := q.cq.Next().ByteCnt(); int64(length) > int64(q.pool.Size) {
			return q.impossible(fmt.Sprintf("%d bytes received in a buffer of %d", length, q.pool.Size))
		}
		return true // it came after take had looked
	case q.compressed && queue.IsCompressed(own):
		if !q.cq.Expand(queue.MiniHash, min(rq.Outstanding(), queue.MaxMini)) {
			return q.impossible("session of compressed completions that cannot be")
		}
		return true
	case !queue.IsError(own):
		return q.impossible(fmt.Sprintf("opcode %v format %v on a receive queue", own.Opcode(), own.Format()))
	}
	e := q.cq.Error()
	buffer := rq.Buffers[rq.Taken&rq.Mask]
	rq.Taken++
	q.cq.Taken++
	q.recycle(buffer)
	return q.refused(e)
}

// refused counts a completion in error, which has been taken. It reports whether polling goes on: not if the card
// has stopped the queue (Linux en_rx.c, mlx5e_cqe_unhandled).
func (q *RxQueue) refused(e *prm.ErrorCQE) bool {
	q.count.errors.Add(1)
	switch e.Syndrome() {
	case prm.CQESyndromeLocalQPOp, prm.CQESyndromeLocalProtection, prm.CQESyndromeFlushed:
		q.fail(&QueueError{Syndrome: uint8(e.Syndrome()), Vendor: e.VendorErrSynd(), What: e.Syndrome().String()})
		return false
	}
	return true
}

// recycle takes back a buffer that the card has given up.
func (q *RxQueue) recycle(buffer uint32) {
	q.cache.Put(buffer)
}

func (q *RxQueue) impossible(what string) bool {
	q.count.impossible.Add(1)
	q.fail(&QueueError{What: "impossible completion: " + what})
	return false
}

func (q *RxQueue) fail(e *QueueError) {
	e.Queue, e.Number = q.index, q.rq.Number()
	q.end(e)
}

// refill posts free buffers until the ring is full or none are left.
func (q *RxQueue) refill() {
	rq, pool, cache := q.rq, q.pool, q.cache
	if q.striding {
		rq.PostChunks()
		q.cq.PublishAll()
		rq.Ring()
		return
	}
	if q.pages != nil {
		q.retry = !q.refillPages()
		q.cq.PublishAll()
		rq.Ring()
		return
	}
	for rq.Missing() > 0 {
		n := min(int(rq.Missing()), rxpool.Bulk)
		n = min(n, cache.Fill(n))
		if n == 0 {
			if !pool.Want(q.nudged) {
				continue // some came since
			}
			q.count.noBuffer.Add(1)
			break
		}
		q.post(cache.Take(n))
	}
	// In this order: with the entries given back first, the card never has more completions to write
	// than the completion queue has room for.
	q.cq.PublishAll()
	rq.Ring()
}

// post posts buffers, no more than are missing.
func (q *RxQueue) post(buffers []uint32) {
	if q.linked {
		q.rq.PostLinked(buffers, q.pool.Bus, uint64(q.pool.Unit))
	} else {
		q.rq.Post(buffers, q.pool.Bus, uint64(q.pool.Unit))
	}
}

// restart lets the queue work again after an error.
func (q *RxQueue) restart() {
	q.common.restart()
	q.count.recovered.Add(1)
}

// Ready tells that Poll would find something: a frame or an error. The owner calls it.
func (q *RxQueue) Ready() bool {
	if q.guarded {
		q.awake.Lock()
		defer q.awake.Unlock()
	}
	if q.stopped() {
		return false
	}
	_, there := q.cq.Peek()
	return there || len(q.carry) > 0 || q.pending()
}

// pending tells that Poll has packets without a new frame.
func (q *RxQueue) pending() bool {
	q.patience = 0
	if q.xdp != nil && (q.xdp.arrived.pending.Load() || q.xdp.tx.finished()) {
		return true
	}
	if q.merge == nil {
		return false
	}
	now, wait := q.merge.pending()
	q.patience = wait
	return now || wait > 0 && q.dry()
}

// dry tells that no frame can come before buffers come back. It asks for them.
func (q *RxQueue) dry() bool { return q.rq.Outstanding() == 0 || q.starved() }

// Posted is how many buffers the card has to put frames into, or has filled and nobody took: none with
// Striding, whose memory is no buffers. The owner calls it.
func (q *RxQueue) Posted() int {
	if q.guarded {
		q.awake.Lock()
		defer q.awake.Unlock()
	}
	return q.posted()
}

func (q *RxQueue) posted() int {
	if q.striding {
		return 0
	}
	return int(q.rq.Outstanding())
}

// Release gives buffers back to the NIC and clears the packets; cleared packets are skipped. The packets
// may come from any queue of the same NIC, from Poll or from Get.
func (q *RxQueue) Release(pkts []Packet) {
	if q.guarded {
		q.releaseGuarded(pkts)
		return
	}
	q.release(pkts)
}

// Wait blocks until a frame may be there to Poll, or ctx ends, or the queue fails (Err), or the NIC is
// closed. It arms the completion queue, looks again, and then sleeps without using the processor, but for a
// look each second: a lost event or interrupt costs a frame that time, and is counted.
func (q *RxQueue) Wait(ctx context.Context) error {
	q.count.waits.Add(1)
	q.awake.Lock()
	defer q.awake.Unlock()
	for {
		if err := q.Err(); err != nil {
			return err
		}
		if _, there := q.cq.Peek(); (there || len(q.carry) > 0) && !q.starved() || q.pending() {
			return nil
		}
		if q.rq.Missing() >= q.bulk || q.rq.Outstanding() == 0 {
			q.refill()
		}
		if q.cq.Arm() {
			q.count.arms.Add(1)
		}
		// Partner: the card looks at the arm record after it wrote a completion.
		if _, there := q.cq.Peek(); there && !q.starved() {
			return nil
		}
		if q.awaitSends() {
			return nil
		}
		err := q.sleep(ctx, q.cq, &q.count.waitCounts)
		q.sendsCame()
		if err != nil {
			return err
		}
	}
}
