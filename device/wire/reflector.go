package wire

import "sync/atomic"

// ReflectorOptions describe a Reflector.
type ReflectorOptions struct {
	// Ring is the room for frames on their way back, in bytes, as in CableOptions.
	Ring int
	// SwapMAC exchanges source and destination addresses, so that a card that is not promiscuous
	// receives its own unicast frames.
	SwapMAC bool
}

// Reflector is a port whose far end sends every frame back, in order, without loss.
type Reflector struct {
	ring   *ring
	swap   bool
	closed atomic.Bool
	wake   atomic.Pointer[func()]
}

var _ Port = (*Reflector)(nil)

// NewReflector makes a reflector.
func NewReflector(o ReflectorOptions) *Reflector {
	r := &Reflector{swap: o.SwapMAC}
	size := o.Ring
	if size <= 0 {
		size = DefaultRing
	}
	r.ring = newRing(size, r.poke, r.poke)
	return r
}

func (r *Reflector) poke() {
	if w := r.wake.Load(); w != nil {
		(*w)()
	}
}

// Attach says whom to wake; see Port.
func (r *Reflector) Attach(wake func()) {
	if wake == nil {
		r.wake.Store(nil)
		return
	}
	r.wake.Store(&wake)
}

// Transmit copies frames onto the way back; it takes fewer when that is full.
func (r *Reflector) Transmit(frames [][]byte) int {
	if r.closed.Load() {
		count(&r.ring.dropped, uint64(len(frames)))
		return len(frames)
	}
	return r.ring.produce(frames, false)
}

// Receive gives out frames that were sent; see Port.
func (r *Reflector) Receive(frames [][]byte) int {
	if r.closed.Load() {
		return 0
	}
	n := r.ring.consume(frames)
	if r.swap {
		for _, f := range frames[:n] {
			swapMAC(f)
		}
	}
	return n
}

func swapMAC(f []byte) {
	if len(f) < 12 {
		return
	}
	dst := [6]byte(f[:6])
	copy(f[:6], f[6:12])
	copy(f[6:12], dst[:])
}

// Link is up until Close.
func (r *Reflector) Link() bool { return !r.closed.Load() }

// Lossless is true: frames wait until the card has buffers.
func (r *Reflector) Lossless() bool { return true }

// Counters are the reflector's.
func (r *Reflector) Counters() Counters {
	return Counters{
		RxFrames:  r.ring.received.frames.Load(),
		RxBytes:   r.ring.received.bytes.Load(),
		TxFrames:  r.ring.sent.frames.Load(),
		TxBytes:   r.ring.sent.bytes.Load(),
		TxDropped: r.ring.dropped.Load(),
	}
}

// Close takes the link down.
func (r *Reflector) Close() error {
	if !r.closed.Swap(true) {
		r.poke()
	}
	return nil
}
