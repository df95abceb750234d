package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"cxkit/internal/control"
	"cxkit/stats"
)

// allLines is the height of a screen that is no terminal.
const allLines = 1 << 20

// topView makes the screen of cxkit top out of readings.
type topView struct {
	now      control.Overview
	grown    stats.Snapshot // since the reading before
	commands uint64         // issued since then
	seconds  float64
	readings int
	first    int // queue at the top of the list
}

// after is how new the next reading has to be: newer than the latest, or than now.
func (v *topView) after() time.Time {
	if v.readings == 0 {
		return time.Now()
	}
	return v.now.Stats.Time
}

// next takes a reading.
func (v *topView) next(o control.Overview) {
	if v.readings++; v.readings > 1 {
		v.grown = o.Stats.Since(v.now.Stats)
		v.seconds = o.Stats.Time.Sub(v.now.Stats.Time).Seconds()
		if o.Commands != nil && v.now.Commands != nil {
			v.commands = o.Commands.Issued - v.now.Commands.Issued
		}
	}
	v.now = o
}

// text is the screen: at most lines lines of at most columns columns. What does not fit is left out from the
// middle: queues first.
func (v *topView) text(columns, lines int) []string {
	if v.readings == 0 {
		return fit([]string{"cxkit top: waiting for the card"}, columns, lines)
	}
	head := v.head()
	drops, firmware := v.drops(), v.firmware()
	room := lines - len(head) - len(firmware) - 2 // an empty line in front of each list
	text := append(head, "")
	queues := v.queues(max(room-len(drops)-1, 3))
	text = append(text, queues...)
	text = append(text, "")
	if left := lines - len(text) - len(firmware) - 1; len(drops) > max(left, 2) {
		drops = append(drops[:max(left-1, 1)], fmt.Sprintf("  ... %d more", len(drops)-max(left-1, 1)))
	}
	text = append(text, drops...)
	text = append(text, "")
	return fit(append(text, firmware...), columns, lines)
}

// rate is what a counter grew by in a second.
func (v *topView) rate(name string) float64 {
	if v.seconds <= 0 {
		return 0
	}
	return float64(v.grown.Get(name)) / v.seconds
}

func (v *topView) head() []string {
	i := &v.now.Info
	link := "link down"
	if i.LinkUp {
		link = fmt.Sprintf("link up %d Mbit/s", i.SpeedMbps)
	}
	l := v.now.Stats.Link()
	head := []string{
		fmt.Sprintf("%s at %s  firmware %s  %s  %s", i.Model, i.Address, i.Firmware, link, v.now.Stats.Time.Format(time.TimeOnly)),
		fmt.Sprintf("rx %12s frames/s %10s bit/s   tx %12s frames/s %10s bit/s",
			rate(v.rate("rx_packets")), bits(8*v.rate("rx_bytes")), rate(v.rate("tx_packets")), bits(8*v.rate("tx_bytes"))),
	}
	if _, software := v.now.Stats.Lookup("rx_packets"); software {
		return append(head, fmt.Sprintf("errors rx %s tx %s  missed %s  dropped tx %s  counters %.1f s old",
			grouped(l.RxErrors), grouped(l.TxErrors), grouped(l.RxMissed), grouped(l.TxDropped),
			v.now.Stats.Age(v.now.Stats.Time).Seconds()))
	}
	// A card whose driver is in a guest: what passed its port.
	head[1] = fmt.Sprintf("rx %12s frames/s %10s bit/s   tx %12s frames/s %10s bit/s   on the wire",
		rate(v.rate("rx_packets_phy")), bits(8*v.rate("rx_bytes_phy")), rate(v.rate("tx_packets_phy")), bits(8*v.rate("tx_bytes_phy")))
	return head
}

// bits writes 1.25e9 as 1.25G.
func bits(r float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if r >= u.size {
			return fmt.Sprintf("%.2f%s", r/u.size, u.name)
		}
	}
	return fmt.Sprintf("%.0f", r)
}

// queues lists as many as fit into n lines with the heading, from the first chosen one on.
func (v *topView) queues(n int) []string {
	all := v.now.Info.Queues
	if all == 0 {
		return []string{"queues are the guest's"}
	}
	text := []string{fmt.Sprintf("%-6s %14s %14s %10s %14s %14s %8s", "queue", "rx frames/s", "rx bytes/s", "no buffer", "tx frames/s", "tx bytes/s", "stopped")}
	first := min(v.first, max(all-(n-1), 0))
	last := min(first+n-1, all)
	if last < all && last > first {
		last-- // room for the line that says so
	}
	for q := first; q < last; q++ {
		rx := func(what string) float64 { return v.rate(stats.RxQueue(q, what)) }
		tx := func(what string) float64 { return v.rate(stats.TxQueue(q, what)) }
		text = append(text, fmt.Sprintf("%-6d %14s %14s %10s %14s %14s %8s", q, rate(rx("packets")), rate(rx("bytes")),
			grouped(v.now.Stats.Get(stats.RxQueue(q, "buff_alloc_err"))), rate(tx("packets")), rate(tx("bytes")),
			grouped(v.now.Stats.Get(stats.TxQueue(q, "stopped")))))
	}
	if last < all {
		text = append(text, fmt.Sprintf("  ... queues %d to %d of %d shown", first, last-1, all))
	}
	return text
}

// drops lists counters of lost frames that are not zero, the fastest first.
func (v *topView) drops() []string {
	type lost struct {
		stats.Drop
		total uint64
		rate  float64
	}
	var all []lost
	for _, d := range stats.Drops() {
		if n := v.now.Stats.Get(d.Counter); n > 0 {
			all = append(all, lost{d, n, v.rate(d.Counter)})
		}
	}
	if len(all) == 0 {
		return []string{"no frames are lost"}
	}
	slices.SortStableFunc(all, func(a, b lost) int { return cmp.Compare(b.rate, a.rate) })
	text := []string{fmt.Sprintf("%-26s %12s %10s  %s", "lost frames", "total", "/s", "why")}
	for _, d := range all {
		text = append(text, fmt.Sprintf("%-26s %12s %10s  %s", d.Counter, grouped(d.total), rate(d.rate), d.Why))
	}
	return text
}

// firmware is the part about commands, pages, buffers and health.
func (v *topView) firmware() []string {
	var text []string
	if c := v.now.Commands; c != nil {
		perSecond := 0.
		if v.seconds > 0 {
			perSecond = float64(v.commands) / v.seconds
		}
		total := c.Total()
		text = append(text, fmt.Sprintf("commands %s, %s/s, %d in flight of %d slots, %d quarantined, %s failed, median %v",
			grouped(c.Issued), rate(perSecond), c.InFlight, c.Slots, len(c.Stuck), grouped(total.Failed), total.Latency.Quantile(0.5)))
	}
	var pages []string
	for _, p := range v.now.Pages {
		pages = append(pages, fmt.Sprintf("%s %s (function %d)", grouped(uint64(p.Out)), p.Type, p.Function))
	}
	if pages != nil {
		text = append(text, "pages "+strings.Join(pages, ", "))
	}
	var buffers []string
	for _, b := range v.now.Buffers {
		buffers = append(buffers, fmt.Sprintf("%s %s", grouped(uint64(max(b.Count, 0))), b.Holder))
	}
	if buffers != nil {
		text = append(text, "buffers "+strings.Join(buffers, ", "))
	}
	if h := v.now.Health; h != nil {
		var states []string
		for _, r := range h.Reporters {
			states = append(states, fmt.Sprintf("%s %s (%d errors)", r.Name, r.State, r.Errors))
		}
		text = append(text, fmt.Sprintf("health %s  heartbeat %d, missed %d", strings.Join(states, ", "), h.Counter, h.Misses))
	}
	return text
}
