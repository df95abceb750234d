//go:build linux

package vfio

import (
	"fmt"
)

// untranslated is the space of a card without an IOMMU: bus addresses are physical ones. An arena is then
// one piece of physical memory: a page, a huge page, or huge pages that happen to lie side by side.
type untranslated struct {
	k         kernel
	container int
}

func newUntranslated(k kernel, container int) (*untranslated, error) {
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
	return &untranslated{k, container}, nil
}

func (u *untranslated) place(mem []byte) (bus uint64, err error) {
	const page = 4096
	pages, err := u.k.physical(mem, page)
	if err != nil {
		return 0, fmt.Errorf("physical address of memory: %w", err)
	}
	for i, p := range pages {
		if p != pages[0]+uint64(i)*page {
			return 0, fmt.Errorf("without an IOMMU %d bytes must be one piece of physical memory, and page %d is not: "+
				"reserve huge pages (echo 512 > /proc/sys/vm/nr_hugepages, or hugepagesz=1G hugepages=1 on the kernel's command line)", len(mem), i)
		}
	}
	return pages[0], nil
}

// remove can't take memory away from the card: its user has stopped the card before.
func (u *untranslated) remove(uint64, []byte) error { return nil }

func (u *untranslated) close() { u.k.close(u.container) }

func (u *untranslated) mode() string { return "no IOMMU" }
