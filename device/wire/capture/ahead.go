package capture

import (
	"errors"
	"io"
	"sync/atomic"
	"time"
)

// errNotYet: a source that reads ahead has nothing at the moment and will wake.
var errNotYet = errors.New("nothing read yet")

// ErrStillReading is what Close of a player returns whose source, such as standard input on a terminal,
// did not end a Read when it was closed: a goroutine is left, until that Read ends.
var ErrStillReading = errors.New("a goroutine still waits for input: the source did not end its Read when it was closed")

// ahead reads a source that may block, such as a pipe, on a goroutine of its own. Its Read never blocks:
// it returns errNotYet, and wake is called when there is more.
type ahead struct {
	src    io.Reader
	wake   func()
	asleep atomic.Bool
	full   chan block
	free   chan []byte
	cur    block // being given out
	stop   chan struct{}
	done   chan struct{}
}

// block is what one read returned.
type block struct {
	mem  []byte // to be given back
	data []byte // not given out yet
	err  error
}

// newAhead starts reading. The caller closes it.
func newAhead(src io.Reader, wake func()) *ahead {
	const blocks = 2
	a := &ahead{
		src: src, wake: wake,
		full: make(chan block, blocks), free: make(chan []byte, blocks),
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	for range blocks {
		a.free <- make([]byte, chunk)
	}
	go a.run()
	return a
}

func (a *ahead) run() {
	defer close(a.done)
	for {
		var mem []byte
		select {
		case mem = <-a.free:
		case <-a.stop:
			return
		}
		n, err := a.src.Read(mem)
		a.full <- block{mem: mem, data: mem[:n], err: err} // has room: there are as many as blocks
		if a.asleep.Load() && a.asleep.CompareAndSwap(true, false) {
			a.wake()
		}
		if err != nil {
			return
		}
	}
}

// Read gives out what was read.
func (a *ahead) Read(p []byte) (int, error) {
	for len(a.cur.data) == 0 {
		if a.cur.err != nil {
			return 0, a.cur.err
		}
		if !a.take() {
			return 0, errNotYet
		}
	}
	n := copy(p, a.cur.data)
	a.cur.data = a.cur.data[n:]
	return n, nil
}

// take makes the next block the current one. When there is none it asks to be woken.
func (a *ahead) take() bool {
	if a.cur.mem != nil {
		a.free <- a.cur.mem
		a.cur = block{}
	}
	select {
	case a.cur = <-a.full:
		return true
	default:
	}
	// The flag is raised before the second look: run stores first and looks at the flag then.
	a.asleep.Store(true)
	select {
	case a.cur = <-a.full:
		a.asleep.Store(false)
		return true
	default:
		return false
	}
}

// close stops reading; the source must be closed already, which ends a Read that blocks.
func (a *ahead) close() error {
	close(a.stop)
	limit := time.NewTimer(time.Second)
	defer limit.Stop()
	select {
	case <-a.done:
		return nil
	case <-limit.C:
		return ErrStillReading
	}
}
