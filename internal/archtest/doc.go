// Package archtest holds the architecture as data and checks the tree against it: who may import
// whom, where unsafe and other modules may be used, that there is no cgo, no init function and no
// package-level state. ARCHITECTURE.md explains the rules. A new folder gets a row here; a rule is not
// edited to make a build pass.
//
// Everything is read from source, all build tags alike, so that a file for another system can't hide.
package archtest
