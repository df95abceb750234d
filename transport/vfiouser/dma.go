package vfiouser

// Flags of a MapRequest.
const (
	MapRead  uint32 = 1 << 0 // the device may read
	MapWrite uint32 = 1 << 1 // the device may write
)

// MapRequest is DMAMap's payload: a range of bus addresses, reached through the file that comes with it,
// or by messages if none does.
type MapRequest struct {
	Flags   uint32
	Offset  uint64 // in the file
	Address uint64
	Size    uint64
}

const mapRequestSize = 32

// Append appends the payload to b.
func (m *MapRequest) Append(b []byte) []byte {
	return append64(append32(b, mapRequestSize, m.Flags), m.Offset, m.Address, m.Size)
}

// Parse decodes a payload.
func (m *MapRequest) Parse(p []byte) error {
	if len(p) < mapRequestSize || u32(p, 0) < mapRequestSize {
		return short("map request", len(p), mapRequestSize)
	}
	m.Flags, m.Offset, m.Address, m.Size = u32(p, 4), u64(p, 8), u64(p, 16), u64(p, 24)
	return nil
}

// Flags of an UnmapRequest.
const (
	UnmapDirty uint32 = 1 << 0 // libvfio-user: with a bitmap of dirty pages
	UnmapAll   uint32 = 1 << 1 // whatever the range says
)

// UnmapRequest is DMAUnmap's payload, and its reply's.
type UnmapRequest struct {
	Flags   uint32
	Address uint64
	Size    uint64 // Address+Size may be 2^64
}

const unmapRequestSize = 24

// Append appends the payload to b.
func (m *UnmapRequest) Append(b []byte) []byte {
	return append64(append32(b, unmapRequestSize, m.Flags), m.Address, m.Size)
}

// Parse decodes a payload.
func (m *UnmapRequest) Parse(p []byte) error {
	if len(p) < unmapRequestSize || u32(p, 0) < unmapRequestSize {
		return short("unmap request", len(p), unmapRequestSize)
	}
	m.Flags, m.Address, m.Size = u32(p, 4), u64(p, 8), u64(p, 16)
	return nil
}

// DMAAccess begins the payload of DMARead, DMAWrite and their replies; data follows in a DMAWrite request
// and a DMARead reply.
type DMAAccess struct {
	Address uint64
	Count   uint64
}

const (
	// DMAAccessSize is its length.
	DMAAccessSize = 16
	// OldDMAAccessSize is its length in QEMU up to 10.2, which has a count of 32 bits and answers DMAWrite
	// with a header only.
	OldDMAAccessSize = 12
)

// Append appends the payload without data to b.
func (m *DMAAccess) Append(b []byte) []byte { return append64(b, m.Address, m.Count) }

// AppendOld appends it as old QEMUs want it.
func (m *DMAAccess) AppendOld(b []byte) []byte {
	return append32(append64(b, m.Address), uint32(m.Count))
}

// Parse decodes a payload and returns the data behind.
func (m *DMAAccess) Parse(p []byte) (data []byte, err error) {
	if len(p) < DMAAccessSize {
		return nil, short("DMA access", len(p), DMAAccessSize)
	}
	m.Address, m.Count = u64(p, 0), u64(p, 8)
	return p[DMAAccessSize:], nil
}
