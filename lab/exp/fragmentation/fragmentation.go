package fragmentation

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"cxkit/driver"
	"cxkit/lab"
	"cxkit/lab/exp/rxbench"
	"cxkit/lab/report"
)

// Columns of the rows.
const (
	colShare    = "gone %"
	colBlocks   = "blocks left"
	colPosted   = "posted"
	colReceived = "received"
	colLost     = "lost"
	colFailed   = "refill failures"
	colWasted   = "wasted bytes a frame"
	colOrder    = "order"
	colFrame    = "poll ns a frame"
)

const (
	ring  = 256
	order = 3
)

// Experiment is R47.
func Experiment() *lab.Experiment {
	return &lab.Experiment{
		Name:   "fragmentation",
		About:  "receive layouts in memory of which a share of the blocks of order 3 is gone",
		Change: "layout",
		Knobs: []lab.Knob{
			{Name: "layout", Help: "where frames lie on pages; blocks takes blocks of order 3 only", Default: "halves",
				Values: []string{"blocks", "slot", "flip", "halves"}, Before: "blocks", After: "halves"},
			{Name: "gone", Help: "percent of the blocks of order 3 that are gone, one row each", Default: "0,90,99,100"},
			{Name: "hold", Help: "frames that the consumer keeps", Default: "300"},
		},
		Thread: lab.Thread{
			Source:     "mlx4: replace order-3 receive pages by single ones (b5a54d9a3136), and its discussion in 2017",
			Conditions: "fragmented hosts in production",
			Figures: map[string]string{
				"the reason": "order-3 allocations fail when memory is fragmented; benchmarks never show it unless memory is made to be",
			},
		},
		Incomparable: []string{
			"Which share is gone on real hosts is not in the thread.",
			"Times are this machine's; counts are exact.",
		},
		Measure: measure, Effect: effect, Plot: plot,
	}
}

func measure(ctx context.Context, s lab.Setting) (m lab.Measured, err error) {
	hold, err := strconv.Atoi(s.Knobs["hold"])
	if err != nil || hold < 0 || hold > 1000 {
		return m, fmt.Errorf("hold=%s: want 0 to 1000", s.Knobs["hold"])
	}
	layout := map[string]driver.RxLayout{
		"blocks": driver.RxBlocks, "slot": driver.RxPagePerSlot, "flip": driver.RxPageFlip, "halves": driver.RxHalves,
	}[s.Knobs["layout"]]
	frames := 2000 + s.Rand.IntN(1000)
	seed := s.Rand.Uint64()
	m.Drawn = map[string]int{"frames": frames}
	m.Rows.Columns = []string{colShare, colBlocks, colPosted, colReceived, colLost, colFailed, colWasted, colOrder, colFrame}
	for field := range strings.SplitSeq(s.Knobs["gone"], ",") {
		gone, err := strconv.Atoi(field)
		if err != nil || gone < 0 || gone > 100 {
			return m, fmt.Errorf("gone=%s: want percent", s.Knobs["gone"])
		}
		if err := row(ctx, &m, layout, gone, hold, frames, seed); err != nil {
			return m, fmt.Errorf("%d %% gone: %w", gone, err)
		}
	}
	return m, nil
}

// row measures one share.
func row(ctx context.Context, m *lab.Measured, layout driver.RxLayout, gone, hold, frames int, seed uint64) (err error) {
	left := 0
	b, err := rxbench.Open(ctx, seed, true, driver.Config{
		RxRing: ring, TxRing: 64, Buffers: 8192, CheckBuffers: testing.Testing(),
		RxPages: driver.RxPages{RxLayout: layout, RxOrder: new(order), RxMemory: func(mem *driver.RxMemory) {
			_, left = mem.Fragment(order, float64(gone)/100)
		}},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	posted := b.RX.Posted()
	var held []driver.Packet
	var took time.Duration
	received := 0
	for sent := 0; sent < frames; sent += 50 {
		list := make([][]byte, min(50, frames-sent))
		for i := range list {
			list[i] = rxbench.Single()
		}
		t, err := b.Receive(ctx, list, func(pkts []driver.Packet) {
			received += len(pkts)
			held = append(held, pkts...)
			if n := len(held) - hold; n > 0 {
				b.RX.Release(held[:n])
				held = append(held[:0], held[n:]...)
			}
		})
		if err != nil {
			return err
		}
		took += t
	}
	s := b.RX.PageStats()
	wasted := 0
	if s.InFlight > 0 {
		wasted = (s.Held-s.Idle)*4096/s.InFlight - 2048
	}
	m.Rows.Add(gone, left, posted, received, frames-received, s.Failed, wasted, s.Order, took/time.Duration(max(received, 1)))
	lost, err := b.Lost(ctx)
	if err != nil {
		return err
	}
	name := fmt.Sprintf(", %d %% gone", gone)
	free, all := b.NIC.RxMemory().Free()
	pinned := all - free - s.Held
	m.Agreements = append(m.Agreements,
		lab.Agreement{What: "frames without a buffer" + name, First: lab.Count{By: "what was sent and not received", Value: uint64(frames - received)},
			Second: lab.Count{By: "the card's rx_out_of_buffer", Value: lost}},
		lab.Agreement{What: "pages made unavailable" + name, First: lab.Count{By: "the allocator, less what the queue has", Value: uint64(pinned)},
			Second: lab.Count{By: "blocks gone", Value: uint64(all/(1<<order) - left)}},
		lab.Agreement{What: "frames in flight" + name, First: lab.Count{By: "the pool", Value: uint64(s.InFlight)},
			Second: lab.Count{By: "the ring and the consumer", Value: uint64(b.RX.Posted() + len(held))}})
	b.RX.Release(held)
	return nil
}

// effect: without a single block of order 3 the ring is full and no frame is lost.
func effect(m lab.Measured) (shown bool, words string) {
	var list []string
	shown = len(m.Rows.Rows) > 0
	for i := range m.Rows.Rows {
		shown = shown && m.Rows.Float(i, colPosted) == ring && m.Rows.Float(i, colLost) == 0
		list = append(list, fmt.Sprintf("%.0f lost with %.0f %% gone", m.Rows.Float(i, colLost), m.Rows.Float(i, colShare)))
	}
	return shown, strings.Join(list, ", ")
}

func plot(before, after lab.Measured) report.Plot {
	p := report.Plot{Title: "Frames received while blocks of order 3 are gone", Y: "frames"}
	p.Series = lab.BeforeAndAfter(before, after, colReceived, colPosted)
	for i := range after.Rows.Rows {
		p.Groups = append(p.Groups, fmt.Sprintf("%.0f %% gone", after.Rows.Float(i, colShare)))
	}
	return p
}
