// Package drivertest is what every NIC must do, whichever transport serves it: a library of named tests
// that drive a NIC through package driver and look at the far end of its wire.
//
// A Bench is the place of one test: the PCI function under test, the far end of the wire, and the card's
// books. Package internal/rig's tests run the suite on the model in the same process, on heap memory
// under the race detector, on private and shared memory, and with one processor; transports run it
// between processes. Nothing here knows the model, so that the suite also runs against a card that can't
// be seen into: a bench then has no books.
//
// After every test the driver's books must be empty of what it was lent, and the card's books must say
// the same.
package drivertest
