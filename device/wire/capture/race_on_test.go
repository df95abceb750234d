//go:build race

package capture

// raceDetector makes long loops 50 times slower; they are shorter under it.
const raceDetector = true
