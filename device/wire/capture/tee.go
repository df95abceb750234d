package capture

import (
	"cxkit/device/wire"
)

// Tee is a port that records what passes the port underneath.
type Tee struct {
	wire.Port
	rec    *Recorder
	clock  wire.Clock
	rx, tx int
	failed func(error)
}

// NewTee records p with clock: frames for the card as interface rx of rec, frames from the card as
// interface tx, when the port took them. failed gets the error that ends the recording, once, on the
// engine's goroutine; frames pass on. The caller uses the tee instead of p, closes the tee, and then rec.
func NewTee(p wire.Port, rec *Recorder, rx, tx int, clock wire.Clock, failed func(error)) *Tee {
	return &Tee{Port: p, rec: rec, clock: clock, rx: rx, tx: tx, failed: failed}
}

// Transmit records what the port underneath takes.
func (t *Tee) Transmit(frames [][]byte) int {
	n := t.Port.Transmit(frames)
	t.record(t.tx, frames[:n])
	return n
}

// Receive records what the port underneath gives out.
func (t *Tee) Receive(frames [][]byte) int {
	n := t.Port.Receive(frames)
	t.record(t.rx, frames[:n])
	return n
}

func (t *Tee) record(in int, frames [][]byte) {
	if len(frames) == 0 {
		return
	}
	now := t.clock.Now()
	for _, f := range frames {
		if err := t.rec.Write(in, f, now); err != nil && t.failed != nil {
			t.failed(err)
		}
	}
}

// Done is that of the port underneath; nil, which never ends, when that has none.
func (t *Tee) Done() <-chan struct{} {
	if e, ok := t.Port.(wire.Ender); ok {
		return e.Done()
	}
	return nil
}

// Err is that of the port underneath.
func (t *Tee) Err() error {
	if e, ok := t.Port.(wire.Ender); ok {
		return e.Err()
	}
	return nil
}
