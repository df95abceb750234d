package stats

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// Counter is one name and its value. Counters only grow, over resets of the function too; what wraps at 32
// bits in the device goes on here. Gauge tells the few that are levels.
type Counter struct {
	Name  string `json:"name"`
	Value uint64 `json:"value"`
}

// Group is a set of counters that the card is asked for together.
type Group struct {
	Name string `json:"name"`
	// Read is when its values were read; zero if never.
	Read time.Time `json:"read,omitzero"`
	// Commands is how many firmware commands one reading takes.
	Commands int `json:"commands"`
	// Link: the group is among those that are read for the interface's own counters (LinkStats); the
	// others are read for a full listing only.
	Link bool `json:"link,omitempty"`
}

// Snapshot is every counter of a function at one time, in ethtool's order. It is plain data: copy it,
// compare it, marshal it. Snapshots may share their slices: don't write to them.
type Snapshot struct {
	// Time is when the reading ended. What the driver counts itself is as of then; Groups say when the
	// rest was read.
	Time time.Time `json:"time"`
	// Stale holds the names of device groups that could not be read this time; their counters keep the
	// values of the last reading that worked, as mlx5e does.
	Stale    []string  `json:"stale,omitempty"`
	Groups   []Group   `json:"groups,omitempty"`
	Counters []Counter `json:"counters"`
}

// Age is how old the snapshot's oldest link group is at a time: those are what a quick reading refreshes.
// Groups that were never read do not count; without any the age is that of the snapshot.
func (s Snapshot) Age(now time.Time) time.Duration {
	oldest := s.Time
	for _, g := range s.Groups {
		if g.Link && !g.Read.IsZero() && g.Read.Before(oldest) {
			oldest = g.Read
		}
	}
	return now.Sub(oldest)
}

// Lookup finds a counter by name.
func (s Snapshot) Lookup(name string) (value uint64, ok bool) {
	for _, c := range s.Counters {
		if c.Name == name {
			return c.Value, true
		}
	}
	return 0, false
}

// Get is Lookup for a counter that must be there; an unknown name reads as 0.
func (s Snapshot) Get(name string) uint64 {
	v, _ := s.Lookup(name)
	return v
}

// Add appends a counter.
func (s *Snapshot) Add(name string, value uint64) {
	s.Counters = append(s.Counters, Counter{Name: name, Value: value})
}

// NonZero returns the counters that are not zero, in order.
func (s Snapshot) NonZero() []Counter {
	return slices.DeleteFunc(slices.Clone(s.Counters), func(c Counter) bool { return c.Value == 0 })
}

// Since returns the differences to an earlier snapshot of the same function; gauges stay as they are. A
// counter that the earlier one lacks counts from zero.
func (s Snapshot) Since(earlier Snapshot) Snapshot {
	before := make(map[string]uint64, len(earlier.Counters))
	for _, c := range earlier.Counters {
		before[c.Name] = c.Value
	}
	d := Snapshot{Time: s.Time, Stale: s.Stale, Groups: s.Groups, Counters: slices.Clone(s.Counters)}
	for i := range d.Counters {
		if c := &d.Counters[i]; !Gauge(c.Name) {
			c.Value -= before[c.Name]
		}
	}
	return d
}

// WriteTo prints the snapshot as ethtool -S does, after its first line.
func (s Snapshot) WriteTo(w io.Writer) (int64, error) {
	var total int64
	for _, c := range s.Counters {
		n, err := fmt.Fprintf(w, "     %s: %d\n", c.Name, c.Value)
		total += int64(n)
		if err != nil {
			return total, err
		}
	}
	return total, nil
}
