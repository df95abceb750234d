package vfiouser

import "fmt"

// Flags of a DeviceInfo.
const (
	DeviceResets uint32 = 1 << 0
	DevicePCI    uint32 = 1 << 1
)

// DeviceInfo is DeviceGetInfo's payload; a request has zeros.
type DeviceInfo struct {
	Flags   uint32
	Regions uint32
	IRQs    uint32
}

const deviceInfoSize = 16

// Append appends the payload to b.
func (m *DeviceInfo) Append(b []byte) []byte {
	return append32(b, deviceInfoSize, m.Flags, m.Regions, m.IRQs)
}

// Parse decodes a payload.
func (m *DeviceInfo) Parse(p []byte) error {
	if len(p) < deviceInfoSize || u32(p, 0) < deviceInfoSize {
		return short("device info", len(p), deviceInfoSize)
	}
	m.Flags, m.Regions, m.IRQs = u32(p, 4), u32(p, 8), u32(p, 12)
	return nil
}

// Indices of regions (linux/vfio.h); 0 to 5 are the BARs.
const (
	RegionROM    = 6
	RegionConfig = 7
	RegionVGA    = 8
	Regions      = 9
)

// Flags of a RegionInfo.
const (
	RegionReadable uint32 = 1 << 0
	RegionWritable uint32 = 1 << 1
	RegionMappable uint32 = 1 << 2 // the reply carries a file to map
	regionHasCaps  uint32 = 1 << 3
)

// Area is a part of a region.
type Area struct{ Offset, Size uint64 }

// RegionInfo is DeviceGetRegion's payload; a request has Index and Room.
type RegionInfo struct {
	// Room is argsz: in a request the room for the reply's payload, in a reply the room that the full one
	// needs.
	Room   uint32
	Flags  uint32
	Index  uint32
	Size   uint64 // 0 where there is no such region
	Offset uint64 // in the file of a mappable region
	// Sparse are the parts of a mappable region that can be mapped; none means all of it.
	Sparse []Area
}

const (
	regionInfoSize = 32
	capSparseMmap  = 1
	sparseHead     = 16
	maxAreas       = 1024
)

// needs is the length of the payload with its capabilities.
func (m *RegionInfo) needs() int {
	if len(m.Sparse) == 0 {
		return regionInfoSize
	}
	return regionInfoSize + sparseHead + 16*len(m.Sparse)
}

// AppendRequest appends a request's payload.
func (m *RegionInfo) AppendRequest(b []byte) []byte {
	return append64(append32(b, m.Room, 0, m.Index, 0), 0, 0)
}

// Append appends a reply's payload that fits in room bytes: with all capabilities or with none. In the
// short form the flags announce capabilities and their offset is set all the same, else QEMU fails.
func (m *RegionInfo) Append(b []byte, room uint32) []byte {
	flags, capOffset := m.Flags, uint32(0)
	if len(m.Sparse) > 0 {
		flags, capOffset = flags|regionHasCaps, regionInfoSize
	}
	b = append64(append32(b, uint32(m.needs()), flags, m.Index, capOffset), m.Size, m.Offset)
	if len(m.Sparse) == 0 || room < uint32(m.needs()) {
		return b
	}
	b = append32(b, capSparseMmap|1<<16, 0, uint32(len(m.Sparse)), 0) // id 1, version 1, no next
	for _, a := range m.Sparse {
		b = append64(b, a.Offset, a.Size)
	}
	return b
}

// Parse decodes a payload with the capabilities that are in it.
func (m *RegionInfo) Parse(p []byte) error {
	if len(p) < regionInfoSize {
		return short("region info", len(p), regionInfoSize)
	}
	m.Room, m.Flags, m.Index, m.Size, m.Offset = u32(p, 0), u32(p, 4), u32(p, 8), u64(p, 16), u64(p, 24)
	m.Sparse = nil
	if m.Flags&regionHasCaps == 0 {
		return nil
	}
	m.Flags &^= regionHasCaps
	at := uint64(u32(p, 12))
	for range maxAreas {
		if at == 0 || at >= uint64(len(p)) { // the last, or cut off for lack of room
			return nil
		}
		c := p[at:]
		if at < regionInfoSize || len(c) < 8 {
			return fmt.Errorf("region %d: a capability at %d of %d bytes", m.Index, at, len(p))
		}
		if u32(c, 0)&0xffff == capSparseMmap {
			if err := m.parseSparse(c); err != nil {
				return err
			}
		}
		at = uint64(u32(c, 4))
	}
	return fmt.Errorf("region %d: capabilities without end", m.Index)
}

func (m *RegionInfo) parseSparse(c []byte) error {
	if len(c) < sparseHead {
		return short("sparse mmap capability", len(c), sparseHead)
	}
	n := u32(c, 8)
	if n > maxAreas || len(c) < sparseHead+16*int(n) {
		return fmt.Errorf("region %d: %d areas in %d bytes", m.Index, n, len(c))
	}
	if n == 0 { // no part, and without the capability it would be all of it
		m.Flags &^= RegionMappable
		m.Sparse = nil
		return nil
	}
	m.Sparse = make([]Area, n)
	for i := range m.Sparse {
		m.Sparse[i] = Area{u64(c, sparseHead+16*i), u64(c, sparseHead+16*i+8)}
	}
	return nil
}

// RegionAccess begins the payload of RegionRead, RegionWrite and their replies; data follows in a
// RegionWrite request and a RegionRead reply.
type RegionAccess struct {
	Offset uint64
	Region uint32
	Count  uint32
}

// RegionAccessSize is its length.
const RegionAccessSize = 16

// Append appends the payload without data to b.
func (m *RegionAccess) Append(b []byte) []byte {
	return append32(append64(b, m.Offset), m.Region, m.Count)
}

// Parse decodes a payload and returns the data behind.
func (m *RegionAccess) Parse(p []byte) (data []byte, err error) {
	if len(p) < RegionAccessSize {
		return nil, short("region access", len(p), RegionAccessSize)
	}
	m.Offset, m.Region, m.Count = u64(p, 0), u32(p, 8), u32(p, 12)
	return p[RegionAccessSize:], nil
}

// MultiWrite is one write of a RegionWriteMulti message.
type MultiWrite struct {
	RegionAccess
	Data [8]byte
}

const (
	multiHead  = 8
	multiEntry = 24
)

// AppendMulti appends the payload of a RegionWriteMulti request.
func AppendMulti(b []byte, writes []MultiWrite) []byte {
	b = append64(b, uint64(len(writes)))
	for i := range writes {
		b = append(writes[i].RegionAccess.Append(b), writes[i].Data[:]...)
	}
	return b
}

// AppendMultiReply appends the payload of its reply: how many writes were done.
func AppendMultiReply(b []byte, n uint64) []byte { return append64(b, n) }

// ParseMulti calls f for each write of a payload, which may not be kept, after it has checked them all.
func ParseMulti(p []byte, f func(*MultiWrite) error) (n uint64, err error) {
	if len(p) < multiHead {
		return 0, short("multiple writes", len(p), multiHead)
	}
	n = u64(p, 0)
	p = p[multiHead:]
	if n > uint64(len(p)/multiEntry) {
		return 0, fmt.Errorf("%d writes in %d bytes", n, len(p))
	}
	for i := range int(n) {
		if count := u32(p, i*multiEntry+12); count > 8 {
			return 0, fmt.Errorf("write %d of %d bytes", i, count)
		}
	}
	for i := range int(n) {
		var w MultiWrite
		data, _ := w.RegionAccess.Parse(p[i*multiEntry:])
		copy(w.Data[:], data)
		if err := f(&w); err != nil {
			return uint64(i), err
		}
	}
	return n, nil
}
