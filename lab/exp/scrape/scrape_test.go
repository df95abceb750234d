package scrape

import (
	"strings"
	"testing"

	"cxkit/lab"
)

func TestScrapesStaySmallAndWaitForNoCommand(t *testing.T) {
	r, err := lab.Do(t.Context(), Experiment(), lab.Options{Set: map[string]string{"queues": "32"}, Seed: 2})
	if err != nil {
		t.Fatal(err)
	}
	before, after := &r.Comparison.Before.Rows, &r.Measured.Rows
	if b, a := before.Float(0, colSamples), after.Float(0, colSamples); b < 2*a || a < 100 {
		t.Errorf("%v samples with those of queues, %v without", b, a)
	}
	if n := after.Float(0, colRounds) * after.Float(0, colScrapes); n > 1 {
		t.Errorf("%v commands, want the first of a refresh in the background at most", n)
	}
}

func TestKnobsAreChecked(t *testing.T) {
	for _, set := range []map[string]string{{"queues": "1"}, {"queues": "1000"}, {"samples": "all"}} {
		if _, err := lab.Do(t.Context(), Experiment(), lab.Options{Set: set, Seed: 1}); err == nil {
			t.Errorf("%v was accepted", set)
		} else if !strings.Contains(err.Error(), "want") {
			t.Errorf("%v: %v does not say what is wanted", set, err)
		}
	}
}
