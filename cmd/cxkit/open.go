package main

import "context"

// await calls f, which opens something that may block as long as it likes: a FIFO waits for its other
// end, a pipe for its first bytes. When ctx ends first the call is left alone: the process is about to
// end, and nothing else ends it.
func await[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type opened struct {
		v   T
		err error
	}
	done := make(chan opened, 1)
	go func() {
		v, err := f()
		done <- opened{v, err}
	}()
	select {
	case o := <-done:
		return o.v, o.err
	case <-ctx.Done():
		var none T
		return none, errInterrupted
	}
}
