package event

import "testing"

// newUnarmed is a fixture of a set whose arms may be lost.
func newUnarmed(t *testing.T, eq *EQ) *fixture {
	f := newFixture(t, eq)
	f.config.Unarmed = true
	return f
}

func TestAnUnarmedSetInterruptsOnceAStep(t *testing.T) {
	f := newUnarmed(t, &EQ{Vector: 5})
	for step := range 3 {
		f.raised = nil
		for range 3 {
			f.Completion(1, 1)
		}
		if len(f.raised) != 0 {
			t.Fatalf("step %d: interrupts %v in the step", step, f.raised)
		}
		f.Interrupt()
		f.Interrupt()
		if len(f.raised) != 1 || f.raised[0] != 5 {
			t.Fatalf("step %d: interrupts %v", step, f.raised)
		}
	}
}

// TestADriverThatTakesAPartIsReminded: Linux takes 128 entries, arms, and relies on the next interrupt.
func TestADriverThatTakesAPartIsReminded(t *testing.T) {
	f := newUnarmed(t, &EQ{})
	for range 300 {
		f.Completion(1, 1)
	}
	if !f.Interrupt() {
		t.Fatal("300 entries need no reminder")
	}
	interrupts := 1
	for more := true; more; interrupts++ {
		more = f.Remind()
	}
	if interrupts != 3 || len(f.raised) != 3 {
		t.Errorf("%d interrupts for 300 entries, want 3", len(f.raised))
	}
	// What a doorbell says needs none.
	for range 300 {
		f.Completion(1, 1)
	}
	producer, _ := f.eq.Counters()
	f.Doorbell(f.eq, producer, true)
	f.raised = nil
	if f.Remind() || len(f.raised) != 0 {
		t.Errorf("reminded of entries that were taken: %v", f.raised)
	}
}

func TestARemovedEQIsOwedNothing(t *testing.T) {
	f := newUnarmed(t, &EQ{})
	f.Completion(1, 1)
	f.Remove(1)
	if f.Interrupt(); len(f.raised) != 0 {
		t.Errorf("interrupts %v of an EQ that is gone", f.raised)
	}
}
