package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cxkit/lab/report"
)

// fake is an experiment whose count is what the knob and the draw say.
func fake(change func(*Experiment)) *Experiment {
	e := &Experiment{
		Name: "fake", About: "nothing", Change: "mode",
		Knobs: []Knob{
			{Name: "mode", Default: "new", Values: []string{"old", "new"}, Before: "old", After: "new"},
			{Name: "size", Default: "3", Full: "9"},
		},
		Thread:       Thread{Source: "a thread", Conditions: "a card", Figures: map[string]string{"x": "5 to 0"}},
		Incomparable: []string{"everything"},
		Measure: func(_ context.Context, s Setting) (Measured, error) {
			drawn := s.Rand.IntN(1000) + 1
			n := 0
			if s.Knobs["mode"] == "old" {
				n = drawn
			}
			m := Measured{Drawn: map[string]int{"n": drawn}, Rows: report.Table{Columns: []string{"n"}}}
			m.Rows.Add(n)
			m.Agreements = []Agreement{{What: "n", First: Count{"one", uint64(n)}, Second: Count{"two", uint64(n)}}}
			return m, nil
		},
		Effect: func(m Measured) (bool, string) { return m.Rows.Float(0, "n") == 0, "n" },
		Plot: func(before, after Measured) report.Plot {
			return report.Plot{Groups: []string{"g"}, Series: []report.Series{{Name: "s", Values: []float64{1}}}}
		},
	}
	if change != nil {
		change(e)
	}
	return e
}

func TestRunMeasuresBeforeAndAfter(t *testing.T) {
	r, err := Do(t.Context(), fake(nil), Options{Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	before, after := r.Comparison.Before, r.Measured
	if before.Rows.Float(0, "n") != float64(after.Drawn["n"]) || after.Rows.Float(0, "n") != 0 {
		t.Errorf("before %+v, after %+v; want the same draw, and the effect only after", before, after)
	}
	again, _ := Do(t.Context(), fake(nil), Options{Seed: 5})
	other, _ := Do(t.Context(), fake(nil), Options{Seed: 6})
	if again.Measured.Drawn["n"] != after.Drawn["n"] || other.Measured.Drawn["n"] == after.Drawn["n"] {
		t.Error("the draw does not come from the seed")
	}
}

func TestRunWithTheChangeOffExpectsNoEffect(t *testing.T) {
	r, err := Do(t.Context(), fake(nil), Options{Seed: 5, Set: map[string]string{"mode": "old"}})
	if err != nil || r.Measured.Rows.Float(0, "n") == 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// A run says which part of the self-check it was.
func TestRunSaysWhatItsSelfCheckWas(t *testing.T) {
	always := func(e *Experiment) { e.Effect = func(Measured) (bool, string) { return true, "always" } }
	never := func(e *Experiment) { e.Effect = func(Measured) (bool, string) { return false, "never" } }
	for _, c := range []struct {
		change func(*Experiment)
		mode   string
		want   string
	}{
		{nil, "new", "passed: with mode=old the effect is absent, with mode=new it is there"},
		{nil, "old", "half of it passed: with mode=old the effect is absent; that it is there with mode=new was not tried, as the run has mode=old"},
		{always, "new", "failed: with mode=old the effect is there"},
		{never, "new", "failed: with mode=old the effect is absent, and so it is with mode=new"},
	} {
		r, _ := Do(t.Context(), fake(c.change), Options{Seed: 5, Set: map[string]string{"mode": c.mode}})
		var b bytes.Buffer
		if err := r.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		if r.Comparison.SelfCheck != c.want || !strings.HasSuffix(b.String(), "\nself-check "+c.want+"\n") {
			t.Errorf("self-check %q, want %q; printed:\n%s", r.Comparison.SelfCheck, c.want, b.String())
		}
	}
}

func TestRunFailsWhenItCannotBeBelieved(t *testing.T) {
	for want, change := range map[string]func(*Experiment){
		"self-check: the effect is there with mode=old": func(e *Experiment) {
			e.Effect = func(Measured) (bool, string) { return true, "always" }
		},
		"with mode=new: never": func(e *Experiment) {
			e.Effect = func(Measured) (bool, string) { return false, "never" }
		},
		"n: 0 by one, but 1 by two": func(e *Experiment) {
			measure := e.Measure
			e.Measure = func(ctx context.Context, s Setting) (Measured, error) {
				m, err := measure(ctx, s)
				if s.Knobs["mode"] == "new" {
					m.Agreements[0].Second.Value++
				}
				return m, err
			}
		},
		"self-check with mode=old: nothing was counted twice": func(e *Experiment) {
			e.Measure = func(context.Context, Setting) (Measured, error) { return Measured{}, nil }
		},
		"broken": func(e *Experiment) {
			e.Measure = func(context.Context, Setting) (Measured, error) { return Measured{}, errors.New("broken") }
		},
	} {
		r, err := Do(t.Context(), fake(change), Options{Seed: 7})
		if err == nil || r == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "seed 7") {
			t.Errorf("got %v, want %q and the seed", err, want)
		}
	}
}

func TestRunEndsWithItsTime(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("time is over"))
	_, err := Do(ctx, fake(func(e *Experiment) {
		e.Measure = func(ctx context.Context, _ Setting) (Measured, error) {
			<-ctx.Done()
			return Measured{}, nil
		}
	}), Options{})
	if err == nil || !strings.Contains(err.Error(), "time is over") {
		t.Errorf("got %v", err)
	}
}

func TestKnobs(t *testing.T) {
	e := fake(nil)
	if k, err := e.knobs(map[string]string{"mode": "old"}, true); err != nil || k["mode"] != "old" || k["size"] != "9" {
		t.Errorf("knobs %v, %v", k, err)
	}
	for want, set := range map[string]map[string]string{
		"no knob colour: it has mode, size": {"colour": "red"},
		"mode=red: want one of old, new":    {"mode": "red"},
	} {
		if r, err := Do(t.Context(), e, Options{Set: set}); r != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", set, err)
		}
	}
}

func TestResultIsWritten(t *testing.T) {
	e := fake(nil)
	r, err := Do(t.Context(), e, Options{Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := r.Write(dir, e.Plot(r.Comparison.Before, r.Measured)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "result.json"))
	if err != nil {
		t.Fatal(err)
	}
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(text, &parts); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"knobs", "measured", "thread", "comparison"} {
		if !bytes.HasPrefix(parts[name], []byte("{")) {
			t.Errorf("%s is %s, want an object", name, parts[name])
		}
	}
	for _, name := range []string{"before.csv", "after.csv", "plot.svg"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || len(text) == 0 {
			t.Errorf("%s: %d bytes, %v", name, len(text), err)
		}
	}
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"seed 5", "mode=new", "drawn at random", "before:", "by one", "a thread", "not comparable:\n  everything"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("text lacks %q:\n%s", want, b.String())
		}
	}
}
