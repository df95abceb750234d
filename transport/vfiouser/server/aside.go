//go:build linux

package server

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"cxkit/transport/vfiouser/internal/sock"
)

// errAside: the request goes on in another goroutine.
var errAside = errors.New("put aside")

// asideLimit bounds what may queue behind a request that waits for the engine. A client waits for its
// reply, so little comes; one that goes on regardless is dropped.
const asideLimit = 8 << 20

// aside performs requests that wait for the engine while the receiver goes on, and those behind them, in
// order. While it is busy it alone performs requests; it ends when its queue is empty.
type aside struct {
	busy atomic.Bool // set by the receiver, cleared under mu

	mu      sync.Mutex // guards what follows
	waiting []*sock.Message
	bytes   int
	full    bool
	ended   sync.WaitGroup
}

// queue takes m, and its file descriptors, if requests are performed aside at present.
func (a *aside) queue(m *sock.Message) bool {
	if !a.busy.Load() {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.busy.Load() {
		return false
	}
	if a.bytes += int(m.Size) + len(m.FDs)*1024; a.bytes > asideLimit {
		a.full = true
		return true // and the session ends
	}
	a.waiting = append(a.waiting, kept(m))
	return true
}

// kept copies a message out of the receiver's buffer.
func kept(m *sock.Message) *sock.Message {
	k := *m
	k.Payload = slices.Clone(m.Payload)
	m.FDs = nil
	return &k
}

func (a *aside) overflow() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.full {
		return fmt.Errorf("%w: more than %d bytes of requests behind one that waits", sock.ErrProtocol, asideLimit)
	}
	return nil
}

func (a *aside) next() *sock.Message {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.waiting) == 0 {
		a.busy.Store(false)
		return nil
	}
	m := a.waiting[0]
	a.waiting = a.waiting[1:]
	a.bytes -= int(m.Size) + len(m.FDs)*1024
	return m
}

// wait waits until nothing is performed aside.
func (a *aside) wait() { a.ended.Wait() }

// putAside has a goroutine perform m and what comes behind. It returns errAside. The receiver calls it.
func (s *session) putAside(m *sock.Message) error {
	first := kept(m)
	s.aside.busy.Store(true)
	s.aside.ended.Go(func() {
		for m := first; m != nil; m = s.aside.next() {
			out, err := s.perform(m, nil, true)
			m.CloseFDs()
			if err == nil {
				err = s.conn.Send(out)
			}
			if err != nil {
				s.fail(err)
			}
		}
	})
	return errAside
}
