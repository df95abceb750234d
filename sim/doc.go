// Package sim gives a program's own tests a NIC and the far end of its wire, with one call:
//
//	nic, far := sim.New(t)
//
// The NIC is package driver's on a ConnectX-5 model in the same process. Nothing is shared between two
// calls; the test's end closes everything and fails the test if the program kept buffers.
package sim
