package rxpages

import (
	"testing"

	"cxkit/lab"
)

// The thread's counts, exactly: 45 pages to 23 and to 2.05, a ring's memory the same and a 21st.
func TestCountsAreTheThreads(t *testing.T) {
	r, err := lab.Do(t.Context(), Experiment(), lab.Options{Set: map[string]string{"ring": "256"}, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	before, after := &r.Comparison.Before.Rows, &r.Measured.Rows
	for i, want := range []struct{ before, after, keptBefore, keptAfter float64 }{{45, 23, 256, 256}, {45, 86.0 / 42, 256, 13}} {
		if before.Float(i, colPer) != want.before || after.Float(i, colPer) != want.after {
			t.Errorf("row %d: %v pages before, %v after; want %v, %v", i, before.Float(i, colPer), after.Float(i, colPer), want.before, want.after)
		}
		if before.Float(i, colKept) != want.keptBefore || after.Float(i, colKept) != want.keptAfter {
			t.Errorf("row %d: %v pages kept before, %v after; want %v, %v", i, before.Float(i, colKept), after.Float(i, colKept), want.keptBefore, want.keptAfter)
		}
	}
	if after.Float(1, colMost) != 3 {
		t.Errorf("at most %v pages of 64 KiB, want 3", after.Float(1, colMost))
	}
}
