package steer

import (
	"slices"

	"cxkit/device/internal/queue"
)

// Reaches reports whether frames can come to a TIR that f is true for: by entries and misses from the root on.
func (d *Domain) Reaches(f func(*TIR) bool) bool {
	seen := make(map[*Table]bool)
	var next []*Table
	add := func(t *Table) {
		if t != nil && !seen[t] {
			seen[t] = true
			next = append(next, t)
		}
	}
	add(d.root)
	for len(next) > 0 {
		t := next[0]
		next = next[1:]
		for _, e := range t.entries {
			for _, to := range e.config.Dests {
				if to.TIR != nil && f(to.TIR) {
					return true
				}
				add(to.Table)
			}
		}
		add(t.miss)
	}
	return false
}

// Any reports whether a queue that the TIR chooses is one that takes is true for.
func (t *TIR) Any(takes func(*queue.RQ) bool) bool {
	if t.Table == nil {
		return t.Direct != nil && takes(t.Direct)
	}
	return slices.ContainsFunc(t.Table.RQs, takes)
}
