//go:build linux

package vfio

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// kernel is what the transport asks of the system, beside files of sysfs. Tests play it.
type kernel interface {
	// open opens a device node for reading and writing.
	open(path string) (fd int, err error)
	close(fd int)
	// ioctl makes a request with a structure, ioctlValue one with a number.
	ioctl(fd int, request uint, arg []byte) (int, error)
	ioctlValue(fd int, request uint, v int) (int, error)
	pread(fd int, p []byte, off int64) (int, error)
	pwrite(fd int, p []byte, off int64) (int, error)
	// mmap maps n bytes of fd at off.
	mmap(fd int, off int64, n int) ([]byte, error)
	// forget replaces a mapping by memory of nobody's; accesses under way do no harm.
	forget(mem []byte) error
	munmap(mem []byte)
	// preferNode asks that mem be allocated on a NUMA node.
	preferNode(mem []byte, node int) error
	// physical is the physical address of each page of pageSize bytes of mem, which is locked into memory.
	physical(mem []byte, pageSize int) ([]uint64, error)
	// hugeFile makes a file of n huge pages of the pool, all there, and maps them in order.
	hugeFile(n, node int) (fd int, mem []byte, err error)
	// inOrder maps pages of such a file in another order; unmapPages ends that. dropPage takes a page out of the file.
	inOrder(fd int, pages []int) (mem []byte, err error)
	unmapPages(mem []byte)
	dropPage(fd, page int)
	// freeHugePages is how many the pool has.
	freeHugePages() int
	// memlock is how much memory this process may lock, and whether it has locked some elsewhere.
	memlock() (limit uint64, unlimited bool)
}

// system is the real kernel.
type system struct{}

func (system) open(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

func (system) close(fd int) { unix.Close(fd) }

func (system) ioctl(fd int, request uint, arg []byte) (int, error) {
	return ioctlBytes(fd, request, arg)
}

func (system) ioctlValue(fd int, request uint, v int) (int, error) {
	n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(v))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

func (system) pread(fd int, p []byte, off int64) (int, error)  { return unix.Pread(fd, p, off) }
func (system) pwrite(fd int, p []byte, off int64) (int, error) { return unix.Pwrite(fd, p, off) }

func (system) mmap(fd int, off int64, n int) ([]byte, error) {
	return unix.Mmap(fd, off, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

func (system) forget(mem []byte) error { return mapOver(mem) }
func (system) munmap(mem []byte)       { unix.Munmap(mem) }

func (system) preferNode(mem []byte, node int) error { return bindNode(mem, node) }

func (system) hugeFile(n, node int) (fd int, mem []byte, err error) {
	fd, err = unix.MemfdCreate("cxkit-dma", unix.MFD_CLOEXEC|unix.MFD_HUGETLB|unix.MFD_HUGE_2MB)
	if err != nil {
		return -1, nil, fmt.Errorf("memfd_create: %w", err)
	}
	size := n * hugePage
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		unix.Close(fd)
		return -1, nil, fmt.Errorf("memfd of %d bytes: %w", size, err)
	}
	// The mapping reserves the pages, so that they can be touched.
	if mem, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		unix.Close(fd)
		return -1, nil, fmt.Errorf("mmap of %d bytes: %w", size, err)
	}
	if node >= 0 {
		_ = bindNode(mem, node) // slower memory is no reason to fail
	}
	for off := 0; off < size; off += hugePage {
		mem[off] = 0
	}
	return fd, mem, nil
}

func (system) inOrder(fd int, pages []int) ([]byte, error) { return mapPages(fd, pages) }
func (system) unmapPages(mem []byte)                       { unmapPages(mem) }

func (system) dropPage(fd, page int) {
	_ = unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(page)*hugePage, hugePage)
}

func (system) freeHugePages() int {
	b, err := os.ReadFile("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return min(max(n, 0), maxHugePages)
}

// maxHugePages bounds how many are looked through: 64 GiB.
const maxHugePages = 1 << 15

func (system) physical(mem []byte, pageSize int) ([]uint64, error) {
	if err := unix.Mlock(mem); err != nil {
		return nil, fmt.Errorf("mlock: %w", err)
	}
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// Documentation/admin-guide/mm/pagemap.rst: 8 bytes a page, bit 63 present, bits 54:0 the frame, which
	// reads as 0 without CAP_SYS_ADMIN.
	system := os.Getpagesize()
	var all []uint64
	for off := 0; off < len(mem); off += pageSize {
		var b [8]byte
		if _, err := f.ReadAt(b[:], int64(addressOf(mem[off:])/uint64(system)*8)); err != nil {
			return nil, err
		}
		entry := le64(b[:], 0)
		frame := entry & (1<<55 - 1)
		if entry>>63 == 0 || frame == 0 {
			return nil, fmt.Errorf("physical addresses are hidden: run as root (CAP_SYS_ADMIN)")
		}
		all = append(all, frame*uint64(system))
	}
	return all, nil
}

const capIPCLock = 14

func (system) memlock() (limit uint64, unlimited bool) {
	status, err := os.ReadFile("/proc/self/status")
	if err == nil {
		for line := range strings.Lines(string(status)) {
			if caps, ok := strings.CutPrefix(line, "CapEff:"); ok {
				v, err := strconv.ParseUint(strings.TrimSpace(caps), 16, 64)
				if err == nil && v>>capIPCLock&1 == 1 {
					return 0, true
				}
			}
		}
	}
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r); err != nil || r.Cur == unix.RLIM_INFINITY {
		return 0, true // what can't be known is left to the kernel
	}
	return r.Cur, false
}
