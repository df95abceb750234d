package device

import (
	"fmt"
	"time"

	"cxkit/device/internal/config"
	"cxkit/device/internal/queue"
	"cxkit/dma"
	"cxkit/pci"
	"cxkit/prm"
)

// Doorbell pages as memory that the host maps: a doorbell costs its driver a store, and the engine looks for
// it. Linux arms all EQs at one register, all CQs at another, and rings all SQs at a third, so what is there is
// the last write only. It is taken as a hint to look at the doorbell records, which say everything but what
// EQs are armed; these are taken to be armed always (reference 03 §12, event/unarmed.go).

const (
	// uarsPerLook bounds the pages that a look goes through; the next one goes on behind them.
	uarsPerLook = 64
	// remindPeriod is how long a driver gets to take what it is interrupted for before it is reminded.
	remindPeriod = 10 * time.Millisecond
)

// mappedBells are a function's doorbell pages in memory. The engine owns it.
type mappedBells struct {
	memory *dma.Arena // nil: doorbells are trapped
	pages  []*uar     // those allocated
	next   int        // whose turn it is
	remind timer
}

// mapBells makes the function's doorbell pages memory. It is called once, before anybody sees the function.
func (f *function) mapBells() error {
	size := f.info.BARs[0]
	memory, err := dma.NewExported(int(size), dma.Reserved)
	if err != nil {
		return fmt.Errorf("doorbell pages in memory: %w", err)
	}
	f.mapped.memory = memory
	f.mapped.remind.fire = f.remindEQs
	f.info.Mapped = &pci.Mapped{BARRange: pci.BARRange{Off: config.End, Len: size - config.End}, Memory: memory}
	return nil
}

// freeBells ends the pages of a closed card, once no host has them any more.
func (f *function) freeBells() error {
	if f.mapped.memory == nil || f.host != nil {
		return nil
	}
	return f.mapped.memory.Close()
}

// clear forgets all pages and what was written to them.
func (m *mappedBells) clear() {
	if m.memory != nil {
		clear(m.pages)
		m.pages, m.next = m.pages[:0], 0
		m.memory.Clear()
	}
}

// add takes a page that was allocated.
func (m *mappedBells) add(u *uar, off uint64) {
	if m.memory != nil {
		u.bytes = m.memory.Bytes()[off : off+uarSize : off+uarSize]
		clear(u.bytes) // of whoever had it before
		m.pages = append(m.pages, u)
	}
}

// remove takes it away.
func (m *mappedBells) remove(u *uar) {
	for i, p := range m.pages {
		if p == u {
			last := len(m.pages) - 1
			m.pages[i], m.pages[last] = m.pages[last], nil
			m.pages = m.pages[:last]
			return
		}
	}
}

// hints are what a look at a page finds: that something was written, and what was written last.
type hints struct {
	sq    [(uarSize - uarSend) >> uarBFLog]uint64 // by BlueFlame buffer
	anySQ bool
	cq    bool
	eq    [2]uint32 // an update that arms, one that does not
}

// take reads what is written in a page and clears it. A zero is nothing: no queue has number 0.
func (h *hints) take(page []byte) (any bool) {
	h.anySQ = false
	for i := range h.sq {
		h.sq[i] = dma.TakeBE64(page, uarSend+i<<uarBFLog)
		h.anySQ = h.anySQ || h.sq[i] != 0
	}
	h.cq = dma.TakeBE64(page, uarCQArm) != 0
	h.eq[0] = uint32(dma.TakeBE64(page, uarEQArm) >> 32)
	h.eq[1] = uint32(dma.TakeBE64(page, uarEQ) >> 32)
	return h.anySQ || h.cq || h.eq != [2]uint32{}
}

// names reports whether an SQ is what was rung last in one of the buffers.
func (h *hints) names(sqn uint32) bool {
	for _, v := range h.sq {
		if uint32(v)>>8 == sqn {
			return true
		}
	}
	return false
}

// lookAtBells acts on what was written to doorbell pages in memory. watch tells that there are queues that can
// be rung in this way.
func (c *Card) lookAtBells() (rung, watch bool) {
	for _, f := range c.functions {
		m := &f.mapped
		if len(m.pages) == 0 || f.mem == nil || f.stopped {
			continue
		}
		lost := f.unreachable.Load() // as register writes are
		watch = watch || f.cqs.Len() != 0
		for range min(len(m.pages), uarsPerLook) {
			if m.next++; m.next >= len(m.pages) {
				m.next = 0
			}
			u := m.pages[m.next]
			if c.hints.take(u.bytes) && !lost {
				rung = true
				f.hinted(u.number, &c.hints)
			}
		}
	}
	return rung, watch
}

// hinted looks at the queues of a page to which something was written.
func (f *function) hinted(page uint32, h *hints) {
	if !f.begin() {
		return
	}
	if h.anySQ {
		f.sqs.Each(func(n uint32, q *queue.SQ) bool {
			if q.Config().UAR == page {
				if index, rung := q.Rung(h.names(n)); rung {
					f.bells.sqDoorbell(page, n, index)
				}
			}
			return true
		})
	}
	if h.cq {
		f.cqs.Each(func(n uint32, q *queue.CQ) bool {
			if q.Config().UAR == page {
				if word, yes := q.Rearmed(); yes {
					f.bells.cqArm(page, n, word)
				}
			}
			return true
		})
	}
	for i, v := range h.eq {
		if v != 0 {
			f.bells.eqDoorbell(page, v, i == 0)
		}
	}
}

// interruptEQs raises what EQs owe at the end of a step.
func (f *function) interruptEQs() {
	if f.events.Interrupt() && f.mapped.remind.index == 0 {
		f.card.timers.arm(&f.mapped.remind, f.card.now+remindPeriod)
	}
}

func (f *function) remindEQs() {
	if f.events.Remind() {
		f.card.timers.arm(&f.mapped.remind, f.card.now+remindPeriod)
	}
}

// startSQ and startCQ make a new queue ready to be rung by its record.
func (f *function) startSQ(q *queue.SQ, before prm.QueueState) {
	if f.mapped.memory != nil && before == prm.QueueStateRST && q.State() == prm.QueueStateRDY {
		q.Start()
	}
}

func (f *function) startCQ(q *queue.CQ) {
	if f.mapped.memory != nil && f.begin() {
		q.Start()
	}
}
