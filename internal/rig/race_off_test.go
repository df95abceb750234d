//go:build !race

package rig_test

// raceDetector makes long loops many times slower; they are shorter under it.
const raceDetector = false
