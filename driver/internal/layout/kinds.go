package layout

import (
	"fmt"
	"math"
)

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
		perBlock := PerBlock(q.config.Size, q.shared.pages.PageSize(), q.config.Order)
		return &striding{q: q, order: q.config.Order, step: uint32(unitsPerPage << q.config.Order / perBlock), perBlock: perBlock}
	}
	// Twice the ring, and no less than a ring that begins and ends amid pages, and one beside it; but no more
	// than there may be pages: the cursor passes no place that stays without one.
	circle := max((2*q.config.Ring+perPage-1)/perPage, (q.config.Ring+perPage-1)/perPage+2)
	circle = min(circle, q.config.Limit)
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
		perBlock := PerBlock(size, pageSize, order)
		return ((ring+perBlock-1)/perBlock + 2) << order
	}
	return ring
}

// MaxPerBlock is the most frames of a block: references are counted in 16 bits.
const MaxPerBlock = math.MaxUint16

// PerBlock is how many frames of so many bytes Striding has on a block.
func PerBlock(size, pageSize, order int) int {
	stride := minUnit
	for stride < size {
		stride *= 2
	}
	return pageSize << order / stride
}
