// Package inguest has the tests that run inside a guest, on the guest kernel's own VFIO: the conformance suites
// of transports and of NICs, built as one static binary. Package vmtest's tests put it into a guest, whose
// cards they serve. Outside of a guest it has no tests.
package inguest
