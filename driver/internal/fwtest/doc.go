// Package fwtest is a scripted card for the driver's own tests: a pci.Function on heap memory whose
// firmware is a table of functions. It follows the rules of the interface by default, and breaks any of
// them where a test replaces a function. Only tests use it.
//
// Command handlers run on goroutines of their own, so that commands overlap; inside a synctest bubble all
// of it runs on virtual time.
package fwtest
