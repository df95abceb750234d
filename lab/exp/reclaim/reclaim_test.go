package reclaim

import (
	"context"
	"maps"
	"strings"
	"testing"

	"cxkit/driver"
	"cxkit/lab"
)

func TestCountsAreTheThreads(t *testing.T) { // R01, R02
	for _, test := range []struct {
		s              Setting
		rounds, blocks int
	}{
		{Setting{Event: 1_300_000, Limit: threadLimit}, 26, 782},
		{Setting{Event: 1_300_000, MaxRounds: 2}, 2, 20_313},
	} {
		r, err := Measure(t.Context(), test.s)
		if err != nil {
			t.Fatal(err)
		}
		if r.Rounds < test.rounds || test.s.MaxRounds == 0 && r.Rounds != test.rounds || r.Blocks != test.blocks {
			t.Errorf("%+v: %d rounds and %d mailboxes, want %d and %d", test.s, r.Rounds, r.Blocks, test.rounds, test.blocks)
		}
		if err := r.Check(); err != nil {
			t.Error(err)
		}
		if bounded := r.CheckBounded() == nil; bounded != (test.s.Limit == threadLimit) {
			t.Errorf("limit %s: passes the self-check: %v", limitName(test.s.Limit), bounded)
		}
	}
}

func TestExpectedCounts(t *testing.T) {
	for _, test := range []struct {
		event, limit   int
		rounds, blocks int
	}{
		{1_300_000, threadLimit, 26, 782}, {1_300_000, 0, 26, 20_313}, {8_000_000, 0, 160, 125_000}, {3_400_000, 0, 68, 53_125},
		{8_000_000, threadLimit, 160, 782}, {1_300_000, 1000, 1300, 16},
	} {
		if rounds, blocks := (Setting{Event: test.event, Limit: test.limit}).expected(); rounds != test.rounds || blocks != test.blocks {
			t.Errorf("event %d, limit %d: %d rounds, %d mailboxes; want %d, %d", test.event, test.limit, rounds, blocks, test.rounds, test.blocks)
		}
	}
}

func TestThreadsHistogramsAreOfOneCommand(t *testing.T) {
	before, after := Thread()
	if before.Count() != 19_675 || after.Count() != threadBlocks {
		t.Errorf("%d and %d frees, want 19675 and %d", before.Count(), after.Count(), threadBlocks)
	}
}

func TestGainIsCheckedBothWays(t *testing.T) {
	result := func(pool driver.MailboxPool, bin int) *Result {
		r := &Result{Setting: Setting{Pool: pool}}
		r.Free.Bins[bin] = 100
		return r
	}
	linear, constant := driver.MailboxPoolLinear, driver.MailboxPoolConstant
	if err := CheckGain(result(linear, 14), result(linear, 9)); err != nil {
		t.Error(err)
	}
	if CheckGain(result(linear, 9), result(linear, 9)) == nil {
		t.Error("a searching pool that gains nothing passes")
	}
	if err := CheckGain(result(constant, 5), result(constant, 5)); err != nil {
		t.Error(err)
	}
	if CheckGain(result(constant, 14), result(constant, 9)) == nil {
		t.Error("a pool of constant time that gains much passes")
	}
}

// The self-check is part of a run: without the limit the effect must be absent, and as set it must be there.
func TestExperimentFailsWithoutTheLimit(t *testing.T) {
	e := Experiment()
	set := map[string]string{"event": "200000", "pool": "constant"}
	if _, err := lab.Do(t.Context(), e, lab.Options{Set: set, Seed: 1}); err != nil {
		t.Error(err)
	}
	limited := e.Measure
	e.Measure = func(ctx context.Context, s lab.Setting) (lab.Measured, error) {
		s.Knobs = maps.Clone(s.Knobs)
		s.Knobs["limit"] = "none" // whatever is set
		return limited(ctx, s)
	}
	if _, err := lab.Do(t.Context(), e, lab.Options{Set: set, Seed: 1}); err == nil {
		t.Error("a driver without the limit passes")
	}
	for _, set := range []map[string]string{{"event": "0"}, {"event": "1,x"}, {"limit": "7"}, {"pool": "tree"}, {"page": "8K"}} {
		if _, err := lab.Do(t.Context(), Experiment(), lab.Options{Set: set, Seed: 1}); err == nil || !strings.Contains(err.Error(), "want") {
			t.Errorf("%v: %v", set, err)
		}
	}
}
