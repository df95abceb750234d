package main

import (
	"os"
	"slices"
	"time"
)

// files times reads of a file of sysfs that makes its driver ask the card.
func files(path string, n int) error {
	var err error
	result("file-read", median(n, func() {
		if _, e := os.ReadFile(path); e != nil {
			err = e
		}
	}), "us")
	return err
}

// median is a call's median time in microseconds.
func median(n int, f func()) float64 {
	times := make([]time.Duration, n)
	for i := range times {
		began := time.Now()
		f()
		times[i] = time.Since(began)
	}
	slices.Sort(times)
	return times[n/2].Seconds() * 1e6
}
