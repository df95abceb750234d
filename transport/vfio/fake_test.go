//go:build linux

package vfio

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"cxkit/pci"
	"cxkit/transport/internal/addrspace"
	"cxkit/transport/internal/cfgspace"
)

// fake plays the kernel for one card: containers, groups, /dev/iommu and the device, with real eventfds and
// real memory. Its card is an endpoint; without one the BARs are memory that can be mapped.
type fake struct {
	t    testing.TB
	root string

	card   pci.Endpoint
	config *cfgspace.Space
	space  *addrspace.Space // what the card reaches

	mu        sync.Mutex // guards the rest
	next      int
	files     map[int]string // by descriptor
	events    map[uint32][]int
	maps      map[uint64]uint64
	nodes     []int
	calls     int
	failAt    int              // this call fails, 0 for none
	refuse    map[string]error // opens of paths with this end
	windows   []window
	viable    bool
	vectors   int  // that the machine has
	unsafe    bool // no interrupt remapping
	limit     uint64
	unlimited bool
	ones      bool // configuration space reads as ones
	memory    *os.File
	plain     [configSize]byte
	mappedBAR bool
	noType1   bool
	frames    []uint64 // the pool of huge pages: where they are
	dropped   []int    // pages that went back to the pool
	unmapped  int      // bytes of pieces
}

const (
	address   = "0000:08:00.0"
	barStride = 1 << 40
)

// newFake makes a kernel whose sysfs has one card, behind an IOMMU and bound to vfio-pci.
func newFake(t testing.TB, card pci.Endpoint) *fake {
	k := &fake{
		t: t, root: t.TempDir(), card: card, next: 1000, files: map[int]string{}, events: map[uint32][]int{},
		maps: map[uint64]uint64{}, refuse: map[string]error{}, viable: true, vectors: 2048, unlimited: true,
		windows: []window{{0, messages - 1}, {messagesEnd, 1<<39 - 1}},
	}
	k.space = addrspace.New(addrspace.Config{})
	if card != nil {
		k.config = cfgspace.New(card)
	} else {
		copy(k.plain[:], []byte{0xb3, 0x15, 0x17, 0x10, 0, 0, 0x10, 0})
	}
	k.addDevice(address, "vfio-pci", "13")
	k.file("/dev/vfio/vfio", "")
	k.file("/sys/bus/pci/drivers_probe", "")
	t.Cleanup(func() {
		if open := k.left(); len(open) > 0 {
			t.Errorf("left open: %v", open)
		}
		if len(k.maps) > 0 {
			t.Errorf("left mapped: %#x", k.maps)
		}
	})
	return k
}

// file writes a file below the root.
func (k *fake) file(path, text string) {
	k.t.Helper()
	path = k.root + path
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		k.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		k.t.Fatal(err)
	}
}

// link makes path name target, which need not be there.
func (k *fake) link(path, target string) {
	k.t.Helper()
	path = k.root + path
	os.Remove(path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		k.t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		k.t.Fatal(err)
	}
}

// addDevice adds a function to sysfs; driver and group may be "".
func (k *fake) addDevice(address, driver, group string) {
	dir := pciDevices + "/" + address
	k.file(dir+"/vendor", "0x15b3\n")
	k.file(dir+"/device", "0x1017\n")
	k.file(dir+"/class", "0x020000\n")
	k.file(dir+"/numa_node", "1\n")
	k.file(dir+"/driver_override", "(null)\n")
	if driver != "" {
		k.file(pciDrivers+"/"+driver+"/unbind", "")
		k.link(dir+"/driver", "../../drivers/"+driver)
	}
	if group != "" {
		k.file("/sys/kernel/iommu_groups/"+group+"/type", "DMA\n")
		k.link(dir+"/iommu_group", k.root+"/sys/kernel/iommu_groups/"+group)
	}
}

// cdev gives the card a device file of its own and the machine iommufd.
func (k *fake) cdev() {
	k.file("/dev/iommu", "")
	k.file(pciDevices+"/"+address+"/vfio-dev/vfio0/dev", "")
}

// open opens a device node.
func (k *fake) open(path string) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	name := strings.TrimPrefix(path, k.root)
	for end, err := range k.refuse {
		if strings.HasSuffix(name, end) {
			return -1, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
	if err := k.step(); err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return k.add(name)
}

func (k *fake) add(name string) (int, error) {
	k.next++
	k.files[k.next] = name
	if strings.HasPrefix(name, "/dev/vfio/devices/") || name == "device" {
		k.files[k.next] = "device"
		if k.card != nil {
			if err := k.card.Attach(fakeHost{k}); err != nil {
				return -1, err
			}
		}
	}
	return k.next, nil
}

// step counts calls of the kernel, and fails the one that is to fail.
func (k *fake) step() error {
	k.calls++
	if k.calls == k.failAt {
		return unix.EIO
	}
	return nil
}

func (k *fake) left() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []string
	for _, name := range k.files {
		all = append(all, name)
	}
	return all
}

func (k *fake) close(fd int) {
	k.mu.Lock()
	name := k.files[fd]
	delete(k.files, fd)
	if name == "huge pages" {
		unix.Close(fd)
	}
	if name == "device" {
		for index, fds := range k.events {
			k.setEvents(index, nil)
			_ = fds
		}
	}
	if strings.HasPrefix(name, "/dev/vfio/vfio") || name == "/dev/iommu" {
		clear(k.maps)
	}
	k.mu.Unlock()
	if name == "device" && k.card != nil {
		k.card.Detach()
	}
	if name == "" {
		k.t.Errorf("close of descriptor %d, which is not open", fd)
	}
}

func (k *fake) ioctlValue(fd int, request uint, v int) (int, error) {
	k.mu.Lock()
	name := k.files[fd]
	err := k.step()
	k.mu.Unlock()
	if err != nil {
		return 0, err
	}
	switch request {
	case getAPIVersion:
		return apiVersion, nil
	case checkExtension:
		if v == noIOMMU || !k.noType1 {
			return 1, nil
		}
		return 0, nil
	case setIOMMU:
		if k.unsafe {
			return 0, unix.EPERM
		}
		return 0, nil
	case deviceReset:
		if name != "device" {
			return 0, unix.ENOTTY
		}
		if k.card != nil {
			k.card.Reset(pci.ResetFLR)
		}
		return 0, nil
	}
	return 0, unix.ENOTTY
}

func (k *fake) ioctl(fd int, request uint, b []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.step(); err != nil {
		return 0, err
	}
	put := func(off int, v uint32) { binary.LittleEndian.PutUint32(b[off:], v) }
	put64 := func(off int, v uint64) { binary.LittleEndian.PutUint64(b[off:], v) }
	if le32(b, 0) != uint32(len(b)) && request != groupSetContainer && request != groupGetDeviceFD {
		k.t.Errorf("request %#x: argsz %d of %d bytes", request, le32(b, 0), len(b))
	}
	switch request {
	case groupGetStatus:
		if k.viable {
			put(4, groupViable)
		}
		return 0, nil
	case groupSetContainer:
		return 0, nil
	case groupGetDeviceFD:
		if string(b) != address+"\x00" {
			return 0, unix.ENODEV
		}
		return k.add("device")
	case deviceBindIOMMUFD, deviceAttachPT:
		return 0, nil
	case ioasAlloc:
		put(8, 7)
		return 0, nil
	case deviceGetInfo:
		put(4, deviceIsPCI|deviceResets)
		return 0, nil
	case deviceGetRegion:
		index := le32(b, 8)
		size := uint64(0)
		switch {
		case index == regionConfig:
			size = configSize
		case k.card != nil && index < 6:
			size = k.card.Info().BARs[index]
		case index == 0:
			size = 1 << 20
			if k.mappedBAR {
				put(4, regionMMap)
			}
		case index > 8:
			return 0, unix.EINVAL
		}
		put64(16, size)
		put64(24, uint64(index)*barStride)
		return 0, nil
	case deviceGetIRQ:
		switch le32(b, 8) {
		case irqMSIX:
			n := 4
			if k.card != nil {
				n = k.card.Info().Vectors
			}
			put(12, uint32(n))
		case irqError, irqRequest:
			put(12, 1)
		}
		return 0, nil
	case deviceSetIRQs:
		index, n := le32(b, 8), int(le32(b, 16))
		if index == irqMSIX && n > k.vectors {
			return k.vectors, nil
		}
		var fds []int
		for i := range n {
			fd, err := unix.Dup(int(le32(b, 20+4*i)))
			if err != nil {
				return 0, err
			}
			fds = append(fds, fd)
		}
		k.setEvents(index, fds)
		return 0, nil
	case iommuGetInfo:
		return 0, k.iommuInfo(b, put, put64)
	case ioasIOVARanges:
		n := int(le32(b, 8))
		put(8, uint32(len(k.windows)))
		put64(24, 4096)
		if n < len(k.windows) {
			return 0, unix.EMSGSIZE
		}
		list := bytesAt(le64(b, 16), uint64(16*n))
		for i, w := range k.windows {
			binary.LittleEndian.PutUint64(list[16*i:], w.first)
			binary.LittleEndian.PutUint64(list[16*i+8:], w.last)
		}
		return 0, nil
	case iommuMapDMA:
		return 0, k.mapDMA(le64(b, 16), le64(b, 8), le64(b, 24))
	case ioasMap:
		return 0, k.mapDMA(le64(b, 32), le64(b, 16), le64(b, 24))
	case iommuUnmapDMA:
		return 0, k.unmapDMA(le64(b, 8), le64(b, 16))
	case ioasUnmap:
		return 0, k.unmapDMA(le64(b, 8), le64(b, 16))
	}
	k.t.Errorf("request %#x", request)
	return 0, unix.ENOTTY
}

// iommuInfo answers in the two rounds of the kernel's: first how long the answer is.
func (k *fake) iommuInfo(b []byte, put func(int, uint32), put64 func(int, uint64)) error {
	need := 24 + 16 + 16*len(k.windows)
	put(0, uint32(need))
	put(4, iommuPages|iommuCaps)
	put64(8, 4096|2<<20|1<<30)
	if len(b) < need {
		return nil
	}
	put(16, 24)
	copy(b[24:], words(capRanges|1<<16, 0, uint32(len(k.windows)), 0))
	for i, w := range k.windows {
		put64(40+16*i, w.first)
		put64(48+16*i, w.last)
	}
	return nil
}

func (k *fake) mapDMA(bus, vaddr, size uint64) error {
	inside := false
	for _, w := range k.windows {
		inside = inside || bus >= w.first && bus+size-1 <= w.last
	}
	if !inside || vaddr%4096 != 0 || size%4096 != 0 {
		k.t.Errorf("map %#x+%#x of %#x: outside %#x", bus, size, vaddr, k.windows)
		return unix.EINVAL
	}
	if err := k.space.Map(addrspace.Mapping{Bus: bus, Size: size, Bytes: bytesAt(vaddr, size), Access: pci.Read | pci.Write}); err != nil {
		return unix.EEXIST
	}
	k.maps[bus] = size
	return nil
}

func (k *fake) unmapDMA(bus, size uint64) error {
	if k.maps[bus] != size {
		k.t.Errorf("unmap %#x+%#x, which is not mapped so", bus, size)
		return unix.EINVAL
	}
	delete(k.maps, bus)
	_, err := k.space.Unmap(bus, bus+size-1)
	return err
}

// setEvents replaces eventfds. Runs with mu held.
func (k *fake) setEvents(index uint32, fds []int) {
	for _, fd := range k.events[index] {
		unix.Close(fd)
	}
	k.events[index] = fds
}

// raise signals an interrupt.
func (k *fake) raise(index uint32, vector int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if fds := k.events[index]; vector >= 0 && vector < len(fds) {
		if _, err := unix.Write(fds[vector], []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
			k.t.Error(err)
		}
	}
}

func (k *fake) pread(fd int, p []byte, off int64) (int, error) {
	at := int(off % barStride)
	switch bar := int(off / barStride); {
	case bar == regionConfig && k.readsOnes():
		for i := range p {
			p[i] = 0xff
		}
	case bar == regionConfig && k.config == nil:
		copy(p, k.plain[at:])
	case bar == regionConfig:
		if err := k.config.Read(at, p); err != nil {
			return 0, unix.EINVAL
		}
	case k.card == nil:
		return len(p), nil
	default:
		v := k.card.ReadBAR(bar, uint64(at), len(p))
		for i := range p {
			p[i] = byte(v >> (8 * (len(p) - 1 - i)))
		}
	}
	return len(p), nil
}

func (k *fake) pwrite(fd int, p []byte, off int64) (int, error) {
	at := int(off % barStride)
	switch bar := int(off / barStride); {
	case bar == regionConfig && k.config == nil:
		copy(k.plain[at:], p)
	case bar == regionConfig:
		if _, err := k.config.Write(at, p); err != nil {
			return 0, unix.EINVAL
		}
	case k.card == nil:
	default:
		var v uint64
		for _, b := range p {
			v = v<<8 | uint64(b)
		}
		k.card.WriteBAR(bar, uint64(at), len(p), v)
	}
	return len(p), nil
}

func (k *fake) readsOnes() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ones
}

func (k *fake) setOnes(ones bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ones = ones
}

func (k *fake) mmap(fd int, off int64, n int) ([]byte, error) {
	f, err := os.CreateTemp(k.root, "bar")
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(int64(n)); err != nil {
		return nil, err
	}
	k.memory = f
	return system{}.mmap(int(f.Fd()), 0, n)
}

func (k *fake) forget(mem []byte) error { return system{}.forget(mem) }
func (k *fake) munmap(mem []byte)       { system{}.munmap(mem) }

func (k *fake) preferNode(mem []byte, node int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.nodes = append(k.nodes, node)
	return nil
}

// physical says where huge pages are that hugeFile gave: by k.frames.
func (k *fake) physical(mem []byte, pageSize int) ([]uint64, error) {
	if pageSize != hugePage || len(mem)/hugePage > len(k.frames) {
		return nil, fmt.Errorf("physical addresses of %d bytes in pages of %d", len(mem), pageSize)
	}
	return k.frames[:len(mem)/hugePage], nil
}

// The pool of huge pages: a file of small ones.
func (k *fake) hugeFile(n, _ int) (fd int, mem []byte, err error) {
	if n > len(k.frames) {
		return -1, nil, unix.ENOMEM
	}
	if fd, err = unix.MemfdCreate("huge", unix.MFD_CLOEXEC); err != nil {
		return -1, nil, err
	}
	if err := unix.Ftruncate(fd, int64(n)*hugePage); err != nil {
		return -1, nil, err
	}
	mem, err = unix.Mmap(fd, 0, n*hugePage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	for i := range n {
		mem[i*hugePage] = byte(i + 1)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.files[fd] = "huge pages"
	return fd, mem, err
}

func (k *fake) inOrder(fd int, pages []int) ([]byte, error) { return mapPages(fd, pages) }

func (k *fake) unmapPages(mem []byte) {
	k.mu.Lock()
	k.unmapped += len(mem)
	k.mu.Unlock()
	unmapPages(mem)
}

func (k *fake) dropPage(_, page int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dropped = append(k.dropped, page)
}

func (k *fake) freeHugePages() int { return len(k.frames) }

func (k *fake) memlock() (uint64, bool) { return k.limit, k.unlimited }

func (k *fake) nodesAsked() []int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.nodes)
}

// fakeHost is what the card sees.
type fakeHost struct{ k *fake }

func (h fakeHost) Memory() pci.Memory { return h.k.space }
func (h fakeHost) Raise(vector int)   { h.k.raise(irqMSIX, vector) }

// settings opens functions on this kernel.
func (k *fake) settings() Config { return Config{Root: k.root, kernel: k} }
