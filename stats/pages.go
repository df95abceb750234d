package stats

// FunctionPages are the pages of 4096 bytes that firmware has been lent for one function.
type FunctionPages struct {
	// Function is how firmware names it, Type what it is: "self", "VF", "SF", "host PF" or "EC VF".
	Function uint16 `json:"function"`
	Type     string `json:"type"`
	Out      int    `json:"out"`
	// Given and Returned are pages since the device was opened, GiveFails and TakeFails commands that
	// failed.
	Given     uint64 `json:"given"`
	Returned  uint64 `json:"returned"`
	GiveFails uint64 `json:"give_fails"`
	TakeFails uint64 `json:"take_fails"`
}
