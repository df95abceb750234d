// Package rxbench is what the experiments about receive pages have in common: a NIC on a card that is
// stepped by the goroutine that receives, so that a run repeats from its seed, and a stream of TCP segments.
package rxbench
