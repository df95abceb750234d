package msix

import (
	"encoding/binary"

	"cxkit/pci"
)

// BARs is the registers of a function with the table and the pending bits where its capability says they
// are: accesses to those go to the table, all others to the endpoint.
type BARs struct {
	endpoint   pci.Endpoint
	table      *Table
	where, pba pci.BARRange
}

// NewBARs puts t into the BARs of ep.
func NewBARs(ep pci.Endpoint, t *Table) BARs {
	info := ep.Info()
	return BARs{endpoint: ep, table: t, where: info.MSIXTable, pba: info.MSIXPBA}
}

// Read reads size bytes (1, 2, 4 or 8, at a multiple of it) at off of a BAR. The value's big-endian
// encoding is the bytes in address order.
func (b *BARs) Read(bar int, off uint64, size int) uint64 {
	if within(b.where, bar, off) {
		return b.read(b.table.Read, off-b.where.Off, size)
	}
	if within(b.pba, bar, off) {
		return b.read(b.table.ReadPending, off-b.pba.Off, size)
	}
	return b.endpoint.ReadBAR(bar, off, size)
}

func (b *BARs) read(from func(uint64, []byte), off uint64, size int) uint64 {
	var p [8]byte
	from(off, p[8-size:])
	return binary.BigEndian.Uint64(p[:])
}

// Write writes size bytes as Read reads them.
func (b *BARs) Write(bar int, off uint64, size int, v uint64) {
	if within(b.where, bar, off) {
		var p [8]byte
		binary.BigEndian.PutUint64(p[:], v)
		b.table.Write(off-b.where.Off, p[8-size:])
		return
	}
	if within(b.pba, bar, off) {
		return
	}
	b.endpoint.WriteBAR(bar, off, size, v)
}

func within(r pci.BARRange, bar int, off uint64) bool {
	return bar == r.BAR && off-r.Off < r.Len
}
