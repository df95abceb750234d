package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"cxkit/device"
	"cxkit/device/fault"
	"cxkit/internal/control"
	"cxkit/internal/plan"
	"cxkit/stats"
)

// faultFlags choose what breaks. run, serve and vm have the same.
type faultFlags struct {
	Fault string `placeholder:"FILE" type:"path" help:"Break the card by a fault plan (TOML)."`
}

// load reads the plan; without one nothing breaks.
func (f *faultFlags) load(seed uint64) (fault.Plan, error) {
	if f.Fault == "" {
		return fault.Plan{Seed: seed}, nil
	}
	return plan.Load(f.Fault, seed)
}

// Inject breaks the card of a run.
func (c card) Inject(_ context.Context, p fault.Plan) error {
	if c.s.rig == nil {
		return errOutside
	}
	if err := c.s.rig.Card.Inject(p); err != nil {
		return err
	}
	c.s.injected.Store(true)
	return nil
}

// Faults says what struck.
func (c card) Faults(context.Context) ([]fault.Report, error) {
	if c.s.rig == nil {
		return nil, errOutside
	}
	return c.s.rig.Card.Faults(), nil
}

// errOutside: only the model in this process can be told what to do.
var errOutside = errors.New("the card is not in this process: its cable and its firmware are out of reach")

// stormTime is how long the end of a broken run waits for the end of a storm of pages.
const stormTime = 3 * time.Second

// awaitStorm gives firmware the time to give back the pages that a fault made it ask for.
func (s *session) awaitStorm(ctx context.Context) {
	if !slices.ContainsFunc(s.rig.Card.Faults(), func(r fault.Report) bool { return r.Kind == fault.Storm && r.Struck > 0 }) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, stormTime)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		p, err := storm(s.rig.Card)
		if err != nil || p.Phase == string(device.StormOver) && s.nic.PageBooks().Returned >= uint64(p.Returned) {
			return
		}
		select {
		case <-tick.C:
		case <-s.nic.Failed():
			return
		case <-ctx.Done():
			return
		}
	}
}

// flushTime is how long the end of a run waits for frames to be sent: not longer than for a command.
func (c *runCommand) flushTime() time.Duration {
	if c.CommandTimeout > 0 {
		return min(c.CommandTimeout, flushTime)
	}
	return flushTime
}

// broken tells whether the card was given faults.
func (s *session) broken() bool { return len(s.plan.Faults) != 0 || s.injected.Load() }

// lookAtQueues finds what was posted and is not known to be sent. The workers have ended.
func (s *session) lookAtQueues() {
	if !s.opened || s.rig == nil {
		return
	}
	f, card := &s.found, s.rig.Card.Stats(0)
	var posted, received uint64
	for _, w := range s.workers {
		rx, tx := w.rx.Stats(), w.tx.Stats()
		posted += tx.Packets
		received += rx.Packets
		f.unsent += w.tx.Pending()
		f.late = max(f.late, w.flushed)
		f.events += rx.LostEvents + tx.LostEvents + w.untold
		f.raises += rx.LostInterrupts + tx.LostInterrupts
	}
	f.unrung = card.Get("tx_packets_phy") < posted
	if n := s.delivered(); !s.cut && !s.complete() && n > received {
		f.untold = n - received
	}
	f.around, f.back = s.nic.Health(), s.nic.PageBooks().Returned
	f.line = lineErrors(s.counters)
	f.recovers = s.counters.Get("rx_pci_signal_integrity") + s.counters.Get("tx_pci_signal_integrity")
	s.found.downs, s.found.linkDown = s.counters.Get("link_down_events_phy"), !s.nic.Link().Up
}

// lineErrors lists the port's counters of errors on the line that are not zero.
func lineErrors(s stats.Snapshot) string {
	var all []string
	for _, name := range []string{
		"rx_crc_errors_phy", "rx_symbol_err_phy", "rx_fragments_phy", "rx_jabbers_phy", "rx_pcs_symbol_err_phy", "rx_corrected_bits_phy",
	} {
		if n := s.Get(name); n != 0 {
			all = append(all, fmt.Sprintf("%s %d", name, n))
		}
	}
	return strings.Join(all, ", ")
}

// delivered is how many frames the card has put into receive buffers, as it counts itself.
func (s *session) delivered() uint64 {
	card := s.rig.Card.Stats(0)
	n := card.Get("rx_vport_unicast_packets") + card.Get("rx_vport_multicast_packets") + card.Get("rx_vport_broadcast_packets")
	return n - min(n, card.Get("rx_steer_missed_packets")+s.counters.Get("rx_out_of_buffer"))
}

// lostEventTime is how long the end of a broken run waits for frames that the card has delivered: a lost
// event is found after a second.
const lostEventTime = 3 * time.Second

// awaitDelivered gives the driver the time to find frames whose event was lost.
func (s *session) awaitDelivered(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lostEventTime)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		var received uint64
		for i := range s.nic.Queues() {
			received += s.nic.RxQueue(i).Stats().Packets
		}
		if received >= s.delivered() {
			return
		}
		select {
		case <-tick.C:
		case <-s.nic.Failed():
			return
		case <-ctx.Done():
			return
		}
	}
}

// lookAtCard finds what the card did wrong, and what it has kept although its driver is gone.
func (s *session) lookAtCard() error {
	if s.rig != nil {
		s.faults = s.rig.Card.Faults()
		s.found.faults = s.faults
		f := s.rig.Card.Books().Functions[0]
		s.found.left = f.Attached && !f.Clean()
	}
	if s.nic != nil {
		c := s.nic.CommandStats()
		s.found.commands = &c
	}
	return nil
}

// diagnosis is what the driver made of the faults.
func (s *session) diagnosis(err error) string {
	s.found.err = err
	return s.found.diagnosis()
}

// conclude ends the run of a broken card: the error, how to repeat it, and last the diagnosis.
func (s *session) conclude(err error, diagnosis string) error {
	if diagnosis == "" {
		return err
	}
	if err == nil {
		fmt.Fprintf(s.w.err, "cxkit: diagnosis: %s\n", diagnosis)
		return nil
	}
	fmt.Fprintf(s.w.err, "cxkit: %v\n", err)
	fmt.Fprintf(s.w.err, "cxkit: repeat it with --seed %d; the plan's seed is %d\n", s.c.Seed, s.plan.Seed)
	return errDiagnosed{diagnosis, err}
}

// ctlInject is `cxkit ctl inject`.
type ctlInject struct {
	What string   `arg:"" help:"A fault plan's file, or a kind of fault."`
	Keys []string `arg:"" optional:"" name:"key=value" help:"The fault's keys, as in a plan; a comma makes a list."`
}

// Help is what cxkit ctl inject --help adds.
func (ctlInject) Help() string {
	var b strings.Builder
	b.WriteString("Kinds:\n")
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, k := range fault.Kinds() {
		fmt.Fprintf(t, "  %s\t%s\n", k, k.Text())
	}
	t.Flush()
	b.WriteString(`
Keys of all: name, after, for, skip, times, probability, function. docs/faults/README.md has the rest.

Examples:
  cxkit ctl inject docs/faults/lost-eqe.toml
  cxkit ctl inject late opcode=QUERY_VPORT_COUNTER delay=2s times=1
  cxkit ctl inject health synd=0x8 severity=1 rfr=true
  cxkit ctl inject unplug for=6s`)
	return b.String()
}

// Run sends the plan to the card. It is read there: a mistake is the server's to find.
func (i ctlInject) Run(w *world, ctl *ctlCommand) error {
	name, text, err := i.plan()
	if err != nil {
		return usageError{fmt.Errorf("inject: %w", err)}
	}
	return attached(w, ctl.Attach, func(ctx context.Context, c *control.Client) error {
		return c.Inject(ctx, name, text)
	})
}

// plan is the plan's text and what errors call it.
func (i ctlInject) plan() (name, text string, err error) {
	if strings.Contains(i.What, ".") || strings.ContainsRune(i.What, filepath.Separator) {
		if len(i.Keys) != 0 {
			return "", "", fmt.Errorf("%s is a file: it takes no keys", i.What)
		}
		b, err := plan.Read(i.What)
		return i.What, string(b), err
	}
	text, err = plan.FromArguments(i.What, i.Keys)
	return i.What, text, err
}

// ctlFaults is `cxkit ctl faults`.
type ctlFaults struct{}

func (ctlFaults) Run(w *world, ctl *ctlCommand) error {
	return attached(w, ctl.Attach, func(ctx context.Context, c *control.Client) error {
		all, err := c.Faults(ctx)
		if err != nil {
			return err
		}
		if ctl.JSON {
			if all == nil {
				all = []fault.Report{}
			}
			return writeJSON(w.out, all)
		}
		return writeFaults(w.out, all)
	})
}

// writeFaults prints what became of faults.
func writeFaults(w io.Writer, all []fault.Report) error {
	if len(all) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "fault\tkind\tmatched\tstruck\n")
	for _, f := range all {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\n", f.Name, f.Kind, f.Matched, f.Struck)
	}
	return t.Flush()
}

// errDiagnosed is a failed run whose error has been printed: what is left to say is the diagnosis.
type errDiagnosed struct {
	text string
	err  error
}

func (e errDiagnosed) Error() string   { return "diagnosis: " + e.text }
func (e errDiagnosed) Unwrap() error   { return e.err }
func (e errDiagnosed) Is(t error) bool { return errors.Is(e.err, t) }
