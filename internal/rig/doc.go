// Package rig puts cards, wires and transports together for whoever needs a whole NIC: tests, sim, lab
// and cmd. It is the only place outside tests where driver and device meet.
package rig
