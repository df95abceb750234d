package wire

import (
	"sync"
	"sync/atomic"
)

// DefaultRing is the room for frames in each direction of a cable and in a TAP, in bytes.
const DefaultRing = 512 << 10

// CableOptions describe a cable. The zero value is a lossless cable with DefaultRing bytes each way and
// its link up.
type CableOptions struct {
	// Ring is the room for frames each way, in bytes, rounded up to a power of two from 4 KiB to 1 GiB.
	// The longest frame the cable carries is half of it, and at most MaxFrame. 0 means DefaultRing.
	Ring int
	// Lossy makes a full ring drop frames and count them. Without it the cable has flow control: the
	// sender waits.
	Lossy bool
	// Down starts the cable with its link down.
	Down bool
}

// NewCable returns the two ends of a cable. Each end is a Port for a card, or is used by a program with
// Send, SendAll and Recv. Frames that were on the cable when the link went down, or when the far end was
// closed, still arrive.
func NewCable(o CableOptions) (a, b *End) {
	size := o.Ring
	if size <= 0 {
		size = DefaultRing
	}
	c := &cable{up: !o.Down}
	a, b = newEnd(c, o.Lossy), newEnd(c, o.Lossy)
	ab := newRing(size, b.wakeRx, a.wakeTx)
	ba := newRing(size, a.wakeRx, b.wakeTx)
	a.tx, a.rx, a.far = ab, ba, b
	b.tx, b.rx, b.far = ba, ab, a
	c.link.Store(c.up)
	return a, b
}

// cable is what both ends share.
type cable struct {
	link atomic.Bool // up and neither end closed

	mu     sync.Mutex // guards changes of the link
	up     bool
	closed bool
}

// End is one end of a cable. As a Port it belongs to a card's engine. Not plugged into a card it belongs
// to a program: Send, SendAll and Recv may be called from any goroutine; a program that uses Transmit
// and Receive itself keeps to the Port's rule of one goroutine and does not mix them with those three.
type End struct {
	cable *cable
	far   *End
	tx    *ring // this end produces
	rx    *ring // this end consumes
	lossy bool

	wake      atomic.Pointer[func()]
	closed    atomic.Bool
	gone      chan struct{} // closed by Close
	rxReady   chan struct{} // a frame, or the link changed
	txReady   chan struct{} // room, or the link changed
	sendMu    sync.Mutex    // one Send transmits at a time
	sendTurn  chan struct{} // holds a token while a goroutine is in SendAll
	recvTurn  chan struct{} // holds a token while a goroutine is in Recv
	downDrops atomic.Uint64 // frames taken while the link was down; the sender adds

	modes atomic.Uint32 // what it can send in: Signal
	codes atomic.Uint32 // how it has errors corrected: SignalFEC
	dark  atomic.Bool   // it sends nothing
}

var _ Corrector = (*End)(nil)

func newEnd(c *cable, lossy bool) *End {
	token := func() chan struct{} { return make(chan struct{}, 1) }
	e := &End{
		cable: c, lossy: lossy, gone: make(chan struct{}),
		rxReady: token(), txReady: token(), sendTurn: token(), recvTurn: token(),
	}
	e.modes.Store(^uint32(0))
	e.codes.Store(^uint32(0))
	return e
}

// Attach says whom to wake; see Port.
func (e *End) Attach(wake func()) {
	if wake == nil {
		e.wake.Store(nil)
		return
	}
	e.wake.Store(&wake)
}

// wakeRx and wakeTx wake whoever sleeps at this end: a card, or a program in Recv or SendAll.
func (e *End) wakeRx() { e.poke(e.rxReady) }
func (e *End) wakeTx() { e.poke(e.txReady) }

func (e *End) poke(ready chan struct{}) {
	signal(ready)
	if w := e.wake.Load(); w != nil {
		(*w)()
	}
}

// Transmit sends frames; see Port. Frames longer than the ring's half are dropped and counted.
func (e *End) Transmit(frames [][]byte) int {
	if !e.cable.link.Load() {
		count(&e.downDrops, uint64(len(frames)))
		return len(frames)
	}
	return e.tx.produce(frames, e.lossy)
}

// Receive gives out frames; see Port.
func (e *End) Receive(frames [][]byte) int {
	if e.closed.Load() {
		return 0
	}
	return e.rx.consume(frames)
}

// Link reports the carrier: the cable's link is up, neither end was closed, and the far end sends in a mode that
// this one has. What this end sends makes no difference to it.
func (e *End) Link() bool { return e.cable.link.Load() && e.Far()&e.modes.Load() != 0 }

// Signal says what this end sends in; see Signaler.
func (e *End) Signal(modes uint32) {
	e.dark.Store(modes == 0)
	if modes != 0 {
		e.modes.Store(modes)
	}
	for _, end := range []*End{e, e.far} {
		end.wakeRx()
		end.wakeTx()
	}
}

// Far is what the far end sends in; see Signaler.
func (e *End) Far() uint32 {
	if e.far.dark.Load() {
		return 0
	}
	return e.far.modes.Load()
}

// SignalFEC says how errors of what comes from the far end are corrected; see Corrector.
func (e *End) SignalFEC(codes uint32) { e.codes.Store(codes) }

// FarFEC is how the far end has errors corrected; see Corrector.
func (e *End) FarFEC() uint32 { return e.far.codes.Load() }

// Lossless is the opposite of CableOptions.Lossy.
func (e *End) Lossless() bool { return !e.lossy }

// SetLink pulls the cable (false) or plugs it in again. Both ends see it. It has no effect once an end
// was closed.
func (e *End) SetLink(up bool) {
	c := e.cable
	c.mu.Lock()
	c.up = up
	c.mu.Unlock()
	e.settleLink()
}

// settleLink makes the link follow its causes and tells both ends of a change.
func (e *End) settleLink() {
	c := e.cable
	c.mu.Lock()
	now := c.up && !c.closed
	changed := c.link.Swap(now) != now
	c.mu.Unlock()
	if !changed {
		return
	}
	for _, end := range []*End{e, e.far} {
		end.wakeRx()
		end.wakeTx()
	}
}

// Close unplugs this end: the link goes down for both. The far end still receives what was sent.
func (e *End) Close() error {
	c := e.cable
	c.mu.Lock()
	first := !e.closed.Swap(true)
	c.closed = true
	c.mu.Unlock()
	if !first {
		return nil
	}
	close(e.gone)
	e.settleLink()
	// A program that waits for frames at the far end learns that no more will come even if the link
	// was down before.
	e.far.wakeRx()
	e.far.wakeTx()
	return nil
}

// Counters are this end's: Tx is what it sent, Rx what it received.
func (e *End) Counters() Counters {
	return Counters{
		RxFrames:  e.rx.received.frames.Load(),
		RxBytes:   e.rx.received.bytes.Load(),
		TxFrames:  e.tx.sent.frames.Load(),
		TxBytes:   e.tx.sent.bytes.Load(),
		RxDropped: e.rx.dropped.Load(),
		TxDropped: e.tx.dropped.Load() + e.downDrops.Load(),
	}
}

// signal leaves a token for a sleeper; one is enough.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
