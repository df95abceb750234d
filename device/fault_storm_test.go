package device

import (
	"testing"

	faults "cxkit/device/fault"
)

// A storm by plan waits for a driver, asks for its pages and gives all of them back.
func TestFaultStormAsksForPagesAndGivesThemBack(t *testing.T) {
	const pages = 3000
	l := newLender(t, Config{Faults: faults.Plan{Faults: []faults.Fault{{Kind: faults.Storm, Pages: pages}}}})
	before := l.books().Pages
	l.clock.advance(stormRetry)
	l.settle()
	l.serve()
	l.settle()
	l.serve()
	s, err := l.card.Storm(0, PageFunction{})
	if err != nil || s.Phase != StormOver || s.Hoarded != pages || s.Returned != pages || l.gives != pages {
		t.Errorf("storm %+v, %v; %d pages given", s, err, l.gives)
	}
	if n := l.books().Pages; n != before {
		t.Errorf("firmware has %d pages, %d before", n, before)
	}
	if r := l.card.Faults(); len(r) != 1 || r[0].Struck != 1 {
		t.Errorf("faults: %+v", r)
	}
}
