//go:build linux

package vfio

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// ioas is an address space of /dev/iommu (Linux 6.2 and later; a device as a file of its own: 6.6).
type ioas struct {
	k  kernel
	fd int // /dev/iommu
	id uint32
}

// newIOAS binds a device to /dev/iommu and makes its address space.
func newIOAS(k kernel, iommu, device int) (*translated, error) {
	bind := words(16, 0, uint32(iommu), 0)
	if _, err := k.ioctl(device, deviceBindIOMMUFD, bind); err != nil {
		return nil, fmt.Errorf("bind to /dev/iommu: %w%s", err, unsafeInterrupts(err))
	}
	alloc := words(12, 0, 0)
	if _, err := k.ioctl(iommu, ioasAlloc, alloc); err != nil {
		return nil, fmt.Errorf("make an address space: %w", err)
	}
	s := &ioas{k: k, fd: iommu, id: le32(alloc, 8)}
	if _, err := k.ioctl(device, deviceAttachPT, words(12, 0, s.id)); err != nil {
		return nil, fmt.Errorf("attach to the address space: %w", err)
	}
	windows, granule, err := s.windows()
	if err != nil {
		return nil, fmt.Errorf("address ranges: %w", err)
	}
	places, err := newAddresses(windows, granule)
	if err != nil {
		return nil, err
	}
	return &translated{s, places}, nil
}

// windows asks which bus addresses may be used.
func (s *ioas) windows() ([]window, uint64, error) {
	list := make([]byte, 16*8)
	for range 4 {
		at := addressOf(list)
		q := words(32, s.id, uint32(len(list)/16), 0, low(at), high(at), 0, 0)
		_, err := s.k.ioctl(s.fd, ioasIOVARanges, q)
		runtime.KeepAlive(list)
		n := le32(q, 8)
		if errors.Is(err, unix.EMSGSIZE) && n <= maxInfo/16 {
			list = make([]byte, 16*int(n))
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		var windows []window
		for _, p := range pairs(list, 0, n) {
			windows = append(windows, window{p[0], p[1]})
		}
		return windows, le64(q, 24), nil
	}
	return nil, 0, errors.New("the kernel's answer does not stop growing")
}

func (s *ioas) mode() string { return "iommufd" }

func (s *ioas) mapRange(bus, vaddr, size uint64) error {
	m := words(40, ioasFixed|ioasWriteable|ioasReadable, s.id, 0, low(vaddr), high(vaddr), low(size), high(size), low(bus), high(bus))
	_, err := s.k.ioctl(s.fd, ioasMap, m)
	return explainMap(err)
}

func (s *ioas) unmapRange(bus, size uint64) error {
	m := words(24, s.id, low(bus), high(bus), low(size), high(size))
	if _, err := s.k.ioctl(s.fd, ioasUnmap, m); err != nil {
		return err
	}
	if got := le64(m, 16); got != size {
		return fmt.Errorf("the kernel unmapped %d bytes", got)
	}
	return nil
}

func (s *ioas) close() { s.k.close(s.fd) }
