package wire

import (
	"bytes"
	"context"
	"fmt"
)

// Send sends what fits now and returns how many frames it took; it never blocks. On a lossy cable, and
// while the link is down, it takes all and counts what it dropped.
func (e *End) Send(frames ...[]byte) int {
	e.sendMu.Lock()
	defer e.sendMu.Unlock()
	return e.Transmit(frames)
}

// SendAll sends all frames, in order, and waits for room where the cable is full; frames of Send may come
// between. The error says how many were taken when ctx ended or this end was closed. Frames sent while
// the link is down are dropped and counted, as on a real cable.
func (e *End) SendAll(ctx context.Context, frames ...[]byte) error {
	done := 0
	fail := func(err error) error {
		return fmt.Errorf("send on a cable: %d of %d frames taken: %w", done, len(frames), err)
	}
	if err := e.turn(ctx, e.sendTurn); err != nil {
		return fail(err)
	}
	defer func() { <-e.sendTurn }()
	for {
		if e.closed.Load() {
			return fail(ErrClosed)
		}
		done += e.Send(frames[done:]...)
		if done == len(frames) {
			return nil
		}
		select {
		case <-e.txReady:
		case <-e.gone:
		case <-ctx.Done():
			return fail(context.Cause(ctx))
		}
	}
}

// Recv waits for the next frame and returns a copy of it. It returns ErrClosed when this end was
// closed, or when the far end was and nothing is left.
func (e *End) Recv(ctx context.Context) ([]byte, error) {
	if err := e.turn(ctx, e.recvTurn); err != nil {
		return nil, fmt.Errorf("receive from a cable: %w", err)
	}
	defer func() { <-e.recvTurn }()
	var one [1][]byte
	for {
		// Asked first: what the far end sent before it closed is then seen below.
		over := e.closed.Load() || e.far.closed.Load()
		if e.Receive(one[:]) == 1 {
			f := bytes.Clone(one[0])
			e.rx.release()
			return f, nil
		}
		if over {
			return nil, fmt.Errorf("receive from a cable: %w", ErrClosed)
		}
		select {
		case <-e.rxReady:
		case <-e.gone:
		case <-ctx.Done():
			return nil, fmt.Errorf("receive from a cable: %w", context.Cause(ctx))
		}
	}
}

// Wait blocks until there may be frames to receive, ctx ends, or this end is closed. It is for programs
// that call Receive themselves, after one that returned nothing.
func (e *End) Wait(ctx context.Context) error {
	select {
	case <-e.rxReady:
		return nil
	case <-e.gone:
		return fmt.Errorf("wait on a cable: %w", ErrClosed)
	case <-ctx.Done():
		return fmt.Errorf("wait on a cable: %w", context.Cause(ctx))
	}
}

// turn waits until the caller alone sends or receives.
func (e *End) turn(ctx context.Context, turn chan struct{}) error {
	select {
	case turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case turn <- struct{}{}:
		return nil
	case <-e.gone:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
