//go:build !race

package vmtest

const raceDetector = false
