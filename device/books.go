package device

import (
	"math/bits"

	"cxkit/device/internal/command"
	"cxkit/device/internal/object"
)

// Books are what the card holds, function by function, to be compared with what drivers think they have
// lent and created.
type Books struct{ Functions []FunctionBooks }

// FunctionBooks are those of one function.
type FunctionBooks struct {
	// Address is the function's PCI address.
	Address string
	// Phase is how far the function has been brought up: "live", "enabled" or "initialised".
	Phase string
	// Attached: a host is there.
	Attached bool
	// Pages are the pages that firmware holds, PagesWanted those it needs for what there is.
	Pages, PagesWanted int
	// Objects counts objects by kind; kinds without any are left out.
	Objects map[string]int
	// Answered counts the commands that were answered since the card was made, but for MANAGE_PAGES, which
	// firmware asks for.
	Answered uint64
	// Running counts commands between doorbell and answer; Waiting those of them that wait for pages.
	Running, Waiting int
}

// Clean reports whether nothing is left of a driver: no page, object or command.
func (b FunctionBooks) Clean() bool { return b.Pages == 0 && len(b.Objects) == 0 && b.Running == 0 }

// Books returns what the card holds. It waits for the engine's step to end.
func (c *Card) Books() Books {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b Books
	for _, f := range c.functions {
		b.Functions = append(b.Functions, f.books())
	}
	return b
}

func (f *function) books() FunctionBooks {
	b := FunctionBooks{
		Address: f.info.Address, Attached: f.host != nil, Phase: phaseName(f.phase),
		Pages: f.memory.Len(), PagesWanted: f.wantedPages(object.None), Objects: make(map[string]int),
		Answered: f.executor.answered,
		Running:  bits.OnesCount32(f.executor.running), Waiting: bits.OnesCount32(f.executor.waiting),
	}
	for k, n := range f.objectCounts() {
		if n != 0 {
			b.Objects[object.Kind(k).String()] = n
		}
	}
	return b
}

func phaseName(p command.Phase) string {
	switch p {
	case command.Live:
		return "live"
	case command.Enabled:
		return "enabled"
	}
	return "initialised"
}
