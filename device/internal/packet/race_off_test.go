//go:build !race

package packet

// raceDetector: see race_on_test.go.
const raceDetector = false
