//go:build linux

package vfio

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// type1 is a container with the IOMMU interface of version 2 (VFIO_TYPE1v2_IOMMU).
type type1 struct {
	k         kernel
	container int
}

// newType1 makes the container's IOMMU, once the group is in it.
func newType1(k kernel, container int) (*translated, error) {
	n, err := k.ioctlValue(container, checkExtension, type1v2)
	if err != nil {
		return nil, fmt.Errorf("kinds of IOMMU: %w", err)
	}
	if n == 0 {
		return nil, fmt.Errorf("this kernel's VFIO has no type1v2 IOMMU: type modprobe vfio_iommu_type1")
	}
	if _, err := k.ioctlValue(container, setIOMMU, type1v2); err != nil {
		return nil, fmt.Errorf("set the IOMMU: %w%s", err, unsafeInterrupts(err))
	}
	windows, granule, err := type1Windows(k, container)
	if err != nil {
		return nil, fmt.Errorf("IOMMU info: %w", err)
	}
	places, err := newAddresses(windows, granule)
	if err != nil {
		return nil, err
	}
	return &translated{&type1{k, container}, places}, nil
}

// unsafeInterrupts explains the refusal that stands for a machine without interrupt remapping.
func unsafeInterrupts(err error) string {
	if err != unix.EPERM {
		return ""
	}
	return ": the IOMMU does not remap interrupts; enable it in the firmware's setup (x2APIC, interrupt remapping), or, " +
		"where every user is trusted, type echo 1 > /sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts"
}

// type1Windows asks which bus addresses may be used. Kernels before 5.4 do not say: then all but those of
// interrupt messages.
func type1Windows(k kernel, container int) (windows []window, granule uint64, err error) {
	info, err := ask(k, container, iommuGetInfo, make([]byte, 24))
	if err != nil {
		return nil, 0, err
	}
	flags := le32(info, 4)
	if flags&iommuPages != 0 {
		pages := le64(info, 8)
		granule = pages & -pages // the smallest
	}
	if flags&iommuCaps != 0 {
		if c, ok := capability(info, le32(info, 16), capRanges); ok && len(c) >= 16 {
			for _, p := range pairs(c, 16, le32(c, 8)) {
				windows = append(windows, window{p[0], p[1]})
			}
			return windows, granule, nil
		}
	}
	return []window{{0, messages - 1}, {messagesEnd, math.MaxUint32}, {math.MaxUint32 + 1, 1<<39 - 1}}, granule, nil
}

// messages..messagesEnd are where x86 machines receive interrupt messages.
const (
	messages    = 0xfee00000
	messagesEnd = 0xfef00000
)

func (t *type1) mode() string { return "VFIO container, type1v2" }

func (t *type1) mapRange(bus, vaddr, size uint64) error {
	m := words(32, mapRead|mapWrite, low(vaddr), high(vaddr), low(bus), high(bus), low(size), high(size))
	_, err := t.k.ioctl(t.container, iommuMapDMA, m)
	return explainMap(err)
}

func (t *type1) unmapRange(bus, size uint64) error {
	m := words(24, 0, low(bus), high(bus), low(size), high(size))
	if _, err := t.k.ioctl(t.container, iommuUnmapDMA, m); err != nil {
		return err
	}
	if got := le64(m, 16); got != size {
		return fmt.Errorf("the kernel unmapped %d bytes", got)
	}
	return nil
}

func (t *type1) close() { t.k.close(t.container) }
