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
