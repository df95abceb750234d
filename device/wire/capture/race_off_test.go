//go:build !race

package capture

const raceDetector = false
