//go:build linux

package irq

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Vector is the eventfd of one interrupt vector. Raises add up in it, so none is lost and many are one.
// Its methods may be called from any goroutine, Wait from one at a time.
type Vector struct {
	file *os.File
	fd   int
	buf  [8]byte // of the one goroutine that waits

	mu     sync.Mutex // keeps fd open while it is read directly
	closed bool
}

// New makes a vector that nobody has raised.
func New() (*Vector, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	return &Vector{fd: fd, file: os.NewFile(uintptr(fd), "interrupt")}, nil
}

// NewList makes n vectors, or none.
func NewList(n int) ([]*Vector, error) {
	made := make([]*Vector, 0, n)
	for range n {
		v, err := New()
		if err != nil {
			for _, v := range made {
				v.Close()
			}
			return nil, err
		}
		made = append(made, v)
	}
	return made, nil
}

// FD is the eventfd; it belongs to the vector.
func (v *Vector) FD() int { return v.fd }

// Wake makes a wait look at what has happened.
func (v *Vector) Wake() { v.file.SetReadDeadline(time.Unix(1, 0)) } // which has passed

// Close frees the eventfd. Whoever waits has been woken before, and has seen why.
func (v *Vector) Close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = true
	v.file.Close()
}

// Take takes a raise that is there, without waiting.
func (v *Vector) Take() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return false
	}
	var b [8]byte
	n, err := unix.Read(v.fd, b[:])
	return err == nil && n == len(b)
}

// Wait blocks until the vector was raised, ctx ends, or alive returns an error, which is looked at before
// each sleep.
func (v *Vector) Wait(ctx context.Context, alive func() error) error {
	if err := alive(); err != nil {
		return err
	}
	if v.Take() { // rather than an error of ctx, when both are there
		return nil
	}
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, v.Wake)
		defer stop()
	}
	for {
		// Whoever wakes has set what it wakes for before, so a wake-up that this undoes is seen below.
		v.file.SetReadDeadline(time.Time{})
		if err := alive(); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		_, err := v.file.Read(v.buf[:])
		if err == nil {
			return nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			if gone := alive(); gone != nil {
				return gone
			}
			return err
		}
	}
}
