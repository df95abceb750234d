package fwpages

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"cxkit/driver/internal/cmdif"
	"cxkit/prm"
)

const (
	// teardownBatch is how many pages are asked back at once at teardown: the answer of 12 mailboxes
	// (Linux pagealloc.c).
	teardownBatch = (16 + 12*512 - 16) / 8
	// reclaimPause is how long teardown waits after firmware returned nothing, vfPause how often Disable
	// looks (Linux pagealloc.c).
	reclaimPause = 10 * time.Millisecond
	vfPause      = 50 * time.Millisecond
	// named is how many addresses of pages that are left an error names.
	named = 8
)

// LeftError is the pages that firmware did not return. They are not used again before a reset.
type LeftError struct {
	Function
	Type      Type
	Pages     int
	Addresses []uint64 // of the first ones
	Err       error    // why nobody asks for them any more
}

func (e *LeftError) Error() string {
	return fmt.Sprintf("FW did not return all pages, %d of %v (%v) are left, %#x first: %v", e.Pages, e.Function, e.Type, e.Addresses, e.Err)
}

func (e *LeftError) Unwrap() error { return e.Err }

// left makes a LeftError.
func (m *Manager) left(f Function, why error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.functions[f]
	return &LeftError{Function: f, Type: l.typ, Pages: l.given, Addresses: l.out(nil, named), Err: why}
}

// out is how many pages firmware has of a function.
func (m *Manager) out(f Function) (pages int, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.functions[f]; l != nil {
		return l.given, true
	}
	return 0, false
}

// down says why the device can't be used.
func (m *Manager) down() error {
	if m.config.Down == nil {
		return nil
	}
	return m.config.Down()
}

// ReclaimAll takes back everything at teardown: in batches, as long as pages come, the driver's own
// function last. It returns a *LeftError for each function whose pages firmware kept. When the device is
// down nobody is asked: the pages are withheld, and Release frees them after the reset (Linux b898ce7bccf1
// and 79a0e32b32ac frees them at once; here the device may still write).
func (m *Manager) ReclaimAll(ctx context.Context) error {
	m.mu.Lock()
	list := make([]Function, 0, len(m.functions))
	for f := range m.functions {
		list = append(list, f)
	}
	own := m.own
	m.mu.Unlock()
	slices.SortFunc(list, func(a, b Function) int {
		return cmp.Or(compareBool(a == own, b == own), cmp.Compare(a.ID, b.ID), compareBool(a.EC, b.EC))
	})
	var errs []error
	for _, f := range list {
		errs = append(errs, m.reclaim(ctx, f))
	}
	return errors.Join(errs...)
}

func (m *Manager) reclaim(ctx context.Context, f Function) error {
	m.mu.Lock()
	stall := m.config.Stall
	m.mu.Unlock()
	last := time.Now()
	for {
		if n, _ := m.out(f); n == 0 {
			return nil
		}
		got, err := m.take(ctx, f, teardownBatch)
		var refused *prm.CommandError
		if errors.As(err, &refused) && time.Since(last) < stall {
			err = nil // as if nothing had come: firmware may come to its senses
		}
		switch {
		case errors.Is(err, cmdif.ErrDown):
			m.withhold(f)
			return nil
		case err != nil:
			return m.left(f, err)
		case got > 0:
			last = time.Now()
			continue
		case time.Since(last) >= stall:
			return m.left(f, fmt.Errorf("none came for %v", stall))
		}
		select {
		case <-time.After(reclaimPause):
		case <-ctx.Done():
			return m.left(f, ctx.Err())
		}
	}
}

// withhold says that nobody asks the device for a function's pages any more: the device is down.
func (m *Manager) withhold(f Function) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.functions[f]; l != nil && !l.withheld {
		l.withheld = true
		l.counts.Withheld += uint64(l.given)
	}
}

// Disable ends the service for a function that was enabled: its driver has left it, and firmware gives
// its pages back on its own. Disable waits for that as long as pages come, and returns a *LeftError when
// they stop; those pages stay in the books, and are taken back by ReclaimAll. It does not wait for a
// device that is down. The driver's own function can't be disabled.
func (m *Manager) Disable(ctx context.Context, f Function) error {
	if f == m.ownFunction() {
		return fmt.Errorf("%v is the driver's own", f)
	}
	before, known := m.out(f)
	if !known {
		return fmt.Errorf("%v is not managed here", f)
	}
	last := time.Now()
	for {
		n, _ := m.out(f)
		switch {
		case n == 0:
			return m.forget(f)
		case m.down() != nil:
			m.withhold(f)
			return nil
		case n < before:
			before, last = n, time.Now()
		case time.Since(last) >= m.config.VFStall:
			return m.left(f, fmt.Errorf("none came for %v", m.config.VFStall))
		}
		select {
		case <-time.After(vfPause):
		case <-ctx.Done():
			return m.left(f, ctx.Err())
		}
	}
}

// forget ends the books of a function without pages. Its counts stay.
func (m *Manager) forget(f Function) error {
	m.command.Lock()
	defer m.command.Unlock()
	m.mu.Lock()
	l := m.functions[f]
	switch {
	case l == nil:
		m.mu.Unlock()
		return nil // another caller was faster
	case l.given != 0:
		m.mu.Unlock()
		return m.left(f, errors.New("it was given pages while it was disabled"))
	}
	m.requests.remove(f)
	delete(m.functions, f)
	m.gone.add(&l.counts)
	freed := l.close()
	m.mu.Unlock()
	return closeAll(freed)
}
