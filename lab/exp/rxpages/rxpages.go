package rxpages

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	colPage    = "page KiB"
	colRing    = "ring"
	colPackets = "packets"
	colOf      = "segments"
	colPer     = "pages a packet"
	colMost    = "most"
	colKept    = "pages kept"
	colPeak    = "pages peak"
	colRecycle = "recycled %"
	colFrame   = "poll ns a frame"
	colSmall   = "touch 4K ns a packet"
	colHuge    = "touch 2M ns a packet"
	colBy      = "2M by"
)

// between is how many frames of others come after each packet: with 45 segments, packets then begin at every
// place of a page of 42.
const between = 2

// frame64K is the room of a frame on pages of 64 KiB, as the thread has it; half a page on those of 4 KiB.
const frame64K = 1536

// Experiment is E5.
func Experiment() *lab.Experiment {
	return &lab.Experiment{
		Name:   "rxpages",
		About:  "pages of a merged packet, and pages that a receive ring keeps",
		Change: "layout",
		Knobs: []lab.Knob{
			{Name: "layout", Help: "where frames lie on pages", Default: "halves",
				Values: []string{"slot", "flip", "halves"}, Before: "slot", After: "halves"},
			{Name: "page", Help: "KiB of a page, one row each", Default: "4,64"},
			{Name: "ring", Help: "entries of the receive ring, one row each", Default: "256,1024", Full: "256,1024,4096,8192"},
			{Name: "hold", Help: "packets that the consumer keeps", Default: "2"},
			{Name: "segments", Help: "segments of a packet", Default: "45"},
			{Name: "packets", Help: "packets of that many segments to count at least; 0: 84, 126 or 168, drawn at random", Default: "0"},
			{Name: "capture", Help: "pcap or pcapng file whose frames are received, again and again, instead of generated segments"},
			{Name: "table", Help: "MiB of the records that freeing touches, once on pages of 4 KiB and once of 2 MiB", Default: "512", Full: "2048"},
		},
		Thread: lab.Thread{
			Source:     "mlx4: Better use of order-0 pages in RX path (March 2017)",
			Conditions: "x86 with pages of 4 KiB, PowerPC with 64 KiB, MTU 1500, packets of 45 segments",
			Figures: map[string]string{
				"pages of a packet": "45 before, half of it on x86, a 21st on PowerPC",
				"memory of a ring":  "the same on x86, considerably less on PowerPC",
				"one TCP flow":      "+50 % on PowerPC, limited by the sender at 33 Gbit/s on x86",
			},
		},
		Incomparable: []string{
			"+50 % of a TCP flow on PowerPC: there is no such machine here. Of times only the shape is claimed.",
			"33 Gbit/s on x86 were the sender's limit.",
			"TLB misses of the thread's hosts: what a touched record costs is this machine's caches and TLB, on pages of 4 KiB and 2 MiB.",
			"Exact are pages of a packet and pages kept.",
		},
		Measure: measure, Effect: effect, Plot: plot,
	}
}

// setting is the knobs, parsed.
type setting struct {
	layout         driver.RxLayout
	pages, rings   []int
	hold, segments int
	packets        int
	seed           uint64
	table          int      // bytes
	captured       [][]byte // frames of the capture; nil without one
}

func numbers(s lab.Setting, knob string, low, high int) (list []int, err error) {
	for field := range strings.SplitSeq(s.Knobs[knob], ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < low || n > high {
			return nil, fmt.Errorf("%s=%s: want %d to %d", knob, s.Knobs[knob], low, high)
		}
		list = append(list, n)
	}
	return list, nil
}

func parse(s lab.Setting) (p setting, err error) {
	p.layout = map[string]driver.RxLayout{"slot": driver.RxPagePerSlot, "flip": driver.RxPageFlip, "halves": driver.RxHalves}[s.Knobs["layout"]]
	p.packets = 42 * (2 + s.Rand.IntN(3))
	p.seed = s.Rand.Uint64()
	if p.pages, err = numbers(s, "page", 4, 64); err != nil {
		return p, err
	}
	if slices.ContainsFunc(p.pages, func(n int) bool { return n != 4 && n != 64 }) {
		return p, fmt.Errorf("page=%s: want 4 or 64", s.Knobs["page"])
	}
	if p.rings, err = numbers(s, "ring", 64, 8192); err != nil {
		return p, err
	}
	hold, err := numbers(s, "hold", 0, 1000)
	if err != nil {
		return p, err
	}
	segments, err := numbers(s, "segments", 2, 45)
	if err != nil {
		return p, err
	}
	packets, err := numbers(s, "packets", 0, 1e6)
	if err != nil {
		return p, err
	}
	if packets[0] > 0 {
		p.packets = packets[0]
	}
	table, err := numbers(s, "table", 2, 1<<16)
	if err != nil {
		return p, err
	}
	if p.hold, p.segments, p.table = hold[0], segments[0], (table[0]<<20+hugePage-1)&^(hugePage-1); s.Knobs["capture"] != "" {
		p.captured, err = frames(s.Knobs["capture"])
	}
	return p, err
}

// framesPerPage is arithmetic: how many frames share a page.
func (p setting) framesPerPage(page int) int {
	switch {
	case p.layout != driver.RxHalves:
		return 1 // neighbours in the ring share none
	case page == 64:
		return page << 10 / frame64K
	}
	return 2
}

// kept is arithmetic: how many pages a ring keeps.
func (p setting) kept(page, ring int) int {
	if p.layout != driver.RxHalves {
		return ring
	}
	f := p.framesPerPage(page)
	return max((2*ring+f-1)/f, (ring+f-1)/f+2)
}

// outcome is one row.
type outcome struct {
	packets, frames int
	pages, most     int // pages of packets, summed up
	turns           int // times that a frame lay on another page than the one before it
	byPlace         int // pages of packets, by their frames' places in the ring
	booked          int // turns, by the pool's books
	kept, peak      int
	recycled        float64
	poll            time.Duration

	touched               []uint32 // pages of packets
	touchSmall, touchHuge time.Duration
}

// run measures one row.
func (p setting) run(ctx context.Context, page, ring int) (o outcome, err error) {
	size := 2048
	if page == 64 {
		size = frame64K
	}
	frames := 4*ring + 2*(p.hold*(1+between)+4)*(p.segments+between)
	if p.layout == driver.RxPageFlip && page == 64 {
		frames *= 42 // as many pages as with one for each slot: a page is a slot's
	}
	b, err := rxbench.Open(ctx, p.seed, false, driver.Config{
		RxRing: ring, TxRing: 64, BufferSize: size, Buffers: frames * 4 / 3, CheckBuffers: testing.Testing(),
		RxPages:   driver.RxPages{RxLayout: p.layout, RxPageSize: page << 10},
		Receiving: driver.Receiving{GRO: true, GROTimeout: p.timeout()},
	})
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()

	c := collector{bench: b, o: &o, segments: p.segments, perPage: p.framesPerPage(page), hold: p.hold, places: map[string][]int{}}
	next := p.generated()
	if p.captured != nil {
		next = func() [][]byte { return p.captured }
	}
	for !c.counting || o.packets < p.packets {
		if !c.counting && c.sent >= 2*ring { // twice around the ring before anything is counted as kept or recycled
			c.begin()
		}
		list := next()
		c.send(list)
		took, err := b.Receive(ctx, list, c.take)
		if err != nil {
			return o, err
		}
		o.poll += took
		if c.counting && o.packets == 0 && p.captured != nil {
			return o, fmt.Errorf("no packet of %d segments in the capture", p.segments)
		}
	}
	c.end()
	return o, nil
}

// timeout is for how long packets are held. What a capture's frames make is delivered when they are read.
func (p setting) timeout() time.Duration {
	if p.captured != nil {
		return 0
	}
	return time.Hour
}

// generated makes a packet's segments and the frames of others that follow it.
func (p setting) generated() func() [][]byte {
	stream := rxbench.NewStream(1)
	return func() [][]byte {
		list := stream.Segments(p.segments)
		list[len(list)-1][47] |= 8 // PSH ends the packet
		fix(list[len(list)-1])
		for range between {
			list = append(list, rxbench.Single())
		}
		return list
	}
}

// fix repairs the TCP checksum after PSH was added: one bit of the word of flags.
func fix(b []byte) {
	sum := uint32(b[50])<<8 | uint32(b[51])
	sum = uint32(^uint16(sum)) + 8
	sum = sum&0xffff + sum>>16
	b[50], b[51] = byte(^uint16(sum)>>8), byte(^uint16(sum))
}

func measure(ctx context.Context, s lab.Setting) (m lab.Measured, err error) {
	p, err := parse(s)
	m = lab.Measured{
		Drawn: map[string]int{"packets counted": p.packets},
		Rows: report.Table{Columns: []string{
			colPage, colRing, colPackets, colOf, colPer, colMost, colKept, colPeak, colRecycle, colFrame, colSmall, colHuge, colBy,
		}},
	}
	if err != nil {
		return m, err
	}
	var rows []outcome
	for _, page := range p.pages {
		for _, ring := range p.rings {
			o, err := p.run(ctx, page, ring)
			if err != nil {
				return m, fmt.Errorf("pages of %d KiB, ring of %d: %w", page, ring, err)
			}
			rows = append(rows, o)
		}
	}
	small, free, err := newTable(p.table)
	if err != nil {
		return m, fmt.Errorf("table of records: %w", err)
	}
	defer func() { err = errors.Join(err, free()) }()
	huge, by, freeHuge, err := newHugeTable(p.table)
	if err != nil {
		return m, fmt.Errorf("table of records on huge pages: %w", err)
	}
	defer func() { err = errors.Join(err, freeHuge()) }()
	touchAll(small, huge, rows)

	for i, o := range rows {
		page, ring := p.pages[i/len(p.rings)], p.rings[i%len(p.rings)]
		m.Rows.Add(page, ring, o.packets, p.segments, float64(o.pages)/float64(o.packets), o.most, o.kept, o.peak, o.recycled,
			o.poll/time.Duration(max(o.frames, 1)), o.touchSmall, o.touchHuge, by)
		name := fmt.Sprintf(", pages of %d KiB, ring of %d", page, ring)
		m.Agreements = append(m.Agreements,
			lab.Agreement{What: "pages of all packets" + name, First: lab.Count{By: "the packets' fragments", Value: uint64(o.pages)},
				Second: lab.Count{By: "the places of their frames", Value: uint64(o.byPlace)}},
			lab.Agreement{What: "pages that frames came on" + name, First: lab.Count{By: "the packets' fragments", Value: uint64(o.turns)},
				Second: lab.Count{By: "the pool's books", Value: uint64(o.booked)}},
			lab.Agreement{What: "pages kept" + name, First: lab.Count{By: "the pool's books", Value: uint64(o.kept)},
				Second: lab.Count{By: "arithmetic", Value: uint64(p.kept(page, ring))}},
		)
		if want, ok := p.arithmetic(page, o.packets); ok {
			m.Agreements = append(m.Agreements,
				lab.Agreement{What: "pages of all packets, as the thread counts" + name, First: lab.Count{By: "the packets' fragments", Value: uint64(o.pages)},
					Second: lab.Count{By: "arithmetic", Value: uint64(want)}})
		}
	}
	return m, nil
}

// arithmetic is on how many pages packets lie whose segments come one after the other: on half as many, on 86 for 42
// packets of 45 segments where 42 frames share a page.
func (p setting) arithmetic(page, packets int) (pages int, known bool) {
	switch {
	case p.captured != nil: // other frames come in between
		return 0, false
	case p.framesPerPage(page) == 1:
		return packets * p.segments, true
	case page == 4:
		return packets * ((p.segments + 1) / 2), true
	}
	return packets / 42 * 86, p.segments == 45 && packets%42 == 0
}

// effect: packets lie on fewer pages than they have segments. How many fewer is counted twice.
func effect(m lab.Measured) (shown bool, words string) {
	var list []string
	shown = len(m.Rows.Rows) > 0
	for i := range m.Rows.Rows {
		per := m.Rows.Float(i, colPer)
		shown = shown && per < m.Rows.Float(i, colOf)
		list = append(list, fmt.Sprintf("%.4g", per))
	}
	return shown, "pages a packet: " + strings.Join(list, ", ")
}

func plot(before, after lab.Measured) report.Plot {
	p := report.Plot{Title: "Pages of a merged packet, and pages that the ring keeps", Y: "pages"}
	p.Series = lab.BeforeAndAfter(before, after, colPer, colKept)
	for i := range after.Rows.Rows {
		p.Groups = append(p.Groups, fmt.Sprintf("%.0f KiB, ring %.0f", after.Rows.Float(i, colPage), after.Rows.Float(i, colRing)))
	}
	return p
}
