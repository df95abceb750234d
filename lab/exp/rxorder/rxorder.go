package rxorder

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"cxkit/driver"
	"cxkit/lab"
	"cxkit/lab/exp/rxbench"
	"cxkit/lab/report"
)

// Columns of the rows.
const (
	colPeriod   = "period"
	colMemory   = "memory"
	colOrder    = "order at end"
	colLeast    = "least order"
	colBlocks   = "blocks of 8 pages"
	colReceived = "received"
	colLost     = "lost"
	colFailed   = "failed allocations"
)

// period is how often the order may climb.
const period = 250 * time.Millisecond

// top is the order that is tried for.
const top = 3

// Experiment is E6.
func Experiment() *lab.Experiment {
	return &lab.Experiment{
		Name:   "rxorder",
		About:  "order of receive page allocations while memory is fragmented and gone",
		Change: "order",
		Knobs: []lab.Knob{
			{Name: "order", Help: "highest order: single pages only, or blocks of 8 while there are any", Default: "adaptive",
				Values: []string{"single", "adaptive"}, Before: "single", After: "adaptive"},
			{Name: "phase", Help: "periods of 250 ms that memory stays as it is", Default: "6"},
		},
		Thread: lab.Thread{
			Source:     "mlx4: Better use of order-0 pages in RX path (March 2017)",
			Conditions: "hosts with more than 256 GB that have run for days",
			Figures:    map[string]string{"recovery": "the order climbs every 250 ms, and falls at once"},
		},
		Incomparable: []string{
			"TLB pressure, which the high order relieves: there is no measure of it here.",
			"How memory fragments: the share of blocks that is gone is a knob of the run, not a host's history.",
		},
		Measure: measure, Effect: effect, Plot: plot,
	}
}

// phase is what is done to memory.
type phase struct {
	name string
	do   func(m *driver.RxMemory)
	// least and most are what an order that adapts must be within at a period's end but the phase's first.
	least, most int
}

func phases() []phase {
	return []phase{
		{"whole", func(*driver.RxMemory) {}, top, top},
		{"no block of 4 pages", func(m *driver.RxMemory) { m.Fragment(2, 1) }, 0, 2}, // blocks that the queue itself frees are whole,
		{"none", func(m *driver.RxMemory) { m.Fail(0, 1) }, 0, 0},
		{"whole again", func(m *driver.RxMemory) { m.Fail(0, 0); m.Heal() }, 0, top},
	}
}

func measure(ctx context.Context, s lab.Setting) (m lab.Measured, err error) {
	var n int
	if _, err := fmt.Sscan(s.Knobs["phase"], &n); err != nil || n < 2 || n > 100 {
		return m, fmt.Errorf("phase=%s: want 2 to 100", s.Knobs["phase"])
	}
	order := 0
	if s.Knobs["order"] == "adaptive" {
		order = top
	}
	frames := 1000 + s.Rand.IntN(400) // more than the queue keeps pages in hand
	m.Drawn = map[string]int{"frames a period": frames}
	m.Rows.Columns = []string{colPeriod, colMemory, colOrder, colLeast, colBlocks, colReceived, colLost, colFailed}
	var now time.Duration
	b, err := rxbench.Open(ctx, s.Rand.Uint64(), true, driver.Config{
		RxRing: 64, TxRing: 64, Buffers: 8192, CheckBuffers: testing.Testing(),
		RxPages: driver.RxPages{RxOrder: &order, RxClock: func() time.Duration { return now }},
	})
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	var held [2][]driver.Packet // the consumer keeps what came in the period before: pages are in use when their turn comes
	received, sent := 0, 0
	initial := b.RX.PageStats()
	for i, ph := range phases() {
		ph.do(b.NIC.RxMemory())
		for j := range n {
			b.RX.Poll(nil) // as a wait does every period while there is no memory
			before, had := b.RX.PageStats(), received
			least := before.Order
			for part := 0; part < frames; part += 20 {
				list := make([][]byte, min(20, frames-part))
				for k := range list {
					list[k] = rxbench.Single()
				}
				sent += len(list)
				if _, err := b.Receive(ctx, list, func(pkts []driver.Packet) {
					held[j%2] = append(held[j%2], pkts...)
					received += len(pkts)
				}); err != nil {
					return m, err
				}
				least = min(least, b.RX.PageStats().Order)
			}
			s := b.RX.PageStats()
			m.Rows.Add(i*n+j, ph.name, s.Order, least, b.NIC.RxMemory().Available(top), received-had, frames-(received-had), s.Failed-before.Failed)
			b.RX.Release(held[1-j%2])
			held[1-j%2] = held[1-j%2][:0]
			now += period
		}
	}
	b.RX.Release(held[0])
	b.RX.Release(held[1])
	s1 := b.RX.PageStats()
	m.Agreements = []lab.Agreement{
		{What: "frames received", First: lab.Count{By: "the consumer", Value: uint64(received)}, Second: lab.Count{By: "the queue", Value: b.RX.Stats().Packets}},
		{What: "order at the end", First: lab.Count{By: "the pool", Value: uint64(s1.Order)},
			Second: lab.Count{By: "its climbs less its drops", Value: uint64(initial.Order) + s1.OrderClimbs - initial.OrderClimbs - (s1.OrderDrops - initial.OrderDrops)}},
	}
	lost, err := b.Lost(ctx)
	if err != nil {
		return m, err
	}
	m.Agreements = append(m.Agreements, lab.Agreement{What: "frames without a buffer", First: lab.Count{By: "what was sent and not received", Value: uint64(sent - received)},
		Second: lab.Count{By: "the card's rx_out_of_buffer", Value: lost}})
	return m, nil
}

// effect: the order is at its top while memory is whole, falls to what there is within the period, and is at its
// top again in the end; frames are lost only where there is no memory at all.
func effect(m lab.Measured) (shown bool, words string) {
	list := phases()
	each := len(m.Rows.Rows) / len(list)
	if each == 0 {
		return false, "no periods"
	}
	shown = true
	lost := 0.0
	for i := range m.Rows.Rows {
		ph, order := list[i/each], int(m.Rows.Float(i, colOrder))
		if i%each > 0 && (order < ph.least || order > ph.most) {
			shown = false
		}
		if ph.name != "none" {
			lost += m.Rows.Float(i, colLost)
		}
	}
	last := len(m.Rows.Rows) - 1
	shown = shown && m.Rows.Float(last, colOrder) == top && lost == 0
	return shown, fmt.Sprintf("order %.0f at first, %.0f in fragmented memory, %.0f at last; %.0f frames lost while there was memory",
		m.Rows.Float(0, colOrder), m.Rows.Float(2*each-1, colOrder), m.Rows.Float(last, colOrder), lost)
}

func plot(before, after lab.Measured) report.Plot {
	p := report.Plot{Title: "Order of allocations over time, plus 1", Y: "order + 1, a period of 250 ms"}
	for _, side := range []struct {
		name string
		m    lab.Measured
	}{{"single pages", before}, {"as set", after}} {
		s := report.Series{Name: side.name}
		for i := range side.m.Rows.Rows {
			s.Values = append(s.Values, side.m.Rows.Float(i, colOrder)+1)
		}
		p.Series = append(p.Series, s)
	}
	for i := range after.Rows.Rows {
		p.Groups = append(p.Groups, fmt.Sprint(after.Rows.Float(i, colPeriod)))
	}
	return p
}
