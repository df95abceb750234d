package dma

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestExportedMemoryIsSeenThroughItsFD(t *testing.T) {
	for _, kind := range []Kind{Shared, Reserved} {
		for _, size := range []int{PageSize, hugePage} {
			a, err := NewExported(size, kind)
			if err != nil {
				t.Fatal(err)
			}
			fd, ok := a.FD()
			if !ok {
				t.Fatalf("%v: no fd", kind)
			}
			other, err := unix.Mmap(fd, 0, size, readWrite, unix.MAP_SHARED)
			if err != nil {
				t.Fatal(err)
			}
			a.Bytes()[size-1] = 0x77
			if other[size-1] != 0x77 {
				t.Errorf("%v: the other mapping reads %#x, want 0x77", kind, other[size-1])
			}
			if err := unix.Ftruncate(fd, 0); err == nil {
				t.Errorf("%v: the memfd can be shrunk under a peer", kind)
			}
			unix.Munmap(other)
			if err := a.Close(); err != nil {
				t.Error(err)
			}
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != unix.EBADF {
				t.Errorf("%v: fd open after Close (%v)", kind, err)
			}
		}
	}
}

func TestReservedMemoryIsNotResident(t *testing.T) {
	const size = 64 << 20
	for name, makeIt := range map[string]func(int, Kind) (*Arena, error){"New": New, "NewExported": NewExported} {
		a, err := makeIt(size, Reserved)
		if err != nil {
			t.Fatal(err)
		}
		if n := residentPages(t, a.Bytes()); n != 0 {
			t.Errorf("%s: %d pages resident, want none", name, n)
		}
		a.Bytes()[5*PageSize] = 1
		if n := residentPages(t, a.Bytes()); n < 1 || n > hugePage/PageSize {
			t.Errorf("%s: %d pages resident after one write", name, n)
		}
		a.Close()
	}
}

func residentPages(t *testing.T, b []byte) (n int) {
	t.Helper()
	vec := make([]byte, len(b)/os.Getpagesize())
	if err := mincore(b, vec); err != nil {
		t.Fatal(err)
	}
	for _, v := range vec {
		n += int(v & 1)
	}
	return n
}

func TestPrivateArenasSayWhichPagesTheyHave(t *testing.T) {
	small, err := New(hugePage-PageSize, Private)
	if err != nil {
		t.Fatal(err)
	}
	defer small.Close()
	if small.Backing() != backedBy4K {
		t.Errorf("below a huge page: %q, want 4k", small.Backing())
	}
	a, err := New(4*hugePage, Private)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for i := 0; i < a.Size(); i += PageSize {
		a.Bytes()[i] = 1
	}
	t.Logf("8 MiB are backed by %q", a.Backing())
	switch a.Backing() {
	case backedByHugetlb:
		if got := smapsKB(t, a.Bytes(), "Private_Hugetlb"); got < a.Size()>>10 {
			t.Errorf("%d KiB on the pool's pages, want %d", got, a.Size()>>10)
		}
	case backedByTHP:
		if addressOf(a.Bytes())%hugePage != 0 {
			t.Errorf("starts at %#x, no huge page boundary", addressOf(a.Bytes()))
		}
		if !strings.Contains(smapsLine(t, a.Bytes(), "VmFlags"), " hg") {
			t.Error("the system was not asked for huge pages")
		}
	case backedBy4K:
		if transparentHugePages() {
			t.Error("huge pages are granted but were not used")
		}
	default:
		t.Errorf("unknown backing %q", a.Backing())
	}
}

func smapsKB(t *testing.T, b []byte, field string) (kb int) {
	t.Helper()
	fmt.Sscanf(strings.TrimPrefix(smapsLine(t, b, field), field+":"), "%d", &kb)
	return kb
}

// smapsLine is a line of the kernel's account of the mapping that holds b.
func smapsLine(t *testing.T, b []byte, field string) string {
	t.Helper()
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	inside := false
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var lo, hi uintptr
		if n, _ := fmt.Sscanf(sc.Text(), "%x-%x ", &lo, &hi); n == 2 {
			inside = addressOf(b) >= lo && addressOf(b) < hi
		} else if inside && strings.HasPrefix(sc.Text(), field+":") {
			return sc.Text()
		}
	}
	t.Fatalf("no %s for the arena in smaps", field)
	return ""
}
