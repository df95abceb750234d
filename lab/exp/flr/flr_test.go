package flr

import (
	"strings"
	"testing"
	"time"

	"cxkit/lab"
)

func TestResetTakesNoCommand(t *testing.T) { // c6168161f693
	r, err := Measure(t.Context(), Setting{Pages: 5000, Latency: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Check(); err != nil {
		t.Error(err)
	}
	// 28 commands of a millisecond are not a matter of the machine's mood.
	if r.ByPage.Took < 28*time.Millisecond {
		t.Errorf("28 commands of 1 ms took %v", r.ByPage.Took)
	}
	r.AllAtOnce.Commands++
	if r.Check() == nil {
		t.Error("a reset that took a command passes")
	}
}

func TestExperimentShowsItsEffect(t *testing.T) {
	for range 5 {
		if _, err := lab.Do(t.Context(), Experiment(), lab.Options{Set: map[string]string{"latency": "100us"}, Seed: 1}); err != nil {
			t.Fatal(err)
		}
	}
	for _, set := range []map[string]string{{"functions": "0"}, {"pages": "x"}, {"latency": "-1s"}} {
		if _, err := lab.Do(t.Context(), Experiment(), lab.Options{Set: set, Seed: 1}); err == nil || !strings.Contains(err.Error(), "want") {
			t.Errorf("%v: %v", set, err)
		}
	}
}
