//go:build linux

package server

import "sync/atomic"

// Stats is what a server has done so far.
type Stats struct {
	Clients  uint64 // that have come
	Requests uint64
	Errors   uint64 // requests that were refused
	Maps     int    // DMA mappings of the present client
	// VectorsDropped are interrupts that could not be signalled.
	VectorsDropped uint64
}

// counters are written by sessions and read by anybody.
type counters struct {
	clients, requests, errors, dropped atomic.Uint64
	maps                               atomic.Int64
}

// Stats may be called from any goroutine.
func (s *Server) Stats() Stats {
	c := &s.stats
	return Stats{
		Clients: c.clients.Load(), Requests: c.requests.Load(), Errors: c.errors.Load(), Maps: int(c.maps.Load()),
		VectorsDropped: c.dropped.Load(),
	}
}
