package metrics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	// inFlight is how many scrapes are answered at a time; further ones are refused.
	inFlight = 4
	// requestTime bounds a request, closeTime the end of those under way when the server is closed.
	requestTime = 10 * time.Second
	closeTime   = 2 * time.Second
)

// Handler answers scrapes of a collector.
func Handler(c *Collector) (http.Handler, error) {
	r := prometheus.NewRegistry()
	if err := r.Register(c); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{MaxRequestsInFlight: inFlight, Timeout: requestTime, DisableCompression: true}), nil
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
	h, err := Handler(c)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", h)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "cxkit: metrics are at /metrics")
	})
	s := &Server{l: l, http: http.Server{
		Handler: mux, ReadHeaderTimeout: requestTime, WriteTimeout: 2 * requestTime, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}}
	s.wg.Go(func() {
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.err = err
		}
	})
	return s, nil
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
