package device

import (
	"slices"

	"cxkit/device/internal/packet"
	"cxkit/device/internal/queue"
	"cxkit/device/internal/steer"
	"cxkit/device/wire"
)

// A frame's way through the card. In: port, size rule, padding, address filter, NIC_RX tables, TIR, RQ,
// host memory, CQE (datapath_rx.go). Out: doorbell, SQ, WQE, NIC_TX tables, local loopback, port, CQE
// (datapath_tx.go). Both move bursts; completions and events follow at the end of a burst.

// burst is how many frames are taken from a port, or WQEs from an SQ, at a time.
const burst = 64

// Rules on the length of frames, in bytes without FCS.
const (
	// minFrame is what a wire carries at least. Captures and virtual interfaces deliver shorter frames:
	// the card pads them with zeros on receive, as the sender's hardware would have done.
	minFrame = 60
	// mtuOverhead is what firmware's MTU counts beside the payload and Ethernet header of an untagged
	// frame: a VLAN tag and the FCS (Linux en.h, MLX5E_ETH_HARD_MTU, is 14 more).
	mtuOverhead = 8
)

// dataCard is the data path's part of a card. The engine owns it.
type dataCard struct {
	ports   []*dataPort
	batch   *queue.Batch
	verdict steer.Verdict
	headers packet.Headers // of a frame to be sent
	// step counts steps; active are the functions whose queues have been used in this one.
	step   uint64
	active []*function
	// What an e-switch is delivering.
	inward packet.Headers
	frame  queue.Frame
	retag  []byte
	tagged []byte // as the uplink's rules have changed it
}

// dataPort is the data path's part of a port.
type dataPort struct {
	*port
	function *function // the one the port belongs to

	// What the last Receive gave: frames from next on are still to be delivered.
	frames  [burst][]byte
	got     int
	next    int
	more    bool // the last Receive was not empty: nobody wakes the card for what follows
	counted bool // frames[next] has been counted already: it was held for lack of a buffer
	crossed bool // frames[next] has crossed the bus
	limit   int  // longest frame without VLAN tags, for a burst
	admit   bool // the vport takes frames, for a burst
	// switched: frames go through the e-switch, for a burst.
	switched bool
	met      []*steer.Counter // of the uplink's rules that frames[next] met
	padded   [minFrame]byte
	headers  packet.Headers
	frame    queue.Frame

	// far is what is plugged in if its far side takes large frames and gives them: large are the frames
	// that frames are of, outLarge those on their way out.
	far      wire.Large
	large    [burst]wire.Frame
	outLarge []wire.Frame
	cut      int // of large[next]: segments delivered
	piece    []byte
	whole    queue.Large // of a large frame that is passed on as one

	// Large receives under way: none between bursts.
	lro           [lroSessions]lroSession
	merging       int // of them
	nextLRO       int // whose turn it is to make room
	mergedHeaders packet.Headers

	bus bus // PCI Express, as far as it bounds what is received

	// senders are the functions with SQs that have work; their turns go round. blocked are those for which
	// the wire had no room, or which a pause stops: the wire, or its end, wakes the card.
	senders fifo[*function]
	blocked []*function
	out     [][]byte // a burst on its way to the wire
	fate    [burst]fate
	hits    []hit // of flow counters of NIC_TX and the e-switch
	sw      switching
}

// sender is what a function has to send.
type sender struct {
	pending fifo[*queue.SQ] // with work, in order of their doorbells
	listed  bool            // it is in its port's senders or blocked
	step    uint64          // of the last call of active, and what it said
	running bool
}

func (c *Card) initData() {
	c.data.batch = queue.NewBatch()
	for i, p := range c.ports {
		d := &dataPort{port: p, function: c.functions[i], out: make([][]byte, 0, burst)}
		d.frame.Headers = &d.headers
		d.headers.LookInto(&d.function.tunnels)
		d.bus.set(c.config.Bus)
		c.data.ports = append(c.data.ports, d)
	}
}

// portPlugged forgets the frames of what was plugged in before.
func (c *Card) portPlugged(p *port) {
	d := c.data.ports[p.number-1]
	d.got, d.next, d.more, d.counted, d.crossed = 0, 0, false, false, false
	d.resume(c.now)
	d.unblock()
	clear(d.frames[:])
	clear(d.large[:])
	if d.far != nil {
		d.far.Offload(false)
	}
	d.cut, d.far = 0, nil
	// Frames that stand for several pass no e-switch.
	if far, ok := d.wire.(wire.Large); ok && d.bus.rate == 0 && d.function.sw == nil && far.Offload(true) {
		d.far = far
	}
}

// linkChanged takes note of a change of the port's state: what waited for a link is tried again.
func (f *function) linkChanged(bool) { f.dataPort().more = true }

// dataPort is the data path's part of the function's port; nil while the card is being made.
func (f *function) dataPort() *dataPort {
	if len(f.card.data.ports) == 0 {
		return nil
	}
	return f.card.data.ports[f.port.number-1]
}

// frameLimit is the longest frame that the port passes with a number of VLAN tags.
func (p *port) frameLimit(tags int) int { return p.mtu() - mtuOverhead + packet.TagLen*tags }

// dataWork moves at most about budget frames in each direction of each port.
func (c *Card) dataWork(budget int) (moved bool, state workState) {
	c.data.step++
	c.finishBroken()
	for _, d := range c.data.ports {
		if d.ready.Load() {
			d.ready.Store(false) // before the poll: what comes after it sets it again
			d.more = true
			d.unblock()
		}
		if d.senders.len() > 0 {
			sent, s := d.sendBurst(c, budget)
			moved, state = moved || sent, max(state, s)
		}
		if d.got == d.next && !d.more || !d.function.active() && !d.function.sw.rooted() {
			continue
		}
		got, s := d.receiveBurst(c, budget)
		moved, state = moved || got, max(state, s)
	}
	c.data.active = c.data.active[:0]
	return moved, state
}

// finishBroken publishes what functions had completed in a step that the loss of another one's memory ended.
func (c *Card) finishBroken() {
	for _, f := range c.data.active {
		if f.begin() {
			f.env.Flush()
		}
	}
	c.data.active = c.data.active[:0]
}

// active begins the use of the function's queues in a step, once, and reports whether they can be used.
func (f *function) active() bool {
	data := &f.card.data
	if f.sender.step != data.step {
		f.sender.step, f.sender.running = data.step, f.begin()
		if f.sender.running {
			data.active = append(data.active, f)
		}
	}
	return f.sender.running
}

// flush publishes the completions of all functions.
func (c *Card) flush() {
	for _, f := range c.data.active {
		f.env.Flush()
	}
}

// pend puts an SQ into its function's list of those with work, once.
func (f *function) pend(q *queue.SQ) {
	if !q.Pending {
		q.Pending = true
		f.sender.pending.push(q)
	}
	f.resumeSending()
}

// resume puts the function into its port's list of those with something to send, once.
func (f *function) resumeSending() {
	d := f.dataPort()
	if d == nil || f.sender.listed || f.sender.pending.len() == 0 {
		return
	}
	f.sender.listed = true
	d.senders.push(f)
}

// unblock lets functions go on that waited for room on the wire.
func (d *dataPort) unblock() {
	for i, f := range d.blocked {
		d.senders.push(f)
		d.blocked[i] = nil
	}
	d.blocked = d.blocked[:0]
}

// dropPending empties the list of SQs with work.
func (f *function) dropPending() {
	for f.sender.pending.len() > 0 {
		f.sender.pending.pop().Pending = false
	}
	d := f.dataPort()
	if d == nil {
		return
	}
	if i := slices.Index(d.blocked, f); i >= 0 {
		d.blocked = slices.Delete(d.blocked, i, i+1)
		f.sender.listed = false
	}
}

// fifo is a list that keeps its memory. What waits in it is bounded by the number of SQs and functions.
type fifo[T any] struct {
	list []T
	head int
}

func (l *fifo[T]) len() int { return len(l.list) - l.head }

func (l *fifo[T]) push(x T) {
	if l.head > 0 && len(l.list) == cap(l.list) {
		n := copy(l.list, l.list[l.head:])
		clear(l.list[n:])
		l.list, l.head = l.list[:n], 0
	}
	l.list = append(l.list, x)
}

func (l *fifo[T]) pop() T {
	var none T
	x := l.list[l.head]
	l.list[l.head] = none
	l.head++
	if l.head == len(l.list) {
		l.list, l.head = l.list[:0], 0
	}
	return x
}

// first is what pop would take.
func (l *fifo[T]) first() T { return l.list[l.head] }
