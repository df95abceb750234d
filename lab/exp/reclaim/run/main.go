// Command run runs the experiment on bounded reclaim of firmware pages and prints its tables. It ends with
// an error when a count is not what arithmetic says, or a ratio not what the kernel thread lets expect.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"cxkit/driver"
	"cxkit/lab/exp/reclaim"
)

func main() {
	full := flag.Bool("full", false, "with events of 8 million pages, too")
	limit := flag.Int("limit", driver.DefaultReclaimLimit, "the driver's limit that is checked; 0: none, which must fail")
	seed := flag.Uint64("seed", 1, "seed of the card")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *seed, *limit, *full); err != nil {
		fmt.Fprintln(os.Stderr, "reclaim:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer, seed uint64, limit int, full bool) error {
	var results []reclaim.Result
	var errs []error
	for _, s := range reclaim.Settings(seed, full) {
		r, err := reclaim.Measure(ctx, s)
		if err != nil {
			return fmt.Errorf("%+v: %w", s, err)
		}
		results = append(results, r)
		errs = append(errs, r.Check())
	}
	fmt.Fprintf(w, "seed %d\n\n", seed)
	if err := reclaim.WriteTable(w, results); err != nil {
		return err
	}
	for _, pool := range []driver.MailboxPool{driver.MailboxPoolLinear, driver.MailboxPoolConstant} {
		without, with := find(results, 0, pool), find(results, driver.DefaultReclaimLimit, pool)
		fmt.Fprintf(w, "\nfrees of one command's mailboxes, %v pool\n", pool)
		if err := reclaim.WriteHistograms(w, without, with); err != nil {
			return err
		}
		fmt.Fprintf(w, "a free, median: under %v without the limit, under %v with it, ratio %.0f; longest stall: %v and %v, ratio %.1f\n",
			without.MedianFree(), with.MedianFree(), float64(without.MedianFree())/float64(max(with.MedianFree(), 1)),
			without.Stall, with.Stall, float64(without.Stall)/float64(max(with.Stall, 1)))
		errs = append(errs, reclaim.CheckGain(without, with))
	}
	checked, err := reclaim.Measure(ctx, reclaim.Setting{Event: 1_300_000, Limit: limit, Seed: seed})
	if err != nil {
		return err
	}
	errs = append(errs, checked.CheckBounded())
	p, err := reclaim.Preempt(ctx, reclaim.Setting{Event: 1_300_000, Limit: driver.DefaultReclaimLimit, Seed: seed})
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "\ndefaults, Go's preemption, one processor for all: a task waits up to %v without a reclaim, %v during one\n", p.Quiet, p.Reclaim)
	fmt.Fprint(w, "\na frame's way to the application\n")
	rx, err := reclaim.Receive(ctx, reclaim.Setting{Limit: driver.DefaultReclaimLimit, Seed: seed})
	if err != nil {
		return err
	}
	return errors.Join(append(errs, reclaim.WriteReceiving(w, &rx))...)
}

// find is the result of an event of 1.3 million pages.
func find(results []reclaim.Result, limit int, pool driver.MailboxPool) *reclaim.Result {
	for i := range results {
		if r := &results[i]; r.Event == 1_300_000 && r.Limit == limit && r.Pool == pool && r.HostPage == 0 {
			return r
		}
	}
	return &reclaim.Result{}
}
