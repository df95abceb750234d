//go:build linux

package vmtest

import (
	"os"
	"path/filepath"
	"testing"
)

// vfioGuest is a kernel and an IOMMU for TestVFIOInAGuest.
type vfioGuest struct {
	name, kernel string
	iommu        string // QEMU's device
	cmdline      string
	load         []string // modules of the IOMMU
	modules      []string // files of modules in place of the kernel's
	tests        string   // of drivertest, unless all are asked for
	skip         string   // of all suites, what this machine can't do
}

// few and chosen are tests of drivertest, for the quick look at an older kernel and for the gate.
const (
	few    = "OpensAgainAfterClose|ReceivesEveryLengthInOrder|SendsEveryLengthInOrder|SendAndReceiveAtTheSameTime"
	chosen = few + "|OpensWithManyQueues|CloseUnderTraffic|CountsFramesWithoutBuffers|RSSKeepsFlowsInOrderOnOneQueue|JumboFromTheStart|" +
		"InsertsChecksums|CutsLargeSends|StridingQueueTakesJumboFrames|ForwardsWithoutCopying"
)

// intelIOMMU is what the gate uses.
func intelIOMMU(kernel, tests string) vfioGuest {
	return vfioGuest{name: kernel, kernel: kernel, iommu: "intel-iommu,intremap=on,caching-mode=on", cmdline: "intel_iommu=on iommu=pt", tests: tests}
}

// vfioGuests are those that the environment asks for.
func vfioGuests(t testing.TB) []vfioGuest {
	t.Helper()
	switch name := os.Getenv("CXKIT_VFIO_IOMMU"); name {
	case "":
		return []vfioGuest{intelIOMMU("6.12", chosen), intelIOMMU("6.1", few)}
	case "amd": // Debian's cloud kernels do not know it
		return []vfioGuest{{name: "6.12-full-amd", kernel: "6.12-full", iommu: "amd-iommu,intremap=on,device-iotlb=on,dma-remap=on", cmdline: "iommu=nopt", tests: chosen}}
	case "virtio":
		return []vfioGuest{{name: "6.12-virtio", kernel: "6.12", iommu: "virtio-iommu-pci", cmdline: "iommu=pt", load: []string{"virtio_iommu"}, tests: chosen}}
	case "iommufd": // no kernel of Debian's has it
		g := intelIOMMU("6.12", chosen)
		g.name, g.modules = "6.12-iommufd", vfioModules(t)
		return []vfioGuest{g}
	case "none":
		// Nothing keeps a card from memory that is not its own.
		return []vfioGuest{{
			name: "6.12-none", kernel: "6.12", cmdline: "hugepages=160", tests: chosen, modules: vfioModules(t),
			skip: "TestTransport/(DMAOutsideArenasIsRefused|ClosedArenasAreUnmapped|ClosingAnArenaWaitsForTheStep|GenerationChangesWhenMemoryGoes)",
		}}
	default:
		t.Fatalf("CXKIT_VFIO_IOMMU=%s: amd, virtio, iommufd and none are known", name)
		return nil
	}
}

// vfioModules are modules of the kernel's VFIO that were built with more switched on than Debian has.
func vfioModules(t testing.TB) []string {
	t.Helper()
	dir := os.Getenv("CXKIT_VFIO_MODULES")
	names, err := filepath.Glob(filepath.Join(dir, "*.ko"))
	if dir == "" || err != nil || len(names) == 0 {
		t.Fatalf("CXKIT_VFIO_MODULES=%q: want a folder with iommufd.ko, vfio.ko, vfio-pci.ko, vfio-pci-core.ko and vfio_iommu_type1.ko", dir)
	}
	return names
}
