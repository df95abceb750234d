package fragmentation

import (
	"testing"

	"cxkit/lab"
)

// R47: blocks of order 3 are a lie in fragmented memory. The other layouts do without.
func TestR47HighOrderLayoutLosesFramesInFragmentedMemory(t *testing.T) {
	for _, layout := range []string{"halves", "slot", "flip"} {
		r, err := lab.Do(t.Context(), Experiment(), lab.Options{Set: map[string]string{"layout": layout, "gone": "0,100"}, Seed: 5})
		if layout == "halves" && err != nil {
			t.Fatal(err)
		}
		before, after := &r.Comparison.Before.Rows, &r.Measured.Rows
		if before.Float(0, colLost) != 0 || before.Float(1, colReceived) != 0 || before.Float(1, colFailed) == 0 {
			t.Errorf("blocks: %v lost in whole memory, %v received without any", before.Float(0, colLost), before.Float(1, colReceived))
		}
		if after.Float(1, colPosted) != ring || after.Float(1, colLost) != 0 {
			t.Errorf("%s: %v posted, %v lost", layout, after.Float(1, colPosted), after.Float(1, colLost))
		}
	}
}
