package wire

import (
	"sync"
	"sync/atomic"
)

// Source is a port that gives out the same frames again and again, as fast as they are taken, and
// discards what is sent into it. Without frames it is a discard port.
type Source struct {
	frames [][]byte
	limit  uint64 // 0 is no limit

	given    uint64 // frames given out; the engine's
	next     int    // index into frames
	received tally
	sent     tally
	dropped  atomic.Uint64
	closed   atomic.Bool
	wake     atomic.Pointer[func()]

	doneOnce sync.Once
	done     chan struct{}
}

var _ Ender = (*Source)(nil)

// NewSource makes a port that gives out frames in turn, count of them in total, or without end when
// count is 0. The source keeps frames; nobody may change them afterwards.
func NewSource(count uint64, frames ...[]byte) *Source {
	return &Source{frames: frames, limit: count, done: make(chan struct{})}
}

// NewDiscard makes a port that takes every frame and gives out none.
func NewDiscard() *Source { return NewSource(0) }

// Attach says whom to wake; see Port.
func (s *Source) Attach(wake func()) {
	if wake == nil {
		s.wake.Store(nil)
		return
	}
	s.wake.Store(&wake)
}

// Transmit counts frames and forgets them.
func (s *Source) Transmit(frames [][]byte) int {
	if s.closed.Load() {
		count(&s.dropped, uint64(len(frames)))
		return len(frames)
	}
	bytes := 0
	for _, f := range frames {
		bytes += len(f)
	}
	s.sent.add(uint64(len(frames)), uint64(bytes))
	return len(frames)
}

// Receive gives out frames; see Port.
func (s *Source) Receive(frames [][]byte) int {
	if s.closed.Load() || len(s.frames) == 0 {
		return 0
	}
	n := len(frames)
	if s.limit != 0 {
		n = int(min(uint64(n), s.limit-s.given))
	}
	bytes := 0
	for i := range frames[:n] {
		f := s.frames[s.next]
		if s.next++; s.next == len(s.frames) {
			s.next = 0
		}
		frames[i] = f
		bytes += len(f)
	}
	s.given += uint64(n)
	s.received.add(uint64(n), uint64(bytes))
	if s.limit != 0 && s.given == s.limit {
		s.doneOnce.Do(func() { close(s.done) })
	}
	return n
}

// Link is up until Close.
func (s *Source) Link() bool { return !s.closed.Load() }

// Lossless is true: the next frame waits until it is taken.
func (s *Source) Lossless() bool { return true }

// Done is closed when the last frame was given out, and by Close.
func (s *Source) Done() <-chan struct{} { return s.done }

// Err is nil: nothing ends a source early.
func (s *Source) Err() error { return nil }

// Counters are the source's.
func (s *Source) Counters() Counters {
	return Counters{
		RxFrames:  s.received.frames.Load(),
		RxBytes:   s.received.bytes.Load(),
		TxFrames:  s.sent.frames.Load(),
		TxBytes:   s.sent.bytes.Load(),
		TxDropped: s.dropped.Load(),
	}
}

// Close takes the link down.
func (s *Source) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.doneOnce.Do(func() { close(s.done) })
	if w := s.wake.Load(); w != nil {
		(*w)()
	}
	return nil
}
