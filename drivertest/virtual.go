package drivertest

import "slices"

// Virtual returns the tests of what a virtual function does as any function does: all but those of the port,
// which is its manager's.
func Virtual() []Test {
	return slices.DeleteFunc(All(), func(t Test) bool { return portOwner(t.Name) })
}

// portOwner reports whether a test is of what only the owner of the port has.
func portOwner(name string) bool {
	switch name {
	case "CountsRunts", "CountsWhatItReceives", "CountsWhatItSends", "CountsFramesWithoutBuffers", "CountersHaveEthtoolsNames":
		return true // counters of the port
	case "CountsFramesLongerThanTheMTU", "VLANTagsDoNotCountForTheMTU", "MTUCanGrow":
		return true // the port's MTU bounds frames
	case "PausesCanBeSet":
		return true // the port's pauses
	case "LinkCanBeSetDown", "LinkSetUnderTrafficKeepsOrder":
		return true // the port's administrative state
	case "CountsFramesNobodyWants", "CountsFramesThatSteeringMisses":
		return true // the filter of addresses in front of steering: an e-switch stands there
	}
	return false
}
