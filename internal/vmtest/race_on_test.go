//go:build race

package vmtest

// raceDetector: this test binary is built with it, which makes guests and cards too slow.
const raceDetector = true
