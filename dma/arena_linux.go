package dma

import (
	"bytes"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const readWrite = unix.PROT_READ | unix.PROT_WRITE

// allocate fills in memory of the arena's kind.
func (a *Arena) allocate() error {
	switch a.kind {
	case Private:
		return a.mapPrivate()
	case Shared:
		return a.mapShared()
	case Reserved:
		return a.mapAnonymous(unix.MAP_NORESERVE, backedByNothing)
	}
	return ErrKind
}

// allocateExported fills in memory with a memfd.
func (a *Arena) allocateExported() error {
	switch a.kind {
	case Shared:
		return a.mapShared()
	case Reserved:
		return a.mapMemfd(a.size, 0, unix.MAP_NORESERVE, backedByNothing)
	}
	return ErrKind
}

// mapPrivate tries huge pages of the pool, then transparent ones, then takes what comes.
func (a *Arena) mapPrivate() error {
	if a.size < hugePage {
		return a.mapAnonymous(0, backedBy4K)
	}
	full := wholeHugePages(a.size)
	flags := unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	if b, err := unix.Mmap(-1, 0, full, readWrite, flags|unix.MAP_HUGETLB); err == nil {
		a.mem, a.backing = b[:a.size:a.size], backedByHugetlb
		a.free = func() error { return unix.Munmap(b) }
		return nil
	}
	// One huge page more, so that the part used starts and ends on huge pages.
	b, err := unix.Mmap(-1, 0, full+hugePage, readWrite, flags)
	if err != nil {
		return fmt.Errorf("mmap: %w", err)
	}
	a.free = func() error { return unix.Munmap(b) }
	a.mem, a.backing = pageAligned(b, a.size, hugePage), backedBy4K
	if transparentHugePages() && unix.Madvise(pageAligned(b, full, hugePage), unix.MADV_HUGEPAGE) == nil {
		a.backing = backedByTHP
	}
	return nil
}

// transparentHugePages reports whether the system grants huge pages to those who ask: madvise succeeds
// even where it is told never to.
func transparentHugePages() bool {
	b, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	return err == nil && !bytes.Contains(b, []byte("[never]"))
}

func wholeHugePages(size int) int { return (size + hugePage - 1) &^ (hugePage - 1) }

func (a *Arena) mapAnonymous(flags int, backing string) error {
	b, err := unix.Mmap(-1, 0, a.size, readWrite, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|flags)
	if err != nil {
		return fmt.Errorf("mmap: %w", err)
	}
	a.mem, a.backing = b, backing
	a.free = func() error { return unix.Munmap(b) }
	return nil
}

// mapShared makes a memfd, on huge pages when the pool has them.
func (a *Arena) mapShared() error {
	if a.size >= hugePage && a.mapMemfd(wholeHugePages(a.size), unix.MFD_HUGETLB, 0, backedByHugetlb) == nil {
		return nil
	}
	if err := a.mapMemfd(a.size, 0, 0, backedBy4K); err != nil {
		return err
	}
	if a.size >= hugePage {
		// Takes effect only where shmem_enabled allows it and then page by page, so the backing stays "4k".
		_ = unix.Madvise(a.mem, unix.MADV_HUGEPAGE)
	}
	return nil
}

// giveBack frees the pages of a memfd: they are zeros again. (MADV_REMOVE does the same, but emulators of a
// process report success and do nothing.)
func (a *Arena) giveBack() bool {
	return unix.Fallocate(a.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, int64(len(a.mem))) == nil
}

func (a *Arena) mapMemfd(size, fdFlags, mapFlags int, backing string) error {
	fd, err := unix.MemfdCreate("cxkit-dma", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|fdFlags)
	if err != nil {
		return fmt.Errorf("memfd_create: %w", err)
	}
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		unix.Close(fd)
		return fmt.Errorf("memfd of %d bytes: %w", size, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		unix.Close(fd)
		return fmt.Errorf("seal a memfd: %w", err)
	}
	b, err := unix.Mmap(fd, 0, size, readWrite, unix.MAP_SHARED|mapFlags)
	if err != nil {
		unix.Close(fd)
		return fmt.Errorf("mmap of a memfd: %w", err)
	}
	a.mem, a.fd, a.backing = b[:a.size:a.size], fd, backing
	a.free = func() error {
		a.fd = -1
		err := unix.Munmap(b)
		unix.Close(fd)
		return err
	}
	return nil
}
