//go:build linux

package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"cxkit/pci"
	"cxkit/transport/vfiouser/internal/sock"
)

// Server is one socket with one endpoint behind it.
type Server struct {
	endpoint pci.Endpoint
	config   Config
	listener *net.UnixListener
	stats    counters

	mu     sync.Mutex // guards closed and current
	closed bool
	now    *session // the client that is being served
}

// Listen makes the socket at path, in place of one that nobody listens at any more. Clients are served
// once Serve runs; they may connect before. The caller calls Close.
func Listen(path string, ep pci.Endpoint, config Config) (*Server, error) {
	address := &net.UnixAddr{Name: path, Net: "unix"}
	listener, err := net.ListenUnix("unix", address)
	if errors.Is(err, unix.EADDRINUSE) && abandoned(path) {
		os.Remove(path)
		listener, err = net.ListenUnix("unix", address)
	}
	if err != nil {
		return nil, fmt.Errorf("vfio-user socket: %w", err)
	}
	return &Server{endpoint: ep, config: config.withDefaults(), listener: listener}, nil
}

// acceptPause is how long Serve waits when the process has no file descriptors left.
const acceptPause = 100 * time.Millisecond

// abandoned reports whether path is a socket at which nobody listens.
func abandoned(path string) bool {
	if st, err := os.Lstat(path); err != nil || st.Mode()&os.ModeSocket == 0 {
		return false
	}
	c, err := net.Dial("unix", path)
	if err == nil {
		c.Close()
	}
	return errors.Is(err, unix.ECONNREFUSED)
}

// Path is where the socket is.
func (s *Server) Path() string { return s.listener.Addr().String() }

// Serve serves one client after the other until ctx ends, whose error it returns, or until Close, after
// which it returns nil. One goroutine calls it.
func (s *Server) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.end)
	defer stop()
	for {
		socket, err := s.listener.AcceptUnix()
		if s.ended() {
			if err == nil {
				socket.Close()
			}
			return ctx.Err()
		}
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ECONNABORTED) {
			s.config.Logger.Warn("vfio-user client not accepted", "socket", s.Path(), "why", err)
			select {
			case <-time.After(acceptPause):
			case <-ctx.Done():
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("accept at %s: %w", s.Path(), err)
		}
		err = s.serve(socket)
		if s.ended() {
			return ctx.Err()
		}
		s.config.Logger.Info("vfio-user client gone", "socket", s.Path(), "why", err)
	}
}

// ServeConn serves one client on a socket that is connected, which it owns, until the client goes or ctx
// ends. It returns why: nil if the client closed the connection between two messages.
func ServeConn(ctx context.Context, socket *net.UnixConn, ep pci.Endpoint, config Config) error {
	s := &Server{endpoint: ep, config: config.withDefaults()}
	stop := context.AfterFunc(ctx, s.end)
	defer stop()
	err := s.serve(socket)
	return errors.Join(ctx.Err(), err)
}

// serve serves one client until it goes, and returns why.
func (s *Server) serve(socket *net.UnixConn) error {
	conn, err := sock.New(socket)
	if err != nil {
		socket.Close()
		return err
	}
	defer conn.Close()
	ses := newSession(conn, s.endpoint, s.config, &s.stats)
	if !s.enter(ses) {
		return nil
	}
	defer s.leave()
	s.stats.clients.Add(1)
	return ses.run()
}

func (s *Server) enter(ses *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.now = ses
	return true
}

func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = nil
}

func (s *Server) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// end makes Serve return.
func (s *Server) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.now != nil {
		s.now.conn.Shutdown()
	}
	if s.listener != nil {
		s.listener.Close()
	}
}

// Close removes the socket and drops its client. Serve returns soon after, when the endpoint is unplugged.
func (s *Server) Close() error {
	s.end()
	return nil
}
