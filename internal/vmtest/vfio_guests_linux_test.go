//go:build linux

package vmtest

import (
	"os"
	"testing"
)

// vfioGuest is a kernel and an IOMMU for TestVFIOInAGuest.
type vfioGuest struct {
	name, kernel string
	iommu        string // QEMU's device
	cmdline      string
	load         []string // modules of the IOMMU
	tests        string   // of drivertest, unless all are asked for
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
	default:
		t.Fatalf("CXKIT_VFIO_IOMMU=%s: amd and virtio are known", name)
		return nil
	}
}
