//go:build linux

package server

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"cxkit/pci"
	"cxkit/transport/internal/addrspace"
	"cxkit/transport/vfiouser"
	"cxkit/transport/vfiouser/internal/sock"
)

// pageSize is the granule of mappings that is announced.
const pageSize = 4096

// dmaMap answers DMA_MAP.
func (s *session) dmaMap(m *sock.Message, out []byte) ([]byte, error) {
	var r vfiouser.MapRequest
	if err := r.Parse(m.Payload); err != nil {
		return out, err
	}
	if (r.Address|r.Size)%pageSize != 0 {
		return out, fmt.Errorf("map %#x+%#x: not in pages", r.Address, r.Size)
	}
	if r.Flags&^(vfiouser.MapRead|vfiouser.MapWrite) != 0 || r.Flags == 0 {
		return out, fmt.Errorf("map with flags %#x", r.Flags)
	}
	a := addrspace.Mapping{Bus: r.Address, Size: r.Size}
	if r.Flags&vfiouser.MapRead != 0 {
		a.Access |= pci.Read
	}
	if r.Flags&vfiouser.MapWrite != 0 {
		a.Access |= pci.Write
	}
	switch len(m.FDs) {
	case 0:
		if r.Offset != 0 {
			return out, fmt.Errorf("map of offset %#x without a file", r.Offset)
		}
	case 1:
		f, err := s.share(m.FDs[0], r.Offset, r.Size, r.Flags&vfiouser.MapWrite != 0)
		if err != nil {
			return out, err
		}
		a.Bytes, a.MayFault = f.bytes[r.Offset:r.Offset+r.Size:r.Offset+r.Size], !f.sealed
		a.Release = func() { s.release(f) }
	default:
		return out, fmt.Errorf("map with %d file descriptors", len(m.FDs))
	}
	if err := s.space.Map(a); err != nil {
		if a.Release != nil {
			a.Release()
		}
		return out, mapError(err)
	}
	if a.Bytes == nil {
		s.unshared++
	}
	s.stats.maps.Store(int64(s.space.Len()))
	return answer(m, out, func(b []byte) []byte { return b }), nil
}

// mapError puts an error number to an error.
func mapError(err error) error {
	switch {
	case errors.Is(err, addrspace.ErrOverlap):
		return fmt.Errorf("%w: %w", err, unix.EEXIST)
	case errors.Is(err, addrspace.ErrFull):
		return fmt.Errorf("%w: %w", err, unix.ENOSPC)
	}
	return err
}

// dmaUnmap answers DMA_UNMAP: once the engine has left its step, so that the client may do what it likes
// with the memory. The range may be larger than any mapping and hold none, as guests with an IOMMU send it.
func (s *session) dmaUnmap(m *sock.Message, out []byte, mayWait bool) ([]byte, error) {
	var r vfiouser.UnmapRequest
	if err := r.Parse(m.Payload); err != nil {
		return out, err
	}
	first, last := r.Address, r.Address+r.Size-1 // address+size may be 2^64
	switch {
	case r.Flags&vfiouser.UnmapDirty != 0:
		return out, fmt.Errorf("dirty pages are not tracked: %w", unix.EOPNOTSUPP)
	case r.Flags == vfiouser.UnmapAll:
		if r.Address != 0 || r.Size != 0 {
			return out, fmt.Errorf("unmap of all with a range %#x+%#x", r.Address, r.Size)
		}
		first, last = 0, ^uint64(0)
	case r.Flags != 0:
		return out, fmt.Errorf("unmap with flags %#x", r.Flags)
	case r.Size == 0:
		return out, fmt.Errorf("unmap %#x+0", r.Address)
	}
	if s.unshared == 0 || mayWait {
		_, err := s.space.Unmap(first, last)
		if err != nil {
			return out, err
		}
	} else {
		_, ok, err := s.space.TryUnmap(first, last)
		if err != nil {
			return out, err
		}
		if !ok {
			return out, s.putAside(m)
		}
	}
	s.stats.maps.Store(int64(s.space.Len()))
	return answer(m, out, r.Append), nil
}
