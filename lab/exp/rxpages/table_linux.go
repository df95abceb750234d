package rxpages

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// hugePage is the bytes of a huge page. Others than of 2 MiB are not asked for.
const hugePage = 2 << 20

// What package syscall has no names for (Linux asm-generic/mman-common.h, linux/mman.h).
const (
	adviseHuge   = 14       // MADV_HUGEPAGE
	adviseNoHuge = 15       // MADV_NOHUGEPAGE
	mapHuge2M    = 21 << 26 // MAP_HUGE_2MB
)

const anonymous = syscall.MAP_PRIVATE | syscall.MAP_ANON

// newTable maps size bytes, a multiple of hugePage, on pages of 4 KiB.
func newTable(size int) (table []byte, free func() error, err error) {
	b, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, anonymous)
	if err != nil {
		return nil, nil, fmt.Errorf("%d bytes: %w", size, err)
	}
	if err := syscall.Madvise(b, adviseNoHuge); err != nil && !errors.Is(err, syscall.EINVAL) { // no huge pages in this kernel
		return nil, nil, errors.Join(fmt.Errorf("small pages: %w", err), syscall.Munmap(b))
	}
	fill(b)
	return b, func() error { return syscall.Munmap(b) }, nil
}

// newHugeTable maps size bytes on pages of 2 MiB: reserved ones, else those that the kernel makes for who asks. by
// says which; the table is empty where there are none.
func newHugeTable(size int) (table []byte, by string, free func() error, err error) {
	if b, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, anonymous|syscall.MAP_HUGETLB|mapHuge2M); err == nil {
		fill(b)
		return b, "hugetlb", func() error { return syscall.Munmap(b) }, nil
	}
	b, err := syscall.Mmap(-1, 0, size+hugePage, syscall.PROT_READ|syscall.PROT_WRITE, anonymous)
	if err != nil {
		return nil, "", nil, fmt.Errorf("%d bytes: %w", size, err)
	}
	free = func() error { return syscall.Munmap(b) }
	before := hugeKiB()
	if syscall.Madvise(b, adviseHuge) != nil {
		return nil, "none", free, nil
	}
	fill(b)
	// The system says yes and grants nothing where they are switched off or memory is fragmented.
	if hugeKiB()-before < size>>10*9/10 {
		return nil, "none", free, nil
	}
	return b[hugePage/2:][:size], "madvise", free, nil
}

// hugeKiB is how much of the process' memory is on huge pages.
func hugeKiB() (n int) {
	f, err := os.Open("/proc/self/smaps_rollup")
	if err != nil {
		return 0
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if k, _ := fmt.Sscanf(s.Text(), "AnonHugePages: %d kB", &n); k == 1 {
			break
		}
	}
	return n
}
