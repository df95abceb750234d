package wire

import (
	"sync"
	"time"
)

const (
	// paceSlack is how far a paced port may fall behind and still catch up: timers and schedulers are
	// late by up to milliseconds, and the rate is kept over that.
	paceSlack = 10 * time.Millisecond
	// paceWindow is how many frames are taken from the port underneath at once.
	paceWindow = 64
)

// Paced is a port that gives out frames at a rate; what is sent into it is not held back.
type Paced struct {
	port  Port
	rate  Rate
	clock Clock
	timer Timer

	window [paceWindow][]byte
	next   int // window[next:held] wait
	held   int
	due    time.Time // when the next frame may go
	rest   float64   // ns under one that due leaves out

	mu   sync.Mutex
	wake func()

	doneOnce sync.Once
	done     chan struct{}
	over     <-chan struct{} // the port's own Done, nil if it never ends
}

var _ Ender = (*Paced)(nil)

// Pace limits what comes from p to rate, on clock. The caller uses the result instead of p and closes
// only the result. A zero rate is no limit.
func Pace(p Port, rate Rate, clock Clock) *Paced {
	t := &Paced{port: p, rate: rate, clock: clock, done: make(chan struct{})}
	t.timer = clock.NewTimer(t.poke)
	if e, ok := p.(Ender); ok {
		t.over = e.Done()
	}
	return t
}

// Attach says whom to wake; see Port.
func (p *Paced) Attach(wake func()) {
	p.mu.Lock()
	p.wake = wake
	p.mu.Unlock()
	p.port.Attach(wake)
}

func (p *Paced) poke() {
	p.mu.Lock()
	wake := p.wake
	p.mu.Unlock()
	if wake != nil {
		wake()
	}
}

// Transmit sends frames into the port underneath.
func (p *Paced) Transmit(frames [][]byte) int { return p.port.Transmit(frames) }

// Receive gives out the frames whose time has come; see Port.
func (p *Paced) Receive(frames [][]byte) int {
	n, ready, now := 0, true, p.clock.Now()
	for n < len(frames) && ready {
		if p.next == p.held {
			if n > 0 {
				break // asking the port again would take back what was just given out
			}
			p.next, p.held = 0, p.port.Receive(p.window[:])
			if p.held == 0 {
				p.checkOver()
				return 0
			}
		}
		if ready = p.mayGo(now, len(p.window[p.next])); ready {
			frames[n] = p.window[p.next]
			p.next++
			n++
		}
	}
	if n > 0 && p.next == p.held {
		p.checkOver()
	}
	return n
}

// mayGo books a frame of n bytes when its time has come. Otherwise it sets the timer.
func (p *Paced) mayGo(now time.Time, n int) bool {
	if wait := p.due.Sub(now); wait > 0 {
		p.timer.Reset(wait)
		return false
	}
	cost := p.rate.cost(n)
	switch late := now.Add(-paceSlack); {
	case p.due.IsZero(), cost > float64(paceSlack) && p.due.Before(late):
		p.due = now // the first frame, or a rate so slow that catching up would be whole frames
	case p.due.Before(late):
		p.due = late
	}
	p.rest += cost
	whole := time.Duration(p.rest)
	p.due = p.due.Add(whole)
	p.rest -= float64(whole)
	return true
}

// checkOver closes Done when the port underneath has ended and all its frames were given out.
func (p *Paced) checkOver() {
	select {
	case <-p.over:
		p.doneOnce.Do(func() { close(p.done) })
	default:
	}
}

// Link is the link of the port underneath.
func (p *Paced) Link() bool { return p.port.Link() }

// Lossless is that of the port underneath.
func (p *Paced) Lossless() bool { return p.port.Lossless() }

// Done is closed when a port that ends by itself has ended and its last frame was given out, and by
// Close.
func (p *Paced) Done() <-chan struct{} { return p.done }

// Err says what ended the port underneath early, if it is an Ender.
func (p *Paced) Err() error {
	select {
	case <-p.done:
	default:
		return nil
	}
	if e, ok := p.port.(Ender); ok {
		return e.Err()
	}
	return nil
}

// Close stops the clock and closes the port underneath.
func (p *Paced) Close() error {
	p.timer.Stop()
	p.next, p.held = 0, 0
	err := p.port.Close()
	p.doneOnce.Do(func() { close(p.done) })
	return err
}
