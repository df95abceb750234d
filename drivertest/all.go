package drivertest

import "slices"

// All returns every test of the suite. Names are unique; what they have in common is their group.
func All() []Test {
	return slices.Concat(
		lifecycleTests(),
		pageTests(),
		receiveTests(),
		addressTests(),
		spreadTests(),
		offloadTests(),
		sendTests(),
		portTests(),
		countTests(),
		busyTests(),
		apiTests(),
		headerTests(),
		metadataTests(),
		largeTests(),
		packTests(),
		strideTests(),
		largeReceiveTests(),
		fcsTests(),
		ruleTests(),
		ruleKindTests(),
		groupTests(),
		resizeTests(),
		channelTests(),
	)
}
