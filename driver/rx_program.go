package driver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"cxkit/driver/internal/layout"
	"cxkit/driver/internal/rxpool"
)

// Verdict is what a Program wants done with a frame. The zero value is Pass.
type Verdict uint32

const (
	// Pass gives the frame to Poll.
	Pass Verdict = iota
	// Drop frees its buffer.
	Drop
	// Tx sends it, as it is now, out of the port it came from.
	Tx

	redirect Verdict = 1 << 16
)

// RedirectTo gives the frame to another receive queue's Poll. A queue that does not exist drops it.
func RedirectTo(queue int) Verdict { return redirect | Verdict(queue&0xffff) }

// Program judges every received frame before Poll builds anything of it, as an XDP program does. It runs in
// Poll, in the goroutine of the queue's owner; it must not keep the frame.
type Program func(f *Frame) Verdict

// Frame is a frame under a Program.
type Frame struct {
	// Data may be changed and shortened at either end. Extend lengthens it at its front.
	Data []byte
	// Queue is the receive queue's number.
	Queue int
	// RSSHash and Rx are those of Packet.
	RSSHash uint32
	Rx      RxFlags

	whole []byte // headroom and buffer
}

// Headroom is the bytes in front of every frame while a Program is loaded (Linux XDP_PACKET_HEADROOM).
const Headroom = 256

// Extend moves the frame's beginning n bytes to the front, 0 to what is left of Headroom, for another
// header. It reports whether there was room.
func (f *Frame) Extend(n int) bool {
	at := len(f.whole) - cap(f.Data)
	if n < 0 || n > at {
		return false
	}
	f.Data = f.whole[at-n : at+len(f.Data)]
	return true
}

// program is what a queue with programs has.
type program struct {
	run    Program
	tx     *TxQueue // of its own, as mlx5's XDP queues: the receive queue's owner uses it
	frame  Frame
	send   [64]Packet
	sends  int
	drops  [64]Packet
	ndrops int

	arrived redirected // what others redirect here
}

// redirected is packets from other queues.
type redirected struct {
	pending atomic.Bool
	mu      sync.Mutex // guards the two below
	list    []Packet
	over    bool // its queue has ended
}

// maxRedirected bounds what waits for a queue's Poll.
const maxRedirected = 1024

func (r *redirected) put(p Packet) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || len(r.list) == maxRedirected {
		return false
	}
	r.list = append(r.list, p)
	r.pending.Store(true)
	return true
}

// end refuses what comes from now on, and returns what waits.
func (r *redirected) end() []Packet {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.list
	r.list, r.over = nil, true
	r.pending.Store(false)
	return list
}

func (r *redirected) take(pkts []Packet) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := copy(pkts, r.list)
	left := copy(r.list, r.list[n:])
	clear(r.list[left:])
	r.list = r.list[:left]
	r.pending.Store(left > 0)
	return n
}

// SetProgram loads a program, or with nil takes it out, while frames come. It needs Config.Program, whose
// queues and headroom it uses. Frames for which buffers are posted already have the room that these have.
// The owner calls it.
func (q *RxQueue) SetProgram(p Program) error {
	if q.xdp == nil {
		return errors.New("set program: Config.Program was nil")
	}
	kind := q.nic.config.RxLayout.kind()
	if p != nil {
		kind = layout.Headroom
	}
	if q.pages.Kind() != kind {
		q.pages.Switch(kind)
	}
	q.xdp.run = p
	return nil
}

// makeProgram makes what a queue with a program needs.
func (n *NIC) makeProgram(ctx context.Context, q *RxQueue, memory *ringMemory) error {
	t, err := n.makeTx(ctx, q.index, &n.slots[q.index].program, new(txCounts), memory)
	if err != nil {
		return fmt.Errorf("send queue for the program: %w", err)
	}
	q.allowPrograms(t)
	return q.SetProgram(n.config.Program)
}

// allowPrograms gives the queue what programs need; t is the send queue of theirs.
func (q *RxQueue) allowPrograms(t *TxQueue) {
	q.xdp = &program{tx: t}
	q.xdp.arrived.list = make([]Packet, 0, maxRedirected)
	q.also = t.completed
}

// awaitSends has the end of a program's sends end a wait, too, if they may have the pages that the ring lacks. It
// reports whether some have ended by now.
func (q *RxQueue) awaitSends() bool {
	if q.xdp == nil || q.rq.Outstanding() > 0 {
		return false
	}
	t := q.xdp.tx
	if t.sq.Outstanding() == 0 || t.stopped() {
		return false
	}
	if t.cq.Arm() {
		t.count.arms.Add(1)
	}
	// Partner: the card looks at the arm record after it wrote a completion.
	return t.finished()
}

// sendsCame notes the event of the sends, or that none is needed any more.
func (q *RxQueue) sendsCame() {
	if x := q.xdp; x != nil && (q.alsoCame || x.tx.finished()) {
		q.alsoCame = false
		x.tx.cq.Fired()
	}
}

// pollProgram is poll with the verdicts of a program, if one is loaded: it returns what they let pass.
func (q *RxQueue) pollProgram(pkts []Packet) int {
	x := q.xdp
	if x == nil {
		return q.poll(pkts)
	}
	n := 0
	if x.arrived.pending.Load() {
		n = x.arrived.take(pkts)
		for i := range pkts[:n] {
			q.pool.Holders[pkts[i].buffer-1] = q.delivered
		}
	}
	x.tx.reap() // first: the ring may lack the pages
	if x.run == nil {
		return n + q.poll(pkts[n:])
	}
	// What a program drops or sends leaves room for more. A bounded time: others want to poll, too.
	for range 8 {
		k := q.poll(pkts[n:])
		if k == 0 {
			break
		}
		n += q.judge(pkts[n : n+k])
		if n == len(pkts) {
			break
		}
	}
	q.finishSends()
	return n
}

// judge runs the program over frames, and returns how many it lets pass; they are in front.
func (q *RxQueue) judge(pkts []Packet) (passed int) {
	x := q.xdp
	for i := range pkts {
		p := &pkts[i]
		f := &x.frame
		*f = Frame{Data: p.Data, Queue: q.index, RSSHash: p.RSSHash, Rx: p.Rx}
		f.whole = q.around(p)
		verdict := x.run(f)
		inside := len(f.Data) > 0 && cap(f.Data) <= len(f.whole) && &f.whole[len(f.whole)-cap(f.Data)] == &f.Data[0]
		if inside {
			p.Data = f.Data
		} else if verdict != Drop {
			q.count.programBad.Add(1) // not in its buffer any more
			verdict = Drop
		}
		switch {
		case verdict == Pass:
			q.count.programPass.Add(1)
			pkts[passed] = *p
			passed++
		case verdict == Tx:
			x.send[x.sends] = *p
			if x.sends++; x.sends == len(x.send) {
				q.finishSends()
			}
		case verdict&redirect != 0 && q.pass(p, int(verdict&0xffff)):
		default:
			q.count.programDrop.Add(1)
			x.drops[x.ndrops] = *p
			if x.ndrops++; x.ndrops == len(x.drops) {
				q.finishSends()
			}
		}
	}
	q.finishSends()
	x.frame = Frame{}
	return passed
}

// around is the room that a frame may use: its buffer, and the headroom in front of that if it has one.
func (q *RxQueue) around(p *Packet) []byte {
	pool := q.pool
	from := int(p.buffer-1) * pool.Unit
	start, end := 0, from+pool.Size
	if p.buffer-1 < pool.Fragments() && q.pages.WithHeadroom(p.buffer-1) {
		start = Headroom
	}
	return pool.Mem[from-start : end : end]
}

// pass gives a packet to another queue, and reports whether there is one of that number.
func (q *RxQueue) pass(p *Packet, to int) bool {
	rx := q.nic.queues().rx
	if to >= len(rx) {
		return false
	}
	other := rx[to]
	q.count.programRedirect.Add(1)
	holder := &q.pool.Holders[p.buffer-1]
	*holder = rxpool.NIC // until the other queue hands it out
	if other.xdp.arrived.put(*p) {
		other.nudged.Raise()
		return true
	}
	*holder = q.delivered
	q.count.programFull.Add(1)
	one := [1]Packet{*p}
	q.Release(one[:])
	return true
}

// finishSends sends and frees what verdicts have collected. What does not fit into the send queue is dropped,
// as XDP_TX does.
func (q *RxQueue) finishSends() {
	x := q.xdp
	if x.sends > 0 {
		n := x.tx.Send(x.send[:x.sends])
		q.count.programTx.Add(uint64(n))
		if n < x.sends {
			q.count.programFull.Add(uint64(x.sends - n))
			q.Release(x.send[n:x.sends])
		}
		x.sends = 0
	}
	if x.ndrops > 0 {
		q.Release(x.drops[:x.ndrops])
		x.ndrops = 0
	}
}

// ProgramStats are the verdicts of a queue's programs since Open.
type ProgramStats struct {
	Passed, Dropped, Sent, Redirected uint64
	// Full are frames sent or redirected for which the other queue had no room, Bad those that the program
	// took out of their buffers; both are dropped.
	Full, Bad uint64
}

// ProgramStats returns the queue's verdicts. Any goroutine may call it.
func (q *RxQueue) ProgramStats() ProgramStats {
	c := q.count
	return ProgramStats{
		Passed: c.programPass.Load(), Dropped: c.programDrop.Load(), Sent: c.programTx.Load(),
		Redirected: c.programRedirect.Load(), Full: c.programFull.Load(), Bad: c.programBad.Load(),
	}
}
