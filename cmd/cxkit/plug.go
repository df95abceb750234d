package main

import (
	"sync"
	"sync/atomic"

	"cxkit/device/wire"
)

// plug stands between the card's port and what the user chose to plug in. It can pull the plug and put it
// in again, stop what comes, and it knows when all that comes has been dealt with.
type plug struct {
	wire.Port
	over <-chan struct{} // the port's own end, nil if it has none

	up      atomic.Bool
	stopped atomic.Bool
	held    atomic.Bool   // what comes waits: nobody could receive it yet
	dropped atomic.Uint64 // frames sent while unplugged
	wake    atomic.Pointer[func()]

	once    sync.Once
	drained chan struct{}
}

var _ wire.Port = (*plug)(nil)

func newPlug(p wire.Port) *plug {
	g := &plug{Port: p, drained: make(chan struct{})}
	g.up.Store(true)
	if e, ok := p.(wire.Ender); ok {
		g.over = e.Done()
	}
	return g
}

// Attach says whom to wake.
func (g *plug) Attach(wake func()) {
	if wake == nil {
		g.wake.Store(nil)
	} else {
		g.wake.Store(&wake)
	}
	g.Port.Attach(wake)
}

func (g *plug) poke() {
	if w := g.wake.Load(); w != nil {
		(*w)()
	}
}

// Link is up while the plug is in and the port has a link.
func (g *plug) Link() bool { return g.up.Load() && g.Port.Link() }

// Signal and Far are those of a port that has them; see wire.Signaler.
func (g *plug) Signal(modes uint32) {
	if s, ok := g.Port.(wire.Signaler); ok {
		s.Signal(modes)
	}
}

func (g *plug) Far() uint32 {
	if s, ok := g.Port.(wire.Signaler); ok {
		return s.Far()
	}
	return ^uint32(0)
}

// SetLink pulls the plug or puts it in. What comes waits in a port that loses nothing.
func (g *plug) SetLink(up bool) {
	g.up.Store(up)
	g.poke()
}

// hold makes what comes wait until release.
func (g *plug) hold() { g.held.Store(true) }

func (g *plug) release() {
	g.held.Store(false)
	g.poke()
}

// Stop ends what comes; what was given out is dealt with and then Drained is closed.
func (g *plug) Stop() {
	g.stopped.Store(true)
	g.poke()
}

// Drained is closed when the card has dealt with the last frame: delivered, or dropped and counted.
// Frames are valid until the next Receive, so a card that asks for more is done with the ones before.
func (g *plug) Drained() <-chan struct{} { return g.drained }

// Receive gives out frames.
func (g *plug) Receive(frames [][]byte) int {
	if g.stopped.Load() {
		g.once.Do(func() { close(g.drained) })
		return 0
	}
	if !g.up.Load() || g.held.Load() {
		return 0
	}
	n := g.Port.Receive(frames)
	if n == 0 && g.over != nil {
		select {
		case <-g.over:
			g.once.Do(func() { close(g.drained) })
		default:
		}
	}
	return n
}

// Transmit sends frames; without a link they are lost, as on a cable that is pulled.
func (g *plug) Transmit(frames [][]byte) int {
	if !g.up.Load() {
		g.dropped.Add(uint64(len(frames)))
		return len(frames)
	}
	return g.Port.Transmit(frames)
}
