package device

import (
	"encoding/binary"
	"math"

	"cxkit/device/internal/command"
	"cxkit/device/internal/object"
	"cxkit/device/internal/queue"
	"cxkit/device/internal/ring"
	"cxkit/pci"
	"cxkit/prm"
)

// Memory of a process that contexts name by number and offset instead of by page lists (devx). rdma-core's VFIO
// provider makes rings and doorbell records of it. Layouts and meaning: mlx5_ifc.h and mlx5_vfio.c of rdma-core.

// umem is a list of equal pages. Queues hold it.
type umem struct {
	object.Refs
	addrs    []uint64
	shift    uint8  // log2 of the page size
	offset   uint64 // of byte 0 in the first page
	writable bool
}

const (
	logMaxUMEM = 16
	// maxUMEMPages is how many pages all umems of a function may list: the lists are the model's memory.
	maxUMEMPages = 1 << 21
	// maxLogUMEMPage: pages of 2 GiB, rdma-core's largest.
	maxLogUMEMPage = 19
	// Bits of an entry's address.
	umemWrite, umemRead = 1 << 1, 1 << 0
	umemFlags           = 0xff
)

func umemCaps(c *capabilities) {
	c.General.LogMaxUMEM = logMaxUMEM
	c.General.UMEMUID0 = true // a user context is not needed
}

func (f *function) createUMEM(c *command.Call) command.Result {
	var in prm.CreateUMEMIn
	in.Get(c.In)
	list := c.In[prm.CreateUMEMInSize:]
	shift := in.LogPageSize + 12
	switch {
	case in.LogPageSize > maxLogUMEMPage:
		return refuse(prm.StatusBadParameter, synPageSize, "log_page_size %d: at most %d", in.LogPageSize, maxLogUMEMPage)
	case in.NumOfMTT == 0 || in.NumOfMTT > uint64(len(list)/8):
		return refuse(prm.StatusBadInputLength, synUMEMList, "num_of_mtt %d, the list has %d", in.NumOfMTT, len(list)/8)
	case uint64(in.PageOffset) >= 1<<shift:
		return refuse(prm.StatusBadParameter, synPageOffset, "page_offset %#x in pages of %#x bytes", in.PageOffset, uint64(1)<<shift)
	case uint64(f.umemPages)+in.NumOfMTT > maxUMEMPages:
		return refuse(prm.StatusLimitExceeded, synUMEMPages, "%d pages: at most %d in all umems", in.NumOfMTT, maxUMEMPages)
	}
	m := &umem{addrs: make([]uint64, in.NumOfMTT), shift: shift, offset: uint64(in.PageOffset), writable: true}
	for i := range m.addrs {
		e := binary.BigEndian.Uint64(list[8*i:])
		addr := e &^ umemFlags
		if addr&(1<<shift-1) != 0 || addr > math.MaxUint64-1<<shift {
			return refuse(prm.StatusBadParameter, synPageListAddress, "page %#x of %#x bytes", addr, uint64(1)<<shift)
		}
		if e&umemFlags&^(umemRead|umemWrite) != 0 || e&umemRead == 0 {
			return refuse(prm.StatusBadParameter, synUMEMAccess, "entry %#x", e)
		}
		m.addrs[i], m.writable = addr, m.writable && e&umemWrite != 0
	}
	n, ok := f.umems.Add(m)
	if !ok {
		return fault(prm.StatusLimitExceeded, synNoNumber)
	}
	f.umemPages += len(m.addrs)
	c.Reply(&prm.CreateUMEMOut{UMEMID: n})
	return command.Result{}
}

func (f *function) destroyUMEM(c *command.Call) command.Result {
	n := number24(c)
	m, ok := f.umems.Get(n)
	switch {
	case !ok:
		return refuse(prm.StatusBadResource, synNoUMEM, "no umem %#x", n)
	case m.Held():
		return refuse(prm.StatusBadResourceState, synInUse, "%d rings and records are in umem %#x", m.Holders(), n)
	}
	f.umemPages -= len(m.addrs)
	f.umems.Remove(n)
	return command.Result{}
}

// bus is the bus address of byte off, which must be inside.
func (m *umem) bus(off uint64) uint64 {
	at := m.offset + off
	return m.addrs[at>>m.shift] + at&(1<<m.shift-1)
}

// place is where a context says that something lies: in a umem, if valid.
type place struct {
	valid  bool
	umem   uint32
	offset uint64
}

// umemAt finds size bytes of a umem.
func (f *function) umemAt(at place, size int, write bool) (*umem, command.Result) {
	m, ok := f.umems.Get(at.umem)
	if !ok {
		return nil, refuse(prm.StatusBadResource, synNoUMEM, "no umem %#x", at.umem)
	}
	if length := uint64(len(m.addrs))<<m.shift - m.offset; at.offset > length || uint64(size) > length-at.offset {
		return nil, refuse(prm.StatusBadParameter, synUMEMRange, "%d bytes at %#x of umem %#x, which has %d", size, at.offset, at.umem, length)
	}
	if write && !m.writable {
		return nil, refuse(prm.StatusBadParameter, synUMEMAccess, "umem %#x may only be read", at.umem)
	}
	return m, command.Result{}
}

// ringMemory is a ring's memory: of a umem, or of the pages in list. What it uses is added to uses.
func (f *function) ringMemory(at place, list []byte, s ringShape, write bool, uses *object.Uses) (queue.Buffer, command.Result) {
	if !at.valid {
		pages, r := ringPages(list, s)
		if !r.OK() {
			return queue.Buffer{}, r
		}
		return queue.NewBuffer(pages, s.logPage+12, s.bytes), r
	}
	m, r := f.umemAt(at, s.bytes, write)
	if !r.OK() {
		return queue.Buffer{}, r
	}
	// In pages of 4 KiB, as of what a large page may hold beside the ring nothing need be mapped.
	const shift, size = 12, 1 << 12
	in := int(m.bus(at.offset) & (size - 1))
	if in&63 != 0 {
		return queue.Buffer{}, refuse(prm.StatusBadParameter, synPageOffset, "a ring at %#x of umem %#x", at.offset, at.umem)
	}
	addrs := make([]uint64, (in+s.bytes+size-1)>>shift)
	for i := range addrs {
		addrs[i] = m.bus(at.offset+uint64(max(i<<shift-in, 0))) &^ (size - 1)
	}
	*uses = append(*uses, &m.Refs)
	return queue.NewBuffer(ring.New(addrs, shift, in, pci.Read|pci.Write), shift, s.bytes), command.Result{}
}

// recordMemory is a doorbell record, at an offset of a umem or at a bus address.
func (f *function) recordMemory(at place, uses *object.Uses) (queue.Record, command.Result) {
	if !at.valid {
		return queue.NewRecord(at.offset), checkRecord(at.offset)
	}
	m, r := f.umemAt(at, queue.RecordSize, false)
	if !r.OK() {
		return queue.Record{}, r
	}
	addr := m.bus(at.offset)
	if addr&(queue.RecordSize-1) != 0 {
		return queue.Record{}, refuse(prm.StatusBadParameter, synRecordAddress, "dbr_addr %#x of umem %#x: not a multiple of %d",
			at.offset, at.umem, queue.RecordSize)
	}
	*uses = append(*uses, &m.Refs)
	return queue.NewRecord(addr), command.Result{}
}
