//go:build linux

// Command guest is what a study runs in the guest beside the kernel's own tools:
//
//	guest probe FILE            sleep a millisecond again and again until SIGTERM; write to FILE how late it woke
//	guest reclaim TRACE PROBE   sum up a function_graph trace of reclaim_pages and what the probe wrote
//	guest hist FILE...          read tables of hist triggers; print them
//	guest gro TRACE             count packets that GRO merged, by their segments and pages
//	guest read FILE READERS RATE SECONDS
//	                            have so many readers read FILE so often a second each; print how often they did
//
// What it prints are lines "@result NAME JSON", which package study reads.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cxkit/examples/kernel/ftrace"
	"cxkit/examples/kernel/study"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("want a command and a file, got %q", args)
	}
	switch args[0] {
	case "probe":
		return probe(args[1])
	case "reclaim":
		if len(args) != 3 {
			return fmt.Errorf("want a trace and the probe's file, got %q", args[1:])
		}
		return reclaim(args[1], args[2])
	case "hist":
		return hist(args[1:])
	case "gro":
		return gro(args[1])
	case "read":
		return read(args[1:])
	}
	return fmt.Errorf("no command %q", args[0])
}

// probeSleep is how long the probe sleeps; delays from longDelay on are noted one by one, maxDelays at most.
const (
	probeSleep = time.Millisecond
	longDelay  = 100 * time.Microsecond
	maxDelays  = 1 << 18
)

// delay is a sleep that ended late.
type delay struct {
	Due  time.Duration `json:"due"` // by CLOCK_MONOTONIC
	Late time.Duration `json:"late"`
}

func monotonic() (time.Duration, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return time.Duration(t.Nano()), err
}

// probe measures how late a task wakes. It makes no garbage and its thread is not shared, so that what it waits
// for is the kernel's scheduler.
func probe(path string) error {
	runtime.LockOSThread()
	debug.SetGCPercent(-1)
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	delays := make([]delay, 0, maxDelays)
	for len(end) == 0 {
		before, err := monotonic()
		if err != nil {
			return err
		}
		rest := syscall.NsecToTimespec(int64(probeSleep))
		for syscall.Nanosleep(&rest, &rest) == syscall.EINTR {
		}
		after, err := monotonic()
		if err != nil {
			return err
		}
		if d := (delay{Due: before + probeSleep, Late: after - before - probeSleep}); d.Late >= longDelay {
			if len(delays) == maxDelays {
				return fmt.Errorf("more than %d sleeps ended late", maxDelays)
			}
			delays = append(delays, d)
		}
	}
	b, err := json.Marshal(delays)
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o644)
}

// reclaim sums a trace up: a round is a call of reclaim_pages, that is one command. The probe's delays are told
// apart: those that lie in the time of the rounds, in part at least, and those from before.
func reclaim(path, delays string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var (
		rounds     []study.Round
		frees      ftrace.Histogram
		begin, end time.Duration
	)
	err = ftrace.Graph(f, func(c ftrace.Call) error {
		switch {
		case c.Name == "dma_pool_free":
			frees.Add(c.Took)
		case c.Name == "reclaim_pages" && c.Depth == 0:
			if len(rounds) == 0 {
				begin = c.At - c.Took
			}
			end = c.At
			rounds = append(rounds, study.Round{Took: c.Took, Frees: frees})
			frees = ftrace.Histogram{}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(rounds) == 0 {
		return fmt.Errorf("%s: no call of reclaim_pages", path)
	}
	b, err := os.ReadFile(delays)
	if err != nil {
		return err
	}
	var all []delay
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	during := study.Stall{}
	for _, d := range all {
		if d.Due+d.Late >= begin && d.Due <= end {
			during.Longest = max(during.Longest, d.Late)
			during.Late++
		}
	}
	during.Window = end - begin
	return errors.Join(print("rounds", rounds), print("stall", during))
}

// read has readers read a file. A reader that is late does not catch up.
func read(args []string) error {
	if len(args) != 4 {
		return fmt.Errorf("want FILE READERS RATE SECONDS, got %q", args)
	}
	var n [3]int
	for i, text := range args[1:] {
		v, err := strconv.Atoi(text)
		if err != nil || v < 1 || v > 10_000 {
			return fmt.Errorf("%q: want 1 to 10,000", text)
		}
		n[i] = v
	}
	var (
		readers sync.WaitGroup
		reads   atomic.Int64
		failure atomic.Pointer[error]
	)
	end := time.After(time.Duration(n[2]) * time.Second)
	stop := make(chan struct{})
	for range n[0] {
		readers.Go(func() {
			tick := time.NewTicker(time.Second / time.Duration(n[1]))
			defer tick.Stop()
			for {
				if _, err := os.ReadFile(args[0]); err != nil {
					failure.Store(&err)
					return
				}
				reads.Add(1)
				select {
				case <-stop:
					return
				case <-tick.C:
				}
			}
		})
	}
	<-end
	close(stop)
	readers.Wait()
	if err := failure.Load(); err != nil {
		return *err
	}
	return print(fmt.Sprintf("reads %d", n[0]), reads.Load())
}

// gro counts merged packets: a row has segments, pages, packets.
func gro(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	counts := make(map[ftrace.Merged]int)
	if err := ftrace.GRO(f, func(m ftrace.Merged) error { counts[m]++; return nil }); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	rows := [][3]int{}
	for m, n := range counts {
		rows = append(rows, [3]int{m.Segments, m.Pages, n})
	}
	return print("merged", rows)
}

// hist prints tables of triggers.
func hist(paths []string) error {
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		entries, dropped, err := ftrace.Trigger(f)
		f.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if dropped > 0 {
			return fmt.Errorf("%s: %d events found no room in the table", path, dropped)
		}
		if err := print("hist "+path, entries); err != nil {
			return err
		}
	}
	return nil
}

func print(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Printf("@result %q %s\n", name, b)
	return err
}
