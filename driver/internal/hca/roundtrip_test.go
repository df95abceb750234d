package hca_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"cxkit/device"
	"cxkit/dma"
	"cxkit/driver/internal/hca"
	"cxkit/internal/rig"
	"cxkit/prm"
	"cxkit/transport/inproc"
)

// channelRoundTrip is the time of a goroutine's question to another and its answer.
func channelRoundTrip(n int) time.Duration {
	ask, tell := make(chan int), make(chan int)
	go func() {
		for x := range ask {
			tell <- x
		}
		close(tell)
	}()
	begin := time.Now()
	for i := range n {
		ask <- i
		<-tell
	}
	took := time.Since(begin) / time.Duration(n)
	close(ask)
	<-tell
	return took
}

// The whole way to the model in this process and back, its firmware taking no time: doorbell, the engine's
// goroutine, command, event, interrupt, the vector's goroutine, the caller. In channel round trips of the
// same run, the best of several of each. The goal is 15; twice that is no neighbour's doing.
func TestCommandTakesAtMostFifteenChannelRoundTrips(t *testing.T) {
	ratio, command, unit := commandRoundTrips(t, 100, 200)
	t.Logf("a command takes %v, a channel round trip %v: %.1f", command, unit, ratio)
	if ratio > 30 && !raceEnabled {
		t.Errorf("a command takes %.1f channel round trips, want 15", ratio)
	}
}

func commandRoundTrips(tb testing.TB, attempts, n int) (float64, time.Duration, time.Duration) {
	tb.Helper()
	r, err := rig.New(rig.Config{Device: device.Config{}, Transport: inproc.Config{Kind: dma.Heap}})
	if err != nil {
		tb.Fatal(err)
	}
	defer r.Close()
	fn, err := r.Function(0)
	if err != nil {
		tb.Fatal(err)
	}
	defer fn.Close()
	ctx := context.Background()
	h, err := hca.Up(ctx, hca.Config{Function: fn, Queues: 1, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	in, out := &prm.NopIn{}, &prm.NopOut{}
	var command, unit time.Duration
	for range attempts {
		u := channelRoundTrip(n)
		if unit == 0 || u < unit {
			unit = u
		}
		begin := time.Now()
		for range n {
			if err := h.Objects.Exec(ctx, in, out); err != nil {
				tb.Fatal(err)
			}
		}
		if c := time.Since(begin) / time.Duration(n); command == 0 || c < command {
			command = c
		}
	}
	if err := h.Down(ctx); err != nil {
		tb.Error(err)
	}
	return float64(command) / float64(unit), command, unit
}
