//go:build linux

package client

import (
	"sync"

	"cxkit/transport/vfiouser/internal/sock"
)

// sendAhead is how many bytes may wait for whoever is sending.
const sendAhead = 256 << 10

// sender keeps messages in order and sends those that gather while the socket is busy at once. The first
// goroutine that finds nobody sending sends for all.
type sender struct {
	conn *sock.Conn

	mu      sync.Mutex // guards what follows
	room    sync.Cond  // the sender has taken what waited
	waiting []byte
	spare   []byte
	sending bool
	failed  error
}

func (s *sender) init(conn *sock.Conn) {
	s.conn = conn
	s.room.L = &s.mu
}

// begin waits for room and returns what waits, for the caller to append its message to. The caller calls
// finish with it.
func (s *sender) begin() []byte {
	s.mu.Lock()
	for len(s.waiting) > sendAhead && s.failed == nil {
		s.room.Wait()
	}
	return s.waiting
}

// finish sends b, or leaves it to the goroutine that is sending. An error tells that the connection is
// broken; a nil one does not tell that b has been sent.
func (s *sender) finish(b []byte) error {
	defer s.mu.Unlock()
	if s.failed != nil {
		s.waiting = b[:0]
		return s.failed
	}
	s.waiting = b
	if s.sending {
		return nil
	}
	return s.drain()
}

// drain sends what waits until nothing does. s.mu is held, and released while it sends.
func (s *sender) drain() error {
	for s.sending = true; len(s.waiting) > 0 && s.failed == nil; {
		s.waiting, s.spare = s.spare[:0], s.waiting
		b := s.spare
		s.spare = nil
		s.mu.Unlock()
		err := s.conn.Send(b)
		s.mu.Lock()
		s.spare = b
		if err != nil {
			s.failed = err
		}
		s.room.Broadcast()
	}
	s.sending = false
	s.room.Broadcast()
	return s.failed
}

// withFiles sends b, one message, with file descriptors, behind all that came before.
func (s *sender) withFiles(b []byte, fds []int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.sending {
		s.room.Wait()
	}
	if s.failed != nil {
		return s.failed
	}
	s.sending = true
	s.mu.Unlock()
	err := s.conn.Send(b, fds...)
	s.mu.Lock()
	if err != nil {
		s.failed = err
	}
	return s.drain()
}
