//go:build !race

package hca_test

// raceEnabled: the race detector makes times meaningless.
const raceEnabled = false
