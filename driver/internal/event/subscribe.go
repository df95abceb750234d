package event

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"cxkit/prm"
)

// subscribers is who is told what. Handlers run with the lock held for reading: when Detach or a cancel
// function returns, the handler runs no more.
type subscribers struct {
	mu    sync.RWMutex
	cqs   map[uint32]*completion
	next  int
	ports map[int]func(PortEvent)
	wqs   map[int]func(QueueError)
	async map[int]func(prm.EQE)
}

// completion is an attached CQ.
type completion struct {
	notify func()
	failed func(syndrome uint8)
}

// Attach names who is told about completions of CQ cqn and about its errors (syndrome 1 overrun,
// 2 access violation). Both are handlers (package comment) and may not call Attach or Detach; failed may
// be nil. Attaching a CQ that is attached is an error.
func (d *Dispatcher) Attach(cqn uint32, notify func(), failed func(syndrome uint8)) error {
	s := &d.subs
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cqs[cqn] != nil {
		return fmt.Errorf("CQ %#x is attached already", cqn)
	}
	s.cqs[cqn] = &completion{notify, failed}
	return nil
}

// Detach forgets the CQ. When it returns neither function runs.
func (d *Dispatcher) Detach(cqn uint32) {
	s := &d.subs
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.cqs, cqn)
}

// OnPort adds a handler for port changes. The returned function takes it away.
func (d *Dispatcher) OnPort(f func(PortEvent)) (cancel func()) {
	return add(&d.subs, &d.subs.ports, f)
}

// OnQueueError adds a handler for queues that firmware stopped.
func (d *Dispatcher) OnQueueError(f func(QueueError)) (cancel func()) {
	return add(&d.subs, &d.subs.wqs, f)
}

// OnOther adds a handler for the asynchronous events that have no handler of their own: it gets a copy
// of the entry.
func (d *Dispatcher) OnOther(f func(prm.EQE)) (cancel func()) {
	return add(&d.subs, &d.subs.async, f)
}

func add[F any](s *subscribers, m *map[int]F, f F) (cancel func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if *m == nil {
		*m = make(map[int]F)
	}
	id := s.next
	s.next++
	(*m)[id] = f
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(*m, id)
	}
}

// The handlers below run with the queue's lock held.

func (q *EQ) handleCommand(e *prm.EQE) {
	if e.EventType() != prm.EventCommandCompletion {
		q.unknown(e)
		return
	}
	q.d.config.Commands(e.CommandVector())
}

func (q *EQ) handlePages(e *prm.EQE) {
	if e.EventType() != prm.EventPageRequest {
		q.unknown(e)
		return
	}
	var r PageRequest
	r.Get(e.Data()[:])
	q.d.config.Pages(r)
}

func (q *EQ) handleCompletion(e *prm.EQE) {
	if e.EventType() != prm.EventCompletion {
		q.unknown(e)
		return
	}
	s := &q.d.subs
	s.mu.RLock()
	defer s.mu.RUnlock()
	c := s.cqs[e.CompletionCQN()]
	if c == nil {
		q.counts.UnknownCQ++
		return
	}
	c.notify()
}

func (q *EQ) handleAsync(e *prm.EQE) {
	s := &q.d.subs
	s.mu.RLock()
	defer s.mu.RUnlock()
	switch e.EventType() {
	case prm.EventPortChange:
		p := portEvent(e)
		for _, id := range slices.Sorted(maps.Keys(s.ports)) {
			s.ports[id](p)
		}
	case prm.EventCQError:
		var d prm.CQErrorEvent
		d.Get(e.Data()[:])
		c := s.cqs[d.CQN]
		if c == nil {
			q.counts.UnknownCQ++
			return
		}
		if c.failed != nil {
			c.failed(uint8(d.Syndrome))
		}
	case prm.EventWQCatastrophic, prm.EventWQInvalidRequest, prm.EventWQAccess:
		w := queueError(e)
		for _, id := range slices.Sorted(maps.Keys(s.wqs)) {
			s.wqs[id](w)
		}
	case prm.EventInternalError:
		q.d.config.Fatal(ErrInternal)
	case prm.EventCompletion, prm.EventCommandCompletion, prm.EventPageRequest:
		q.unknown(e) // these have queues of their own
	default:
		if len(s.async) == 0 {
			q.unknown(e)
			return
		}
		for _, id := range slices.Sorted(maps.Keys(s.async)) {
			s.async[id](*e)
		}
	}
}

// unknown counts an entry that nobody asked for and logs the first one.
func (q *EQ) unknown(e *prm.EQE) {
	q.counts.UnknownType++
	if q.counts.UnknownType == 1 {
		q.d.config.Log.Warn("event of a type not asked for on this queue; counting further ones",
			"eqn", q.Number(), "type", fmt.Sprintf("%#x", uint8(e.EventType())), "sub_type", e.EventSubType())
	}
}
