//go:build linux

package vfio

import (
	"encoding/binary"
	"fmt"
)

// Requests and structures of Linux' include/uapi/linux/vfio.h and iommufd.h. All are _IO(';', n): the number
// says nothing about the argument. Structures are little endian here, as the hosts are.
const (
	ioctlType = ';' << 8

	getAPIVersion     = ioctlType | 100
	checkExtension    = ioctlType | 101
	setIOMMU          = ioctlType | 102
	groupGetStatus    = ioctlType | 103
	groupSetContainer = ioctlType | 104
	groupGetDeviceFD  = ioctlType | 106
	deviceGetInfo     = ioctlType | 107
	deviceGetRegion   = ioctlType | 108
	deviceGetIRQ      = ioctlType | 109
	deviceSetIRQs     = ioctlType | 110
	deviceReset       = ioctlType | 111
	iommuGetInfo      = ioctlType | 112
	iommuMapDMA       = ioctlType | 113
	iommuUnmapDMA     = ioctlType | 114
	deviceBindIOMMUFD = ioctlType | 118
	deviceAttachPT    = ioctlType | 119

	ioasAlloc      = ioctlType | 0x81
	ioasIOVARanges = ioctlType | 0x84
	ioasMap        = ioctlType | 0x85
	ioasUnmap      = ioctlType | 0x86
)

const (
	apiVersion = 0

	type1v2 = 3 // kinds of IOMMU
	noIOMMU = 8

	groupViable = 1 << 0

	deviceResets = 1 << 0 // flags of a device
	deviceIsPCI  = 1 << 1

	regionMMap = 1 << 2 // flags of a region
	regionCaps = 1 << 3

	capSparse = 1 // capabilities of a region

	regionConfig = 7 // VFIO_PCI_CONFIG_REGION_INDEX
	irqMSIX      = 2
	irqError     = 3
	irqRequest   = 4

	irqDataNone  = 1 << 0
	irqDataFD    = 1 << 2
	irqTrigger   = 1 << 5
	mapRead      = 1 << 0
	mapWrite     = 1 << 1
	iommuPages   = 1 << 0 // flags of IOMMU info
	iommuCaps    = 1 << 1
	capRanges    = 1 // capabilities of an IOMMU
	capAvailable = 3

	ioasFixed     = 1 << 0
	ioasWriteable = 1 << 1
	ioasReadable  = 1 << 2
)

// maxInfo bounds an answer of variable length: the kernel's are below a page.
const maxInfo = 64 << 10

func le32(b []byte, off int) uint32 { return binary.LittleEndian.Uint32(b[off:]) }
func le64(b []byte, off int) uint64 { return binary.LittleEndian.Uint64(b[off:]) }

// words is a structure of 32-bit fields. A 64-bit field is two, low half first.
func words(v ...uint32) []byte {
	b := make([]byte, 0, 4*len(v))
	for _, w := range v {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}

func low(v uint64) uint32  { return uint32(v) }
func high(v uint64) uint32 { return uint32(v >> 32) }

// ask is an ioctl whose structure starts with its own length, argsz, which the kernel raises when its answer
// needs more room.
func ask(k kernel, fd int, request uint, b []byte) ([]byte, error) {
	for range 4 {
		binary.LittleEndian.PutUint32(b, uint32(len(b)))
		if _, err := k.ioctl(fd, request, b); err != nil {
			return nil, err
		}
		need := int(le32(b, 0))
		if need <= len(b) {
			return b, nil
		}
		if need > maxInfo {
			return nil, fmt.Errorf("the kernel's answer has %d bytes", need)
		}
		b = append(b, make([]byte, need-len(b))...)
	}
	return nil, fmt.Errorf("the kernel's answer does not stop growing")
}

// capability finds a capability in an answer: the bytes from its header on. first is where the list starts.
func capability(b []byte, first uint32, id uint16) ([]byte, bool) {
	const header = 8
	for range 64 {
		if first < header || int64(first)+header > int64(len(b)) {
			return nil, false
		}
		c := b[first:]
		if binary.LittleEndian.Uint16(c) == id {
			return c, true
		}
		first = le32(c, 4)
	}
	return nil, false
}

// pairs reads n pairs of 64-bit numbers at off.
func pairs(b []byte, off int, n uint32) [][2]uint64 {
	var all [][2]uint64
	for ; n > 0 && off+16 <= len(b); n-- {
		all = append(all, [2]uint64{le64(b, off), le64(b, off+8)})
		off += 16
	}
	return all
}
