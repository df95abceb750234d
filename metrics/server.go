package metrics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	// inFlight is how many scrapes are answered at a time; further ones are refused.
	inFlight = 4
	// connections is how many clients there are at a time; the connections of further ones are closed.
	connections = 64
	// requestTime bounds a request, closeTime the end of those under way when the server is closed.
	requestTime = 10 * time.Second
	closeTime   = 2 * time.Second
)

// Handler answers scrapes of a collector.
func Handler(c *Collector) http.Handler {
	return promhttp.HandlerForTransactional(&gatherer{c: c, free: make(chan *batch, inFlight)}, promhttp.HandlerOpts{
		MaxRequestsInFlight: inFlight, Timeout: requestTime, DisableCompression: true,
	})
}

// Server answers scrapes at /metrics until Close.
type Server struct {
	http http.Server
	l    net.Listener
	wg   sync.WaitGroup
	err  error // of serving; written before wg is done
}

// Serve listens at a TCP address: "127.0.0.1:9101", or ":9101" for all interfaces.
func Serve(address string, c *Collector) (*Server, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", Handler(c))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "cxkit: metrics are at /metrics")
	})
	s := &Server{l: l, http: http.Server{
		Handler: mux, ReadTimeout: requestTime, WriteTimeout: 2 * requestTime, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}}
	s.wg.Go(func() {
		if err := s.http.Serve(&limited{Listener: l, free: make(chan struct{}, connections)}); !errors.Is(err, http.ErrServerClosed) {
			s.err = err
		}
	})
	return s, nil
}

// limited is a listener with a bound to connections: clients that only hold them use up neither files nor memory.
type limited struct {
	net.Listener
	free chan struct{} // a token for each connection
}

// Accept waits for a connection, and closes those that are too many.
func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.free <- struct{}{}:
			return &counted{Conn: c, end: sync.OnceFunc(func() { <-l.free })}, nil
		default:
			_ = c.Close() // nothing was sent yet
		}
	}
}

// counted is a connection that counts.
type counted struct {
	net.Conn
	end func()
}

func (c *counted) Close() error {
	defer c.end()
	return c.Conn.Close()
}

// Addr is where the server listens.
func (s *Server) Addr() string { return s.l.Addr().String() }

// Close ends the server: requests under way get a moment to end.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	s.wg.Wait()
	return errors.Join(err, s.err)
}
