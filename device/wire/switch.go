package wire

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// SwitchOptions describe a switch. The zero value is one with DefaultSwitchRing bytes a port.
type SwitchOptions struct {
	// Ring is the room for frames on their way out of a port, in bytes; see CableOptions.Ring. 0 means
	// DefaultSwitchRing.
	Ring int
	// Clock says how old addresses are; nil means SystemClock.
	Clock Clock
}

// DefaultSwitchRing is the room for frames on their way out of a switch's port, in bytes. A window of TCP
// fits.
const DefaultSwitchRing = 1 << 20

const (
	// maxSwitchAddresses bounds what a switch learns. Frames to addresses beyond it are flooded.
	maxSwitchAddresses = 4096
	// addressAge is how long an address is known after its last frame (IEEE 802.1D).
	addressAge = 5 * time.Minute
)

// Switch is a learning Ethernet switch (IEEE 802.1D, without spanning tree: loops are the user's). Frames
// to an address that was seen as a source go to its port, others and groups to all ports but the one they
// came from. VLAN tags pass unseen. Its methods may be called from any goroutine.
type Switch struct {
	ring  int
	clock Clock

	ports atomic.Pointer[[]*SwitchPort] // replaced whole, under mu

	mu        sync.Mutex // guards addresses, and changes of ports
	addresses map[[6]byte]learned
	closed    bool
}

// learned is where an address was seen last.
type learned struct {
	port *SwitchPort
	seen time.Time
}

// NewSwitch makes a switch without ports. The caller closes it.
func NewSwitch(o SwitchOptions) *Switch {
	s := &Switch{ring: o.Ring, clock: o.Clock, addresses: make(map[[6]byte]learned)}
	if s.ring <= 0 {
		s.ring = DefaultSwitchRing
	}
	if s.clock == nil {
		s.clock = SystemClock{}
	}
	s.ports.Store(new([]*SwitchPort))
	return s
}

// SwitchPort is a port of a switch, to be plugged into a card.
type SwitchPort struct {
	sw *Switch

	// out carries what leaves the switch here. Any port's engine produces, one at a time.
	outMu sync.Mutex
	out   *ring

	wake    atomic.Pointer[func()]
	up      atomic.Bool
	closed  atomic.Bool
	sent    tally         // what the card gave: its engine counts
	refused atomic.Uint64 // what the card gave in vain
	lost    atomic.Uint64 // what came for the card while the link was down
}

var _ Port = (*SwitchPort)(nil)

// errSwitchFull: a switch has at most 256 ports.
var errSwitchFull = errors.New("the switch is full")

const maxSwitchPorts = 256

// NewPort adds a port. Closing it takes it out of the switch.
func (s *Switch) NewPort() (*SwitchPort, error) {
	p := &SwitchPort{sw: s}
	// A writer that waits for room is another port's card, and any may be: all are woken.
	p.out = newRing(s.ring, p.poke, s.pokeAll)
	p.up.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	old := *s.ports.Load()
	switch {
	case s.closed:
		return nil, ErrClosed
	case len(old) >= maxSwitchPorts:
		return nil, fmt.Errorf("%w: %d ports", errSwitchFull, maxSwitchPorts)
	}
	ports := append(slices.Clone(old), p)
	s.ports.Store(&ports)
	return p, nil
}

// Close closes all ports.
func (s *Switch) Close() error {
	s.mu.Lock()
	s.closed = true
	ports := *s.ports.Load()
	s.mu.Unlock()
	for _, p := range ports {
		p.Close()
	}
	return nil
}

func (s *Switch) pokeAll() {
	for _, p := range *s.ports.Load() {
		p.poke()
	}
}

// learn notes that src was seen at p.
func (s *Switch) learn(src [6]byte, p *SwitchPort, now time.Time) {
	if src[0]&1 != 0 {
		return // no station has a group address
	}
	if _, known := s.addresses[src]; !known && len(s.addresses) >= maxSwitchAddresses {
		s.forget(now)
		if len(s.addresses) >= maxSwitchAddresses {
			return
		}
	}
	s.addresses[src] = learned{p, now}
}

// forget drops what is too old.
func (s *Switch) forget(now time.Time) {
	for a, l := range s.addresses {
		if now.Sub(l.seen) > addressAge {
			delete(s.addresses, a)
		}
	}
}

// route learns the frame's source and says where it goes: to one port, or nil for all others. here: it
// was for the port that it came from.
func (s *Switch) route(frame []byte, from *SwitchPort, now time.Time) (to *SwitchPort, here bool) {
	dst, src := [6]byte(frame), [6]byte(frame[6:])
	s.mu.Lock()
	defer s.mu.Unlock()
	if l, ok := s.addresses[src]; !ok || l.port != from || now.Sub(l.seen) > time.Second {
		s.learn(src, from, now)
	}
	if dst[0]&1 != 0 {
		return nil, false
	}
	l, ok := s.addresses[dst]
	switch {
	case !ok || now.Sub(l.seen) > addressAge:
		return nil, false
	case l.port == from:
		return nil, true
	}
	return l.port, false
}

// Attach says whom to wake; see Port.
func (p *SwitchPort) Attach(wake func()) {
	if wake == nil {
		p.wake.Store(nil)
		p.sw.pokeAll() // cards that wait for room here: there will be none
		return
	}
	p.wake.Store(&wake)
}

func (p *SwitchPort) poke() {
	if w := p.wake.Load(); w != nil {
		(*w)()
	}
}

// receiving reports whether a card takes frames here.
func (p *SwitchPort) receiving() bool { return p.Link() && p.wake.Load() != nil }

// Transmit switches frames; see Port. A burst to one port that is busy waits there for room, as with flow
// control, and the port's card is woken when there is some. What is flooded, and what goes to a port that
// nobody empties, is dropped and counted where there is no room.
func (p *SwitchPort) Transmit(frames [][]byte) int {
	if !p.Link() {
		p.refused.Add(uint64(len(frames)))
		return len(frames)
	}
	now := p.sw.clock.Now()
	done := 0
	for done < len(frames) {
		f := frames[done]
		if len(f) < 14 {
			p.refused.Add(1)
			done++
			continue
		}
		to, here := p.sw.route(f, p, now)
		// What follows to the same address goes along: the rings are filled in bursts.
		n := 1
		for done+n < len(frames) && len(frames[done+n]) >= 14 && [12]byte(frames[done+n]) == [12]byte(f) {
			n++
		}
		burst := frames[done : done+n]
		switch {
		case here:
		case to == nil:
			p.flood(burst)
		default:
			n = to.take(burst, to.receiving())
			if n == 0 {
				return done
			}
			burst = burst[:n]
		}
		for _, f := range burst {
			p.sent.add(1, uint64(len(f)))
		}
		done += n
	}
	return done
}

// flood sends a burst to all other ports.
func (p *SwitchPort) flood(burst [][]byte) {
	for _, to := range *p.sw.ports.Load() {
		if to != p {
			to.take(burst, false)
		}
	}
}

// take puts frames into the port's ring. With wait, a full ring takes fewer.
func (p *SwitchPort) take(burst [][]byte, wait bool) int {
	if !p.Link() {
		p.lost.Add(uint64(len(burst)))
		return len(burst)
	}
	p.outMu.Lock()
	defer p.outMu.Unlock()
	return p.out.produce(burst, !wait)
}

// Receive gives out frames; see Port.
func (p *SwitchPort) Receive(frames [][]byte) int {
	if p.closed.Load() {
		return 0
	}
	return p.out.consume(frames)
}

// Link reports the carrier: the port is neither unplugged nor closed. A port has one whoever else is there.
func (p *SwitchPort) Link() bool { return p.up.Load() && !p.closed.Load() }

// SetLink pulls the port's cable (false) or plugs it in again.
func (p *SwitchPort) SetLink(up bool) {
	if p.up.Swap(up) != up {
		p.sw.pokeAll()
	}
}

// Lossless is false: a receiver without buffers drops, or one guest that hangs would stop the others.
func (p *SwitchPort) Lossless() bool { return false }

// Close takes the port out of the switch, which forgets the addresses behind it.
func (p *SwitchPort) Close() error {
	s := p.sw
	s.mu.Lock()
	if p.closed.Swap(true) {
		s.mu.Unlock()
		return nil
	}
	ports := slices.DeleteFunc(slices.Clone(*s.ports.Load()), func(q *SwitchPort) bool { return q == p })
	s.ports.Store(&ports)
	for a, l := range s.addresses {
		if l.port == p {
			delete(s.addresses, a)
		}
	}
	s.mu.Unlock()
	p.poke()
	s.pokeAll() // cards that waited for room here
	return nil
}

// Counters are the port's, seen from its card: Tx is what the card sent, Rx what it received. Frames that
// found no room on the way out count where they should have left, as RxDropped.
func (p *SwitchPort) Counters() Counters {
	return Counters{
		RxFrames:  p.out.received.frames.Load(),
		RxBytes:   p.out.received.bytes.Load(),
		TxFrames:  p.sent.frames.Load(),
		TxBytes:   p.sent.bytes.Load(),
		RxDropped: p.out.dropped.Load() + p.lost.Load(),
		TxDropped: p.refused.Load(),
	}
}
