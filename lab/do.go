package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"time"
)

// Options are how to run an experiment.
type Options struct {
	// Set gives knobs values.
	Set map[string]string
	// Seed is where random inputs come from.
	Seed uint64
	// Full takes the knobs' larger defaults, and all the time they need.
	Full bool
}

// DefaultLimit bounds a run that is not full.
const DefaultLimit = 50 * time.Second

// Result is a run.
type Result struct {
	Experiment string    `json:"experiment"`
	About      string    `json:"about"`
	Started    time.Time `json:"started"`
	Took       float64   `json:"took_seconds"`
	Seed       uint64    `json:"seed"`
	Machine    Machine   `json:"machine"`

	Knobs    map[string]string `json:"knobs"`
	Measured Measured          `json:"measured"`
	Thread   Thread            `json:"thread"`
	// Comparison holds what was measured against the thread, and against the self-check.
	Comparison Comparison `json:"comparison"`
}

// Comparison is what a result says about the thread.
type Comparison struct {
	// Change names the knob, Before is the measurement of the self-check, whose knob was at 'before'.
	Change string   `json:"change"`
	Before Measured `json:"before"`
	// EffectBefore and EffectAfter say what the two measurements show.
	EffectBefore string `json:"effect_before"`
	EffectAfter  string `json:"effect_after"`
	// SelfCheck says what was checked: that the effect is absent with the change at 'before', and, if the
	// run has it at 'after', there.
	SelfCheck    string   `json:"self_check"`
	Incomparable []string `json:"not_comparable"`
}

// Machine is where a run took place.
type Machine struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
	CPUs int    `json:"cpus"`
	Go   string `json:"go"`
}

func thisMachine() Machine {
	return Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.GOMAXPROCS(0), Go: runtime.Version()}
}

// Do runs an experiment: once as set, once with the change at 'before' as the self-check. The result is
// there even when there is an error, as far as it goes: counters that disagree, an effect that is missing
// or that is there without the change, or no time left.
func Do(ctx context.Context, e *Experiment, o Options) (*Result, error) {
	knobs, err := e.knobs(o.Set, o.Full)
	if err != nil {
		return nil, err
	}
	if !o.Full {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, DefaultLimit, fmt.Errorf("no end within %v: set smaller knobs, or run with --full", DefaultLimit))
		defer cancel()
	}
	r := &Result{
		Experiment: e.Name, About: e.About, Started: time.Now(), Seed: o.Seed, Machine: thisMachine(),
		Knobs: knobs, Thread: e.Thread,
	}
	r.Comparison.Change, r.Comparison.Incomparable = e.Change, e.Incomparable
	err = e.both(ctx, r)
	r.Took = time.Since(r.Started).Seconds()
	if err != nil {
		return r, fmt.Errorf("%s: %w; seed %d", e.Name, err, o.Seed)
	}
	return r, nil
}

// both measures before and after. Both draw the same input, so that only the knob differs.
func (e *Experiment) both(ctx context.Context, r *Result) (err error) {
	change := e.change()
	asBefore := maps.Clone(r.Knobs)
	asBefore[change.Name] = change.Before
	if r.Comparison.Before, err = e.once(ctx, r.Seed, asBefore); err != nil {
		return fmt.Errorf("self-check with %s=%s: %w", change.Name, change.Before, err)
	}
	shown, words := e.Effect(r.Comparison.Before)
	r.Comparison.EffectBefore = words
	if shown {
		r.Comparison.SelfCheck = fmt.Sprintf("failed: with %s=%s the effect is there", change.Name, change.Before)
		return fmt.Errorf("self-check: the effect is there with %s=%s: %s", change.Name, change.Before, words)
	}
	if r.Measured, err = e.once(ctx, r.Seed, r.Knobs); err != nil {
		return err
	}
	shown, r.Comparison.EffectAfter = e.Effect(r.Measured)
	set := r.Knobs[change.Name]
	want := set == change.After
	r.Comparison.SelfCheck = selfCheck(change, set, shown == want)
	if shown != want {
		return fmt.Errorf("with %s=%s: %s", change.Name, set, r.Comparison.EffectAfter)
	}
	return nil
}

// selfCheck says what was checked where the change is absent without its knob, as it must be.
func selfCheck(change Knob, set string, passed bool) string {
	absent := fmt.Sprintf("with %s=%s the effect is absent", change.Name, change.Before)
	switch {
	case !passed && set == change.After:
		return fmt.Sprintf("failed: %s, and so it is with %s=%s", absent, change.Name, set)
	case !passed:
		return fmt.Sprintf("failed: %s, and it is there with %s=%s", absent, change.Name, set)
	case set == change.After:
		return fmt.Sprintf("passed: %s, with %s=%s it is there", absent, change.Name, set)
	}
	return fmt.Sprintf("half of it passed: %s; that it is there with %s=%s was not tried, as the run has %s=%s",
		absent, change.Name, change.After, change.Name, set)
}

func (e *Experiment) once(ctx context.Context, seed uint64, knobs map[string]string) (Measured, error) {
	m, err := e.Measure(ctx, Setting{Knobs: knobs, Rand: rand.New(rand.NewPCG(seed, 0x6c6162))})
	if ctx.Err() != nil {
		return m, errors.Join(context.Cause(ctx), err)
	}
	if err != nil {
		return m, err
	}
	if len(m.Agreements) == 0 {
		return m, errors.New("nothing was counted twice")
	}
	for _, a := range m.Agreements {
		err = errors.Join(err, a.check())
	}
	return m, err
}
