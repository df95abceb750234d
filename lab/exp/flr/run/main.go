// Command run compares the two ways in which the pages of functions that are reset come back.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"cxkit/lab/exp/flr"
)

func main() {
	seed := flag.Uint64("seed", 1, "seed of the card")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *seed); err != nil {
		fmt.Fprintln(os.Stderr, "flr:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, seed uint64) error {
	var results []flr.Result
	var errs []error
	for _, latency := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond} {
		r, err := flr.Measure(ctx, flr.Setting{Latency: latency, Seed: seed})
		if err != nil {
			return err
		}
		results = append(results, r)
		errs = append(errs, r.Check())
	}
	fmt.Printf("seed %d\n\n", seed)
	return errors.Join(append(errs, flr.Write(os.Stdout, results))...)
}
