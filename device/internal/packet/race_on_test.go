//go:build race

package packet

// raceDetector makes long loops many times slower; they are shorter under it.
const raceDetector = true
