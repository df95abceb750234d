package submit

import (
	"strings"
	"testing"

	"cxkit/lab"
)

// Work items go from one a command to none, whatever the latency and the number of functions.
func TestWorkItemsGoToNone(t *testing.T) {
	small := map[string]string{"loops": "3", "functions": "1,2", "latency": "0s"}
	r, err := lab.Do(t.Context(), Experiment(), lab.Options{Set: small, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	rounds := r.Measured.Drawn["rounds of each loop"]
	for i := range 2 {
		want := float64(3 * rounds * refresh)
		before, after := &r.Comparison.Before.Rows, &r.Measured.Rows
		if before.Float(i, colItems) != want || after.Float(i, colItems) != 0 || after.Float(i, colCommands) != want {
			t.Errorf("row %d: %v items before, %v after, for %v commands; want %v, 0, %v", i,
				before.Float(i, colItems), after.Float(i, colItems), after.Float(i, colCommands), want, want)
		}
		if after.Float(i, colContended) != 0 || after.Float(i, colProfile) != 0 {
			t.Errorf("row %d: somebody waited for a queue's lock without work items", i)
		}
	}
	if rounds < leastRounds || rounds > mostRounds {
		t.Errorf("%d rounds", rounds)
	}
}

func TestKnobsAreChecked(t *testing.T) {
	for _, set := range []map[string]string{
		{"loops": "0"}, {"loops": "x"}, {"loops": "2000"}, {"functions": ""}, {"functions": "1,0"}, {"functions": "65"},
		{"latency": "-1s"}, {"latency": "1"}, {"submit": "both"},
	} {
		if _, err := lab.Do(t.Context(), Experiment(), lab.Options{Set: set, Seed: 1}); err == nil {
			t.Errorf("%v was accepted", set)
		} else if !strings.Contains(err.Error(), "want") {
			t.Errorf("%v: %v does not say what is wanted", set, err)
		}
	}
}
