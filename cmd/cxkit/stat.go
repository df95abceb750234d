package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"cxkit/driver"
	"cxkit/internal/control"
	"cxkit/pci"
	"cxkit/stats"
)

// statCommand is `cxkit stat`.
type statCommand struct {
	Attach  string `placeholder:"PATH" type:"path" xor:"card" help:"Socket of the card (default: the only one running)."`
	Device  string `placeholder:"DEVICE" xor:"card" help:"Bring a card up, read its counters and give it back: ${targets}."`
	JSON    bool   `name:"json" help:"Print JSON; with --watch a document a line."`
	NonZero bool   `name:"nonzero" help:"Leave out counters that are zero."`
	Vport   vport  `placeholder:"N" help:"Counters of a port of the card's e-switch: 0 is the physical function's, N that of virtual function N, and uplink the wire's."`

	Watch  bool          `short:"w" help:"Go on: print what changes, and how fast."`
	Period time.Duration `default:"1s" placeholder:"TIME" help:"With --watch: how often (default ${default})."`
	Count  int           `placeholder:"N" help:"With --watch: end after N times (default: at Ctrl-C)."`
}

// Help is what cxkit stat --help adds.
func (statCommand) Help() string {
	return `The names, their order and the form are those of ethtool -S on an mlx5 port. With --watch counters are
those that the driver reads in the background: watching issues no commands of its own.

Examples:
  cxkit stat
  cxkit stat --nonzero
  cxkit stat -w
  cxkit stat -w --period 5s | tee rates.txt
  cxkit stat --device vfio:0000:08:00.0
  cxkit stat --vport 1
  cxkit stat --json | jq '.counters[] | select(.name == "rx_out_of_buffer")'`
}

// vport is the value of --vport.
type vport struct {
	number uint16
	given  bool
}

// UnmarshalText reads a number or "uplink".
func (v *vport) UnmarshalText(text []byte) error {
	*v = vport{uint16(driver.Uplink), true}
	if string(text) == "uplink" {
		return nil
	}
	n, err := strconv.ParseUint(string(text), 10, 16)
	if err != nil {
		return fmt.Errorf("vport %q: want a number or uplink", text)
	}
	v.number = uint16(n)
	return nil
}

// vportStats reads the counters of a port of the e-switch that the NIC manages.
func vportStats(ctx context.Context, nic *driver.NIC, number uint16) (stats.Snapshot, error) {
	v, err := nic.VportStats(ctx, driver.Vport(number))
	if err != nil {
		return stats.Snapshot{}, err
	}
	return v.Snapshot(), nil
}

// Limits of --period.
const minPeriod, maxPeriod = 10 * time.Millisecond, time.Hour

// checkPeriod finds what the parser can't.
func checkPeriod(period time.Duration, count int) error {
	switch {
	case period < minPeriod || period > maxPeriod:
		return usagef("--period %v: want %v to %v", period, minPeriod, maxPeriod)
	case count < 0:
		return usagef("--count %d is negative", count)
	}
	return nil
}

// Run prints the counters.
func (s *statCommand) Run(w *world) error {
	if err := checkPeriod(s.Period, s.Count); err != nil {
		return err
	}
	switch {
	case !s.Watch && s.Count != 0:
		return usagef("--count needs --watch")
	case s.Watch && s.Vport.given:
		return usagef("--vport reads once: not with --watch")
	case s.Watch && s.Device != "":
		return usagef("--watch is for a card that runs: cxkit run --device %s in another window", s.Device)
	case s.Device != "":
		return withNIC(w, s.Device, 0, func(_ pci.Function, nic *driver.NIC) error {
			if s.Vport.given {
				snapshot, err := vportStats(w.ctx, nic, s.Vport.number)
				if err != nil {
					return err
				}
				return s.print(w, snapshot)
			}
			snapshot, err := nic.Stats(w.ctx)
			return errors.Join(err, s.print(w, snapshot))
		})
	}
	return attached(w, s.Attach, func(ctx context.Context, c *control.Client) error {
		if s.Watch {
			return s.watch(ctx, w, c)
		}
		read := c.Stats
		if s.Vport.given {
			read = func(ctx context.Context) (stats.Snapshot, error) { return c.VportStats(ctx, s.Vport.number) }
		}
		snapshot, err := read(ctx)
		if err != nil {
			return err
		}
		return s.print(w, snapshot)
	})
}

// print prints them as ethtool does.
func (s *statCommand) print(w *world, snapshot stats.Snapshot) error {
	if s.NonZero {
		snapshot.Counters = snapshot.NonZero()
	}
	if s.JSON {
		return writeJSON(w.out, snapshot)
	}
	fmt.Fprintln(w.out, "NIC statistics:")
	_, err := snapshot.WriteTo(w.out)
	return err
}

// periodically calls f at once and then every period: count times, or until ctx ends if count is 0.
func periodically(ctx context.Context, period time.Duration, count int, f func() error) error {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for n := 1; ; n++ {
		if err := f(); err != nil {
			if ctx.Err() != nil {
				return nil // the user ended it
			}
			return err
		}
		if n == count {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// freshTime is how long a watcher waits for counters to be read again; freshPoll how often it looks.
const freshTime, freshPoll = 2 * time.Second, 20 * time.Millisecond

// fresh returns an overview whose counters were read after a time. Asking has the driver read them in the
// background. If that takes too long, as with firmware that is silent, what there is has to do.
func fresh(ctx context.Context, c *control.Client, after time.Time) (control.Overview, error) {
	limit := time.Now().Add(freshTime)
	for {
		o, err := c.Overview(ctx)
		if err != nil || o.Stats.Time.After(after) || time.Now().After(limit) {
			return o, err
		}
		select {
		case <-time.After(freshPoll):
		case <-ctx.Done():
			return o, ctx.Err()
		}
	}
}

// watch prints what changes. The first reading is where it begins.
func (s *statCommand) watch(ctx context.Context, w *world, c *control.Client) error {
	var v watcher
	count := s.Count
	if count > 0 {
		count++ // the first one shows nothing
	}
	if w.tty != nil && !s.JSON {
		defer v.leave(w)
	}
	return periodically(ctx, s.Period, count, func() error {
		o, err := fresh(ctx, c, v.after())
		if err != nil {
			return err
		}
		if s.JSON {
			v.next(o.Stats)
			if v.readings < 2 {
				return nil
			}
			return json.NewEncoder(w.out).Encode(watchJSON{Time: o.Stats.Time, Seconds: v.seconds, Counters: v.changed})
		}
		v.next(o.Stats)
		return v.print(w, &o.Info)
	})
}

// watchJSON is a line of stat --watch --json.
type watchJSON struct {
	Time    time.Time `json:"time"`
	Seconds float64   `json:"seconds"` // that passed since the line before
	// Counters are those that changed.
	Counters []change `json:"counters"`
}

// change is a counter that moved.
type change struct {
	Name  string  `json:"name"`
	Value uint64  `json:"value"`
	Added uint64  `json:"added"`
	Rate  float64 `json:"rate"` // a second
}

// watcher compares readings.
type watcher struct {
	last     stats.Snapshot
	readings int
	seconds  float64
	changed  []change
	drawn    bool // the terminal is ours
}

// after is how new the next reading has to be: newer than the latest, or than now.
func (v *watcher) after() time.Time {
	if v.readings == 0 {
		return time.Now()
	}
	return v.last.Time
}

// next takes a reading.
func (v *watcher) next(now stats.Snapshot) {
	v.changed = []change{}
	if v.readings++; v.readings > 1 {
		v.seconds = now.Time.Sub(v.last.Time).Seconds()
		grown := now.Since(v.last)
		for i, c := range grown.Counters {
			if c.Value == 0 || stats.Gauge(c.Name) {
				continue
			}
			x := change{Name: c.Name, Value: now.Counters[i].Value, Added: c.Value}
			if v.seconds > 0 {
				x.Rate = float64(c.Value) / v.seconds
			}
			v.changed = append(v.changed, x)
		}
	}
	v.last = now
}
