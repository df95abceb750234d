// Package fault says what to break on a card, when, and for whom: fault plans as data.
//
// A Plan is a list of Faults, distributions of firmware's latency, and a seed. A Fault has a Kind (what),
// a window, counts and a probability (when), and selectors (which). Package device carries plans out: it
// wraps the steps between card and driver that a fault concerns, and leaves all others alone, so that a
// card without faults pays nothing for them. This package knows no card: it decides.
//
//	plan := fault.Plan{Seed: 7, Faults: []fault.Fault{
//		{Kind: fault.Late, Opcodes: []prm.Opcode{prm.OpCreateCQ}, Skip: 2, Times: 1, Delay: 50 * time.Millisecond},
//		{Kind: fault.Health, After: time.Second, Health: fault.AssertCX6()},
//	}}
//	card, err := device.New(device.Config{Faults: plan}) // or, while it runs, card.Inject(plan)
//
// # How a fault is chosen
//
// Each time a step comes that a fault concerns (a command ends, an EQE is written, ...) the faults that
// are in force are asked in the order of their plans. A fault is in force from After, counted from its
// plan's start, for For. It concerns what all of its selectors match; an empty selector matches
// everything. Of the steps that it concerns it lets Skip pass, then draws with Probability, and strikes
// at most Times times. The first fault that strikes has the step; the others are not asked. Each fault
// draws from a random source of its own, made of the plan's seed and the fault's place, so that a run is
// the same again whatever other faults are added behind it.
//
// Faults of states (Hang, Health, AllOnes, Removal, InitStuck, Unplug, and the events Module, Power,
// PortErrors and PCIeErrors) concern no step: they begin at After and last For, 0 meaning for good. With Opcodes, Slots or Skip they
// begin when such a command is handed over instead.
package fault
