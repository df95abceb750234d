package fwpages

import "fmt"

// Function is whose pages they are.
type Function struct {
	ID uint16
	EC bool // a function of the card's own processor
}

func (f Function) String() string {
	if f.EC {
		return fmt.Sprintf("embedded CPU function %#x", f.ID)
	}
	return fmt.Sprintf("function %#x", f.ID)
}

// Type is the kind of function, as Linux counts pages (mlx5_func_type).
type Type uint8

const (
	// Self is the function that the driver runs.
	Self Type = iota
	// HostPF is the host's function, seen from the card's own processor.
	HostPF
	// VF is a virtual function, SF a subfunction, ECVF a virtual function of the card's processor.
	VF
	SF
	ECVF
	types
)

func (t Type) String() string {
	switch t {
	case Self:
		return "self"
	case HostPF:
		return "host PF"
	case VF:
		return "VF"
	case SF:
		return "SF"
	case ECVF:
		return "EC VF"
	}
	return fmt.Sprintf("type(%d)", uint8(t))
}

// typeOf is the type of a function beside the driver's own (Linux pagealloc.c func_id_to_type). It is
// asked once, when the function is enabled: the card may have forgotten the function when its pages come
// back (reports R06).
func (c *Config) typeOf(f Function) Type {
	switch {
	case f.ID == 0:
		return HostPF
	case int(f.ID) > c.MaxVFs:
		return SF
	case f.EC:
		return ECVF
	}
	return VF
}

// Counts are what has happened to the pages of a function since its start.
type Counts struct {
	Given     uint64 // pages given
	Returned  uint64 // pages that came back in an answer
	Released  uint64 // pages freed because the function was reset
	Doubtful  uint64 // pages of GIVE commands without an answer: firmware may have them
	Withheld  uint64 // pages that a device that is down was not asked for
	BadReturn uint64 // returned addresses that were not given, were given back twice, or are unaligned

	AllocFails uint64 // requests for which there was no memory
	Refused    uint64 // requests answered with "cannot give"
	Nonsense   uint64 // requests without sense: no pages, an offer of a function that has none, a reset not agreed on
	Stale      uint64 // requests dropped because the function was reset before they were served
	GiveFails  uint64 // GIVE commands that did not succeed (Linux give_pages_dropped counts them, too)
	TakeFails  uint64 // TAKE commands that did not succeed (Linux reclaim_pages_discard)
}

func (c *Counts) add(o *Counts) {
	for _, p := range [...][2]*uint64{
		{&c.Given, &o.Given}, {&c.Returned, &o.Returned}, {&c.Released, &o.Released}, {&c.Doubtful, &o.Doubtful},
		{&c.Withheld, &o.Withheld}, {&c.BadReturn, &o.BadReturn}, {&c.AllocFails, &o.AllocFails},
		{&c.Refused, &o.Refused}, {&c.Nonsense, &o.Nonsense}, {&c.Stale, &o.Stale},
		{&c.GiveFails, &o.GiveFails}, {&c.TakeFails, &o.TakeFails},
	} {
		*p[0] += *p[1]
	}
}

// Books are the pages of all functions.
type Books struct {
	Counts
	Out     int    // pages that firmware has, or may have
	Free    int    // pages ready to be given
	Hosts   int    // host pages of which firmware has something
	Dropped uint64 // requests of functions that are not managed here, beyond those that could be answered

	Types     [types]int // pages that firmware has, by type of function
	Functions []FunctionBooks
}

// FunctionBooks are the pages of one function.
type FunctionBooks struct {
	Function
	Type Type
	Counts
	Out, Free, Hosts int
}
