package fwpages

import (
	"context"
	"errors"
	"fmt"

	"cxkit/driver/internal/cmdif"
	"cxkit/prm"
)

func (m *Manager) wakeUp() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Start starts the worker.
func (m *Manager) Start() {
	m.worker.Go(func() {
		for {
			w, end := m.requests.next()
			switch {
			case end:
				return
			case w.what != actNone:
				m.serve(w)
				continue
			}
			select {
			case <-m.wake:
			case <-m.ctx.Done():
				return
			}
		}
	})
}

// Stop ends the worker. A command that it runs is left to end until ctx does: giving it up would leave
// the page slot out of use.
func (m *Manager) Stop(ctx context.Context) error {
	m.requests.stop()
	m.wakeUp()
	ended := make(chan struct{})
	go func() { // ends with the worker, which the cancel below ends at the latest
		m.worker.Wait()
		close(ended)
	}()
	var err error
	select {
	case <-ended:
	case <-ctx.Done():
		err = fmt.Errorf("page worker was in a command: %w", ctx.Err())
	}
	m.cancel()
	<-ended
	return err
}

// serve answers one request.
func (m *Manager) serve(w work) {
	var err error
	switch w.what {
	case actRelease:
		err = m.releaseAll(w.f)
	case actGive:
		err = m.give(m.ctx, w.f, int(w.pages), true)
	case actTake:
		_, err = m.take(m.ctx, w.f, w.pages)
	case actRefuse:
		release := m.hold()
		err = errors.Join(fmt.Errorf("%v wants pages and is not managed here", w.f), m.cannotGive(m.ctx, w.f))
		release()
	}
	var refused *prm.CommandError
	switch {
	case err == nil:
	case errors.As(err, &refused), errors.Is(err, cmdif.ErrDown), errors.Is(err, cmdif.ErrClosed):
		m.config.Log.Debug("page request", "err", err) // firmware may refuse; it asks again when it needs to
	default:
		m.config.Log.Warn("page request failed", "npages", w.pages, "err", err)
	}
}

// releaseAll frees the pages of a function that was reset: its firmware has forgotten them (Linux
// c6168161f693).
func (m *Manager) releaseAll(f Function) error {
	m.command.Lock()
	defer m.command.Unlock()
	m.mu.Lock()
	l := m.functions[f]
	if l == nil {
		m.mu.Unlock()
		return nil // disabled meanwhile
	}
	n := l.reset()
	m.total -= n
	l.counts.Released += uint64(n)
	freed := l.trim()
	m.mu.Unlock()
	return closeAll(freed)
}
