// Package lab runs experiments: each reproduces with a knob, before and after, what a kernel thread
// measured on hardware.
//
// An Experiment (folder exp) says which knobs it has and measures once; Do runs it as it must be run to be
// believed:
//
//   - One input is drawn at random each run, so that no figure can be a constant.
//   - What is claimed is counted twice, by counters that don't know each other, and they must agree.
//   - It runs a second time with the knob of the change at 'before'. There the effect must be absent: else
//     something other than the knob makes it, and the run fails.
//
// A Result keeps knobs, what was measured, what the thread says, and the comparison apart, and says what
// can't be compared. Package report makes tables and plots of it.
package lab
