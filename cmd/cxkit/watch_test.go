package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"cxkit/internal/control"
	"cxkit/stats"
)

// busy is a reading of a card of so many queues that has moved for n seconds and loses frames.
func busy(queues, n int) control.Overview {
	o := control.Overview{
		Info: control.Info{
			Model: "ConnectX-6 Dx", Address: "0000:08:00.0", Firmware: "22.35.3006", Queues: queues, LinkUp: true, SpeedMbps: 100_000,
		},
		Stats:    stats.Snapshot{Time: time.Unix(1_000_000+int64(n), 0)},
		Commands: &stats.Commands{Issued: uint64(100 + 5*n), Slots: 32, InFlight: 2, Stuck: []int{3}},
		Health: &stats.Health{Counter: 77, Reporters: []stats.Reporter{
			{Name: "fw", State: "healthy"}, {Name: "fw_fatal", State: "error", Errors: 1},
		}},
		Pages:   []stats.FunctionPages{{Type: "self", Out: 518}, {Function: 1, Type: "VF", Out: 1_300_000}},
		Buffers: []control.Buffers{{Holder: "posted", Count: 65536}, {Holder: "sending", Count: 12}, {Holder: "elsewhere", Count: 100_000}},
	}
	s := &o.Stats
	for _, name := range strings.Fields("rx_packets rx_bytes tx_packets tx_bytes") {
		s.Add(name, uint64(n)*1_234_567_890)
	}
	for _, d := range stats.Drops() {
		s.Add(d.Counter, uint64(n)*1_234_567)
	}
	s.Add("tx_cqes", 5) // does not move
	for q := range queues {
		for _, what := range []string{"packets", "bytes", "buff_alloc_err"} {
			s.Add(stats.RxQueue(q, what), uint64(n)*1_234_567_890)
		}
		for _, what := range []string{"packets", "bytes", "stopped"} {
			s.Add(stats.TxQueue(q, what), uint64(n)*1_234_567_890)
		}
	}
	return o
}

// fits checks that text is no larger than a terminal.
func fits(t *testing.T, text []string, columns, lines int) {
	t.Helper()
	if len(text) > lines {
		t.Errorf("%d lines in a terminal of %d", len(text), lines)
	}
	for _, line := range text {
		if n := len([]rune(line)); n > columns {
			t.Errorf("%d columns in a terminal of %d: %s", n, columns, line)
		}
	}
}

func TestTopFitsItsTerminal(t *testing.T) {
	for _, queues := range []int{0, 1, 4, 128} {
		for _, size := range [][2]int{{80, 24}, {200, 60}, {40, 10}, {1, 1}, {0, 0}} {
			var v topView
			fits(t, v.text(size[0], size[1]), size[0], size[1])
			for n := range 3 {
				v.next(busy(queues, n))
				fits(t, v.text(size[0], size[1]), size[0], size[1])
			}
			v.first = 1000
			fits(t, v.text(size[0], size[1]), size[0], size[1])
		}
	}
}

// A terminal of 80x24 shows every part of top.
func TestTopShowsEverythingIn80By24(t *testing.T) {
	for _, queues := range []int{1, 128} {
		var v topView
		v.next(busy(queues, 1))
		v.next(busy(queues, 3))
		screen := strings.Join(v.text(80, 24), "\n")
		for _, want := range []string{
			"ConnectX-6 Dx at 0000:08:00.0", "link up 100000 Mbit/s", "1,234,567,890 frames/s", "9.88G bit/s",
			"queue", "lost frames", "rx_discards_phy", "... ", "5.0/s", "2 in flight of 32 slots, 1 quarantined",
			"518 self (function 0), 1,300,000 VF", "65,536 posted", "fw_fatal error (1 errors)",
		} {
			if !strings.Contains(screen, want) {
				t.Errorf("%d queues: no %q in\n%s", queues, want, screen)
			}
		}
	}
}

func TestTopSaysWhyFramesAreLost(t *testing.T) {
	var v topView
	v.next(busy(1, 1))
	v.next(busy(1, 2))
	text := strings.Join(v.text(160, allLines), "\n")
	for _, d := range stats.Drops() {
		if !strings.Contains(text, d.Counter) || !strings.Contains(text, d.Why) {
			t.Errorf("%s: %s is not shown", d.Counter, d.Why)
		}
	}
	calm := control.Overview{Stats: stats.Snapshot{Counters: []stats.Counter{{Name: "rx_packets"}, {Name: "rx_out_of_buffer"}}}}
	var quiet topView
	quiet.next(calm)
	if text := strings.Join(quiet.text(80, 24), "\n"); !strings.Contains(text, "no frames are lost") {
		t.Errorf("nothing is lost, but\n%s", text)
	}
}

func TestTopScrollsOverQueues(t *testing.T) {
	var v topView
	v.next(busy(128, 1))
	v.next(busy(128, 2))
	for _, first := range []int{0, 5, 127, 1000} {
		v.first = first
		text := v.queues(10)
		if len(text) != 10 {
			t.Errorf("from queue %d on: %d lines, want 10", first, len(text))
		}
		if want := fmt.Sprint(min(first, 119)); !strings.HasPrefix(text[1], want+" ") {
			t.Errorf("from queue %d on: the first line is %q", first, text[1])
		}
	}
}

func TestWatchShowsOnlyWhatChanges(t *testing.T) {
	var v watcher
	v.next(busy(2, 1).Stats)
	if len(v.changed) != 0 {
		t.Errorf("the first reading shows %v", v.changed)
	}
	v.next(busy(2, 3).Stats)
	for _, c := range v.changed {
		if c.Name == "tx_cqes" {
			t.Error("tx_cqes does not move and is shown")
		}
		if c.Name == "rx_packets" && (c.Added != 2*1_234_567_890 || c.Rate != 1_234_567_890) {
			t.Errorf("rx_packets: %+v", c)
		}
	}
	if want := 4 + len(stats.Drops()) + 12; len(v.changed) != want {
		t.Errorf("%d counters changed, want %d", len(v.changed), want)
	}
	v.next(busy(2, 3).Stats)
	if len(v.changed) != 0 {
		t.Errorf("nothing moved, and %v is shown", v.changed)
	}
}

func TestWatchFitsItsTerminal(t *testing.T) {
	info := busy(128, 0).Info
	for _, size := range [][2]int{{80, 24}, {30, 5}, {1, 1}} {
		var v watcher
		for n := range 3 {
			v.next(busy(128, n).Stats)
			text := v.screen(&info, size[0], size[1])
			fits(t, text, size[0], size[1])
			if size[1] == 24 && n > 0 && !strings.Contains(text[len(text)-1], "more") {
				t.Errorf("the last line does not say that there is more: %q", text[len(text)-1])
			}
		}
	}
}
