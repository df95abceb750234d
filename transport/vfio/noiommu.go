//go:build linux

package vfio

import (
	"fmt"
)

// untranslated is the space of a card without an IOMMU: bus addresses are physical ones. An arena is then
// one piece of physical memory.
type untranslated struct {
	k         kernel
	container int
	pieces    pieces
}

func newUntranslated(k kernel, container, node int) (*untranslated, error) {
	n, err := k.ioctlValue(container, checkExtension, noIOMMU)
	if err != nil {
		return nil, fmt.Errorf("kinds of IOMMU: %w", err)
	}
	if n == 0 {
		return nil, fmt.Errorf("this kernel's VFIO can't do without an IOMMU: it needs CONFIG_VFIO_NOIOMMU, and " +
			"echo 1 > /sys/module/vfio/parameters/enable_unsafe_noiommu_mode")
	}
	if _, err := k.ioctlValue(container, setIOMMU, noIOMMU); err != nil {
		return nil, fmt.Errorf("do without an IOMMU: %w", err)
	}
	return &untranslated{k, container, pieces{k: k, node: node}}, nil
}

// memory returns size bytes for an arena, which is one piece, and where the card finds it.
func (u *untranslated) memory(size int) (mem []byte, bus uint64, free func() error, err error) {
	if mem, bus, err = u.pieces.take(size); err != nil {
		return nil, 0, nil, err
	}
	return mem, bus, func() error {
		u.pieces.give(bus, size)
		return nil
	}, nil
}

// place is never called: the memory of arenas comes from memory.
func (u *untranslated) place([]byte) (bus uint64, err error) {
	return 0, fmt.Errorf("without an IOMMU memory can't be placed")
}

// remove can't take memory away from the card: its user has stopped the card before.
func (u *untranslated) remove(uint64, []byte) error { return nil }

func (u *untranslated) close() { u.k.close(u.container) }

func (u *untranslated) mode() string { return "no IOMMU" }
