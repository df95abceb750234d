package churn

import (
	"strings"
	"testing"

	"cxkit/lab"
)

func TestNothingGoesWrongWhileChannelsFunctionsAndModesChange(t *testing.T) {
	small := map[string]string{"loops": "8", "vfs": "1", "latency": "0s"}
	r, err := lab.Do(t.Context(), Experiment(), lab.Options{Set: small, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	if rounds := float64(r.Measured.Drawn["rounds of changes"]); r.Measured.Rows.Float(0, colModes) != rounds || r.Measured.Rows.Float(0, colReopened) != rounds {
		t.Errorf("%v rounds, but %v changes of mode and %v functions reopened", rounds, r.Measured.Rows.Float(0, colModes), r.Measured.Rows.Float(0, colReopened))
	}
	if n := 2 * float64(r.Measured.Drawn["rounds of changes"]); r.Measured.Rows.Float(0, colChannels) != n {
		t.Errorf("%v changes of channels, want %v", r.Measured.Rows.Float(0, colChannels), n)
	}
	if r.Comparison.Before.Rows.Float(0, colFailed) == 0 {
		t.Error("firmware that refuses is not noticed")
	}
}

func TestKnobsAreChecked(t *testing.T) {
	for _, set := range []map[string]string{{"loops": "0"}, {"vfs": "9"}, {"latency": "soon"}, {"firmware": "tired"}} {
		if _, err := lab.Do(t.Context(), Experiment(), lab.Options{Set: set, Seed: 1}); err == nil {
			t.Errorf("%v was accepted", set)
		} else if !strings.Contains(err.Error(), "want") {
			t.Errorf("%v: %v does not say what is wanted", set, err)
		}
	}
}
