//go:build race

package fwpages

// raceDetector: the tests run under the race detector.
const raceDetector = true
