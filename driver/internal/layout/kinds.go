package layout

import "fmt"

// Kind is a layout.
type Kind uint8

const (
	// Halves is the default.
	Halves Kind = iota
	PerSlot
	Flip
	Striding
	Headroom
)

func (k Kind) String() string {
	names := [...]string{Halves: "halves", PerSlot: "slot", Flip: "flip", Striding: "striding", Headroom: "headroom"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// noPage is no page.
const noPage = ^uint32(0)

func (q *Queue) newLayout(k Kind) layout {
	unit := q.shared.unit
	unitsPerPage, size := 1<<q.shared.shift, (q.config.Size+unit-1)/unit
	perPage := unitsPerPage / size
	switch k {
	case PerSlot:
		return &perSlot{q: q, size: size}
	case Headroom:
		return &perSlot{q: q, first: uint32(headroom / unit), size: unitsPerPage - headroom/unit}
	case Flip:
		if perPage == 2 {
			size = unitsPerPage / 2
		}
		f := &flip{q: q, size: size, perPage: perPage, slots: make([]slot, q.config.Ring)}
		for i := range f.slots {
			f.slots[i].page = noPage
		}
		return f
	case Striding:
		stride := 1
		for stride < size {
			stride *= 2
		}
		return &striding{q: q, order: q.config.Order, step: uint32(stride), perBlock: unitsPerPage << q.config.Order / stride}
	}
	// Twice the ring, and no less than a ring that begins and ends amid pages, and one beside it.
	circle := max((2*q.config.Ring+perPage-1)/perPage, (q.config.Ring+perPage-1)/perPage+2)
	if perPage == 2 {
		size = unitsPerPage / 2
	}
	h := &halves{q: q, step: uint32(size), perPage: perPage, circle: make([]uint32, circle)}
	for i := range h.circle {
		h.circle[i] = noPage
	}
	return h
}

// Need is the most pages that a layout wants for a ring when nothing is with the application.
func Need(k Kind, ring, size, pageSize, order int) int {
	perPage := pageSize / Rounded(size)
	switch k {
	case Halves:
		return max((2*ring+perPage-1)/perPage, (ring+perPage-1)/perPage+2)
	case Striding:
		stride := minUnit
		for stride < size {
			stride *= 2
		}
		perBlock := pageSize << order / stride
		return ((ring+perBlock-1)/perBlock + 2) << order
	}
	return ring
}
