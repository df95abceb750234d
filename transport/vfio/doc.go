// Package vfio is a pci.Function of a real card, through Linux VFIO.
//
//	driver ──> Function ──> kernel (container and group, or iommufd and device) ──> card
//	              │
//	              ├ config.go, bar.go   configuration space and BARs: memory of the card where the kernel maps it
//	              ├ vectors.go          MSI-X vectors are eventfds, all enabled by Open
//	              ├ arena.go            memory is pinned, put on the card's NUMA node, and placed by space.go
//	              └ watch.go            a card that is unplugged, or reads as ones, is noticed within a second
//
// The card's bus addresses are a space of their own (type1.go, iommufd.go): what is not an arena it can't
// reach, which the IOMMU sees to. Without an IOMMU (noiommu.go) it reaches all memory of the machine; that
// mode must be asked for by name.
//
// sysfs.go and bind.go find cards and give them to vfio-pci and back. Everything that the kernel is asked
// goes through the interface in kernel.go, and all paths start at Config.Root, so that tests play the kernel.
//
// Registers: PCIe ordering is package mmio's, whose barriers are those of rdma-core's table for each
// architecture. Real cards are driven from amd64 only until somebody has tried another.
package vfio
