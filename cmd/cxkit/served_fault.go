//go:build linux

package main

import (
	"context"
	"fmt"

	"cxkit/device/fault"
)

// Inject breaks the card of a guest.
func (v servedCard) Inject(_ context.Context, p fault.Plan) error {
	return v.s.cards.Card(v.i).Inject(p)
}

// Faults says what struck.
func (v servedCard) Faults(context.Context) ([]fault.Report, error) {
	return v.s.cards.Card(v.i).Faults(), nil
}

// struck says in a line what struck the cards so far, "" if nothing did.
func (s *served) struck(cards int) string {
	var all []string
	for i := range cards {
		for _, r := range s.cards.Card(i).Faults() {
			if r.Struck > 0 {
				all = append(all, fmt.Sprintf("%s struck card %d %s", r.Name, i, times(r.Struck)))
			}
		}
	}
	if len(all) == 0 {
		return ""
	}
	return "; " + some(all)
}

// reportFaults says what struck each card: a plan that struck nothing shows nothing.
func (s *served) reportFaults(w *world, cards int) error {
	for i := range cards {
		fmt.Fprintf(w.err, "cxkit: faults of card %d:\n", i)
		if err := writeFaults(w.err, s.cards.Card(i).Faults()); err != nil {
			return err
		}
	}
	return nil
}
