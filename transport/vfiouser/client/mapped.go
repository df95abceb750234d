//go:build linux

package client

import (
	"runtime"

	"golang.org/x/sys/unix"

	"cxkit/dma"
	"cxkit/pci"
	"cxkit/transport/vfiouser"
)

// mapped is a part of a BAR that is the server's memory: registers there are written without a message. They
// are read by message, which drivers do not do where it matters.
type mapped struct {
	part  pci.Mapped
	bytes []byte // of the part
}

// mapRegion maps a region's part if the server has described one that can't harm: inside the region, and in
// memory that can't be taken away again. Everything else is reached by messages.
func (f *Function) mapRegion(bar int, r *vfiouser.RegionInfo, file int) {
	if f.mapped != nil || file < 0 || r.Flags&vfiouser.RegionMappable == 0 || len(r.Sparse) != 1 {
		return
	}
	a := r.Sparse[0]
	if a.Size == 0 || a.Offset%dma.PageSize != 0 || a.Size%dma.PageSize != 0 || a.Offset > r.Size || a.Size > r.Size-a.Offset {
		return
	}
	var st unix.Stat_t
	if unix.Fstat(file, &st) != nil || r.Offset%dma.PageSize != 0 ||
		r.Offset > uint64(st.Size) || a.Offset+a.Size > uint64(st.Size)-r.Offset {
		return
	}
	if seals, err := unix.FcntlInt(uintptr(file), unix.F_GET_SEALS, 0); err != nil || seals&unix.F_SEAL_SHRINK == 0 {
		return
	}
	b, err := unix.Mmap(file, int64(r.Offset+a.Offset), int(a.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return
	}
	f.mapped = &mapped{part: pci.Mapped{BARRange: pci.BARRange{BAR: bar, Off: a.Offset, Len: a.Size}}, bytes: b}
	// Windows are used until the last of them is forgotten, whatever becomes of the function.
	runtime.AddCleanup(f, func(b []byte) { unix.Munmap(b) }, b)
}

// store writes a register: partner is the card's load of the same word.
func (m *mapped) store(off, size int, v uint64) {
	if size == 8 {
		dma.StoreBE64(m.bytes, off, v)
	} else {
		dma.StoreBE32(m.bytes, off, uint32(v))
	}
}
