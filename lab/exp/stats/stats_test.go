package stats

import (
	"strings"
	"testing"

	"cxkit/lab"
)

// However often and however many read, refreshes are an interval apart, and each costs what its interfaces
// cost; without the interval there is one a reading.
func TestReadersCostAnIntervalsCommands(t *testing.T) {
	small := map[string]string{"vfs": "1", "rates": "100", "readers": "8", "duration": "1s", "latency": "0s"}
	r, err := lab.Do(t.Context(), Experiment(), lab.Options{Set: small, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	before, after := &r.Comparison.Before.Rows, &r.Measured.Rows
	for i := range 2 {
		if round := after.Float(i, colRound); round != 3+2+1 {
			t.Errorf("row %d: a round is %v commands, want 3 of the physical function, 2 of the virtual one and 1 of the representor", i, round)
		}
		if b, a := before.Float(i, colCommands), after.Float(i, colCommands); a == 0 || b < 2*a {
			t.Errorf("row %d: %v commands before, %v after", i, b, a)
		}
	}
}

func TestLegacyModeHasNoRepresentors(t *testing.T) {
	p, err := parse(map[string]string{
		"interval": "200ms", "eswitch": "legacy", "vfs": "2", "rates": "1", "readers": "1", "latency": "0s", "duration": "1s",
	})
	if err != nil {
		t.Fatal(err)
	}
	b, err := newBench(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if len(b.quick) != 3 || b.perRound != 3+2*2 {
		t.Errorf("%d interfaces, %d commands a round", len(b.quick), b.perRound)
	}
	if err := b.close(); err != nil {
		t.Error(err)
	}
}

func TestKnobsAreChecked(t *testing.T) {
	for _, set := range []map[string]string{
		{"vfs": "0"}, {"vfs": "9"}, {"rates": ""}, {"rates": "5,x"}, {"readers": "100000"}, {"duration": "1ms"}, {"latency": "-1s"},
		{"interval": "1h"}, {"eswitch": "both"},
	} {
		if _, err := lab.Do(t.Context(), Experiment(), lab.Options{Set: set, Seed: 1}); err == nil {
			t.Errorf("%v was accepted", set)
		} else if !strings.Contains(err.Error(), "want") {
			t.Errorf("%v: %v does not say what is wanted", set, err)
		}
	}
}
