package flr

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"cxkit/device"
	"cxkit/device/fault"
	"cxkit/driver"
	"cxkit/internal/rig"
	"cxkit/prm"
)

// Setting is what is reset.
type Setting struct {
	Functions int // that are reset together; 0 means 4, as in the kernel's measurement
	Pages     int // of each; 0 means 20,000
	// Batch is how many pages one command takes back; 0 means 768, as Linux does outside of events.
	Batch int
	// Latency is how long firmware takes for a command.
	Latency time.Duration
	Seed    uint64
}

func (s Setting) complete() Setting {
	if s.Functions == 0 {
		s.Functions = 4
	}
	if s.Pages == 0 {
		s.Pages = 20_000
	}
	if s.Batch == 0 {
		s.Batch = 768
	}
	return s
}

// Way is how pages come back.
type Way struct {
	Commands int // that took pages
	Freed    int
	Took     time.Duration
}

// Result is both ways.
type Result struct {
	Setting
	ByPage, AllAtOnce Way
}

// Check holds the counts against arithmetic.
func (r *Result) Check() error {
	var errs []error
	all := r.Functions * r.Pages
	if want := r.Functions * ((r.Pages + r.Batch - 1) / r.Batch); r.ByPage.Commands != want || r.ByPage.Freed != all {
		errs = append(errs, fmt.Errorf("page by page: %d pages in %d commands, want %d in %d", r.ByPage.Freed, r.ByPage.Commands, all, want))
	}
	if r.AllAtOnce.Commands != 0 || r.AllAtOnce.Freed != all {
		errs = append(errs, fmt.Errorf("all at once: %d pages in %d commands, want %d in none", r.AllAtOnce.Freed, r.AllAtOnce.Commands, all))
	}
	return errors.Join(errs...)
}

// Measure gives the functions their pages and resets them, each way.
func Measure(ctx context.Context, s Setting) (r Result, err error) {
	s = s.complete()
	r.Setting = s
	g, err := rig.New(rig.Config{Device: device.Config{Seed: s.Seed}})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	f, err := g.Function(0)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	nic, err := driver.Open(ctx, f, driver.Config{ReclaimLimit: &s.Batch})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, nic.Close(context.WithoutCancel(ctx))) }()
	for i := range s.Functions {
		if err := g.Card.ManagePages(0, function(i)); err != nil {
			return r, err
		}
		nic.ManagePages(function(i).ID)
	}
	if r.ByPage, err = reset(ctx, g, nic, s, func(id device.PageFunction) error { return g.Card.ReturnPages(0, id, s.Pages) }); err != nil {
		return r, err
	}
	r.AllAtOnce, err = reset(ctx, g, nic, s, func(id device.PageFunction) error { return g.Card.ResetPages(0, id) })
	return r, err
}

func function(i int) device.PageFunction { return device.PageFunction{ID: uint16(i + 1)} }

// reset gives all functions their pages, and times their way back.
func reset(ctx context.Context, g *rig.Rig, nic *driver.NIC, s Setting, back func(device.PageFunction) error) (w Way, err error) {
	start := nic.PageBooks()
	base := start.Out
	all := s.Functions * s.Pages
	for i := range s.Functions {
		if err := g.Card.HoardPages(0, function(i), s.Pages); err != nil {
			return w, err
		}
	}
	// Pages count as given when their command is over: a reset that overtakes it leaves them in doubt.
	given := func() bool {
		return nic.PageBooks().Given-start.Given == uint64(all) && nic.CommandStats().InFlight == 0
	}
	if err := until(ctx, given); err != nil {
		return w, err
	}
	latency := func(d time.Duration) error {
		return g.Card.Inject(fault.Plan{Latency: map[prm.Opcode]fault.Latency{prm.OpManagePages: {Min: d, Max: d}}})
	}
	if err := latency(s.Latency); err != nil {
		return w, err
	}
	before, commands := nic.PageBooks(), pageCommands(nic)
	begin := time.Now()
	for i := range s.Functions {
		if err := back(function(i)); err != nil {
			return w, err
		}
	}
	if err := until(ctx, func() bool { return nic.PageBooks().Out == base }); err != nil {
		return w, err
	}
	w.Took = time.Since(begin)
	after := nic.PageBooks()
	w.Freed = int(after.Returned - before.Returned + after.Released - before.Released)
	w.Commands = pageCommands(nic) - commands
	return w, latency(0)
}

func pageCommands(nic *driver.NIC) int {
	for _, c := range nic.CommandStats().Opcodes {
		if c.Opcode == uint16(prm.OpManagePages) {
			return int(c.Count)
		}
	}
	return 0
}

func until(ctx context.Context, done func() bool) error {
	tick := time.NewTicker(100 * time.Microsecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Write prints results, a row each, and the kernel's own figure.
func Write(w io.Writer, results []Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "functions\tpages each\tfirmware\tcommands\tpage by page\tall at once\tratio\t\n")
	for i := range results {
		r := &results[i]
		fmt.Fprintf(t, "%d\t%d\t%v\t%d\t%v\t%v\t%.1f\t\n", r.Functions, r.Pages, r.Latency, r.ByPage.Commands,
			r.ByPage.Took.Round(10*time.Microsecond), r.AllAtOnce.Took.Round(10*time.Microsecond),
			float64(r.ByPage.Took)/float64(max(r.AllAtOnce.Took, 1)))
	}
	fmt.Fprint(t, "4\t\tConnectX-4 Lx\t\t3.18s\t310ms\t10.3\t\n")
	return t.Flush()
}
