package rxorder

import (
	"testing"

	"cxkit/lab"
)

func TestOrderFallsAtOnceAndClimbsEveryPeriod(t *testing.T) {
	r, err := lab.Do(t.Context(), Experiment(), lab.Options{Set: map[string]string{"phase": "5"}, Seed: 4})
	if err != nil {
		t.Fatal(err)
	}
	rows := &r.Measured.Rows
	// The first period of whole memory again still begins at the bottom; then a step a period.
	for i, want := range []float64{1, 2, 3, 3} {
		if got := rows.Float(15+i, colOrder); got < want-1 || got > want {
			t.Errorf("period %d after recovery: order %v, want %v or one less", i, got, want)
		}
	}
}
