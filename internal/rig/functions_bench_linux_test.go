package rig_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cxkit/device"
	"cxkit/driver"
	"cxkit/internal/rig"
)

// BenchmarkFunctionsComeUp brings up a card's functions, all of them with a driver, and takes them down. The
// processor's time is what a loaded machine leaves alone.
func BenchmarkFunctionsComeUp(b *testing.B) {
	for _, functions := range []int{1, 9, 128} {
		b.Run(fmt.Sprint(functions), func(b *testing.B) {
			before := processorTime(b)
			for b.Loop() {
				comeUp(b, functions)
			}
			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N)/1e6, "cpu-ms/op")
			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N)/1e6/float64(functions), "cpu-ms/function")
		})
	}
}

func processorTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func comeUp(b *testing.B, functions int) {
	r, err := rig.New(rig.Config{Device: device.Config{VFs: functions - 1}})
	if err != nil {
		b.Fatal(err)
	}
	var undo []func() error
	defer func() {
		for i := len(undo) - 1; i >= 0; i-- {
			if err := undo[i](); err != nil {
				b.Fatal(err)
			}
		}
	}()
	undo = append(undo, r.Close)
	for i := range functions {
		f, err := r.Function(i)
		if err != nil {
			b.Fatal(err)
		}
		nic, err := driver.Open(b.Context(), f, driver.Config{CheckBuffers: true})
		if err != nil {
			b.Fatal(errors.Join(err, f.Close()))
		}
		undo = append(undo, f.Close, func() error { return nic.Close(b.Context()) })
		if i == 0 && functions > 1 {
			if err := nic.EnableVFs(b.Context(), functions-1); err != nil {
				b.Fatal(err)
			}
		}
	}
}
