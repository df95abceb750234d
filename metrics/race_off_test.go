//go:build !race

package metrics_test

// slower is how much slower tests run: not at all.
const slower = 1
