//go:build linux

package server

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// fileKey names a file, however many file descriptors of it come.
type fileKey struct {
	dev uint64
	ino uint64
}

// sharedFile is a file that a client shares, mapped once and whole however many mappings are in it: a
// guest with an IOMMU sends one for every page.
type sharedFile struct {
	key      fileKey
	bytes    []byte
	writable bool
	sealed   bool // can't be truncated
	users    int
}

// share returns the mapping of the file behind fd with room for size bytes at offset. The caller owes a
// release. fd stays the caller's.
func (s *session) share(fd int, offset, size uint64, write bool) (*sharedFile, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("map: stat: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fmt.Errorf("map of a file of type %#o, want memory", st.Mode&unix.S_IFMT)
	}
	length := uint64(st.Size)
	if offset%pageSize != 0 || offset > length || size > length-offset {
		return nil, fmt.Errorf("map of %#x bytes at %#x of a file of %#x bytes", size, offset, length)
	}
	key := fileKey{st.Dev, st.Ino}
	f := s.files[key]
	if f == nil || uint64(len(f.bytes)) < length && offset+size > uint64(len(f.bytes)) || write && !f.writable {
		// A file that has grown, or that came read-only before, is mapped again; the mapping of before
		// lives as long as its users.
		var err error
		if s.mapped+length > maxMapped {
			return nil, fmt.Errorf("map of a file of %#x bytes beside %#x: %w", length, s.mapped, unix.ENOMEM)
		}
		if f, err = mapFile(fd, key, length); err != nil {
			return nil, err
		}
		s.mapped += length
		s.files[key] = f
	}
	if write && !f.writable {
		s.dropUnused(f)
		return nil, fmt.Errorf("writable map of a read-only file: %w", unix.EACCES)
	}
	f.users++
	return f, nil
}

// maxMapped bounds the address space that one client can take: 64 TiB, half of what there is.
const maxMapped = 1 << 46

func mapFile(fd int, key fileKey, length uint64) (*sharedFile, error) {
	if uint64(int(length)) != length {
		return nil, fmt.Errorf("map of a file of %#x bytes: %w", length, unix.ENOMEM)
	}
	f := &sharedFile{key: key, writable: true}
	var err error
	if f.bytes, err = unix.Mmap(fd, 0, int(length), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE); err == unix.EACCES {
		f.writable = false
		f.bytes, err = unix.Mmap(fd, 0, int(length), unix.PROT_READ, unix.MAP_SHARED|unix.MAP_NORESERVE)
	}
	if err != nil {
		return nil, fmt.Errorf("mmap of %#x bytes: %w", length, err)
	}
	// A peer that truncates its file makes whoever touches the memory fault. A memfd can be sealed against
	// it; QEMU has done so already.
	unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	f.sealed = err == nil && seals&unix.F_SEAL_SHRINK != 0
	return f, nil
}

// release ends one use of f.
func (s *session) release(f *sharedFile) {
	f.users--
	s.dropUnused(f)
}

func (s *session) dropUnused(f *sharedFile) {
	if f.users > 0 {
		return
	}
	if s.files[f.key] == f {
		delete(s.files, f.key)
	}
	s.mapped -= uint64(len(f.bytes))
	unix.Munmap(f.bytes)
}
