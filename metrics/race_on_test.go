//go:build race

package metrics_test

// slower is how much slower tests run: with the race detector.
const slower = 10
